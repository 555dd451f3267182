//! Disks, folders, descriptors, modes and signals.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    harness::{Gateway, Manifest, pair, signal, until},
    peer::{Answer, Peer},
};

fn plant(peer: &Peer, tables: &str) -> Manifest {
    Manifest::new(tables).connection("c", peer.addr).simple("s", "c", 1, 20)
}

/// A file system of its own, taken down at the end.
struct Tmpfs<'p>(&'p Path);

impl<'p> Tmpfs<'p> {
    fn mount(at: &'p Path, options: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "sensor-poll-test"]).arg(at).output();
        mounted.is_ok_and(|o| o.status.success()).then_some(Self(at))
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn p5_a_full_disk_stops_neither_polling_nor_the_process_and_the_journal_catches_up() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, "max_bytes = \"16 MiB\"\nsegment_bytes = \"64 KiB\""));
    let state = gateway.state_dir();
    let Some(_disk) = Tmpfs::mount(&state, "size=2m") else {
        eprintln!("skipped: a file system of its own can be mounted by root only");
        return;
    };
    let a = gateway.start("a");
    gateway.more_good("s", "v", 10);
    // Everything that is left, to the last byte.
    let ballast = fill(&state);
    let status = a.status_when("the trouble is told", |s| s["journal"]["trouble"].is_string());
    assert_eq!(status["role"], "leader");
    let asked = peer.asked(1);
    until("it polls on", || (peer.asked(1) > asked + 50).then_some(()));
    assert_eq!(a.probe("/readyz").unwrap().0, 200, "a full disk degrades: {:?}", a.probe("/readyz"));
    assert!(a.probe("/readyz").unwrap().1.contains("journal"));
    fs::remove_file(ballast).unwrap();
    a.status_when("the trouble is over", |s| s["journal"]["trouble"].is_null());
    gateway.more_good("s", "v", 5);
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
    let (asked, recorded) = (peer.asked(1), gateway.readings("s", "v").len());
    assert!(recorded + 1 >= asked && recorded <= asked, "{asked} asked, {recorded} recorded: none waited in vain");
    let waited = gateway.records().windows(2).all(|w| w[1]["seq"].as_u64() == w[0]["seq"].as_u64().map(|s| s + 1));
    assert!(waited);
}

/// Fills a file system to the last byte; gives the file that does.
fn fill(dir: &Path) -> PathBuf {
    let ballast = dir.join("ballast");
    let _ = Command::new("dd").arg("if=/dev/zero").arg(format!("of={}", ballast.display())).arg("bs=4096").output();
    ballast
}

#[test]
fn p5_a_gateway_starts_and_is_followed_on_a_full_disk() {
    let peer = Peer::start();
    let manifest = Manifest::pair().connection("c", peer.addr).simple("s", "c", 1, 20);
    let gateway = Gateway::new(&manifest);
    let state = gateway.state_dir();
    let Some(_disk) = Tmpfs::mount(&state, "size=1m") else {
        eprintln!("skipped: a file system of its own can be mounted by root only");
        return;
    };
    // Once with room, so that there is a journal to go on with.
    let a = gateway.start("a");
    gateway.more_good("s", "v", 5);
    assert_eq!(a.drain(), Some(0));
    let known = gateway.records();
    let ballast = fill(&state);
    let (a, b) = pair(&gateway);
    let epoch = a.status().unwrap()["epoch"].as_u64().unwrap();
    a.status_when("the trouble is told", |s| s["journal"]["trouble"].is_string());
    let asked = peer.asked(1);
    until("it polls", || (peer.asked(1) > asked + 10).then_some(()));
    a.kill();
    assert_eq!(b.wait_leader()["epoch"], epoch + 1, "a promotion needs no disk");
    let asked = peer.asked(1);
    until("it polls", || (peer.asked(1) > asked + 10).then_some(()));
    fs::remove_file(ballast).unwrap();
    gateway.more_good("s", "v", 5);
    assert_eq!(b.drain(), Some(0));
    assert_eq!(gateway.records()[..known.len()], known[..]);
    gateway.assert_journal_sound();
}

