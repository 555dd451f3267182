//! The journal against real ends: processes that are killed, disks that are full.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sensor_poll::{
    cli::{
        exit::Exit,
        journal::{JournalArgs, JournalCommand, run},
    },
    clock::Wall,
    journal::{
        Batch, CheckpointData, Entry, Hooks, Notice, Overflow, RecoverOptions, Recovered, StationNames, WriterHandle,
        WriterOptions,
        reader::{Start, records},
        recover, writer,
    },
};
use worker_contract::{Reading, Value};

const DEADLINE: Duration = Duration::from_secs(30);
/// The one worker of these tests.
const SOURCE: u64 = 7;
const CHILD_DIR: &str = "SENSOR_POLL_TEST_JOURNAL";

/// A folder in memory where there is one: what a killed process leaves is the same there, and nobody waits for a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// Readings with the values `from` to `to`, exclusive; the worker's number is `to`.
fn batch(from: u64, to: u64) -> Batch {
    let station = Arc::new(StationNames::new("boiler", [("temperature", Some("°C"))]));
    let readings = (from..to).map(|v| Reading { point: 0, value: Some(Value::from(v)), reason: None }).collect();
    let entries = vec![Entry::Readings { station, ts: Wall::now(), readings }];
    Batch { source: SOURCE, up_to: to, entries, urgent: false }
}

fn start(dir: &Path, options: WriterOptions, notice: impl FnMut(Notice) + Send + 'static) -> (Recovered, WriterHandle) {
    let recovered = recover(dir, RecoverOptions::default()).expect("the journal opens");
    let options = WriterOptions { epoch: recovered.epoch + 1, ..options };
    let hooks =
        Hooks { fence: Arc::new(|| true), notice: Box::new(notice), checkpoint: Box::new(CheckpointData::default) };
    let handle = writer::start(options, &recovered, hooks).expect("the writer starts");
    (recovered, handle)
}

/// The reading that the worker is to send next: what comes behind the last one that is committed.
fn next_reading(recovered: &Recovered) -> u64 {
    recovered.sources.get(SOURCE).map_or(0, |p| p.up_to - p.of + p.records)
}

/// Holds the journal to: numbers from 1 without a gap, values from 0 without a gap or a double.
fn holds_every_reading(dir: &Path) -> u64 {
    let (mut seq, mut value) = (0, 0);
    records(dir, Start::Beginning, &mut |record| {
        seq += 1;
        assert_eq!(record.seq, Some(seq));
        let line = std::str::from_utf8(record.line).expect("a record is text");
        if let Some((_, value_on)) = line.split_once("\"value\":") {
            let digits = value_on.split(',').next().expect("a split gives one");
            let read: u64 = digits.parse().expect("the value is a number");
            assert_eq!(read, value, "at {seq}");
            value += 1;
        }
        ControlFlow::Continue(())
    })
    .expect("the journal is read");
    value
}

fn verify(dir: &Path) -> Exit {
    run(&JournalArgs { command: JournalCommand::Verify { json: true }, state_dir: dir.to_owned() })
        .expect("it verifies")
}

