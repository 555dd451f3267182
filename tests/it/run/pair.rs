//! Two instances on one device: one leads, whatever happens to it.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixListener,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use super::{
    harness::{Gateway, Instance, Manifest, pair, signal, until},
    peer::{Answer, Peer, frame_of},
};

fn plant(peer: &Peer) -> Manifest {
    Manifest::pair().connection("c", peer.addr).simple("s", "c", 1, 20).simple("t", "c", 2, 20)
}

fn epoch(status: &Value) -> u64 {
    status["epoch"].as_u64().unwrap()
}

/// The segments' file names, which say who wrote them.
fn segments(gateway: &Gateway) -> usize {
    std::fs::read_dir(gateway.state_dir().join("journal")).unwrap().count()
}

#[test]
fn a_killed_leader_is_followed_under_the_next_epoch_and_the_journal_goes_on() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let (a, b) = pair(&gateway);
    gateway.more_good("s", "v", 5);
    let (before, files) = (epoch(&a.status().unwrap()), segments(&gateway));
    let known = gateway.records();
    a.kill();
    let status = b.wait_leader();
    assert_eq!(epoch(&status), before + 1);
    gateway.more_good("s", "v", 5);
    assert!(segments(&gateway) > files, "the new leader writes a segment of its own");
    let records = gateway.records();
    assert_eq!(records[..known.len()], known[..], "what was committed is still there");
    let told: Value = serde_json::from_slice(&gateway.ask(&["status", "--json"]).stdout).unwrap();
    assert_eq!(told["instance"], "b", "the leader's socket is the new leader's");
    let instances = told["instances"].as_array().unwrap();
    assert!(instances.len() == 1 && instances[0]["role"] == "leader", "{instances:?}");
    let promoted = gateway.events("promoted");
    assert_eq!((promoted.len(), &promoted[1]["instance"]), (2, &Value::from("b")));
    assert_eq!(b.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_leader_that_is_stopped_is_ended_and_never_leads_beside_the_next() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let (mut a, b) = pair(&gateway);
    gateway.more_good("s", "v", 5);
    let stopped = Instant::now();
    a.signal(Signal::STOP);
    b.wait_leader();
    let took = stopped.elapsed();
    assert!(took >= Duration::from_millis(900), "it led after {took:?}, before the time to live was over");
    assert!(!a.wait().success(), "the old leader is dead before the new one leads");
    gateway.more_good("s", "v", 5);
    assert_eq!(b.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_drained_leader_hands_over_at_once() {
    let peer = Peer::start();
    let manifest = plant(&peer);
    let gateway = Gateway::new(&manifest);
    // With a time to live that nobody wants to wait for.
    gateway.write(&manifest.text().replace("ttl_ms = 1500", "ttl_ms = 60000"));
    let (a, b) = pair(&gateway);
    gateway.more_good("s", "v", 5);
    let before = epoch(&a.status().unwrap());
    assert_eq!(a.drain(), Some(0));
    let status = b.wait_leader();
    assert_eq!(epoch(&status), before + 1);
    gateway.more_good("s", "v", 3);
    assert_eq!(status["instances"].as_array().unwrap().len(), 1, "the drained one is not registered any more");
    assert_eq!(b.drain(), Some(0));
    gateway.assert_journal_sound();
    // Every answer that the plant gave is recorded: the hand-over lost none.
    let recorded = gateway.readings("s", "v").len() + gateway.readings("t", "v").len();
    let asked = peer.requests().len();
    assert!(recorded <= asked && recorded + 2 >= asked, "{asked} asked, {recorded} recorded");
}

#[test]
fn both_killed_at_once_start_again_where_they_were() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let (a, b) = pair(&gateway);
    gateway.more_good("s", "v", 5);
    let before = epoch(&a.status().unwrap());
    a.signal(Signal::KILL);
    b.signal(Signal::KILL);
    a.kill();
    b.kill();
    let known = gateway.records();
    let (b, a) = (gateway.start("b"), gateway.start("a"));
    let leader =
        until("one of them leads", || [&a, &b].into_iter().find(|i| i.status().is_some_and(|s| s["role"] == "leader")));
    assert!(epoch(&leader.status().unwrap()) > before);
    gateway.more_good("s", "v", 5);
    assert_eq!(gateway.records()[..known.len()], known[..]);
    let roles: Vec<Value> = [&a, &b].iter().map(|i| i.status().unwrap()["role"].clone()).collect();
    assert!(roles.contains(&"follower".into()) && roles.contains(&"leader".into()), "{roles:?}");
    gateway.assert_journal_sound();
}

#[test]
fn a_worker_that_was_stopped_does_not_outlive_its_killed_supervisor() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let (a, b) = pair(&gateway);
    gateway.more_good("s", "v", 5);
    let old = gateway.workers()[0];
    // The kernel lets a stopped process go on when the last parent of its group dies.
    signal(old, Signal::STOP);
    a.kill();
    b.wait_leader();
    gateway.more_good("s", "v", 5);
    let workers = gateway.workers();
    assert!(workers.len() == 1 && workers[0] != old, "{workers:?} after {old}");
    assert_eq!(b.drain(), Some(0));
    gateway.assert_journal_sound();
}