#[test]
fn p5_a_drain_on_a_full_disk_ends_in_time_and_leaves_what_it_holds_to_the_next_start() {
    let peer = Peer::start();
    let text = plant(&peer, "").text().replace("drain_timeout_ms = 5000", "drain_timeout_ms = 1500");
    let gateway = Gateway::new(&plant(&peer, ""));
    gateway.write(&text);
    let state = gateway.state_dir();
    let Some(_disk) = Tmpfs::mount(&state, "size=1m") else {
        eprintln!("skipped: a file system of its own can be mounted by root only");
        return;
    };
    let a = gateway.start("a");
    gateway.more_good("s", "v", 5);
    let ballast = fill(&state);
    a.status_when("the trouble is told", |s| s["journal"]["trouble"].is_string());
    let begun = Instant::now();
    assert_eq!(a.drain(), Some(1), "what was not done is not told as done");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let log = gateway.log("a");
    assert!(log.contains("the disk did not take these readings"), "{log}");
    until("the worker is gone", || gateway.workers().is_empty().then_some(()));
    gateway.assert_journal_sound();
    // What the worker left behind is recorded once there is room.
    fs::remove_file(ballast).unwrap();
    let a = gateway.start("a");
    let taken = until("they are taken over", || gateway.events("readings_taken_over").pop());
    assert!(taken["taken"].as_u64() > Some(0), "{taken}");
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn the_journal_keeps_within_its_bytes_and_what_is_left_is_sound() {
    let peer = Peer::start();
    let tables = "max_bytes = \"1 MiB\"\nsegment_bytes = \"64 KiB\"";
    let mut manifest = Manifest::new(tables).connection("c", peer.addr).station("s", "c", 1, 5, "");
    for n in 0..100 {
        manifest = manifest.point(&format!("p{n}"), &format!("hr:{n}"), "u16", "");
    }
    let gateway = Gateway::new(&manifest);
    let a = gateway.start("a");
    let status = a.status_when("the oldest went", |s| s["journal"]["first_seq"].as_u64() > Some(1000));
    assert!(status["journal"]["bytes"].as_u64().unwrap() <= (1 << 20) + (128 << 10), "{}", status["journal"]);
    assert_eq!(a.drain(), Some(0));
    let sizes =
        fs::read_dir(gateway.state_dir().join("journal")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    assert!(sizes.sum::<u64>() <= (1 << 20) + (128 << 10));
    gateway.assert_journal_sound();
}

#[test]
fn a_sigterm_at_any_moment_of_the_start_leaves_nothing_behind() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, ""));
    for step in 0..12_u64 {
        let a = gateway.start("a");
        sleep(Duration::from_millis(step * 4));
        let code = a.drain();
        // Before its handlers are there, the signal ends it.
        assert!(code == Some(0) || code.is_none(), "{code:?}");
        until("all are gone", || gateway.processes().is_empty().then_some(()));
    }
    let a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_run_folder_that_is_taken_away_ends_the_leader_and_not_the_journal() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, ""));
    let mut a = gateway.start("a");
    gateway.more_good("s", "v", 3);
    fs::remove_dir_all(gateway.run_dir()).unwrap();
    assert!(!a.wait().success(), "whoever holds a lock that is no longer the path's has lost it");
    until("all are gone", || gateway.processes().is_empty().then_some(()));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 3);
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn a_state_folder_that_cannot_be_used_is_told_with_what_to_do() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, ""));
    // A file where the folder belongs, which stops root too.
    fs::write(gateway.state_dir(), "").unwrap();
    let mut a = gateway.start("a");
    assert_eq!(a.wait().code(), Some(1));
    let log = gateway.log("a");
    assert!(log.contains("/state") && log.contains("--state-dir"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(peer.accepted(), 0);
}

#[test]
fn a_read_only_disk_keeps_no_gateway_from_polling_or_says_why() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, ""));
    let state = gateway.state_dir();
    let Some(_disk) = Tmpfs::mount(&state, "size=2m,ro") else {
        eprintln!("skipped: a file system of its own can be mounted by root only");
        return;
    };
    let mut a = gateway.start("a");
    let ended = until("it polls or says why not", || {
        let ended = a.child.try_wait().unwrap();
        (ended.is_some() || peer.asked(1) > 5).then_some(ended)
    });
    let log = gateway.log("a");
    assert!(log.contains("Read-only file system"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    if ended.is_none() {
        let status = a.status().unwrap();
        assert!(status["journal"]["trouble"].is_string(), "{status:#}");
    }
}

/// What a process has open.
fn open_files(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
    entries.filter_map(|e| Some(fs::read_link(e.path()).ok()?.display().to_string())).collect()
}

#[test]
fn p3_a_worker_holds_nothing_of_its_supervisor_but_its_socket() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, ""));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    assert!(open_files(a.pid()).iter().any(|f| f.ends_with("/lease.lock")), "{:?}", open_files(a.pid()));
    let held = open_files(gateway.workers()[0]);
    let run = gateway.run_dir().display().to_string();
    let state = gateway.state_dir().display().to_string();
    assert!(held.iter().filter(|f| f.starts_with(&run)).all(|f| f.starts_with(&format!("{run}/workers/"))), "{held:?}");
    assert!(held.iter().all(|f| !f.starts_with(&state)), "{held:?}");
}

