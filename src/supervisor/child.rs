//! Launches, signals and ends worker processes. Every signal goes to an identity (a pidfd), never to a bare pid.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{fs::DirBuilderExt, net::UnixListener, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::coordination::{Attempt, CoordinationLock, FileLock, LockError, end_owner};

/// A survivor sees its supervisor's end and leaves by itself within this time; later it is ended.
const SURVIVOR_LEAVES: Duration = Duration::from_secs(8);
/// The lock of a survivor is looked at so often.
const SURVIVOR_LOOK: Duration = Duration::from_millis(10);
/// An ended survivor is gone by then.
const SURVIVOR_ENDED: Duration = Duration::from_secs(2);

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The folder or the socket cannot be made.
    #[error("cannot make the socket {path}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The process cannot be made.
    #[error("cannot start the worker process")]
    Spawn(#[source] io::Error),
    /// The lock cannot be looked at.
    #[error("the worker's lock")]
    Lock(#[source] LockError),
    /// An earlier worker of this key lives on and cannot be ended.
    #[error("an earlier worker holds {path} and could not be ended: {why}")]
    Survivor {
        /// The lock.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

/// A worker process that was launched.
#[derive(Debug)]
pub struct Launched {
    /// The process; whoever waits for it has it.
    pub child: Child,
    /// Signals go here.
    pub identity: Identity,
    /// The connection to it; it may not be up yet.
    pub stream: UnixStream,
}

/// A process that cannot be mistaken for another.
#[derive(Debug)]
pub struct Identity {
    /// For people.
    pub pid: u32,
    pidfd: Option<OwnedFd>,
}

impl Identity {
    /// Kills the process, if it lives.
    pub fn kill(&self) {
        if let Some(fd) = &self.pidfd {
            // It may have ended by itself, which is as good.
            let _ = pidfd_send_signal(fd, Signal::KILL);
        }
    }
}

/// What a launch needs to know.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The worker's key.
    pub key: String,
    /// Its protocol.
    pub protocol: String,
    /// The device's run folder.
    pub run_dir: PathBuf,
}

impl Launch {
    fn path(&self, ending: &str) -> PathBuf {
        self.run_dir.join("workers").join(format!("{}.{ending}", self.key))
    }

    /// Ends what is left of an earlier worker of this key, then starts a new one.
    ///
    /// # Errors
    /// See [`LaunchError`].
    pub async fn go(self) -> Result<Launched, LaunchError> {
        self.await_survivor().await?;
        let path = self.path("sock");
        let failed = |source| LaunchError::Socket { path: path.clone(), source };
        let listener = listen(&path).map_err(failed)?;
        let stream = UnixStream::connect(&path).await.map_err(failed)?;
        // The running image, even when the file was replaced since.
        let child = Command::new("/proc/self/exe")
            .arg0("sensor-poll")
            .arg("worker")
            .arg(&self.protocol)
            .arg("--key")
            .arg(&self.key)
            .arg("--run-dir")
            .arg(&self.run_dir)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            // A terminal's Ctrl-C is the supervisor's to act on.
            .process_group(0)
            .spawn()
            .map_err(LaunchError::Spawn)?;
        // Not waited for yet, so the pid is still this child's.
        let pid = child.id().unwrap_or_default();
        let pidfd =
            i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        Ok(Launched { child, identity: Identity { pid, pidfd }, stream })
    }

    async fn await_survivor(&self) -> Result<(), LaunchError> {
        let path = self.path("lock");
        if let Some(dir) = path.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
            made.map_err(|source| LaunchError::Socket { path: dir.to_owned(), source })?;
        }
        if is_free(&path, SURVIVOR_LEAVES).await? {
            return Ok(());
        }
        tracing::warn!(worker = self.key, lock = %path.display(), "an earlier worker does not leave, ending it");
        let lock = path.clone();
        let ended = tokio::task::spawn_blocking(move || end_owner(&lock, SURVIVOR_ENDED)).await;
        let why = match ended {
            Ok(Ok(())) if is_free(&path, SURVIVOR_ENDED).await? => return Ok(()),
            Ok(Ok(())) => "its lock is still held".to_owned(),
            Ok(Err(e)) => e.to_string(),
            Err(e) => e.to_string(),
        };
        Err(LaunchError::Survivor { path, why })
    }
}

async fn is_free(path: &Path, within: Duration) -> Result<bool, LaunchError> {
    let deadline = Instant::now() + within;
    loop {
        match FileLock::new(path).try_acquire().map_err(LaunchError::Lock)? {
            Attempt::Acquired(_) => return Ok(true),
            Attempt::Held if Instant::now() < deadline => sleep(SURVIVOR_LOOK).await,
            Attempt::Held => return Ok(false),
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o660))?;
    Ok(listener)
}

/// How a process ended, in words.
#[must_use]
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "left by itself".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => {
            let name =
                nix::sys::signal::Signal::try_from(signal).map_or("unknown signal", nix::sys::signal::Signal::as_str);
            format!("killed by {name}{}", if status.core_dumped() { ", core dumped" } else { "" })
        }
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_in_words() {
        assert_eq!(in_words(ExitStatus::from_raw(0)), "left by itself");
        assert_eq!(in_words(ExitStatus::from_raw(1 << 8)), "exit code 1");
        assert_eq!(in_words(ExitStatus::from_raw(9)), "killed by SIGKILL");
    }
}
