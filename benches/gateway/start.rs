//! From the start of a process to the first reading on disk.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    journal,
    manifest::Floats,
    process::{Device, binary, plant, until},
    setting, told,
};

pub fn run() {
    let (_plant, port) = plant(3, 100);
    let floats = Floats { port, stations: 3, points: 10, interval_ms: 1000, lanes: None, ttl_ms: 3000 };
    let mut times = Vec::new();
    for _ in 0..setting("STARTS", 20) {
        let device = Device::new(&floats.text());
        let began = Instant::now();
        let instance = device.start("a");
        until("a reading is journalled", || journal::has_reading(&device).then_some(()));
        times.push(began.elapsed());
        instance.end();
    }
    println!("  cold start to the first reading on disk: {} (target 150 ms)", told(&mut times));
    for _ in 0..3 {
        let mut demo = Command::new(binary());
        demo.args(["demo", "--for", "1s"]).stdin(Stdio::null()).stderr(Stdio::null());
        let out = demo.output().expect("the binary starts");
        let text = String::from_utf8_lossy(&out.stdout);
        let line = text.lines().find(|l| l.contains("first reading journalled"));
        println!("  demo: {}", line.map_or("no reading", str::trim));
    }
}
