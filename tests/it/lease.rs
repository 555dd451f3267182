//! Two processes and one lease: who leads, and that never both do, through crash, stop, and a run folder that somebody
//! cleaned.
//!
//! The wall clock has no test of its own here: nothing in the lease reads it to decide.
#![allow(clippy::unwrap_used, reason = "a helper outside a #[test] function fails the test all the same")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sensor_poll::{
    clock::Boot,
    lease::{Lease, LeaseEvent, LeaseOptions, Record},
    status::Role,
};
use tempfile::TempDir;

const MODE: &str = "SENSOR_POLL_LEASE_MODE";
const DIR: &str = "SENSOR_POLL_LEASE_DIR";
/// The run folder's name, when it is not `run`.
const RUN: &str = "SENSOR_POLL_LEASE_RUN";
const INSTANCE: &str = "SENSOR_POLL_LEASE_INSTANCE";
const TTL_MS: &str = "SENSOR_POLL_LEASE_TTL_MS";
/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_millis(600);

/// Not a test: the process that the tests below start.
#[test]
#[ignore = "the other end of the tests here"]
fn lease_child() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match mode.as_str() {
        "run" => runtime.block_on(child_runs(&PathBuf::from(std::env::var(DIR).unwrap()))),
        "rounds" => runtime.block_on(child_plays_rounds()),
        other => panic!("no mode {other}"),
    }
}

fn options(dir: &Path) -> LeaseOptions {
    LeaseOptions {
        run_dir: dir.join(std::env::var(RUN).unwrap_or_else(|_| "run".to_owned())),
        state_dir: dir.join("state"),
        instance: std::env::var(INSTANCE).unwrap(),
        ttl: Duration::from_millis(std::env::var(TTL_MS).unwrap().parse().unwrap()),
        build: "0.1.0".to_owned(),
        epoch_floor: Box::new(|| 0),
    }
}

/// One line, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {line}").unwrap();
    out.flush().unwrap();
}

