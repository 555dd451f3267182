//! A hundred thousand points a second: what is missed, what it costs.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    journal,
    manifest::Floats,
    process::{Device, Memory, Process, children, cpu, number, plant, until},
    setting,
};

const STATIONS: u32 = 20;
const POINTS: u32 = 5_000;

pub fn run() {
    let seconds = setting("SECONDS", 60);
    one(seconds, None, "a connection for each station");
    one(seconds.div_ceil(4), Some(4), "one endpoint, max_connections = 4");
}

fn one(seconds: u64, lanes: Option<u32>, what: &str) {
    let (sim, port) = plant(20, POINTS * 2);
    let floats = Floats { port, stations: STATIONS, points: POINTS, interval_ms: 1000, lanes, ttl_ms: 3000 };
    let device = Device::new(&floats.text());
    let began = Instant::now();
    let leader = device.start("a");
    until("every station was polled", || all_polled(&device).then_some(()));
    let ready = began.elapsed();
    let follower = device.start("b");
    device.wait_follower("b");
    let worker = children(leader.pid()).into_iter().next().expect("the leader has a worker");
    println!(
        "  {STATIONS} stations of {POINTS} f32 each second, {what}; {seconds} s; all polled {:.1} s after the start",
        ready.as_secs_f64()
    );
    let parts =
        [("supervisor", leader.pid()), ("worker", worker), ("follower", follower.pid()), ("simulator", sim.pid())];
    let steady = watch(&device, &parts, seconds);
    println!("  CPU of leader and worker: {:.1} % of a core (target 50)", steady.cpu(0) + steady.cpu(1));
    println!("  memory of leader and worker, resident: {:.1} MB at most (target 60)", steady.most_resident());
    for (at, (name, _)) in parts.iter().enumerate() {
        println!("    {name}: {:.1} % of a core, {}", steady.cpu(at), steady.memory[at]);
    }
    finish(&device, leader, follower, &steady);
}

fn all_polled(device: &Device) -> bool {
    let Some(status) = device.status("a") else { return false };
    let stations = status["stations"].as_array().map_or(&[][..], Vec::as_slice);
    stations.len() == STATIONS as usize && stations.iter().all(|s| s["state"] == "good")
}

struct Steady {
    took: Duration,
    cpu: Vec<Duration>,
    memory: Vec<Memory>,
    /// The highest sum of leader and worker, KiB.
    most: u64,
    written: u64,
    records: u64,
}

impl Steady {
    fn cpu(&self, at: usize) -> f64 {
        self.cpu[at].as_secs_f64() / self.took.as_secs_f64() * 100.0
    }

    fn most_resident(&self) -> f64 {
        self.most as f64 / 1024.0
    }
}

fn watch(device: &Device, parts: &[(&str, u32)], seconds: u64) -> Steady {
    let leader = parts[0].1;
    let times = || parts.iter().map(|(_, pid)| cpu(*pid)).collect::<Vec<_>>();
    let (began, before) = (Instant::now(), times());
    let written = number(leader, "io", "write_bytes");
    let first = device.committed("a").unwrap_or(0);
    let mut most = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(200));
        most = most.max(parts[..2].iter().map(|(_, pid)| number(*pid, "status", "VmRSS")).sum());
    }
    Steady {
        took: began.elapsed(),
        cpu: times().iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect(),
        memory: parts.iter().map(|(_, pid)| Memory::of(*pid)).collect(),
        most,
        written: number(leader, "io", "write_bytes") - written,
        records: device.committed("a").unwrap_or(0) - first,
    }
}

/// Ends the pair and holds its journal against what it says.
fn finish(device: &Device, leader: Process, follower: Process, steady: &Steady) {
    let status = device.status("a").unwrap_or_default();
    follower.end();
    leader.end();
    let sum = |key: &str| -> u64 {
        let counter = |s: &Value| s["counters"][key].as_u64().unwrap_or(0);
        status["stations"].as_array().map_or(0, |all| all.iter().map(counter).sum())
    };
    println!("  polls: {}, ticks missed: {} (target 0)", sum("polls"), sum("missed"));
    let readings = journal::readings(device);
    let whole = readings.values().filter(|n| **n % u64::from(POINTS) == 0).count();
    let polls: Vec<u64> = readings.values().map(|n| n / u64::from(POINTS)).collect();
    println!(
        "  journal: {} stations, {whole} with whole polls only, {} to {} polls each",
        readings.len(),
        polls.iter().min().unwrap_or(&0),
        polls.iter().max().unwrap_or(&0)
    );
    let count: u64 = readings.values().sum();
    println!(
        "  bytes a reading: {:.1} in the files; sent to the device: {:.1} ({:.3} of it)",
        journal::bytes(device) as f64 / count as f64,
        steady.written as f64 / steady.records as f64,
        steady.written as f64 / steady.records as f64 / (journal::bytes(device) as f64 / count as f64)
    );
    let (clean, verdict) = journal::verify(device);
    println!("  journal verify: {}", if clean { "clean" } else { &verdict });
}
