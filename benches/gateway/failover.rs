//! From the leader's end to the next one's first committed record.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{
    journal,
    manifest::Floats,
    ms,
    process::{Device, plant, reap, until},
    setting, told,
};

const IDS: [&str; 2] = ["a", "b"];

pub fn run() {
    let (sim, port) = plant(3, 100);
    let floats = Floats { port, stations: 3, points: 10, interval_ms: 100, lanes: None, ttl_ms: 1000 };
    let device = Device::new(&floats.text());
    let mut leader = 0;
    let mut processes = [device.start(IDS[0]), {
        device.wait_leader(IDS[0]);
        device.start(IDS[1])
    }];
    for (signal, count, what) in [
        (Signal::KILL, setting("FAILOVERS", 100), "killed (target 10 median, 30 worst)"),
        (Signal::STOP, setting("STOPS", 10), "stopped (target 1050: TTL and 50 ms)"),
    ] {
        let (mut answers, mut commits, mut readings) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let next = 1 - leader;
            device.wait_follower(IDS[next]);
            // A moment, so that the follower waits at the lock.
            std::thread::sleep(Duration::from_millis(50));
            let epoch = journal::newest(&device).map_or(0, |(_, epoch)| epoch);
            let began = Instant::now();
            processes[leader].signal(signal);
            let lines = follow(&device, IDS[next], epoch, began);
            answers.push(lines.answered);
            commits.push(lines.committed);
            readings.push(lines.reading);
            until("the old leader is gone", || processes[leader].is_gone().then_some(()));
            processes[leader] = device.start(IDS[leader]);
            leader = next;
            reap(&[&processes[0], &processes[1], &sim]);
        }
        println!("  leader {what}");
        println!("    to /leader: {}", told(&mut answers));
        println!("    to that and the first record committed under the new epoch: {}", told(&mut commits));
        println!("    to the first reading on disk under it: {}", told(&mut readings));
    }
    let [a, b] = processes;
    let (first, second) = if leader == 0 { (b, a) } else { (a, b) };
    first.end();
    let began = Instant::now();
    second.end();
    println!("  a leader's own drain: {}", ms(began.elapsed()));
}

struct Seen {
    answered: Duration,
    committed: Duration,
    reading: Duration,
}

fn follow(device: &Device, id: &str, before: u64, began: Instant) -> Seen {
    device.wait_leader(id);
    let answered = began.elapsed();
    let first = until("a segment of the new epoch", || journal::newest(device).filter(|(_, epoch)| *epoch > before)).0;
    until("its first record is committed", || device.committed(id).filter(|seq| *seq >= first));
    let committed = began.elapsed();
    until("a reading is there", || {
        let path = journal::segments(device).pop()?;
        let bytes = std::fs::read(path).ok()?;
        memchr::memmem::find(&bytes, b"\"quality\":\"good\"").map(drop)
    });
    Seen { answered, committed, reading: began.elapsed() }
}