async fn child_runs(dir: &Path) {
    let (lease, mut events) = match Lease::start(options(dir)) {
        Ok(started) => started,
        Err(e) => {
            // A refusal is something that tests ask for: a line, and no panic with a trace in the output of them all.
            say(&format!("refused {e}"));
            std::process::exit(1);
        }
    };
    let fence = lease.fence();
    let mut log = fs::OpenOptions::new().create(true).append(true).open(dir.join("io.log")).unwrap();
    thread::spawn(move || {
        loop {
            if let Ok(epoch) = fence.check() {
                log.write_all(format!("{epoch}\n").as_bytes()).unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    thread::spawn(|| {
        // The test is gone when its end of the pipe is.
        let _ = std::io::stdin().lines().count();
        std::process::exit(0);
    });
    // A child of the holder, in the holder's own words: whatever it inherits, it keeps for longer than the test.
    let mut heir = None;
    while let Some(event) = events.recv().await {
        match event {
            LeaseEvent::Promoted { epoch, why } => {
                say(&format!("promoted {epoch} {} {why}", Boot::now().0.as_nanos()));
                if std::env::var_os("SENSOR_POLL_LEASE_HEIR").is_some() {
                    heir = Some(Command::new("sleep").arg("5").stdout(Stdio::null()).spawn().unwrap());
                    say("heir");
                }
            }
            LeaseEvent::Following { leader } => {
                say(&format!("following {}", leader.map_or_else(|| "nobody".to_owned(), |l| l.instance)));
            }
            LeaseEvent::Fenced { why } => {
                say(&format!("fenced {why}"));
                std::process::exit(6);
            }
            LeaseEvent::CannotFence { why } => say(&format!("cannot {why}")),
            LeaseEvent::EpochNotReserved { why } => say(&format!("epoch {why}")),
            LeaseEvent::Lost { why } => say(&format!("lost {why}")),
        }
    }
    drop(heir);
}

async fn child_plays_rounds() {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    while let Some(dir) = lines.next() {
        let (lease, _events) = Lease::start(options(Path::new(&dir))).unwrap();
        // Until somebody is seen to lead; on a busy machine both may stand by for a moment before.
        while lease.view().leader.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        say(if lease.view().role == Role::Leader { "leads" } else { "follows" });
        let _ = lines.next();
        say(if lease.view().role == Role::Leader { "led" } else { "followed" });
        lease.shutdown().await.unwrap();
    }
}

struct Instance {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Instance {
    fn start(mode: &str, dir: &Path, id: &str, ttl: Duration) -> Self {
        Self::start_with(mode, dir, id, ttl, &[])
    }

    fn start_with(mode: &str, dir: &Path, id: &str, ttl: Duration, env: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lease::lease_child", "--ignored", "--nocapture", "--test-threads=1"])
            .env(MODE, mode)
            .env(DIR, dir)
            .env(INSTANCE, id)
            .env(TTL_MS, ttl.as_millis().to_string())
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let stdout = process.stdout.take().unwrap();
        let (out, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The harness prints the test's name without a line break before our first line.
                if let Some((_, said)) = line.split_once("> ")
                    && out.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { process, stdin, lines }
    }

    fn next(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("nothing said in time"),
            Err(RecvTimeoutError::Disconnected) => panic!("the process ended without a word"),
        }
    }

    fn wait_for(&self, start: &str) -> String {
        loop {
            let line = self.next();
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Epoch, moment and reason of the promotion.
    fn promoted(&self) -> (u64, Boot, String) {
        let line = self.wait_for("promoted ");
        let mut words = line.splitn(4, ' ').skip(1);
        let epoch = words.next().unwrap().parse().unwrap();
        let at = Duration::from_nanos(words.next().unwrap().parse().unwrap());
        (epoch, Boot(at), words.next().unwrap().to_owned())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A leader `a` and a follower `b`.
fn pair(ttl: Duration) -> (TempDir, Instance, Instance) {
    let dir = tempfile::tempdir().unwrap();
    let a = Instance::start("run", dir.path(), "a", ttl);
    assert_eq!(a.promoted().0, 1);
    let b = Instance::start("run", dir.path(), "b", ttl);
    assert_eq!(b.wait_for("following"), "following a");
    (dir, a, b)
}

/// What was written under which epoch: once a higher one was there, no lower one comes after it.
fn assert_one_leader_at_every_moment(dir: &Path) {
    let log = fs::read_to_string(dir.join("io.log")).unwrap();
    let epochs: Vec<u64> = log.lines().filter_map(|l| l.parse().ok()).collect();
    assert!(epochs.is_sorted(), "I/O of two leaders is mixed");
    assert!(!epochs.is_empty());
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn of_two_started_at_once_exactly_one_leads() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = ["a", "b"].map(|id| Instance::start("rounds", dir.path(), id, TTL));
    for round in 0..50 {
        let folder = dir.path().join(round.to_string());
        for instance in &mut pair {
            instance.tell(folder.to_str().unwrap());
        }
        let said = pair.each_ref().map(Instance::next);
        assert_eq!(said.iter().filter(|s| *s == "leads").count(), 1, "round {round}: {said:?}");
        let follower = said.iter().position(|s| s == "follows").unwrap();
        pair[follower].tell("end");
        assert_eq!(pair[follower].next(), "followed");
        pair[1 - follower].tell("end");
        assert_eq!(pair[1 - follower].next(), "led");
    }
}

#[test]
fn a_leader_that_dies_is_followed_at_once() {
    let (dir, a, b) = pair(Duration::from_secs(30));
    let died = Boot::now();
    a.signal(Signal::SIGKILL);
    let (epoch, at, why) = b.promoted();
    assert_eq!(epoch, 2);
    assert!(why.starts_with("leader a (pid ") && why.ends_with(" died"), "{why}");
    // A fraction of the TTL of 30 s; the benchmark has the numbers.
    assert!(at.since(died) < Duration::from_secs(2), "{:?}", at.since(died));
    assert_one_leader_at_every_moment(dir.path());
}

#[test]
fn a_stopped_leader_is_ended_and_never_writes_again() {
    let (dir, mut a, b) = pair(TTL);
    let stopped = Boot::now();
    a.signal(Signal::SIGSTOP);
    let (epoch, at, why) = b.promoted();
    assert_eq!(epoch, 2);
    assert!(why.contains("hung for") && why.ends_with("was killed"), "{why}");
    assert!(at.since(stopped) < TTL + Duration::from_millis(500), "{:?}", at.since(stopped));
    // Continuing it changes nothing: it is gone.
    a.signal(Signal::SIGCONT);
    a.process.wait().unwrap();
    wait_until("b writes", || fs::read_to_string(dir.path().join("io.log")).unwrap().ends_with("\n2\n"));
    assert_one_leader_at_every_moment(dir.path());
}

#[test]
fn a_leader_that_was_stopped_without_a_follower_fences_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Instance::start("run", dir.path(), "a", TTL);
    a.promoted();
    a.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    wait_until("time passes", || stopped.elapsed() > TTL);
    let before = fs::read(dir.path().join("io.log")).unwrap();
    a.signal(Signal::SIGCONT);
    assert!(a.wait_for("fenced").contains("stood still"));
    assert_eq!(a.process.wait().unwrap().code(), Some(6));
    // One write may have been between check and call when it was stopped; no check after that passed.
    let after = fs::read(dir.path().join("io.log")).unwrap();
    assert!(after.len() <= before.len() + 2, "I/O went on after the stop");
}

#[test]
fn a_child_of_the_leader_does_not_hold_the_lease() {
    let dir = tempfile::tempdir().unwrap();
    let ttl = Duration::from_secs(30);
    let a = Instance::start_with("run", dir.path(), "a", ttl, &[("SENSOR_POLL_LEASE_HEIR", "1")]);
    a.wait_for("heir");
    let b = Instance::start("run", dir.path(), "b", ttl);
    b.wait_for("following a");
    let died = Boot::now();
    a.signal(Signal::SIGKILL);
    let (_, at, _) = b.promoted();
    assert!(at.since(died) < Duration::from_secs(2), "the child held the lock for {:?}", at.since(died));
}

#[test]
fn a_second_process_of_one_id_is_refused() {
    let (dir, _a, _b) = pair(TTL);
    let mut again = Instance::start("run", dir.path(), "a", TTL);
    assert!(again.wait_for("refused ").contains("instance a runs already"));
    assert_eq!(again.process.wait().unwrap().code(), Some(1));
}

/// It could only ever wait, and would call a healthy leader hung.
#[test]
fn a_second_pair_with_the_same_state_folder_is_refused() {
    let (dir, a, b) = pair(TTL);
    // Both of it at once: each sees the other one at its lock file.
    let mut others = ["y", "z"].map(|id| Instance::start_with("run", dir.path(), id, TTL, &[(RUN, "run2")]));
    for other in &mut others {
        let said = other.wait_for("");
        assert!(said.starts_with("refused another pair leads with the state folder "), "{said}");
        assert!(said.contains("/state") && said.contains("--state-dir") && said.contains("--run-dir"), "{said}");
        if let Some((_, rest)) = said.split_once("(process ") {
            assert!(rest.starts_with(&format!("{})", a.process.id())), "{said}");
        }
        assert_eq!(other.process.wait().unwrap().code(), Some(1));
    }
    a.signal(Signal::SIGKILL);
    assert_eq!(b.promoted().0, 2, "the pair is none the worse for it");
    // Nor is one that starts right when its leader dies taken for another pair's.
    b.signal(Signal::SIGKILL);
    let c = Instance::start("run", dir.path(), "c", TTL);
    assert_eq!(c.promoted().0, 3);
}

/// Nobody hangs: it is the state folder that another process holds.
#[test]
fn a_follower_says_which_lock_is_held() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["run", "state"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let lease = fs::File::create(dir.path().join("run/lease.lock")).unwrap();
    fs4::FileExt::lock(&lease).unwrap();
    let state = fs::File::open(dir.path().join("state")).unwrap();
    fs4::FileExt::lock(&state).unwrap();
    let b = Instance::start("run", dir.path(), "b", TTL);
    assert_eq!(b.wait_for("following"), "following nobody");
    drop(lease);
    let said = b.wait_for("cannot");
    assert!(said.contains(" holds the state folder ") && said.contains("lease.lock is ours"), "{said}");
    assert!(said.ends_with("and there is no record"), "{said}");
    drop(state);
    assert_eq!(b.promoted().0, 1);
}

/// The product itself: a supervisor with another state folder would begin a second journal.
#[test]
fn a_follower_with_another_state_folder_is_refused() {
    let dir = tempfile::Builder::new().prefix("sp").tempdir_in("/tmp").unwrap();
    let manifest = dir.path().join("plant.toml");
    fs::write(
        &manifest,
        "format_version = \"1\"\n[facility]\nid = \"test\"\n[[connections]]\nid = \"c\"\nkind = \"modbus-tcp\"\n\
         host = \"127.0.0.1\"\nport = 1\n[[stations]]\nid = \"s\"\nconnection_ref = \"c\"\nunit_id = 1\n\
         [[stations.points]]\nname = \"v\"\naddress = \"hr:1\"\ndata_type = \"u16\"\n",
    )
    .unwrap();
    let start = |id: &str, state: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
        command.args(["run", "--http", "off", "--instance", id, "--manifest"]).arg(&manifest);
        command.arg("--run-dir").arg(dir.path().join("run")).arg("--state-dir").arg(dir.path().join(state));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut a = start("a", "one");
    wait_until("a is registered", || dir.path().join("run/registry.json").exists());
    let refused = start("b", "two").wait_with_output().unwrap();
    kill(Pid::from_raw(i32::try_from(a.id()).unwrap()), Signal::SIGTERM).unwrap();
    let ended = a.wait().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("instance a (process ") && said.contains("/two; give both instances"), "{said}");
    assert!(!dir.path().join("two/journal").exists(), "a second journal");
    assert!(ended.success());
    // The one that kept the other folder is gone.
    let mut b = start("b", "two");
    wait_until("b has its journal", || dir.path().join("two/journal").exists());
    kill(Pid::from_raw(i32::try_from(b.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(b.wait().unwrap().success());
}

#[test]
fn a_removed_or_garbled_record_is_no_free_lease_and_is_made_anew() {
    let (dir, a, b) = pair(TTL);
    let record = dir.path().join("run/lease");
    let whole = || Record::decode(&fs::read(&record).unwrap_or_default()).is_ok_and(|r| r.instance == "a");
    for garbage in [&b""[..], b"not a record", &[0; 4096]] {
        fs::write(&record, garbage).unwrap();
        wait_until("a writes it again", whole);
    }
    fs::remove_file(&record).unwrap();
    let removed = Instant::now();
    wait_until("a makes it anew", whole);
    assert!(removed.elapsed() < TTL, "it took {:?}", removed.elapsed());
    assert!(b.lines.try_iter().all(|said| !said.starts_with("promoted") && !said.starts_with("cannot")));
    a.signal(Signal::SIGKILL);
    assert_eq!(b.promoted().0, 2);
    assert_one_leader_at_every_moment(dir.path());
}

/// A living leader holds the state folder too, so whoever locks a new `lease.lock` waits there; the leader makes the
/// file anew.
#[test]
fn a_run_folder_that_was_cleaned_does_not_give_two_leaders() {
    let (dir, a, b) = pair(TTL);
    for entry in fs::read_dir(dir.path().join("run")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let c = Instance::start("run", dir.path(), "c", TTL);
    c.wait_for("following a");
    wait_until("the lock file is there again", || dir.path().join("run/lease.lock").exists());
    assert!(b.lines.try_iter().chain(c.lines.try_iter()).all(|said| !said.starts_with("promoted")), "two leaders");
    a.signal(Signal::SIGKILL);
    // Either may come first, and the other one follows it.
    let first = loop {
        if let Some(said) = b.lines.try_iter().chain(c.lines.try_iter()).find(|said| said.starts_with("promoted")) {
            break said;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(first.starts_with("promoted 2 "), "{first}");
    wait_until("it writes", || fs::read_to_string(dir.path().join("io.log")).unwrap().ends_with("\n2\n"));
    assert_one_leader_at_every_moment(dir.path());
}

#[test]
fn a_record_of_another_boot_names_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut bystander = Command::new("sleep").arg("30").spawn().unwrap();
    {
        let a = Instance::start("run", dir.path(), "a", TTL);
        a.promoted();
        // Reserved beside the promotion; a boot starts above it.
        wait_until("epochs are reserved", || dir.path().join("state/epoch").exists());
        a.signal(Signal::SIGKILL);
    }
    let path = dir.path().join("run/lease");
    let record = Record::decode(&fs::read(&path).unwrap()).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", bystander.id())).unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let process = sensor_poll::coordination::Process { pid: bystander.id(), start };
    let other = Record { boot_id: "f".repeat(32), process, ..record.clone() };
    fs::write(&path, other.encode()).unwrap();
    // Somebody holds the lock, and the record of another boot says nothing about whom.
    let held = fs::File::create(dir.path().join("run/lease.lock")).unwrap();
    fs4::FileExt::lock(&held).unwrap();
    let b = Instance::start("run", dir.path(), "b", TTL);
    assert_eq!(b.wait_for("following"), "following nobody");
    let said = b.wait_for("cannot");
    assert!(said.contains("lease.lock and does not lead, and the record is of another boot"), "{said}");
    assert!(bystander.try_wait().unwrap().is_none(), "a process was ended for a namesake of another boot");
    drop(held);
    let (epoch, _, why) = b.promoted();
    assert!(epoch > record.epoch);
    assert_eq!(why, "first to start");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
