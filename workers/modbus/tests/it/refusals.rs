//! Devices that refuse.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use worker_contract::{Reason, Value};

use crate::{
    malformed::resident_kib,
    support::{Host, Server, Step},
};

fn values(addresses: std::ops::Range<u16>) -> BTreeMap<u32, i64> {
    (0..).zip(addresses).map(|(point, address)| (point, i64::from(address))).collect()
}

#[tokio::test]
async fn m8_an_hour_of_exception_11_keeps_the_connection_and_the_memory_and_the_first_good_poll_clears_it() {
    let online = Arc::new(AtomicBool::new(false));
    let server = Server::start({
        let online = Arc::clone(&online);
        move |asked| match online.load(Ordering::SeqCst) {
            true => asked.honest(),
            false => vec![Step::Send(asked.exception(11))],
        }
    })
    .await;
    let mut host = Host::connected(server.address, 5000).await;
    host.registers(1, "", 0..4);
    let all_bad: BTreeMap<u32, Reason> = (0..4).map(|p| (p, Reason::Exception(11))).collect();
    let mut before = 0;
    // Ten times a second for an hour, without the pauses.
    for round in 0..36_000 {
        let polled = host.poll(1).await;
        assert_eq!((polled.bad(), polled.errors.len(), polled.requests), (all_bad.clone(), 0, 1));
        if round == 1000 {
            before = resident_kib();
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 8192, "{grown} KiB more");
    online.store(true, Ordering::SeqCst);
    assert_eq!(host.poll(1).await.ints(), values(0..4));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn m9_exception_6_is_bad_with_its_code_and_neither_zero_nor_the_last_value() {
    let server = Server::start(|asked| match asked.number % 2 {
        0 => asked.honest(),
        _ => vec![Step::Send(asked.exception(6))],
    })
    .await;
    let mut host = Host::connected(server.address, 5000).await;
    host.registers(1, "", [500]);
    for _ in 0..3 {
        assert_eq!(host.poll(1).await.ints(), [(0, 500)].into());
        let polled = host.poll(1).await;
        assert_eq!(polled.samples, [(0, Err(Reason::Exception(6)))].into());
        assert_eq!(polled.requests, 1, "a busy device is not asked in pieces");
    }
}

#[tokio::test]
async fn m12_498_registers_on_a_device_that_takes_50_at_once_are_all_good() {
    for code in [2, 3] {
        let server = Server::start(move |asked| match asked.count {
            ..=50 => asked.honest(),
            _ => vec![Step::Send(asked.exception(code))],
        })
        .await;
        let mut host = Host::connected(server.address, 5000).await;
        host.registers(1, "max_registers = 50", 100..598);
        let polled = host.poll(1).await;
        assert_eq!((polled.ints(), polled.requests), (values(100..598), 10));
        // Without the setting the driver finds requests that the device takes, and keeps to them.
        host.registers(2, "", 100..598);
        assert_eq!(host.poll(2).await.ints(), values(100..598));
        let again = host.poll(2).await;
        assert_eq!((again.ints(), again.requests), (values(100..598), host.driver.requests(2)));
        assert!(again.requests <= 16, "{} requests", again.requests);
    }
}

#[tokio::test]
async fn m13_the_last_registers_are_read() {
    let server = Server::start(|asked| asked.honest()).await;
    let mut host = Host::connected(server.address, 5000).await;
    let points =
        ["address = 'hr:65535'\ndata_type = 'u16'".to_owned(), "address = 'hr:65534'\ndata_type = 'u32'".to_owned()];
    host.station(1, "", &points);
    let polled = host.poll(1).await;
    assert_eq!(polled.ints(), [(0, 65535), (1, 0xFFFE_FFFF)].into());
    assert_eq!(polled.requests, 1);
}

#[tokio::test]
async fn m17_one_refused_register_is_bad_alone_and_the_plan_remembers() {
    let server = Server::start(|asked| match asked.covers(137) {
        true => vec![Step::Send(asked.exception(2))],
        false => asked.honest(),
    })
    .await;
    let mut host = Host::connected(server.address, 5000).await;
    host.registers(1, "", 100..200);
    let mut want = values(100..200);
    want.remove(&37);
    let polled = host.poll(1).await;
    assert_eq!((polled.ints(), polled.bad()), (want.clone(), [(37, Reason::Exception(2))].into()));
    assert_eq!(polled.errors, Vec::new());
    let requests = host.driver.requests(1);
    assert!(requests <= 8, "{requests} requests");
    for _ in 0..3 {
        let polled = host.poll(1).await;
        assert_eq!((polled.ints(), polled.requests), (want.clone(), requests));
    }
}

#[tokio::test]
async fn m17_a_device_that_refuses_everything_is_asked_once_for_each_value() {
    let server = Server::start(|asked| vec![Step::Send(asked.exception(2))]).await;
    let mut host = Host::connected(server.address, 5000).await;
    host.registers(1, "", 0..300);
    for _ in 0..3 {
        let polled = host.poll(1).await;
        assert_eq!(polled.bad().len(), 300);
        assert!(polled.requests <= 600 && host.driver.requests(1) == 300);
    }
}

#[tokio::test]
async fn m17_a_device_that_refused_everything_for_a_while_is_asked_in_merged_requests_again() {
    let ready = Arc::new(AtomicBool::new(true));
    let server = Server::start({
        let ready = Arc::clone(&ready);
        move |asked| match ready.load(Ordering::SeqCst) && !asked.covers(37) {
            true => asked.honest(),
            false => vec![Step::Send(asked.exception(2))],
        }
    })
    .await;
    let mut host = Host::connected(server.address, 5000).await;
    host.registers(1, "", 0..300);
    host.poll(1).await;
    let refined = host.driver.requests(1);
    assert!(refined < 15, "{refined} requests");
    ready.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(host.poll(1).await.bad().len(), 300);
    }
    ready.store(true, Ordering::SeqCst);
    for _ in 0..4 {
        let polled = host.poll(1).await;
        assert_eq!((polled.samples.len(), polled.bad()), (300, [(37, Reason::Exception(2))].into()));
    }
    assert_eq!(host.driver.requests(1), refined);
}

#[tokio::test]
async fn coils_bits_and_registers_come_in_one_poll_and_padding_is_ignored() {
    let server = Server::start(|asked| asked.honest()).await;
    let mut host = Host::connected(server.address, 5000).await;
    let mut points: Vec<String> = (0..20).map(|i| format!("address = 'co:{i}'")).collect();
    points.push("address = 'di:9'".into());
    points.push("address = 'ir:4660'\ndata_type = 'u16'".into());
    points.push("address = 'hr:4660.2'".into());
    host.station(1, "", &points);
    let polled = host.poll(1).await;
    let got: Vec<Value> = polled.samples.into_values().map(|s| s.unwrap()).collect();
    let mut want: Vec<Value> = (0..20).map(|i| Value::Bool(i % 3 == 0)).collect();
    want.extend([Value::Bool(true), Value::Int(4660), Value::Bool(4660 & 4 != 0)]);
    assert_eq!(got, want);
    assert_eq!(polled.requests, 4);
}
