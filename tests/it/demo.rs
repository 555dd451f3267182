//! `sensor-poll sim` and `sensor-poll demo`, as a person starts them.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const DEADLINE: Duration = Duration::from_secs(20);

/// A process that is killed when the test ends, however it ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(args: &[&str], temp: &Path) -> (Self, BufReader<ChildStdout>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
        command.args(args).env("TMPDIR", temp).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (Self(child), out)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        until("the process ends", || self.0.try_wait().unwrap())
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn sim(args: &[&str]) -> (Process, SocketAddr) {
    let all: Vec<&str> = ["sim", "modbus", "--listen", "127.0.0.1:0"].iter().chain(args).copied().collect();
    let (process, mut out) = Process::start(&all, Path::new("/tmp"));
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening on ").expect("the address goes to stdout").parse().unwrap();
    (process, address)
}

/// Asks for one register, and gives what follows the length of the answer.
fn ask(stream: &mut TcpStream, unit: u8, function: u8, address: u16) -> Vec<u8> {
    let [high, low] = address.to_be_bytes();
    stream.write_all(&[0, 1, 0, 0, 0, 6, unit, function, high, low, 0, 1]).unwrap();
    let mut header = [0; 6];
    stream.read_exact(&mut header).unwrap();
    let mut rest = vec![0; usize::from(header[5])];
    stream.read_exact(&mut rest).unwrap();
    rest
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

#[test]
fn the_simulator_tells_its_address_answers_and_leaves_on_sigterm() {
    let (mut process, address) = sim(&["--plant", "registers", "--units", "2"]);
    let mut stream = connect(address);
    assert_eq!(ask(&mut stream, 2, 3, 4660), [2, 3, 2, 0x12, 0x34]);
    assert_eq!(ask(&mut stream, 3, 3, 0), [3, 0x83, 11]);
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn the_simulator_makes_the_faults_that_it_is_asked_for() {
    let (_process, address) = sim(&["--plant", "registers", "--exception", "1:6", "--late", "2:80"]);
    let mut stream = connect(address);
    assert_eq!(ask(&mut stream, 1, 3, 0), [1, 0x83, 6]);
    let began = Instant::now();
    assert_eq!(ask(&mut stream, 2, 3, 5), [2, 3, 2, 0, 5]);
    assert!(began.elapsed() >= Duration::from_millis(80));
}

#[test]
fn the_demo_plant_is_the_default_and_its_meter_says_what_it_does_not_have() {
    let (_process, address) = sim(&[]);
    assert_eq!(ask(&mut connect(address), 3, 4, 10), [3, 4, 2, 0x80, 0]);
}

#[test]
fn the_simulator_prints_a_manifest_that_fits_it() {
    let args = ["sim", "modbus", "--listen", "127.0.0.1:1502", "--manifest"];
    let (mut process, mut out) = Process::start(&args, Path::new("/tmp"));
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(process.wait().code(), Some(0));
    assert!(text.starts_with("format_version = \"1\"\n") && text.contains("port = 1502\n"), "{text}");
    // That `check` takes it is tested where `check` is.
}

#[test]
fn an_address_that_is_taken_is_told_with_what_to_do() {
    let (_process, address) = sim(&[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
    let output = command.args(["sim", "modbus", "--listen", &address.to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(&format!("cannot listen on {address}")) && text.contains("--listen"), "{text}");
}

/// Every process that has `needle` among its arguments, this test's own not.
fn processes_with(needle: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|e| e.path());
    let has = |path: &PathBuf| {
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(needle)
    };
    entries.filter(has).collect()
}

#[test]
fn the_demo_shows_a_takeover_and_leaves_nothing_behind() {
    let temp = tempfile::Builder::new().prefix("d").tempdir_in("/tmp").unwrap();
    let (mut process, mut out) = Process::start(&["demo", "--kill-leader-after", "1s", "--for", "5s"], temp.path());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(process.wait().code(), Some(0), "{text}");
    for part in [
        "first reading journalled after ",
        "leads under epoch ",
        "takeover 1: ",
        " answered as leader after ",
        "readings missed 0, doubled 0",
        "was started again",
        "the pair drained in ",
    ] {
        assert!(text.contains(part), "no \"{part}\" in:\n{text}");
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "the folder stays");
    assert_eq!(processes_with(temp.path().to_str().unwrap()), Vec::<PathBuf>::new());
}

#[test]
fn a_demo_that_is_told_to_stop_drains_and_keeps_its_folder_when_asked() {
    let temp = tempfile::Builder::new().prefix("d").tempdir_in("/tmp").unwrap();
    let (mut process, mut out) = Process::start(&["demo", "--keep"], temp.path());
    wait_for_line(&mut out, "first reading journalled");
    process.signal(Signal::INT);
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(process.wait().code(), Some(0), "{text}");
    assert!(text.contains("journal verify --state-dir"), "{text}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    assert_eq!(processes_with(temp.path().to_str().unwrap()), Vec::<PathBuf>::new());
}

#[test]
fn no_process_outlives_a_demo_that_is_killed() {
    let temp = tempfile::Builder::new().prefix("d").tempdir_in("/tmp").unwrap();
    let (process, mut out) = Process::start(&["demo"], temp.path());
    wait_for_line(&mut out, "first reading journalled");
    assert!(processes_with(temp.path().to_str().unwrap()).len() >= 2, "the pair runs");
    process.signal(Signal::KILL);
    until("the pair is gone", || processes_with(temp.path().to_str().unwrap()).is_empty().then_some(()));
}

#[test]
fn the_folder_of_a_demo_that_was_killed_goes_with_the_next_one() {
    let temp = tempfile::Builder::new().prefix("d").tempdir_in("/tmp").unwrap();
    let (mut killed, mut out) = Process::start(&["demo"], temp.path());
    wait_for_line(&mut out, "first reading journalled");
    let (mut living, mut out) = Process::start(&["demo"], temp.path());
    wait_for_line(&mut out, "first reading journalled");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "that of a demo that runs stays");
    killed.signal(Signal::KILL);
    killed.wait();
    let mut text = String::new();
    let (mut next, mut next_out) = Process::start(&["demo", "--for", "1s"], temp.path());
    next_out.read_to_string(&mut text).unwrap();
    assert_eq!(next.wait().code(), Some(0), "{text}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "{text}");
    living.signal(Signal::INT);
    assert_eq!(living.wait().code(), Some(0));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn a_demo_on_a_full_disk_fails_and_says_so_and_leaves_nothing() {
    let temp = tempfile::Builder::new().prefix("d").tempdir_in("/tmp").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
    command.arg("demo").env("TMPDIR", temp.path()).stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write the result"), "{text}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

fn wait_for_line(out: &mut impl BufRead, start: &str) {
    let mut line = String::new();
    while !line.starts_with(start) {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the demo ended before \"{start}\"");
    }
}
