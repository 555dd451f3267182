//! A gateway of one test: folders, manifest, instances; what they say, and what is on disk. Everything that was started
//! is ended when it is dropped, workers included.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

/// The machine may be loaded: this is for what hangs, not for what is slow.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until something is there.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A manifest, built up from lines.
#[derive(Clone)]
pub struct Manifest(String);

impl Manifest {
    /// With the tables of the process; `lease` and the others may be given once only.
    pub fn new(tables: &str) -> Self {
        Self(format!(
            "format_version = \"1\"\n[facility]\nid = \"test\"\n[lifecycle]\ndrain_timeout_ms = 5000\n\
             [journal]\ncommit_interval_ms = 20\n{tables}\n"
        ))
    }

    /// For a pair: a short time to live.
    pub fn pair() -> Self {
        Self::new("[lease]\nttl_ms = 1500")
    }

    pub fn connection(self, id: &str, addr: SocketAddr) -> Self {
        let (host, port) = (addr.ip(), addr.port());
        self.push(&format!("[[connections]]\nid = \"{id}\"\nkind = \"modbus-tcp\"\nhost = \"{host}\"\nport = {port}\n"))
    }

    /// A station; its points follow.
    pub fn station(self, id: &str, connection: &str, unit: u8, interval_ms: u32, more: &str) -> Self {
        self.push(&format!(
            "[[stations]]\nid = \"{id}\"\nconnection_ref = \"{connection}\"\nunit_id = {unit}\n\
             poll_interval_ms = {interval_ms}\n{more}\n"
        ))
    }

    pub fn point(self, name: &str, address: &str, data_type: &str, more: &str) -> Self {
        self.push(&format!(
            "[[stations.points]]\nname = \"{name}\"\naddress = \"{address}\"\ndata_type = \"{data_type}\"\n{more}\n"
        ))
    }

    /// A station with one register, whose value is its address.
    pub fn simple(self, id: &str, connection: &str, unit: u8, interval_ms: u32) -> Self {
        self.station(id, connection, unit, interval_ms, "").point("v", &format!("hr:{unit}"), "u16", "")
    }

    fn push(mut self, text: &str) -> Self {
        self.0.push_str(text);
        self
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

/// See the module.
pub struct Gateway {
    dir: tempfile::TempDir,
}

impl Gateway {
    pub fn new(manifest: &Manifest) -> Self {
        // Short, since paths of Unix sockets are.
        let dir = tempfile::Builder::new().prefix("sp").tempdir_in("/tmp").unwrap();
        let gateway = Self { dir };
        gateway.write(manifest.text());
        gateway
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    pub fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    pub fn manifest(&self) -> PathBuf {
        self.path("plant.toml")
    }

    /// Replaces the manifest by rename.
    pub fn write(&self, text: &str) {
        fs::write(self.path("plant.new"), text).unwrap();
        fs::rename(self.path("plant.new"), self.manifest()).unwrap();
    }

    pub fn start(&self, id: &str) -> Instance<'_> {
        self.start_with(id, &[])
    }

    /// Starts an instance with its probes at a socket of its own.
    pub fn start_with(&self, id: &str, more: &[&str]) -> Instance<'_> {
        let log = self.path(&format!("{id}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.command(&["run", "--manifest"]);
        command.arg(self.manifest()).args(["--instance", id, "--state-dir"]).arg(self.state_dir());
        command.arg("--run-dir").arg(self.run_dir()).args(["--http", &format!("unix:{}", self.probes(id).display())]);
        let child = command.args(more).stderr(log).stdout(Stdio::null()).spawn().unwrap();
        Instance { gateway: self, id: id.to_owned(), child }
    }

    fn probes(&self, id: &str) -> PathBuf {
        self.run_dir().join(format!("{id}.http.sock"))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
        command.args(args).stdin(Stdio::null());
        for variable in ["STATE_DIRECTORY", "RUNTIME_DIRECTORY", "SENSOR_POLL_INSTANCE", "SENSOR_POLL_LOG"] {
            command.env_remove(variable);
        }
        command
    }

    /// A command that talks to a supervisor of this gateway.
    pub fn ask(&self, args: &[&str]) -> Output {
        self.command(args).arg("--run-dir").arg(self.run_dir()).output().unwrap()
    }

    /// What each record on disk says, in the order of the segments: this reader knows nothing of the product's. The
    /// line that is being written is left out.
    pub fn records(&self) -> Vec<Value> {
        let Ok(entries) = fs::read_dir(self.state_dir().join("journal")) else { return Vec::new() };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "jsonl") {
                continue;
            }
            let bytes = fs::read(&path).unwrap_or_default();
            let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            for line in bytes[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
                if let Ok(record) = serde_json::from_slice(line) {
                    records.push(record);
                }
            }
        }
        records.sort_by_key(|r: &Value| r["seq"].as_u64());
        records
    }

    /// The readings of a point, in order.
    pub fn readings(&self, station: &str, point: &str) -> Vec<Value> {
        let of = |r: &Value| r["kind"] == "reading" && r["station"] == station && r["point"] == point;
        self.records().into_iter().filter(of).collect()
    }

    /// Events of a name, in order.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.records().into_iter().filter(|r| r["kind"] == "event" && r["event"] == name).collect()
    }

