//! Workers that die, hang, or cannot start.

use std::{fs, thread::sleep, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    harness::{Gateway, Manifest, signal, station, until},
    peer::Peer,
};

fn worker(status: &Value, key: &str) -> Value {
    let all = status["workers"].as_array().unwrap();
    all.iter().find(|w| w["key"] == key).cloned().unwrap_or_default()
}

fn pid(status: &Value, key: &str) -> i32 {
    i32::try_from(worker(status, key)["pid"].as_i64().unwrap()).unwrap()
}

#[test]
fn a_worker_that_is_killed_is_started_again_and_told_of() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50));
    let a = gateway.start("a");
    let status = a.status_when("the station is good", |s| station(s, "s")["state"] == "good");
    let first = pid(&status, "modbus");
    signal(first, Signal::KILL);
    let status = a.status_when("the worker runs again", |s| {
        let w = worker(s, "modbus");
        w["restarts"] == 1 && w["state"] == "running" && station(s, "s")["state"] == "good"
    });
    assert_ne!(pid(&status, "modbus"), first);
    let how = worker(&status, "modbus")["last_exit"].clone();
    assert_eq!(how, "killed by SIGKILL");
    gateway.more_good("s", "v", 3);
    let ended = gateway.events("worker_ended");
    assert_eq!((ended.len(), &ended[0]["how"], &ended[0]["wanted"]), (1, &json!("killed by SIGKILL"), &json!(true)));
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_worker_that_hangs_does_not_keep_the_gateway_from_draining_in_time() {
    let peer = Peer::start();
    let text = Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50);
    let gateway = Gateway::new(&text);
    gateway.write(&text.text().replace("drain_timeout_ms = 5000", "drain_timeout_ms = 1500"));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    signal(gateway.workers()[0], Signal::STOP);
    assert_eq!(a.drain(), Some(0));
    until("the worker is gone", || gateway.workers().is_empty().then_some(()));
    assert!(gateway.log("a").contains("did not obey in time and is killed"), "{}", gateway.log("a"));
    gateway.assert_journal_sound();
}

#[test]
fn a_worker_that_is_silent_for_long_is_ended_and_started_again() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    let hung = gateway.workers()[0];
    signal(hung, Signal::STOP);
    let status = a.status_when("the hung worker is replaced", |s| worker(s, "modbus")["restarts"] == 1);
    let how = worker(&status, "modbus")["last_exit"].clone();
    assert_eq!(how, "killed by SIGKILL: nothing came over the worker socket within 20s");
    gateway.more_good("s", "v", 2);
    assert!(!gateway.workers().contains(&hung));
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_worker_that_cannot_start_is_given_up_and_the_supervisor_lives() {
    let peer = Peer::start();
    let plant = |ms| {
        let manifest = Manifest::new("").connection("c", peer.addr).station("s", "c", 1, ms, "critical = true");
        manifest.point("v", "hr:1", "u16", "")
    };
    let gateway = Gateway::new(&plant(50));
    // Where its lock file belongs is a folder.
    fs::create_dir_all(gateway.run_dir().join("workers/modbus.lock")).unwrap();
    let a = gateway.start("a");
    let status = a.status_when("the worker is given up", |s| worker(s, "modbus")["state"] == "gave_up");
    let how = worker(&status, "modbus")["last_exit"].clone();
    assert!(how.as_str().unwrap().contains("modbus.lock"), "{how}");
    until("it is recorded", || (gateway.events("worker_gave_up").len() == 1).then_some(()));
    assert_eq!(gateway.events("worker_ended").len(), 6);
    assert_eq!(a.probe("/healthz").unwrap().0, 200);
    let (code, reasons) = a.probe("/readyz").unwrap();
    assert!(code == 503 && reasons.contains("modbus") && reasons.contains("gave_up"), "{code} {reasons}");
    // A station that nobody polls is not good.
    assert_eq!(station(&status, "s")["state"], "disconnected");
    // A person mends it and does not wait for the cooldown: any change of its configuration is another chance.
    fs::remove_dir(gateway.run_dir().join("workers/modbus.lock")).unwrap();
    gateway.write(plant(51).text());
    assert_eq!(gateway.ask(&["reload"]).status.code(), Some(0));
    a.station_when("s", "good");
    until("it is ready", || a.probe("/readyz").filter(|(code, _)| *code == 200));
    assert_eq!(a.drain(), Some(0));
}

#[test]
fn a_worker_leaves_by_itself_when_its_supervisor_is_killed() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    assert_eq!(gateway.workers().len(), 1);
    a.kill();
    until("the worker is gone", || gateway.workers().is_empty().then_some(()));
    gateway.assert_journal_sound();
    // And the next one starts where this one ended.
    let a = gateway.start("a");
    a.wait_leader();
    gateway.more_good("s", "v", 2);
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn with_a_process_for_each_connection_the_end_of_one_leaves_the_other_alone() {
    let (left, right) = (Peer::start(), Peer::start());
    let manifest = Manifest::new("[workers]\nisolation = \"connection\"")
        .connection("left", left.addr)
        .connection("right", right.addr)
        .simple("l", "left", 1, 50)
        .simple("r", "right", 2, 50);
    let gateway = Gateway::new(&manifest);
    let a = gateway.start("a");
    a.station_when("l", "good");
    let status =
        a.status_when("both are good", |s| station(s, "l")["state"] == "good" && station(s, "r")["state"] == "good");
    assert_eq!(gateway.workers().len(), 2);
    let keys: Vec<&str> = status["workers"].as_array().unwrap().iter().map(|w| w["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["modbus.left", "modbus.right"]);
    signal(pid(&status, "modbus.left"), Signal::KILL);
    a.status_when("the left one runs again", |s| {
        worker(s, "modbus.left")["restarts"] == 1 && station(s, "l")["state"] == "good"
    });
    assert_eq!(right.accepted(), 1, "the right one's connection stays");
    assert_eq!(worker(&a.status().unwrap(), "modbus.right")["restarts"], 0);
    assert!(gateway.readings("r", "v").iter().all(|r| r["quality"] == "good"));
    assert_eq!(a.drain(), Some(0));
    assert_eq!(gateway.readings("r", "v").len(), right.asked(2), "every answer of the right one is recorded");
}

#[test]
fn a_worker_that_stood_still_polls_once_and_counts_what_it_missed() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 100));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 3);
    let worker = gateway.workers()[0];
    signal(worker, Signal::STOP);
    let before = peer.asked(1);
    sleep(Duration::from_secs(2));
    assert!(peer.asked(1) <= before + 1, "it polls although it is stopped");
    signal(worker, Signal::CONT);
    let status = a.status_when("missed ticks are told", |s| {
        station(s, "s")["counters"]["missed"].as_u64().is_some_and(|missed| missed >= 15)
    });
    assert_eq!(station(&status, "s")["state"], "good");
    until("it polls on", || (peer.asked(1) > before + 4).then_some(()));
    // No burst: from the second request after the pause on, each has its place on the grid.
    let times: Vec<_> = peer.requests().iter().map(|r| r.at).skip(before + 1).take(3).collect();
    assert!(times[2] - times[0] >= Duration::from_millis(120), "{times:?}");
    assert_eq!(gateway.workers(), [worker], "the same process goes on");
}
