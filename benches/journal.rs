//! How fast readings reach the disk, what they cost there, and how fast a journal opens. Prints; judges nothing.
//!
//! `SENSOR_POLL_BENCH_MB` sets the journal's size (default 200); `SENSOR_POLL_BENCH_DIR` the folder, which decides the disk.

use std::{
    path::Path,
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use sensor_poll::{
    clock::Wall,
    journal::{
        Batch, CheckpointData, Entry, Hooks, Overflow, RecoverOptions, StationNames, WriterOptions, record::Encoder,
        recover, writer,
    },
};
use worker_contract::{Reading, Value};

const POINTS: u32 = 100;
const STATIONS: usize = 1000;

fn main() {
    let megabytes: u64 = std::env::var("SENSOR_POLL_BENCH_MB").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let parent = std::env::var("SENSOR_POLL_BENCH_DIR").unwrap_or_else(|_| "target".into());
    let dir = tempfile::tempdir_in(parent).expect("a folder for the journal");
    let stations: Vec<Arc<StationNames>> = (0..STATIONS).map(station).collect();
    let per_line = encoding(&stations);
    let readings = megabytes * 1_000_000 / per_line;
    writing(dir.path(), &stations, readings);
    recovery(dir.path(), "checkpoint and tail");
    std::fs::remove_file(dir.path().join("checkpoint.json")).expect("the writer left a checkpoint");
    recovery(dir.path(), "no checkpoint");
}

fn station(n: usize) -> Arc<StationNames> {
    let names: Vec<String> = (0..POINTS).map(|p| format!("temperature-{p}")).collect();
    Arc::new(StationNames::new(&format!("boiler-{n}"), names.iter().map(|name| (name.as_str(), Some("°C")))))
}

fn poll(station: &Arc<StationNames>, round: u32) -> Entry {
    let value = |point: u32| Some(Value::F32((point * 7 + round) as f32 * 0.1));
    let readings = (0..POINTS).map(|point| Reading { point, value: value(point), reason: None }).collect();
    Entry::Readings { station: Arc::clone(station), ts: Wall::now(), readings }
}

/// Lines into memory alone. Returns the bytes of a line.
fn encoding(stations: &[Arc<StationNames>]) -> u64 {
    let entries: Vec<Entry> = stations.iter().map(|s| poll(s, 1)).collect();
    let (mut encoder, mut out, mut lines, mut bytes) = (Encoder::new(3), Vec::new(), 0_u64, 0_u64);
    let began = Instant::now();
    for _ in 0..20 {
        out.clear();
        for entry in &entries {
            lines += encoder.lines(&mut out, entry, 0, lines, None, usize::MAX) as u64;
        }
        bytes += out.len() as u64;
    }
    println!("encoding: {:.0} readings/s, {} bytes each", rate(lines, began.elapsed()), bytes / lines);
    bytes / lines
}

fn writing(dir: &Path, stations: &[Arc<StationNames>], readings: u64) {
    let recovered = recover(dir, RecoverOptions::default()).expect("a new journal");
    let (told, done) = channel();
    let hooks = Hooks {
        fence: Arc::new(|| true),
        notice: Box::new(move |notice| drop(told.send(notice))),
        checkpoint: Box::new(CheckpointData::default),
    };
    let options = WriterOptions { overflow: Overflow::StopPolling, max_bytes: 1 << 40, ..WriterOptions::default() };
    let handle = writer::start(options, &recovered, hooks).expect("a thread");
    let (began, cpu, device) = (Instant::now(), cpu_time(), device_bytes());
    let (mut sent, mut round) = (0, 0);
    while sent < readings {
        round += 1;
        for station in stations {
            let mut batch = Batch { source: 1, up_to: sent, entries: vec![poll(station, round)], urgent: false };
            while let Err(rejected) = handle.append(batch) {
                batch = *rejected.batch;
                std::thread::sleep(Duration::from_micros(200));
            }
            sent += u64::from(POINTS);
        }
    }
    let report = handle.close(Duration::from_secs(600));
    let (took, cpu) = (began.elapsed(), cpu_time().saturating_sub(cpu));
    drop(done);
    assert_eq!(report.last_seq, sent, "{report:?}");
    let stats = handle.stats();
    println!("to disk: {sent} readings, {:.0} readings/s, {:.0} a second of CPU", rate(sent, took), rate(sent, cpu));
    println!(
        "commits: {}, {:.1} ms on average, {:.1} ms at most",
        stats.commits,
        stats.commit_sum.as_secs_f64() * 1e3 / stats.commits as f64,
        stats.commit_max.as_secs_f64() * 1e3
    );
    let written = device_bytes().saturating_sub(device);
    println!(
        "bytes: {:.1} a reading; pages sent to the device: {:.3} of that",
        stats.written_bytes as f64 / sent as f64,
        written as f64 / stats.written_bytes as f64
    );
}

fn recovery(dir: &Path, what: &str) {
    for last_values in [0, 200_000] {
        let (began, cpu) = (Instant::now(), cpu_time());
        let recovered = recover(dir, RecoverOptions { last_values }).expect("the journal opens");
        println!(
            "recovery, {what}, {} newest values: {:.3} s, {:.3} s of CPU, for {} MB ({} MB read, from the page cache)",
            recovered.caller.last.len(),
            began.elapsed().as_secs_f64(),
            cpu_time().saturating_sub(cpu).as_secs_f64(),
            recovered.bytes / 1_000_000,
            recovered.report.bytes_read / 1_000_000,
        );
    }
}

fn rate(n: u64, took: Duration) -> f64 {
    n as f64 / took.as_secs_f64()
}

fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the process may ask of itself");
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

/// What this process caused to be sent to block devices, by the kernel's count of pages.
fn device_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|l| l.strip_prefix("write_bytes: ")?.trim().parse().ok()).unwrap_or_default()
}
