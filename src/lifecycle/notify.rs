//! Words to the service manager over `$NOTIFY_SOCKET`. Without one, nothing is sent.

use std::{
    env, fmt, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};

/// What to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Ready, after the start or a reload.
    Ready,
    /// A reload has begun, at this moment of CLOCK_MONOTONIC.
    Reloading {
        /// Microseconds.
        monotonic_usec: u64,
    },
    /// A drain has begun.
    Stopping,
    /// One line for a person.
    Status(String),
    /// The loop has made progress.
    Watchdog,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("READY=1"),
            Self::Reloading { monotonic_usec } => write!(f, "RELOADING=1\nMONOTONIC_USEC={monotonic_usec}"),
            Self::Stopping => f.write_str("STOPPING=1"),
            // A line feed would begin another assignment.
            Self::Status(text) => write!(f, "STATUS={}", text.replace(['\n', '\r'], " ")),
            Self::Watchdog => f.write_str("WATCHDOG=1"),
        }
    }
}

impl Word {
    /// A reload that begins now.
    #[must_use]
    pub fn reloading_now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        Self::Reloading { monotonic_usec: u64::try_from(now.as_micros()).unwrap_or(u64::MAX) }
    }
}

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    way: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID`. What cannot be used is told once and not used.
    #[must_use]
    pub fn from_env() -> Self {
        let watchdog = watchdog(
            env::var("WATCHDOG_USEC").ok().as_deref(),
            env::var("WATCHDOG_PID").ok().as_deref(),
            std::process::id(),
        );
        let Ok(address) = env::var("NOTIFY_SOCKET") else { return Self::default() };
        match open(&address) {
            Ok(way) => Self { way: Some(way), watchdog },
            Err(e) => {
                tracing::warn!(address, error = %e, "cannot talk to the service manager");
                Self::default()
            }
        }
    }

    /// A notifier to an address: a path, or `@NAME` for an abstract one.
    ///
    /// # Errors
    /// When the address is neither.
    pub fn to(address: &str) -> io::Result<Self> {
        Ok(Self { way: Some(open(address)?), watchdog: None })
    }

    /// Tells. A word that cannot be sent is logged and lost; the caller goes on.
    pub fn tell(&self, word: &Word) {
        let Some((socket, address)) = &self.way else { return };
        if let Err(e) = socket.send_to_addr(word.to_string().as_bytes(), address) {
            tracing::warn!(?word, error = %e, "the service manager was not told");
        }
    }

    /// How often to tell [`Word::Watchdog`]: half of what the service manager waits. `None`: it does not watch.
    #[must_use]
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog
    }
}

fn open(address: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if address.starts_with('/') => SocketAddr::from_pathname(address)?,
        None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a path and not an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    // The manager's queue is long; when it is full all the same, a word is not worth a wait.
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

fn watchdog(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok()?;
    let ours = pid.is_none_or(|p| p.parse() == Ok(own_pid));
    (ours && usec > 0).then(|| Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(address: &str, socket: &UnixDatagram, word: &Word) -> String {
        Notifier::to(address).unwrap().tell(word);
        let mut buffer = [0; 256];
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    }

    #[test]
    fn words_reach_a_path_and_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        assert_eq!(received(path.to_str().unwrap(), &socket, &Word::Ready), "READY=1");

        let name = format!("sensor-poll-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        assert_eq!(received(&format!("@{name}"), &socket, &Word::Stopping), "STOPPING=1");
    }

    #[test]
    fn a_reload_carries_its_moment_and_a_status_stays_one_line() {
        let Word::Reloading { monotonic_usec } = Word::reloading_now() else { panic!() };
        assert!(monotonic_usec > 0);
        assert_eq!(Word::Reloading { monotonic_usec: 5 }.to_string(), "RELOADING=1\nMONOTONIC_USEC=5");
        assert_eq!(Word::Status("a\nREADY=1".into()).to_string(), "STATUS=a READY=1");
    }

    #[test]
    fn without_a_manager_nothing_happens_and_the_watchdog_is_ours_only() {
        Notifier::default().tell(&Word::Ready);
        assert!(Notifier::to("relative").is_err());
        assert_eq!(watchdog(Some("2000000"), None, 7), Some(Duration::from_secs(1)));
        assert_eq!(watchdog(Some("2000000"), Some("7"), 7), Some(Duration::from_secs(1)));
        assert_eq!(watchdog(Some("2000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("x"), None, 7), None);
    }
}