/// A worker that nobody talks to, stopped while it holds its lock; this test is its parent, so the kernel leaves it so.
fn hung_worker(gateway: &Gateway) -> Child {
    fs::create_dir_all(gateway.run_dir().join("workers")).unwrap();
    let socket = UnixListener::bind(gateway.path("hung.sock")).unwrap();
    let mut command = gateway.command(&["worker", "modbus", "--key", "modbus", "--run-dir"]);
    command.arg(gateway.run_dir()).process_group(0).stdin(OwnedFd::from(socket)).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let lock = gateway.run_dir().join("workers/modbus.lock");
    until("it holds its lock", || fs::metadata(&lock).ok().filter(|m| m.len() > 0));
    signal(i32::try_from(child.id()).unwrap(), Signal::STOP);
    child
}

#[test]
fn a_worker_that_hangs_is_ended_by_the_next_leader_before_it_starts_another() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let mut hung = hung_worker(&gateway);
    let old = i32::try_from(hung.id()).unwrap();
    let b = gateway.start("b");
    b.wait_leader();
    let ended = until("the hung worker is ended", || {
        let accepted = peer.accepted();
        let ended = hung.try_wait().unwrap();
        assert!(ended.is_some() || accepted == 0, "somebody polls beside it");
        ended
    });
    assert_eq!(ended.signal(), Some(9));
    gateway.more_good("s", "v", 5);
    let workers = gateway.workers();
    assert!(workers.len() == 1 && workers[0] != old, "{workers:?} after {old}");
    assert_eq!(b.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn what_was_committed_before_a_kill_at_any_moment_is_there_after_it() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let start = |id: &str| -> Instance<'_> { gateway.start(id) };
    let (mut leader, mut follower) = pair(&gateway);
    for round in 0..10_u64 {
        gateway.more_good("s", "v", 2);
        // Anywhere in poll, commit and renewal, the same in each run.
        sleep(Duration::from_micros(round * 7_919 % 60_000));
        let known = gateway.records();
        let id = leader.id.clone();
        leader.kill();
        leader = follower;
        leader.wait_leader();
        follower = start(&id);
        follower.wait_follower();
        let records = gateway.records();
        assert!(records.len() >= known.len() && records[..known.len()] == known[..], "round {round}");
    }
    gateway.more_good("t", "v", 2);
    assert_eq!(gateway.events("promoted").len(), 11);
    assert_eq!(leader.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn p1_of_two_that_start_at_once_exactly_one_leads() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    for round in 0..8 {
        let (a, b) = (gateway.start("a"), gateway.start("b"));
        let both = || Some([a.status()?, b.status()?].map(|s| (s["role"].clone(), epoch(&s))));
        let led = |told: &[(Value, u64); 2]| {
            told.iter().all(|(_, epoch)| *epoch > round) && told.iter().any(|(role, _)| role == "leader")
        };
        let told = until("one leads and both know", || both().filter(led));
        let leaders = told.iter().filter(|(role, _)| role == "leader").count();
        assert_eq!((leaders, told[0].1), (1, told[1].1), "round {round}: {told:?}");
        a.signal(Signal::KILL);
        b.signal(Signal::KILL);
        a.kill();
        b.kill();
    }
    // Of those that were killed before they led, none has left a trace that is not whole.
    let a = gateway.start("a");
    a.wait_leader();
    gateway.more_good("s", "v", 2);
    gateway.assert_journal_sound();
}

#[test]
fn who_listens_gets_every_record_from_the_leader_and_from_its_follower_after_it() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer));
    let (a, b) = pair(&gateway);
    gateway.more_good("s", "v", 2);
    let out = gateway.path("tail.json");
    let mut command = gateway.command(&["tail", "--json", "--run-dir"]);
    command.arg(gateway.run_dir()).stdout(fs::File::create(&out).unwrap()).stderr(Stdio::null());
    let mut tail = command.spawn().unwrap();
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&out).unwrap();
        let whole = text.rfind('\n').map_or("", |at| &text[..at]);
        whole.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    until("it hears readings", || (lines().len() > 5).then_some(()));
    a.kill();
    b.wait_leader();
    until("it hears the new leader", || {
        lines().iter().any(|r| r["epoch"] == 2 && r["kind"] == "reading").then_some(())
    });
    let heard = lines();
    let on_disk = gateway.records();
    assert!(heard.iter().all(|r| r["kind"] != "reading" || on_disk.iter().any(|d| d["seq"] == r["seq"])));
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// A register that counts how often it was read: each answer is another value, so that a reading which is lost or doubled
/// shows.
fn counting(peer: &Peer) {
    let count = AtomicU16::new(0);
    peer.behave(move |request| {
        let [high, low] = count.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        Answer::Raw(frame_of(request, &[3, 2, high, low]))
    });
}

