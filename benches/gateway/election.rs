//! Two instances started at once: exactly one leads.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    manifest,
    process::{Device, until},
    setting, told,
};

pub fn run() {
    let device = Device::new(&manifest::idle());
    let mut leaders: BTreeMap<usize, u64> = BTreeMap::new();
    let mut times = Vec::new();
    for _ in 0..setting("ELECTIONS", 100) {
        let began = Instant::now();
        let _both = [device.start("a"), device.start("b")];
        let look = || ["a", "b"].map(|id| device.leads(id));
        let answered = |found: &[Option<bool>; 2]| found.iter().all(Option::is_some) && found.contains(&Some(true));
        until("both answer and one leads", || Some(look()).filter(answered));
        times.push(began.elapsed());
        // The most that lead at once, looked at for a while.
        let mut most = 0;
        for _ in 0..10 {
            most = most.max(look().iter().filter(|leads| **leads == Some(true)).count());
            std::thread::sleep(Duration::from_millis(2));
        }
        *leaders.entry(most).or_default() += 1;
    }
    let one = leaders.remove(&1).unwrap_or(0);
    println!("  exactly one leader: {one} of {} (others, by leaders: {leaders:?})", times.len());
    println!("  to the moment that both answer and one leads: {}", told(&mut times));
}
