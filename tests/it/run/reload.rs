//! The manifest changes while the gateway runs.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    harness::{Gateway, Manifest, pair, station, until},
    peer::Peer,
};

fn one(peer: &Peer) -> Manifest {
    Manifest::pair().connection("c", peer.addr).simple("kept", "c", 1, 50)
}

fn two(peer: &Peer) -> Manifest {
    one(peer).simple("added", "c", 2, 50)
}

#[test]
fn adding_a_station_touches_that_station_alone() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    let a = gateway.start("a");
    gateway.more_good("kept", "v", 3);
    let polls = |s: &Value| station(s, "kept")["counters"]["polls"].as_u64().unwrap_or(0);
    let before = a.status_when("polls are counted", |s| polls(s) > 2);
    gateway.write(two(&peer).text());
    let output = gateway.ask(&["reload", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["stations"]["added"], &report["stations"]["unchanged"]), (&json!(["added"]), &json!(1)));
    gateway.more_good("added", "v", 3);
    assert_eq!(peer.accepted(), 1, "the connection stays");
    let after = a.status_when("the added one is good", |s| station(s, "added")["state"] == "good");
    assert!(polls(&after) >= polls(&before), "its counters go on");
    assert_eq!(after["workers"][0]["pid"], before["workers"][0]["pid"]);
    // Its schedule too: no two polls of it closer than its grid allows.
    let times: Vec<_> = peer.requests().iter().filter(|r| r.unit == 1).map(|r| r.at).collect();
    assert!(times.len() as u128 <= (times[times.len() - 1] - times[0]).as_millis() / 50 + 2);
    assert!(gateway.readings("kept", "v").iter().all(|r| r["quality"] == "good"));

    // A point more changes its station and no other.
    let more = two(&peer).point("w", "hr:9", "u16", "");
    gateway.write(more.text());
    a.signal(Signal::HUP);
    assert_eq!(gateway.more_good("added", "w", 2)["value"], 9);
    assert_eq!(peer.accepted(), 1);
    let last = gateway.events("configuration").pop().unwrap();
    assert_eq!((&last["updated"], &last["unchanged"]), (&json!(["added"]), &json!(1)));
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_removed_station_vanishes_from_status_and_metrics() {
    let peer = Peer::start();
    let gateway = Gateway::new(&two(&peer));
    let a = gateway.start("a");
    gateway.more_good("added", "v", 2);
    assert!(a.probe("/metrics").unwrap().1.contains("station=\"added\""));
    gateway.write(one(&peer).text());
    assert_eq!(gateway.ask(&["reload"]).status.code(), Some(0));
    assert_eq!(station(&a.status().unwrap(), "added"), Value::Null);
    assert!(!a.probe("/metrics").unwrap().1.contains("station=\"added\""));
    let asked = peer.asked(2);
    gateway.more_good("kept", "v", 5);
    assert!(peer.asked(2) <= asked + 1, "it is still polled");
    assert_eq!(peer.accepted(), 1);
}

#[test]
fn a_broken_manifest_is_refused_with_its_faults_and_the_old_one_stays() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    let a = gateway.start("a");
    gateway.more_good("kept", "v", 2);
    // Half a file, as an editor that writes in place leaves it for a moment.
    let whole = two(&peer).text().to_owned();
    for broken in [&whole[..whole.len() - 12], "", "format_version = \"1\"\n[facility]\nid = \"x\"\nname2 = 1\n"] {
        fs::write(gateway.manifest(), broken).unwrap();
        let output = gateway.ask(&["reload"]);
        assert_eq!(output.status.code(), Some(3), "{broken}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("plant.toml"));
        gateway.more_good("kept", "v", 2);
    }
    let faults: Value = serde_json::from_slice(&gateway.ask(&["reload", "--json"]).stdout).unwrap();
    assert!(faults["faults"][0]["line"].as_u64() > Some(0), "{faults}");
    assert_eq!(peer.accepted(), 1);
    // A signal in the middle is survived just as well, and the whole file then counts.
    a.signal(Signal::HUP);
    gateway.write(&whole);
    a.signal(Signal::HUP);
    gateway.more_good("added", "v", 2);
    assert_eq!(a.drain(), Some(0));
}

#[test]
fn a_sighup_right_after_the_start_is_survived_and_two_renames_in_a_row_are_seen() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    for _ in 0..3 {
        let a = gateway.start("a");
        // As soon as it can hear at all, which is before it reads its manifest.
        until("it hears", || {
            let status = fs::read_to_string(format!("/proc/{}/status", a.pid())).ok()?;
            let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"))?.trim().to_owned();
            (u64::from_str_radix(&caught, 16).ok()? & 1 == 1).then_some(())
        });
        a.signal(Signal::HUP);
        a.wait_leader();
        gateway.more_good("kept", "v", 2);
        assert_eq!(a.drain(), Some(0));
    }
    let a = gateway.start("a");
    gateway.more_good("kept", "v", 2);
    gateway.write(two(&peer).text());
    a.signal(Signal::HUP);
    gateway.write(two(&peer).simple("third", "c", 3, 50).text());
    a.signal(Signal::HUP);
    gateway.more_good("third", "v", 2);
    gateway.more_good("added", "v", 2);
    assert_eq!(peer.accepted(), 4, "one connection for each process");
    assert_eq!(a.drain(), Some(0));
}

