//! Answers that break the protocol.

use std::time::Duration;

use tokio::time::Instant;
use worker_contract::{Next, Reason};

use crate::support::{
    Host, Server, Step,
    server::{Asked, frame},
};

/// The first request gets the broken answer, the others honest ones. The first poll must bring no value and the
/// second one all values.
async fn broken_once(
    points: &[&str],
    broken: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static,
    next: Next,
    what: &str,
) {
    let server = Server::start(move |asked| match asked.number {
        0 => vec![Step::Send(broken(asked))],
        _ => asked.honest(),
    })
    .await;
    let mut host = Host::connected(server.address, 3000).await;
    let points: Vec<String> = points.iter().map(|p| (*p).to_owned()).collect();
    host.station(1, "unit_id = 1", &points);
    let start = Instant::now();
    let polled = host.poll(1).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{what}: refused at once");
    assert_eq!(polled.bad().len(), points.len(), "{what}: {polled:?}");
    assert!(polled.bad().values().all(|r| *r == Reason::Protocol), "{what}: {polled:?}");
    assert_eq!(polled.only_error().next, next, "{what}: {polled:?}");
    let again = host.poll(1).await;
    assert_eq!((again.bad().len(), again.samples.len()), (0, points.len()), "{what}: {again:?}");
    assert_eq!(server.connections(), if next == Next::Reconnect { 2 } else { 1 }, "{what}");
}

const FOUR: [&str; 4] = [
    "address = 'hr:0'\ndata_type = 'u16'",
    "address = 'hr:1'\ndata_type = 'u16'",
    "address = 'hr:2'\ndata_type = 'u16'",
    "address = 'hr:3'\ndata_type = 'u16'",
];

#[tokio::test]
async fn m2_an_answer_with_6_or_10_bytes_instead_of_8_brings_no_value() {
    for bytes in [6_u8, 10] {
        let broken = move |asked: &Asked| asked.frame(&[&[3, bytes][..], &vec![0x55; usize::from(bytes)]].concat());
        broken_once(&FOUR, broken, Next::Retry, &format!("{bytes} bytes")).await;
    }
}

#[tokio::test]
async fn m3_one_byte_for_20_coils_brings_no_value() {
    let points: Vec<String> = (0..20).map(|i| format!("address = 'co:{i}'")).collect();
    let points: Vec<&str> = points.iter().map(String::as_str).collect();
    broken_once(&points, |asked| asked.frame(&[1, 1, 0xFF]), Next::Retry, "one byte").await;
}

#[tokio::test]
async fn m4_function_4_for_function_3_brings_no_value() {
    let broken = |asked: &Asked| Asked { function: 4, ..*asked }.answer();
    broken_once(&FOUR, broken, Next::Retry, "function 4").await;
    broken_once(&FOUR, |asked| asked.frame(&[0x84, 2]), Next::Retry, "exception of function 4").await;
}

#[tokio::test]
async fn m5_an_impossible_frame_length_is_refused_at_once_and_costs_the_connection() {
    for length in [0_u16, 1, 2, 255, 65535] {
        let broken = move |asked: &Asked| frame(asked.tid, asked.unit, length, &asked.pdu());
        broken_once(&FOUR, broken, Next::Reconnect, &format!("length {length}")).await;
    }
    let broken = |asked: &Asked| frame(asked.tid, asked.unit, 5, &asked.pdu());
    broken_once(&FOUR, broken, Next::Reconnect, "length shorter than the PDU").await;
    let broken = |asked: &Asked| [&asked.tid.to_be_bytes()[..], &[0, 1, 0, 11, 1], &asked.pdu()].concat();
    broken_once(&FOUR, broken, Next::Reconnect, "protocol 1").await;
    broken_once(&FOUR, |asked| asked.frame(&[0x83, 2, 0]), Next::Reconnect, "exception of three bytes").await;
}

#[tokio::test]
async fn m5_memory_stays_flat_over_many_broken_connections() {
    let server = Server::start(|asked| vec![Step::Send(frame(asked.tid, asked.unit, 65535, &[0x55; 4000]))]).await;
    let mut host = Host::connected(server.address, 1000).await;
    host.registers(1, "", [1]);
    let mut before = 0;
    for round in 0..400 {
        assert_eq!(host.poll(1).await.only_error().next, Next::Reconnect);
        if round == 100 {
            before = resident_kib();
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 8192, "{grown} KiB more");
}

/// How much memory the process holds.
pub fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
