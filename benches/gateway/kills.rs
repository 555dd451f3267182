//! The leader of a pair is killed again and again under load: what was committed stays.

use std::time::Duration;

use rustix::process::Signal;

use super::{
    Dice, journal,
    manifest::Floats,
    process::{Device, plant, reap, until},
    setting,
};

pub fn run() {
    let kills = setting("KILLS", 100);
    let (sim, port) = plant(4, 500);
    let floats = Floats { port, stations: 4, points: 250, interval_ms: 100, lanes: None, ttl_ms: 3000 };
    let device = Device::new(&floats.text());
    let mut dice = Dice(0x5eed_1234_abcd_0001);
    let ids = ["a", "b"];
    let mut leader = (0, device.start(ids[0]));
    device.wait_leader(ids[0]);
    let mut follower = (1, device.start(ids[1]));
    let mut kept = journal::Kept::default();
    let (mut committed_lost, mut lines_lost, mut unanswered) = (0, 0, 0);
    for _ in 0..kills {
        device.wait_follower(ids[follower.0]);
        std::thread::sleep(Duration::from_millis(dice.below(500)));
        let committed = device.committed(ids[leader.0]).unwrap_or(0);
        leader.1.signal(Signal::KILL);
        until("the killed one is gone", || leader.1.is_gone().then_some(()));
        // Before the next leader's own records can hide a loss.
        let on_disk = journal::last_seq(&device).unwrap_or(0);
        lines_lost += kept.check_and_take(&device);
        device.wait_leader(ids[follower.0]);
        until("the next leader commits", || device.committed(ids[follower.0]).filter(|seq| *seq > on_disk));
        committed_lost += u64::from(on_disk < committed);
        unanswered += u64::from(committed == 0);
        let again = device.start(ids[leader.0]);
        leader = (follower.0, std::mem::replace(&mut follower, (leader.0, again)).1);
        reap(&[&leader.1, &follower.1, &sim]);
    }
    device.wait_follower(ids[follower.0]);
    follower.1.end();
    leader.1.end();
    lines_lost += kept.check_and_take(&device);
    println!("  {kills} kills of the leader under 10,000 readings a second");
    println!("  kills before which no committed number was told: {unanswered}");
    println!(
        "  times that a committed number was lost: {committed_lost}; that a line of the journal was: {lines_lost}"
    );
    let (mut records, mut wrong, mut expected) = (0_u64, 0_u64, 1);
    journal::lines(&device, |line| {
        if let Some(seq) = journal::seq(line) {
            records += 1;
            wrong += u64::from(seq != expected);
            expected = seq + 1;
        }
    });
    println!("  {records} records, {wrong} gaps or repeats in their numbers");
    let (clean, verdict) = journal::verify(&device);
    println!("  journal verify: {}", if clean { "clean" } else { &verdict });
}
