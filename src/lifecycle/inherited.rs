//! Descriptors from the service manager (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`), each taken once and owned from
//! then on. The only `unsafe` of this crate's lifecycle layer is here.

use std::{
    collections::BTreeMap,
    env, fs, io,
    net::TcpListener,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::net::UnixListener,
    },
};

use nix::{
    libc,
    sys::socket::{getsockopt, sockopt},
};

use super::listen::Listener;

/// The first descriptor that the service manager passes.
const FIRST: RawFd = 3;
/// More than this is no honest count.
const MAX: u32 = 64;
const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// What the service manager passed to this process, by name.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: BTreeMap<String, Vec<OwnedFd>>,
}

/// What the variables say. Pure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// Nothing was passed.
    Nothing,
    /// So many descriptors are there, but they are meant for another process.
    Foreign(u32),
    /// These names, for the descriptors from 3 on.
    Ours(Vec<String>),
    /// The variables make no sense.
    Broken(String),
}

impl Passed {
    /// Reads the variables' values.
    #[must_use]
    pub fn read(pid: Option<&str>, count: Option<&str>, names: Option<&str>, own_pid: u32) -> Self {
        let (Some(pid), Some(count)) = (pid, count) else { return Self::Nothing };
        let Ok(count) = count.parse::<u32>() else { return Self::Broken(format!("LISTEN_FDS is \"{count}\"")) };
        if count > MAX {
            return Self::Broken(format!("LISTEN_FDS is {count}; at most {MAX} are taken"));
        }
        match pid.parse::<u32>() {
            Ok(pid) if pid == own_pid => {}
            Ok(_) | Err(_) => return Self::Foreign(count),
        }
        let mut given = names.unwrap_or_default().split(':').filter(|n| !n.is_empty()).map(str::to_owned);
        Self::Ours((0..count).map(|_| given.next().unwrap_or_else(|| "unknown".to_owned())).collect())
    }
}

impl Inherited {
    /// Takes what was passed, and clears the variables whatever they say, so that no child takes them for its own.
    ///
    /// Call it first in `main`, before another thread exists: the environment cannot be changed safely beside one, and
    /// then nothing is taken. Descriptors in the passed range are closed to children, even those meant for another process.
    #[must_use]
    pub fn take() -> Self {
        if VARIABLES.iter().all(|v| env::var_os(v).is_none()) {
            return Self::default();
        }
        if !is_single_threaded() {
            tracing::error!("the service manager's sockets were asked for too late; none is taken");
            return Self::default();
        }
        let [pid, count, names] = VARIABLES.map(|v| env::var(v).ok());
        let passed = Passed::read(pid.as_deref(), count.as_deref(), names.as_deref(), std::process::id());
        for variable in VARIABLES {
            // SAFETY: this is the only thread of the process (checked above), so nobody reads the environment meanwhile.
            unsafe { env::remove_var(variable) };
        }
        match passed {
            Passed::Nothing => Self::default(),
            Passed::Broken(why) => {
                tracing::warn!(why, "the service manager's socket variables are ignored");
                Self::default()
            }
            Passed::Foreign(count) => {
                (FIRST..).take(count as usize).for_each(|fd| {
                    close_on_exec(fd);
                });
                tracing::warn!("LISTEN_PID does not name this process; none of its sockets is taken");
                Self::default()
            }
            Passed::Ours(names) => Self::own(names),
        }
    }

    fn own(names: Vec<String>) -> Self {
        let mut sockets: BTreeMap<String, Vec<OwnedFd>> = BTreeMap::new();
        for (fd, name) in (FIRST..).zip(names) {
            if !close_on_exec(fd) {
                tracing::warn!(fd, name, "a socket that the service manager named is not open");
                continue;
            }
            // SAFETY: the descriptor is open (`close_on_exec` succeeded). The service manager passed it to this very process
            // (LISTEN_PID), the process runs nothing yet that could own it (one thread, first in `main`), and it is taken
            // once, since the variables are gone.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            sockets.entry(name).or_default().push(fd);
        }
        Self { sockets }
    }

    /// The names that were passed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sockets.keys().map(String::as_str)
    }

    /// A listener on the socket of a name, if one was passed. The socket stays here as well, so that it can be asked for
    /// again after a hand-over. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When what was passed does not listen, or is neither TCP nor a Unix stream.
    pub fn listener(&self, name: &str) -> Option<io::Result<Listener>> {
        let fd = self.sockets.get(name)?.first()?;
        Some(fd.try_clone().and_then(to_listener))
    }
}

fn to_listener(fd: OwnedFd) -> io::Result<Listener> {
    let no = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    if !getsockopt(&fd, sockopt::AcceptConn).map_err(|_| no("the passed descriptor is no socket"))? {
        return Err(no("the passed socket does not listen (Accept=yes is not for this service)"));
    }
    let tcp = TcpListener::from(fd);
    if tcp.local_addr().is_ok() {
        tcp.set_nonblocking(true)?;
        return Ok(Listener::Tcp(tokio::net::TcpListener::from_std(tcp)?));
    }
    let unix = UnixListener::from(OwnedFd::from(tcp));
    unix.local_addr().map_err(|_| no("the passed socket is neither TCP nor a Unix socket"))?;
    unix.set_nonblocking(true)?;
    Ok(Listener::Unix { listener: tokio::net::UnixListener::from_std(unix)?, file: None })
}

fn is_single_threaded() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Closes a descriptor to children. False when it is not open.
fn close_on_exec(fd: RawFd) -> bool {
    // SAFETY: `fcntl` with F_GETFD and F_SETFD touches no memory, and on a descriptor that is not open fails with EBADF.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFD);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_pid_takes_and_names_are_honoured() {
        let ours = |names: &[&str]| Passed::Ours(names.iter().map(|n| (*n).to_owned()).collect());
        for (pid, count, names, passed) in [
            (None, Some("1"), None, Passed::Nothing),
            (Some("7"), None, None, Passed::Nothing),
            (Some("8"), Some("2"), Some("a:b"), Passed::Foreign(2)),
            (Some("7"), Some("2"), Some("a:b"), ours(&["a", "b"])),
            (Some("7"), Some("2"), Some("a"), ours(&["a", "unknown"])),
            (Some("7"), Some("1"), None, ours(&["unknown"])),
            (Some("7"), Some("0"), None, ours(&[])),
            (Some("7"), Some("-1"), None, Passed::Broken("LISTEN_FDS is \"-1\"".into())),
            (Some("x"), Some("1"), None, Passed::Foreign(1)),
        ] {
            assert_eq!(Passed::read(pid, count, names, 7), passed, "{pid:?} {count:?} {names:?}");
        }
        assert!(matches!(Passed::read(Some("7"), Some("4294967295"), None, 7), Passed::Broken(_)));
    }
}
