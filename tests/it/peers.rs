//! `sensor-poll run` against a Modbus server that is none of ours: `tests/peers/modbus_sim.py`, plain Python.
//!
//! Its values follow from their addresses, so that a value of another point shows at once, whatever goes wrong. Without
//! `python3` these tests say so and pass.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(30);

/// The points of every station: address, type, and what the simulator holds there.
fn points() -> [(&'static str, &'static str, Value); 9] {
    [
        ("hr:5", "u16", json!(5)),
        ("hr:6", "u16", json!(6)),
        ("hr:300", "u32", json!(300 << 16 | 301)),
        ("hr:65535", "i16", json!(-1)),
        ("ir:7", "u16", json!(1007)),
        ("co:3", "bool", json!(true)),
        ("co:4", "bool", json!(false)),
        ("di:6", "bool", json!(true)),
        ("di:7", "bool", json!(false)),
    ]
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A process that is killed when the test ends, however it ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// False, and said, where there is no Python.
fn has_python() -> bool {
    let probe = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = probe.is_ok_and(|status| status.success());
    if !found {
        println!("skipped: no python3");
    }
    found
}

/// Starts the simulator at an address and waits for its word that it listens; `None` when it cannot.
fn serve_at(address: SocketAddr, args: &[&str]) -> Option<Process> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/modbus_sim.py");
    let mut command = Command::new("python3");
    command.arg(script).arg("--tcp").arg(address.to_string()).args(args);
    let mut process = Process(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(process.0.stdout.take().unwrap());
    let (said, says) = mpsc::channel();
    // Ends with the process, which closes its end of the pipe.
    thread::spawn(move || {
        let mut line = String::new();
        let _ = out.read_line(&mut line);
        let _ = said.send(line);
    });
    says.recv_timeout(DEADLINE).unwrap().starts_with("ready").then_some(process)
}

/// Starts the simulator at a port of its own. It cannot choose one itself, so somebody may be faster: then another one.
fn serve(args: &[&str]) -> (Process, SocketAddr) {
    until("the simulator listens", || {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        serve_at(address, args).map(|process| (process, address))
    })
}

fn manifest(address: SocketAddr, units: u8, keys: &str) -> String {
    let mut text = format!(
        "format_version = \"1\"\n[facility]\nid = \"peers\"\n[journal]\ncommit_interval_ms = 20\n\
         [[connections]]\nid = \"line\"\nkind = \"modbus-tcp\"\nhost = \"{}\"\nport = {}\n",
        address.ip(),
        address.port()
    );
    for unit in 1..=units {
        let station = format!(
            "[[stations]]\nid = \"u{unit}\"\nconnection_ref = \"line\"\nunit_id = {unit}\npoll_interval_ms = 100\n\
             timeout_ms = 300\nretries = 0\n{keys}\n"
        );
        text.push_str(&station);
        for (address, data_type, _) in points() {
            let name = address.replace(':', "_");
            writeln!(
                text,
                "[[stations.points]]\nname = \"{name}\"\naddress = \"{address}\"\ndata_type = \"{data_type}\""
            )
            .unwrap();
        }
    }
    text
}

/// A supervisor with its folders.
struct Gateway {
    supervisor: Process,
    folder: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.supervisor.0.kill();
        let _ = self.supervisor.0.wait();
        // Workers are in process groups of their own, and name the folder, which is this test's alone.
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Gateway {
    fn start(manifest: &str) -> Self {
        // Paths of sockets are short.
        let folder = tempfile::Builder::new().prefix("p").tempdir_in("/tmp").unwrap();
        let file = folder.path().join("plant.toml");
        fs::write(&file, manifest).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
        command.args(["run", "--http", "off", "--manifest"]).arg(file);
        command.arg("--state-dir").arg(folder.path().join("state")).arg("--run-dir").arg(folder.path().join("run"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { supervisor: Process(child), folder }
    }

    fn processes(&self) -> Vec<Pid> {
        let needle = self.folder.path().to_str().unwrap();
        let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let named = entries.filter(|entry| {
            let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(needle)
        });
        named.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn command(&self, args: &[&str], folder: (&str, PathBuf)) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
        command.args(args).arg(folder.0).arg(folder.1).output().unwrap()
    }

    fn journal(&self, args: &[&str]) -> Output {
        let args = [&["journal"], args].concat();
        self.command(&args, ("--state-dir", self.folder.path().join("state")))
    }

    /// `None` before it answers.
    fn status(&self) -> Option<Value> {
        let output = self.command(&["status", "--json"], ("--run-dir", self.folder.path().join("run")));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn station(&self, id: &str) -> Option<Value> {
        let status = self.status()?;
        status["stations"].as_array()?.iter().find(|station| station["id"] == id).cloned()
    }

    /// Waits until each of these stations is in a state.
    fn wait_for(&self, stations: &[&str], state: &str) {
        let fine = |id: &&str| self.station(id).is_some_and(|station| station["state"] == state);
        until(&format!("{stations:?} are {state}"), || stations.iter().all(fine).then_some(()));
    }

    /// Waits until each of these stations was polled so many times more.
    fn wait_for_polls(&self, stations: &[&str], more: u64) {
        let polls = |id: &&str| self.station(id).and_then(|s| s["counters"]["polls"].as_u64()).unwrap_or_default();
        let before: Vec<u64> = stations.iter().map(polls).collect();
        until("the stations are polled on", || {
            stations.iter().zip(&before).all(|(id, before)| polls(id) >= before + more).then_some(())
        });
    }

    fn readings(&self) -> Vec<Value> {
        let output = self.journal(&["export", "--kind", "reading"]);
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Drains the gateway and holds its journal against what the simulator has: the readings.
    fn finish(mut self) -> Vec<Value> {
        kill_process(Pid::from_child(&self.supervisor.0), Signal::TERM).unwrap();
        let ended: ExitStatus = until("the supervisor drains", || self.supervisor.0.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{}", fs::read_to_string(self.folder.path().join("log")).unwrap());
        assert!(until("the workers leave", || self.processes().is_empty().then_some(true)));
        let verified = self.journal(&["verify"]);
        assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stdout));
        let readings = self.readings();
        assert!(!readings.is_empty(), "nothing in the journal");
        readings.iter().for_each(assert_its_own);
        readings
    }
}

/// A reading is good with the value of its very address, or bad with a reason and without a value.
fn assert_its_own(reading: &Value) {
    let is_its = |address: &str| reading["point"] == address.replace(':', "_");
    let (_, _, wanted) = points().into_iter().find(|(address, ..)| is_its(address)).unwrap();
    if reading["quality"] == "good" {
        assert_eq!(reading["value"], wanted, "{reading}");
        assert_eq!(reading.get("reason"), None, "{reading}");
    } else {
        assert_eq!(reading["quality"], "bad", "{reading}");
        assert!(reading["value"].is_null() && reading["reason"].is_string(), "{reading}");
    }
}

/// The reasons of a station's bad readings, each once.
fn reasons(readings: &[Value], station: &str) -> Vec<String> {
    let of = readings.iter().filter(|r| r["station"] == station);
    let mut all: Vec<String> = of.filter_map(|r| r["reason"].as_str().map(str::to_owned)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn good(readings: &[Value], station: &str) -> usize {
    readings.iter().filter(|r| r["station"] == station && r["quality"] == "good").count()
}

#[test]
fn every_table_is_read_with_the_values_of_an_independent_server() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2,3"]);
    let gateway = Gateway::start(&manifest(address, 3, ""));
    gateway.wait_for(&["u1", "u2", "u3"], "good");
    gateway.wait_for_polls(&["u1", "u2", "u3"], 5);
    let readings = gateway.finish();
    for station in ["u1", "u2", "u3"] {
        assert_eq!(reasons(&readings, station), [""; 0]);
        assert!(good(&readings, station) >= 6 * points().len());
    }
}

#[test]
fn late_answers_are_no_other_points_values_and_pass() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1", "--late", "500", "--first", "4"]);
    let gateway = Gateway::start(&manifest(address, 1, "one_request_per_point = true"));
    until("an answer is late", || reasons(&gateway.readings(), "u1").contains(&"timeout".to_owned()).then_some(()));
    gateway.wait_for(&["u1"], "good");
    gateway.wait_for_polls(&["u1"], 3);
    let readings = gateway.finish();
    assert_eq!(reasons(&readings, "u1"), ["timeout"]);
    assert!(good(&readings, "u1") >= 3 * points().len());
}

#[test]
fn one_silent_unit_of_three_is_backed_off_alone() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2,3", "--drop", "2:1"]);
    let gateway = Gateway::start(&manifest(address, 3, ""));
    gateway.wait_for(&["u2"], "backoff");
    gateway.wait_for(&["u1", "u3"], "good");
    gateway.wait_for_polls(&["u1", "u3"], 20);
    assert_eq!(gateway.station("u2").unwrap()["state"], "backoff");
    let readings = gateway.finish();
    assert_eq!(reasons(&readings, "u2"), ["timeout"]);
    assert_eq!(good(&readings, "u2"), 0);
    for station in ["u1", "u3"] {
        assert_eq!(reasons(&readings, station), [""; 0], "a neighbour suffers");
    }
}

#[test]
fn an_exception_is_told_with_its_code_and_is_no_value() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2,3", "--exception", "2:4"]);
    let gateway = Gateway::start(&manifest(address, 3, ""));
    gateway.wait_for(&["u1", "u3"], "good");
    gateway.wait_for_polls(&["u1", "u2", "u3"], 2);
    let station = gateway.station("u2").unwrap();
    assert!(station["reason"].as_str().unwrap().contains("exception:4"), "{station}");
    let readings = gateway.finish();
    assert_eq!(reasons(&readings, "u2"), ["exception:4"]);
    assert_eq!(good(&readings, "u2"), 0);
    assert_eq!((reasons(&readings, "u1").len(), reasons(&readings, "u3").len()), (0, 0));
}

#[test]
fn answers_that_are_too_short_give_no_value_and_pass() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2,3", "--short-reply", "2:1", "--first", "8"]);
    let gateway = Gateway::start(&manifest(address, 3, ""));
    until("an answer is short", || (!reasons(&gateway.readings(), "u2").is_empty()).then_some(()));
    gateway.wait_for(&["u1", "u2", "u3"], "good");
    gateway.wait_for_polls(&["u2"], 2);
    let readings = gateway.finish();
    assert!(good(&readings, "u2") >= points().len());
}

#[test]
fn answers_to_other_transactions_are_not_taken_and_pass() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2,3", "--bad-crc", "2:1", "--first", "4"]);
    let gateway = Gateway::start(&manifest(address, 3, ""));
    until("an answer is foreign", || (!reasons(&gateway.readings(), "u2").is_empty()).then_some(()));
    gateway.wait_for(&["u1", "u2", "u3"], "good");
    gateway.wait_for_polls(&["u2"], 2);
    let readings = gateway.finish();
    assert_eq!(reasons(&readings, "u2"), ["timeout"]);
    assert!(good(&readings, "u2") >= points().len());
}

#[test]
fn a_server_that_hangs_up_again_and_again_is_read_on() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2", "--close-every", "25"]);
    let gateway = Gateway::start(&manifest(address, 2, ""));
    gateway.wait_for(&["u1", "u2"], "good");
    // Several requests a poll: it hangs up many times meanwhile.
    gateway.wait_for_polls(&["u1", "u2"], 40);
    gateway.wait_for(&["u1", "u2"], "good");
    let readings = gateway.finish();
    for station in ["u1", "u2"] {
        assert!(good(&readings, station) >= 20 * points().len());
        let reasons = reasons(&readings, station);
        assert!(reasons.iter().all(|reason| reason == "disconnected"), "{reasons:?}");
    }
}