    /// Waits until a point has so many good readings more than now; the last one.
    pub fn more_good(&self, station: &str, point: &str, count: usize) -> Value {
        let good = || self.readings(station, point).into_iter().filter(|r| r["quality"] == "good");
        let before = good().count();
        until(&format!("{station}/{point} has {count} good readings more"), || good().nth(before + count - 1))
    }

    /// Numbers have no gaps and epochs never fall; `journal verify` says so too.
    pub fn assert_journal_sound(&self) {
        let records = self.records();
        let (mut seq, mut epoch) = (0, 0);
        for record in &records {
            let (s, e) = (record["seq"].as_u64().unwrap(), record["epoch"].as_u64().unwrap());
            assert!(seq == 0 || s == seq + 1, "{s} follows {seq}");
            assert!(e >= epoch, "epoch {e} after {epoch} at {s}");
            (seq, epoch) = (s, e);
        }
        let mut command = self.command(&["journal", "verify", "--state-dir"]);
        let output = command.arg(self.state_dir()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "journal verify: {text}");
    }

    /// What an instance wrote to its log.
    pub fn log(&self, id: &str) -> String {
        fs::read_to_string(self.path(&format!("{id}.log"))).unwrap_or_default()
    }

    /// Processes with this gateway's run folder among their arguments.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let needle = self.run_dir().display().to_string();
        processes().into_iter().filter(|(_, arguments)| arguments.split('\0').any(|a| a == needle)).collect()
    }

    /// Pids of the workers.
    pub fn workers(&self) -> Vec<i32> {
        let is_worker = |(_, arguments): &(i32, String)| arguments.split('\0').nth(1) == Some("worker");
        self.processes().into_iter().filter(is_worker).map(|(pid, _)| pid).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for id in ["a", "b"] {
                let log = self.log(id);
                let tail: Vec<&str> = log.lines().rev().take(40).collect();
                let tail = tail.into_iter().rev().fold(String::new(), |mut text, line| {
                    let _ = writeln!(text, "{line}");
                    text
                });
                eprintln!("--- the end of {id}'s log\n{tail}");
            }
        }
        // Instances are gone by now; workers that were stopped are not.
        for (pid, _) in self.processes() {
            kill_by_identity(pid, &self.run_dir());
        }
    }
}

fn processes() -> Vec<(i32, String)> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Some((pid, String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).ok()?).ok()?)))
        .collect()
}

/// Kills a process only while it is one of this gateway's.
fn kill_by_identity(pid: i32, run_dir: &Path) {
    let Some(pid_) = Pid::from_raw(pid) else { return };
    let Ok(fd) = pidfd_open(pid_, PidfdFlags::empty()) else { return };
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if String::from_utf8_lossy(&arguments).contains(&run_dir.display().to_string()) {
        let _ = pidfd_send_signal(&fd, Signal::KILL);
    }
}

/// Sends a signal to a process that this test has seen to be its own.
pub fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// One supervisor process. Dropped, it is killed.
pub struct Instance<'g> {
    pub gateway: &'g Gateway,
    pub id: String,
    pub child: Child,
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Instance<'_> {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("the instance ends", || child.try_wait().unwrap())
    }

    /// Kills it and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Drains it with SIGTERM; its code.
    pub fn drain(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait().code()
    }

    /// One call over its own socket; `None` when nobody answers.
    pub fn call(&self, method: &str) -> Option<Value> {
        let mut stream = UnixStream::connect(self.gateway.run_dir().join(format!("{}.sock", self.id))).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} });
        stream.write_all(format!("{request}\n").as_bytes()).ok()?;
        let mut answer = Vec::new();
        let mut chunk = [0; 65_536];
        while answer.last() != Some(&b'\n') {
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(n) => answer.extend(&chunk[..n]),
            }
        }
        Some(serde_json::from_slice(&answer).unwrap())
    }

    pub fn status(&self) -> Option<Value> {
        Some(self.call("Lifecycle.Status")?["result"].clone())
    }

    /// Waits until status is as wanted.
    pub fn status_when(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.status() {
                if is(&status) {
                    return status;
                }
                last = Some(status);
            }
            assert!(Instant::now() < deadline, "in vain waited until {what}; status was {last:#?}");
            sleep(Duration::from_millis(10));
        }
    }

    pub fn wait_leader(&self) -> Value {
        self.status_when(&format!("{} leads", self.id), |s| s["role"] == "leader")
    }

    pub fn wait_follower(&self) -> Value {
        self.status_when(&format!("{} follows a leader", self.id), |s| {
            s["role"] == "follower" && s["epoch"].as_u64() > Some(0)
        })
    }

    /// Waits until a station is in a state; the station.
    pub fn station_when(&self, id: &str, state: &str) -> Value {
        let status = self.status_when(&format!("station {id} is {state}"), |s| station(s, id)["state"] == state);
        station(&status, id)
    }

    /// Asks a probe; status and body. `None` when nobody answers.
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = UnixStream::connect(self.gateway.probes(&self.id)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let code = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        Some((code, body.to_owned()))
    }
}

/// A station of a status; null when there is none.
pub fn station(status: &Value, id: &str) -> Value {
    status["stations"].as_array().and_then(|all| all.iter().find(|s| s["id"] == id)).cloned().unwrap_or_default()
}

/// Both instances of a gateway, the leader first.
pub fn pair(gateway: &Gateway) -> (Instance<'_>, Instance<'_>) {
    let a = gateway.start("a");
    a.wait_leader();
    let b = gateway.start("b");
    b.wait_follower();
    (a, b)
}
