//! A process by pid and start time: a pid alone may name another process by now.

use std::{fs, io, os::fd::OwnedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::clock::Boot;

/// A process that cannot be mistaken for another one of the same boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
}

/// How an attempt at ending a process went.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It was killed and is gone.
    Killed,
    /// It was gone already.
    Gone,
    /// The caller called it off at the last moment.
    CalledOff,
    /// It may not be killed; why.
    Denied(String),
    /// It was killed, but has not gone within the time to wait (it hangs in the kernel).
    StillThere,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn current() -> io::Result<Self> {
        Self::find(std::process::id())?
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc knows nothing of this process"))
    }

    /// The process that has a pid now; `None` when there is none, or only its remains (a zombie).
    ///
    /// # Errors
    /// When `/proc` cannot be read, or reads as nothing known.
    pub fn find(pid: u32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => match parse_stat(&bytes) {
                Some((b'Z' | b'X' | b'x', _)) => Ok(None),
                Some((_, start)) => Ok(Some(Self { pid, start })),
                None => Err(io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has no start time"))),
            },
            // ESRCH: it ended between open and read.
            Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Whether it runs. A process that cannot be looked at counts as running.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::find(self.pid).map_or(true, |found| found == Some(self))
    }

    /// Ends it with SIGKILL, which ends a stopped process too, and waits for its exit.
    ///
    /// The descriptor is opened first and the start time checked after, so whatever passes the check is what the
    /// signal reaches. `go` is asked last, right before the signal.
    pub fn end(self, wait: Duration, go: impl FnOnce() -> bool) -> Ended {
        if self.pid == std::process::id() {
            return Ended::Denied("it is this very process".to_owned());
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ended::Gone };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // EINVAL: the pid is a thread's by now.
            Err(Errno::SRCH | Errno::INVAL) => return Ended::Gone,
            Err(e) => return Ended::Denied(format!("cannot open pid {pid}: {e}", pid = self.pid)),
        };
        match Self::find(self.pid) {
            Ok(Some(found)) if found == self => {}
            Ok(_) => return Ended::Gone,
            Err(e) => return Ended::Denied(format!("cannot tell who pid {} is: {e}", self.pid)),
        }
        if !go() {
            return Ended::CalledOff;
        }
        match pidfd_send_signal(&fd, Signal::KILL) {
            Ok(()) if has_ended(&fd, wait) => Ended::Killed,
            Ok(()) => Ended::StillThere,
            Err(Errno::SRCH) => Ended::Gone,
            Err(e) => Ended::Denied(format!("cannot kill pid {}: {e}", self.pid)),
        }
    }
}

/// Waits until the process of a pidfd has ended, at most for a while.
fn has_ended(fd: &OwnedFd, wait: Duration) -> bool {
    let deadline = Boot::now().plus(wait);
    loop {
        let left = deadline.since(Boot::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if Boot::now() >= deadline => return false,
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// State and start time from `/proc/PID/stat`. The second field is the program's name in brackets, and a program may
/// have spaces and brackets in its name: what counts starts after the last closing one.
fn parse_stat(bytes: &[u8]) -> Option<(u8, u64)> {
    let after = bytes.iter().rposition(|b| *b == b')')? + 1;
    let rest = std::str::from_utf8(bytes.get(after..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // `state` is field 3, so field 22 is 18 after the next one.
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_with_brackets_in_its_name_does_not_shift_the_fields() {
        let stat = b"12 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n";
        assert_eq!(parse_stat(stat), Some((b'R', 4711)));
        assert_eq!(parse_stat(b"12 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn this_process_lives_and_one_of_another_start_time_does_not() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start: me.start + 1, ..me }.is_alive());
        assert!(matches!(me.end(Duration::ZERO, || true), Ended::Denied(_)));
    }

    #[test]
    fn a_process_is_ended_by_identity_only() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let found = Process::find(child.id()).unwrap().unwrap();
        let other = Process { start: found.start + 1, ..found };
        assert_eq!(other.end(Duration::from_secs(2), || true), Ended::Gone);
        assert_eq!(found.end(Duration::from_secs(2), || false), Ended::CalledOff);
        assert!(found.is_alive());
        assert_eq!(found.end(Duration::from_secs(5), || true), Ended::Killed);
        // Not reaped yet, and gone all the same.
        assert!(!found.is_alive());
        assert_eq!(found.end(Duration::from_secs(2), || true), Ended::Gone);
        child.wait().unwrap();
        assert_eq!(found.end(Duration::from_secs(2), || true), Ended::Gone);
    }

    proptest! {
        #[test]
        fn no_stat_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_stat(&bytes);
        }
    }
}