#[test]
fn a_reload_of_the_follower_is_in_force_once_it_leads() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    let (a, b) = pair(&gateway);
    gateway.more_good("kept", "v", 2);
    gateway.write(two(&peer).text());
    let output = gateway.ask(&["reload", "--instance", "b", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stations"]["added"], json!(["added"]));
    assert_eq!(peer.asked(2), 0, "a follower polls nothing");
    a.kill();
    b.wait_leader();
    gateway.more_good("added", "v", 2);
    assert_eq!(b.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_manifest_that_breaks_between_two_leaders_does_not_stop_the_second() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    let (a, b) = pair(&gateway);
    gateway.more_good("kept", "v", 2);
    gateway.write("format_version = ");
    a.kill();
    b.wait_leader();
    b.status_when("the faults are told", |s| {
        s["notices"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains("the old one stays in force"))
    });
    gateway.more_good("kept", "v", 2);
    until("it is ready", || b.probe("/readyz").filter(|(code, _)| *code == 200));
}

#[test]
fn a_change_that_comes_while_the_worker_starts_is_in_force_all_the_same() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    for round in 0..5 {
        gateway.write(one(&peer).text());
        let a = gateway.start("a");
        // From before the worker's process to after its first configuration.
        let worker = until("a worker is there", || gateway.workers().first().copied());
        std::thread::sleep(Duration::from_millis(round * 2));
        gateway.write(two(&peer).text());
        a.signal(Signal::HUP);
        gateway.more_good("added", "v", 2);
        assert_eq!(gateway.workers(), [worker]);
        assert_eq!(a.drain(), Some(0));
    }
    gateway.assert_journal_sound();
}

#[test]
fn a_connection_that_moves_takes_its_stations_along_and_leaves_the_others() {
    let (stays, old, new) = (Peer::start(), Peer::start(), Peer::start());
    let plant = |moved: &Peer| {
        let manifest = Manifest::new("").connection("stays", stays.addr).connection("moves", moved.addr);
        manifest.simple("s", "stays", 1, 50).simple("m", "moves", 2, 50)
    };
    let gateway = Gateway::new(&plant(&old));
    let a = gateway.start("a");
    gateway.more_good("m", "v", 2);
    gateway.write(&format!("{}[[stations]]\nid = \"bare\"\nconnection_ref = \"stays\"\n", plant(&new).text()));
    let report: Value = serde_json::from_slice(&gateway.ask(&["reload", "--json"]).stdout).unwrap();
    assert_eq!((&report["stations"]["updated"], &report["stations"]["unchanged"]), (&json!(["m"]), &json!(1)));
    let notes = report["notes"].to_string();
    assert!(notes.contains("connection changed: moves"), "{notes}");
    assert!(notes.contains("station \\\"bare\\\": it has no points"), "as `check` would say: {notes}");
    let told = until("the journal has it", || gateway.events("configuration").pop());
    assert_eq!((&told["updated"], &told["connections"]), (&json!(["m"]), &json!(["moves"])));
    until("the new place is asked", || (new.asked(2) >= 3).then_some(()));
    let asked = old.asked(2);
    gateway.more_good("s", "v", 3);
    assert_eq!((old.asked(2), stays.accepted()), (asked, 1));

    // Switched off, it is told as such and not asked; switched on again, it goes on.
    let off = plant(&new).text().replace("id = \"m\"\n", "id = \"m\"\nenabled = false\n");
    gateway.write(&off);
    a.signal(Signal::HUP);
    a.station_when("m", "disabled");
    gateway.write(plant(&new).text());
    a.signal(Signal::HUP);
    a.station_when("m", "good");
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_reload_while_the_worker_hangs_keeps_nobody_waiting_for_ever() {
    let peer = Peer::start();
    let gateway = Gateway::new(&one(&peer));
    let a = gateway.start("a");
    gateway.more_good("kept", "v", 2);
    let worker = gateway.workers()[0];
    super::harness::signal(worker, Signal::STOP);
    gateway.write(two(&peer).text());
    assert_eq!(gateway.ask(&["reload"]).status.code(), Some(0));
    super::harness::signal(worker, Signal::CONT);
    gateway.more_good("added", "v", 2);
    assert_eq!(a.drain(), Some(0));
}
