//! Processes of the product: started, asked, ended; and what the kernel says of them.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::wait::{WaitPidFlag, waitpid},
    unistd::Pid,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// The binary that is measured: this build's, unless the environment names another.
pub fn binary() -> PathBuf {
    std::env::var_os("SENSOR_POLL_BENCH_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_sensor-poll").into(), Into::into)
}

/// Whatever is waited for comes within this time, or the figure is given up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A process that is killed when it is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(rustix::process::Pid::from_child(&self.0), signal);
    }

    /// Lets it leave in order.
    pub fn end(mut self) {
        self.signal(Signal::TERM);
        let _ = until("a process leaves", || self.0.try_wait().ok().flatten());
    }

    /// True once it has ended.
    pub fn is_gone(&mut self) -> bool {
        self.0.try_wait().ok().flatten().is_some()
    }
}

/// Waits for something, looking often.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// A folder with the state and the run folder of one device.
pub struct Device {
    dir: tempfile::TempDir,
}

impl Device {
    pub fn new(manifest: &str) -> Self {
        let parent = std::env::var("SENSOR_POLL_BENCH_DIR").map_or_else(|_| std::env::temp_dir(), PathBuf::from);
        let dir = tempfile::Builder::new().prefix("spb-").tempdir_in(parent).expect("a folder for the device");
        fs::write(dir.path().join("manifest.toml"), manifest).expect("the manifest can be written");
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path().join("run")
    }

    /// Starts an instance. Its probes answer at a socket of its own: the port of a leader may be another's.
    pub fn start(&self, id: &str) -> Process {
        let log = File::options().create(true).append(true).open(self.path().join(format!("{id}.log")));
        let mut command = Command::new(binary());
        command.args(["run", "--instance", id]).arg("--manifest").arg(self.path().join("manifest.toml"));
        command.arg("--state-dir").arg(self.state()).arg("--run-dir").arg(self.run_dir());
        command.arg("--http").arg(format!("unix:{}", self.probes(id).display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a log"));
        Process(command.spawn().expect("the binary starts"))
    }

    fn probes(&self, id: &str) -> PathBuf {
        self.run_dir().join(format!("{id}.http.sock"))
    }

    /// Whether an instance says that it leads; `None` when it does not answer.
    pub fn leads(&self, id: &str) -> Option<bool> {
        let mut stream = UnixStream::connect(self.probes(id)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(b"GET /leader HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).ok()?;
        Some(head.ends_with(b"200"))
    }

    pub fn wait_leader(&self, id: &str) {
        until("an instance leads", || self.leads(id).filter(|leads| *leads));
    }

    pub fn wait_follower(&self, id: &str) {
        until("an instance answers", || self.leads(id));
    }

    /// What an instance says of itself.
    pub fn status(&self, id: &str) -> Option<Value> {
        let mut stream = UnixStream::connect(self.run_dir().join(format!("{id}.sock"))).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"Lifecycle.Status\",\"params\":{}}\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str::<Value>(&line).ok()?.get_mut("result").map(Value::take)
    }

    /// The newest record that an instance says is committed.
    pub fn committed(&self, id: &str) -> Option<u64> {
        self.status(id)?.pointer("/journal/last_seq")?.as_u64()
    }
}

/// A simulated plant on every address of the loopback network, and its port.
pub fn plant(units: u8, registers: u32) -> (Process, u16) {
    let mut command = Command::new(binary());
    command.args(["sim", "modbus", "--listen", "0.0.0.0:0", "--plant", "registers"]);
    command.arg("--units").arg(units.to_string()).arg("--registers").arg(registers.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("the simulator says its address");
    let port = line.trim().rsplit(':').next().and_then(|p| p.parse().ok()).expect("an address with a port");
    (Process(child), port)
}

/// What is left of a killed instance becomes this process's child, so that it can be reaped.
pub fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Waits until workers that a killed instance left behind are gone, and reaps them.
pub fn reap(ours: &[&Process]) {
    let me = std::process::id();
    until("orphans are gone", || {
        let orphans = children(me).into_iter().filter(|pid| ours.iter().all(|p| p.pid() != *pid));
        let mut left = 0;
        for pid in orphans {
            left += 1;
            let _ = waitpid(Pid::from_raw(i32::try_from(pid).ok()?), Some(WaitPidFlag::WNOHANG));
        }
        (left == 0).then_some(())
    });
}

/// The children of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|fields| fields.get(1).is_some_and(|p| *p == u64::from(parent)))).collect()
}

/// The fields of `/proc/PID/stat` from the state on; what is no number is 0.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit(')').next()?.split_ascii_whitespace().map(|f| f.parse().unwrap_or(0)).collect())
}

/// User and system time of a process.
pub fn cpu(pid: u32) -> Duration {
    let fields = stat(pid).unwrap_or_default();
    let ticks = fields.get(11).copied().unwrap_or(0) + fields.get(12).copied().unwrap_or(0);
    // Linux gives these in hundredths of a second on every architecture.
    Duration::from_millis(ticks * 10)
}

/// A number of a file of `/proc/PID`, by its key.
pub fn number(pid: u32, file: &str, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
    line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Memory in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
    /// Shared pages counted in parts.
    pub proportional: u64,
}

impl Memory {
    pub fn of(pid: u32) -> Self {
        Self {
            resident: number(pid, "status", "VmRSS"),
            peak: number(pid, "status", "VmHWM"),
            proportional: number(pid, "smaps_rollup", "Pss"),
        }
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mb = |kib: u64| kib as f64 / 1024.0;
        write!(
            f,
            "{:.1} MB resident ({:.1} proportional, {:.1} at its peak)",
            mb(self.resident),
            mb(self.proportional),
            mb(self.peak)
        )
    }
}