#[test]
fn a_server_of_one_connection_serves_four_stations_once_another_master_has_left() {
    if !has_python() {
        return;
    }
    let (_server, address) = serve(&["--units", "1,2,3,4", "--one-connection"]);
    let other_master = TcpStream::connect(address).unwrap();
    let gateway = Gateway::start(&manifest(address, 4, ""));
    let stations = ["u1", "u2", "u3", "u4"];
    gateway.wait_for(&stations, "disconnected");
    drop(other_master);
    gateway.wait_for(&stations, "good");
    gateway.wait_for_polls(&stations, 10);
    let readings = gateway.finish();
    for station in stations {
        assert_eq!(reasons(&readings, station), ["disconnected"]);
        assert!(good(&readings, station) >= 10 * points().len());
    }
}

#[test]
fn a_server_that_was_killed_and_started_again_is_read_on() {
    if !has_python() {
        return;
    }
    let (server, address) = serve(&["--units", "1,2"]);
    let gateway = Gateway::start(&manifest(address, 2, ""));
    gateway.wait_for(&["u1", "u2"], "good");
    drop(server);
    gateway.wait_for(&["u1", "u2"], "disconnected");
    let before = gateway.readings();
    let _server = until("the port is free again", || serve_at(address, &["--units", "1,2"]));
    gateway.wait_for(&["u1", "u2"], "good");
    gateway.wait_for_polls(&["u1", "u2"], 5);
    let readings = gateway.finish();
    for station in ["u1", "u2"] {
        assert_eq!(reasons(&readings, station), ["disconnected"]);
        assert!(good(&readings, station) >= good(&before, station) + 5 * points().len());
    }
}