fn assert_each_reading_once(gateway: &Gateway, at_most_missing: usize) {
    let readings = gateway.readings("s", "v");
    let values: Vec<u64> = readings.iter().filter_map(|r| r["value"].as_u64()).collect();
    let mut sorted = values.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), values.len(), "readings are recorded twice: {values:?}");
    let missing = (0..=*sorted.last().unwrap()).filter(|v| sorted.binary_search(v).is_err()).collect::<Vec<_>>();
    assert!(missing.len() <= at_most_missing, "lost: {missing:?} of {}", values.len());
}

#[test]
fn what_was_read_while_the_leader_hung_is_recorded_by_the_next_once() {
    let peer = Peer::start();
    counting(&peer);
    let gateway = Gateway::new(&Manifest::pair().connection("c", peer.addr).simple("s", "c", 1, 20));
    let (a, b) = pair(&gateway);
    gateway.more_good("s", "v", 10);
    a.signal(Signal::STOP);
    b.wait_leader();
    gateway.more_good("s", "v", 10);
    assert_eq!(b.drain(), Some(0));
    // Of those read in a second and a half none is lost but, at the most, the one in flight at the end of the worker.
    assert!(peer.asked(1) > 60, "{} polls", peer.asked(1));
    assert_each_reading_once(&gateway, 1);
    let taken = gateway.events("readings_taken_over");
    assert!(taken.iter().any(|e| e["taken"].as_u64() > Some(20)), "{taken:?}");
    let left = fs::read_dir(gateway.run_dir().join("workers")).unwrap().flatten();
    let left: Vec<_> = left.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "spool")).collect();
    assert!(left.is_empty(), "{left:?}");
    gateway.assert_journal_sound();
}

#[test]
fn leaders_that_are_killed_one_after_the_other_lose_and_double_no_reading() {
    const KILLS: usize = 6;
    let peer = Peer::start();
    counting(&peer);
    let gateway = Gateway::new(&Manifest::pair().connection("c", peer.addr).simple("s", "c", 1, 10));
    let (mut leader, mut follower) = pair(&gateway);
    for kill in 0..KILLS {
        gateway.more_good("s", "v", 7 * (kill + 1));
        let id = leader.id.to_owned();
        leader.kill();
        follower.wait_leader();
        leader = follower;
        follower = gateway.start(&id);
        follower.wait_follower();
    }
    gateway.more_good("s", "v", 10);
    assert_eq!(follower.drain(), Some(0));
    assert_eq!(leader.drain(), Some(0));
    assert_each_reading_once(&gateway, KILLS);
    gateway.assert_journal_sound();
}
