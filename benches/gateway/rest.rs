//! A pair with nothing to poll: what it takes to stand by.

use std::{fs, time::Duration};

use super::{
    manifest,
    process::{Device, Memory, Process, binary, number},
};

const LOOK: Duration = Duration::from_secs(10);

fn pair() -> (Device, [Process; 2]) {
    let device = Device::new(&manifest::idle());
    let leader = device.start("a");
    device.wait_leader("a");
    let follower = device.start("b");
    device.wait_follower("b");
    // What the start itself writes is not rest.
    std::thread::sleep(Duration::from_secs(2));
    (device, [leader, follower])
}

/// Bytes that an idle pair writes.
pub fn flash() {
    let (_device, pair) = pair();
    let written = || pair.iter().map(|p| number(p.pid(), "io", "write_bytes")).sum::<u64>();
    let before = written();
    std::thread::sleep(LOOK);
    let bytes = written() - before;
    let hours = 3600.0 / LOOK.as_secs_f64();
    println!("  an idle pair writes {bytes} bytes in {} s: {:.0} an hour", LOOK.as_secs(), bytes as f64 * hours);
}

/// Memory, wake-ups, and the binary.
pub fn run() {
    let (_device, pair) = pair();
    let before = pair.each_ref().map(|p| switches(p.pid()));
    std::thread::sleep(LOOK);
    for ((name, target), (process, before)) in [("leader", 8), ("follower", 5)].iter().zip(pair.iter().zip(before)) {
        let each = (switches(process.pid()) - before) as f64 / LOOK.as_secs_f64();
        let threads = number(process.pid(), "status", "Threads");
        println!(
            "  {name}: {} (target {target}), {threads} threads, {each:.1} wake-ups a second",
            Memory::of(process.pid())
        );
    }
    let size = fs::metadata(binary()).map_or(0, |m| m.len());
    println!("  binary: {:.1} MB", size as f64 / 1e6);
}

/// Voluntary context switches of all threads: each is a wait, and so a wake-up.
fn switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|t| t.file_name().into_string().ok());
    names.map(|tid| number(pid, &format!("task/{tid}/status"), "voluntary_ctxt_switches")).sum()
}