/// Not a test of its own: the process that `killed_at_random_moments…` kills. Sends as fast as it is taken and prints
/// each acknowledged number.
#[test]
#[ignore = "the child of another test"]
fn child_writer() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let told = move |notice| {
        if let Notice::Committed(commit) = notice {
            let mut out = std::io::stdout().lock();
            for (_, up_to) in commit.acks {
                writeln!(out, "ack {up_to}").and_then(|()| out.flush()).expect("the parent listens");
            }
        }
    };
    let options = WriterOptions {
        commit_interval: Duration::from_millis(2),
        commit_bytes: 20_000,
        segment_bytes: 200_000,
        memory_bytes: 200_000,
        overflow: Overflow::StopPolling,
        ..WriterOptions::default()
    };
    let (recovered, handle) = start(Path::new(&dir), options, told);
    let mut next = next_reading(&recovered);
    loop {
        let to = next + 1 + next % 40;
        match handle.append(batch(next, to)) {
            Ok(()) => next = to,
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

#[test]
fn killed_at_random_moments_every_acknowledged_reading_is_there_once() {
    let dir = folder();
    let mut acked = 0;
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().expect("this test's own path"))
            .args(["journal::child_writer", "--exact", "--ignored", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut ack = || {
            let line = lines.by_ref().map_while(Result::ok).find_map(|l| l.strip_prefix("ack ")?.parse::<u64>().ok());
            line.inspect(|up_to| acked = *up_to)
        };
        ack().expect("the child commits");
        let random = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").subsec_nanos();
        for _ in 0..random % 10 {
            ack().expect("the child commits on");
        }
        std::thread::sleep(Duration::from_nanos(u64::from(random % 5_000_000)));
        child.kill().expect("the child is ours");
        child.wait().expect("the child ends");
        while ack().is_some() {}
        let recovered = recover(dir.path(), RecoverOptions::default()).expect("the journal opens");
        let there = holds_every_reading(dir.path());
        assert!(there >= acked, "round {round}: {acked} acknowledged, {there} there");
        assert_eq!(next_reading(&recovered), there, "round {round}");
        assert_eq!(verify(dir.path()), Exit::Done, "round {round}");
    }
}

#[test]
fn verify_beside_a_running_writer_finds_no_fault() {
    let dir = folder();
    let options = WriterOptions {
        commit_interval: Duration::from_millis(1),
        segment_bytes: 100_000,
        overflow: Overflow::StopPolling,
        ..WriterOptions::default()
    };
    let (_, handle) = start(dir.path(), options, |_| {});
    let (stop, stopped) = channel::<()>();
    let feeding = std::thread::spawn(move || {
        let mut next = 0;
        while stopped.try_recv().is_err() {
            if handle.append(batch(next, next + 20)).is_ok() {
                next += 20;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(handle.close(DEADLINE).unwritten, 0);
        next
    });
    // Until the journal has rolled a few times beside the reader, and for a few looks in any case.
    let mut seen = 0;
    for look in 0_u32.. {
        assert_eq!(verify(dir.path()), Exit::Done);
        seen = seen.max(holds_every_reading(dir.path()));
        if look >= 5 && seen > 2000 {
            break;
        }
        assert!(look < 10_000, "the writer stands still at {seen}");
    }
    stop.send(()).expect("the feeder listens");
    let sent = feeding.join().expect("the feeder ends");
    assert_eq!(holds_every_reading(dir.path()), sent);
}

#[test]
fn an_output_that_takes_nothing_is_a_failure_and_no_panic() {
    let dir = folder();
    let (_, handle) = start(dir.path(), WriterOptions::default(), |_| {});
    handle.append(batch(0, 10)).expect("taken");
    assert_eq!(handle.close(DEADLINE).unwritten, 0);
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").expect("a full device"));
    for command in
        [&["verify"][..], &["verify", "--json"], &["stats"], &["stats", "--json"], &["export"], &["export", "--csv"]]
    {
        let journal = || {
            let mut journal = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
            journal.arg("journal").args(command).arg("--state-dir").arg(dir.path()).stdout(full());
            journal
        };
        let told = journal().stderr(Stdio::piped()).output().expect("it runs");
        let text = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(told.status.code(), Some(1), "{command:?}: {text}");
        assert!(text.contains("cannot write the output: No space left"), "{command:?}: {text}");
        assert_eq!(journal().stderr(full()).status().expect("it runs").code(), Some(1), "{command:?}");
    }
}

/// A small file system, gone with the value.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|s| s.success()).then_some(Self(dir))
    }

    fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).expect("a filler");
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn wait_for(notices: &Receiver<Notice>, what: &str, mut found: impl FnMut(&Notice) -> bool) {
    while !found(&notices.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no {what} in time"))) {}
}

fn acked(notices: &Receiver<Notice>, up_to: u64) {
    wait_for(notices, "acknowledgement", |n| matches!(n, Notice::Committed(c) if c.acks.contains(&(SOURCE, up_to))));
}

#[test]
fn a_file_system_that_fills_up_and_empties_again_costs_no_reading() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: a_file_system_that_fills_up…: this user may not mount a tmpfs");
        return;
    };
    let state = disk.0.path().join("state");
    let (send, notices): (Sender<Notice>, _) = channel();
    let options = WriterOptions { commit_interval: Duration::from_millis(5), ..WriterOptions::default() };
    let (_, handle) = start(&state, options, move |notice| drop(send.send(notice)));
    handle.append(batch(0, 100)).expect("taken");
    acked(&notices, 100);
    let mut next = 100;
    for _ in 0..3 {
        disk.fill();
        // More than the rest of the last page, so that the write is cut short by the file system itself.
        for _ in 0..10 {
            handle.append(batch(next, next + 50)).expect("polling goes on");
            next += 50;
        }
        wait_for(&notices, "trouble", |n| matches!(n, Notice::Trouble(why) if why.contains("os error 28")));
        assert_eq!(verify(&state), Exit::Done);
        fs::remove_file(disk.filler()).expect("space returns");
        wait_for(&notices, "recovery", |n| *n == Notice::Recovered);
        acked(&notices, next);
        assert_eq!(holds_every_reading(&state), next);
    }
    assert_eq!(handle.close(DEADLINE).unwritten, 0);
    assert_eq!(verify(&state), Exit::Done);
    assert!(recover(&state, RecoverOptions::default()).expect("the journal opens").report.is_clean());
}
