//! What the product costs and how fast it is, measured on the real binary as processes. Prints; judges nothing by time.
//!
//! `cargo bench --bench gateway` runs every figure, bounded to a few minutes; `-- load kills` those that are named.
//! Settings, all of the environment: `SENSOR_POLL_BENCH_SECONDS` (of `load`, 60), `SENSOR_POLL_BENCH_STARTS` (20),
//! `SENSOR_POLL_BENCH_KILLS` (100), `SENSOR_POLL_BENCH_FAILOVERS` (100), `SENSOR_POLL_BENCH_STOPS` (10),
//! `SENSOR_POLL_BENCH_ELECTIONS` (100), `SENSOR_POLL_BENCH_DIR` for the folder, which
//! decides the disk, and `SENSOR_POLL_BENCH_BINARY` for another binary than this build's.

mod election;
mod failover;
mod journal;
mod kills;
mod load;
mod manifest;
mod process;
mod rest;
mod start;

use std::time::Duration;

/// A figure's name, and what measures it.
type Figure = (&'static str, fn());

const FIGURES: [Figure; 7] = [
    ("start", start::run),
    ("load", load::run),
    ("kills", kills::run),
    ("failover", failover::run),
    ("election", election::run),
    ("flash", rest::flash),
    ("rest", rest::run),
];

fn main() {
    // Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(name) = wanted.iter().find(|w| FIGURES.iter().all(|(name, _)| name != *w)) {
        let known: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
        eprintln!("no figure \"{name}\"; there are {}", known.join(", "));
        std::process::exit(2);
    }
    process::adopt_orphans();
    for (name, run) in FIGURES {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            println!("\n{name}");
            run();
        }
    }
}

/// A setting of the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(format!("SENSOR_POLL_BENCH_{name}")).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// `median 12.3 ms, worst 45.6 ms of 20`
fn told(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let Some(worst) = times.last() else { return "none of 0".to_owned() };
    format!("median {}, worst {} of {}", ms(times[times.len() / 2]), ms(*worst), times.len())
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