#[test]
fn folders_and_sockets_are_for_their_user_and_group_alone() {
    let peer = Peer::start();
    let gateway = Gateway::new(&plant(&peer, ""));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    a.wait_leader();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&gateway.run_dir()), mode(&gateway.state_dir())), (0o750, 0o750));
    let mut sockets = 0;
    for dir in [gateway.run_dir(), gateway.run_dir().join("workers")] {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            let bits = mode(&entry.path());
            if kind.is_socket() {
                sockets += 1;
                assert_eq!(bits, 0o660, "{:?}", entry.path());
            } else if kind.is_dir() {
                assert_eq!(bits, 0o750, "{:?}", entry.path());
            }
        }
    }
    assert!(sockets >= 4, "instance, leader, probes, worker");
    let journal = gateway.state_dir().join("journal");
    for entry in fs::read_dir(&journal).unwrap().map(Result::unwrap) {
        assert_eq!(mode(&entry.path()) & 0o007, 0, "{:?}", entry.path());
    }
}

#[test]
fn sigquit_leaves_at_once_and_the_other_instance_leads() {
    let peer = Peer::start();
    let manifest = Manifest::pair().connection("c", peer.addr).simple("s", "c", 1, 20);
    let gateway = Gateway::new(&manifest);
    let (mut a, b) = pair(&gateway);
    gateway.more_good("s", "v", 2);
    // A worker that hangs would hold a drain up for seconds.
    signal(gateway.workers()[0], Signal::STOP);
    let begun = Instant::now();
    a.signal(Signal::QUIT);
    a.wait();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(!gateway.log("a").contains("drained"));
    b.wait_leader();
}

#[test]
fn a_second_sigterm_ends_the_wait() {
    let peer = Peer::start();
    let text = plant(&peer, "").text().replace("drain_timeout_ms = 5000", "drain_timeout_ms = 60000");
    let gateway = Gateway::new(&plant(&peer, ""));
    gateway.write(&text);
    let mut a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    signal(gateway.workers()[0], Signal::STOP);
    a.signal(Signal::TERM);
    a.status_when("it drains", |s| s["role"] == "draining");
    let refused = gateway.ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(5), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(a.child.try_wait().unwrap().is_none());
    a.signal(Signal::TERM);
    assert_eq!(a.wait().code(), Some(0));
    assert!(gateway.log("a").contains("held"), "{}", gateway.log("a"));
}

#[test]
fn a_lone_leader_that_stood_still_for_longer_than_its_lease_commits_nothing_more_and_leaves() {
    let peer = Peer::start();
    let manifest = Manifest::new("[lease]\nttl_ms = 600").connection("c", peer.addr).simple("s", "c", 1, 20);
    let gateway = Gateway::new(&manifest);
    let mut a = gateway.start("a");
    gateway.more_good("s", "v", 3);
    a.signal(Signal::STOP);
    sleep(Duration::from_secs(2));
    let known = gateway.records();
    a.signal(Signal::CONT);
    assert!(!a.wait().success());
    let after = gateway.records();
    // What passed the fence before the stop may have been written after it.
    let late = after[known.len()..].iter().filter(|r| r["kind"] == "reading").count();
    assert!(late <= 5, "{late} readings were written by a leader without a lease");
    until("the worker is gone", || gateway.workers().is_empty().then_some(()));
    gateway.assert_journal_sound();
}

#[test]
fn a_draining_instance_is_not_ready_and_says_so() {
    let peer = Peer::start();
    let text = plant(&peer, "").text().replace("drain_timeout_ms = 5000", "drain_timeout_ms = 3000");
    let gateway = Gateway::new(&plant(&peer, ""));
    gateway.write(&text);
    let mut a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    until("it is ready", || a.probe("/readyz").filter(|(code, _)| *code == 200));
    signal(gateway.workers()[0], Signal::STOP);
    a.signal(Signal::TERM);
    let (_, body) = until("it is not ready", || a.probe("/readyz").filter(|(code, _)| *code == 503));
    assert!(body.contains("draining"), "{body}");
    assert_eq!(a.probe("/leader").unwrap().0, 503);
    assert_eq!(a.probe("/healthz").unwrap().0, 200);
    assert_eq!(a.wait().code(), Some(0));
}

#[test]
fn a_station_that_is_down_for_long_does_not_flood_the_log() {
    let peer = Peer::start();
    peer.behave(|_| Answer::Exception(4));
    let gateway = Gateway::new(&plant(&peer, ""));
    let a = gateway.start("a");
    until("it has failed often", || (peer.asked(1) > 100).then_some(()));
    assert_eq!(a.drain(), Some(0));
    let lines =
        gateway.log("a").lines().filter(|l| l.contains("station state") || l.contains("still not well")).count();
    assert!(lines <= 3, "{lines} lines:\n{}", gateway.log("a"));
}

#[test]
fn sockets_that_somebody_removed_are_made_anew() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50));
    let a = gateway.start("a");
    a.wait_leader();
    for name in ["a.sock", "control.sock"] {
        std::fs::remove_file(gateway.run_dir().join(name)).unwrap();
    }
    until("both sockets answer again", || {
        let answers = |args: &[&str]| gateway.ask(args).status.success().then_some(());
        answers(&["status", "--json"])?;
        answers(&["status", "--json", "--instance", "a"])
    });
    assert_eq!(a.drain(), Some(0));
}
