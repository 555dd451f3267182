//! The two instances: started, watched, killed, ended.
//!
//! No process outlives the demo. An instance watches the demo (`--exit-with-pid`), and leaves when it is gone, however
//! it went. What an instance leaves behind when it is killed (its workers, which the other one adopts) becomes a child
//! of the demo, which reaps it, and ends it at the end.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::sys::{
    signal::Signal as NixSignal,
    wait::{Id, WaitPidFlag, WaitStatus, waitid},
};
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::folder::Folder;

/// The ids.
pub const IDS: [&str; 2] = ["a", "b"];
/// The leader has this long to drain, the follower before it as long again.
const DRAIN: Duration = Duration::from_secs(10);
/// A killed process has this long to be gone.
const DEATH: Duration = Duration::from_secs(2);
/// The service manager's variables are not for children.
const NOT_FOR_CHILDREN: [&str; 9] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "SENSOR_POLL_INSTANCE",
    "STATE_DIRECTORY",
    "RUNTIME_DIRECTORY",
];

/// Why an instance did not start.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// Its log cannot be opened.
    #[error("cannot open the log {}", path.display())]
    Log {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It cannot be started.
    #[error("cannot start instance {id}")]
    Spawn {
        /// Which.
        id: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It ends again and again.
    #[error("instance {id} has ended {times} times, the last time with {how}; its log says:\n{log}")]
    GivenUp {
        /// Which.
        id: &'static str,
        /// How often.
        times: u32,
        /// How.
        how: String,
        /// The end of its log.
        log: String,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Pair {
    instances: [Instance; 2],
}

#[derive(Debug)]
struct Instance {
    id: &'static str,
    child: Option<Child>,
    /// When it is to be started again.
    again_at: Option<Instant>,
    /// How often it has ended though nobody wanted it to.
    failures: u32,
    /// True from the demo's own kill to the end that follows.
    killed: bool,
}

/// An instance that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which of [`IDS`].
    pub index: usize,
    /// In words.
    pub how: String,
    /// Whether the demo killed it.
    pub wanted: bool,
}

impl Pair {
    /// An instance that ends by itself so many times is given up, and the demo with it.
    const MAX_FAILURES: u32 = 3;

    /// Starts both.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(folder: &Folder) -> Result<Self, PairError> {
        // Without it a killed instance's workers would go to init and out of sight. It has failed nowhere since Linux 3.4,
        // and the demo works without.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
        let [a, b] = IDS.map(|id| Instance { id, child: None, again_at: None, failures: 0, killed: false });
        let mut pair = Self { instances: [a, b] };
        for instance in &mut pair.instances {
            instance.child = Some(spawn(folder, instance.id)?);
        }
        Ok(pair)
    }

    /// The process of an instance, while it runs.
    #[must_use]
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.instances[index].child.as_ref().and_then(Child::id)
    }

    /// Kills an instance with SIGKILL; it is started again after a while. Gives the pid, or nothing when it does not run.
    pub fn kill(&mut self, index: usize, again_after: Duration) -> Option<u32> {
        let instance = &mut self.instances[index];
        let child = instance.child.as_mut()?;
        let pid = child.id()?;
        child.start_kill().ok()?;
        instance.killed = true;
        instance.again_at = Some(Instant::now() + again_after);
        Some(pid)
    }

    /// Waits until an instance ends. Cancel safe; never resolves while none runs.
    pub async fn ended(&mut self) -> Ended {
        let [a, b] = &mut self.instances;
        let (index, status) = tokio::select! {
            status = wait(&mut a.child) => (0, status),
            status = wait(&mut b.child) => (1, status),
        };
        let instance = &mut self.instances[index];
        instance.child = None;
        let wanted = std::mem::take(&mut instance.killed);
        if !wanted {
            instance.failures += 1;
            instance.again_at = Some(Instant::now() + Duration::from_secs(1));
        }
        Ended { index, how: how(status), wanted }
    }

    /// Starts again what is due, and says which.
    ///
    /// # Errors
    /// When it cannot be started, or has ended too often by itself.
    pub fn start_due(&mut self, folder: &Folder, last: &str) -> Result<Vec<&'static str>, PairError> {
        let mut started = Vec::new();
        for instance in &mut self.instances {
            if instance.failures >= Self::MAX_FAILURES {
                let (id, times) = (instance.id, instance.failures);
                return Err(PairError::GivenUp { id, times, how: last.to_owned(), log: log_end(folder, id) });
            }
            let due = instance.again_at.is_some_and(|at| at <= Instant::now());
            if due && instance.child.is_none() {
                instance.child = Some(spawn(folder, instance.id)?);
                instance.again_at = None;
                started.push(instance.id);
            }
        }
        Ok(started)
    }

    /// Reaps what the instances left behind. To be called at each SIGCHLD: who waits for a worker by its pid must not
    /// wait for ever on one that is dead already.
    pub fn reap(&self) {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) = waitid(Id::All, peek) {
            let own = (0..2).any(|i| self.pid(i) == u32::try_from(pid.as_raw()).ok());
            if own || waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).is_err() {
                // The runtime reaps the instances; it is told at the same time as we are.
                return;
            }
        }
    }

    /// Drains both, the `leader` last so that the other does not lead for its last moments, kills what does not go, and
    /// ends what they left. True when both went by themselves.
    pub async fn stop(&mut self, leader: Option<usize>) -> bool {
        let last = leader.unwrap_or(0);
        let mut clean = true;
        for index in [1 - last, last] {
            clean &= stop(&mut self.instances[index].child).await;
        }
        self.end_orphans().await;
        clean
    }

    async fn end_orphans(&self) {
        let deadline = Instant::now() + DEATH;
        loop {
            self.reap();
            let left = children();
            if left.is_empty() || Instant::now() >= deadline {
                return;
            }
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn wait(child: &mut Option<Child>) -> io::Result<ExitStatus> {
    match child {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

async fn stop(child: &mut Option<Child>) -> bool {
    let Some(mut running) = child.take() else { return true };
    let Some(pid) = running.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else { return true };
    // Not reaped yet, so the number is still the child's.
    let _ = kill_process(pid, Signal::TERM);
    if let Ok(Ok(status)) = timeout(DRAIN, running.wait()).await {
        return status.success();
    }
    let _ = running.start_kill();
    let _ = timeout(DEATH, running.wait()).await;
    false
}

fn spawn(folder: &Folder, id: &'static str) -> Result<Child, PairError> {
    let path = folder.log(id);
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = log.map_err(|source| PairError::Log { path, source })?;
    // The image that runs now, whatever lies at its path by the time of a restart.
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0("sensor-poll").arg("run").args(["--instance", id]);
    command.arg("--manifest").arg(folder.manifest());
    command.arg("--state-dir").arg(folder.state());
    command.arg("--run-dir").arg(folder.run());
    command.arg("--exit-with-pid").arg(std::process::id().to_string());
    // A group of its own: Ctrl-C is for the demo, which then drains the pair in order.
    command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err);
    for name in NOT_FOR_CHILDREN {
        command.env_remove(name);
    }
    Command::from(command).kill_on_drop(true).spawn().map_err(|source| PairError::Spawn { id, source })
}

fn how(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => {
                NixSignal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned())
            }
            (None, None) => "an unknown end".to_owned(),
        },
        Err(error) => format!("an end that cannot be read ({error})"),
    }
}

/// The last lines of an instance's log.
fn log_end(folder: &Folder, id: &str) -> String {
    let text = fs::read(folder.log(id)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].iter().map(|l| format!("    {l}")).collect::<Vec<_>>().join("\n")
}

/// The children of this process, zombies not among them.
fn children() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let me = std::process::id().to_string();
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mine = pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in brackets may hold anything, brackets and spaces included.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        fields.next().is_some_and(|state| state != "Z") && fields.next() == Some(&me)
    });
    mine.filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(how(Ok(ExitStatus::from_raw(3 << 8))), "exit code 3");
        assert_eq!(how(Ok(ExitStatus::from_raw(9))), "SIGKILL");
    }

    #[test]
    fn children_are_found_without_the_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(children().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&pid));
    }
}
