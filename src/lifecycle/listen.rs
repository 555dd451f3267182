//! Listeners: from the service manager where it passed one, else bound here.

use std::{fmt, io, net::SocketAddr, path::PathBuf, str::FromStr};

use tokio::net::{TcpListener, UnixListener};

use super::{
    inherited::Inherited,
    unix_socket::{self, BindError, SocketFile},
};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addr {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `IP:PORT`.
    Tcp(SocketAddr),
}

/// The text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no address; write unix:/path or IP:PORT, for example 127.0.0.1:8600")]
pub struct BadAddr {
    /// The text.
    pub text: String,
}

impl FromStr for Addr {
    type Err = BadAddr;

    fn from_str(text: &str) -> Result<Self, BadAddr> {
        let bad = || BadAddr { text: text.to_owned() };
        match text.strip_prefix("unix:") {
            Some("") => Err(bad()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| bad()),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(addr) => addr.fmt(f),
        }
    }
}

/// Something that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket; its file goes with it if this process made it.
    Unix {
        /// The listener.
        listener: UnixListener,
        /// The file; `None` when the socket was passed in.
        file: Option<SocketFile>,
    },
    /// A TCP socket.
    Tcp(TcpListener),
}

impl Listener {
    /// Where it listens, for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Unix { file: Some(file), .. } => format!("unix:{}", file.path().display()),
            Self::Unix { file: None, .. } => "unix:(inherited)".to_owned(),
            Self::Tcp(tcp) => tcp.local_addr().map_or_else(|_| "tcp:?".to_owned(), |a| a.to_string()),
        }
    }
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The Unix socket could not be bound.
    #[error(transparent)]
    Unix(#[from] BindError),
    /// The TCP port could not be bound.
    #[error("cannot listen on {addr}")]
    Tcp {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The service manager passed something that cannot be used.
    #[error("cannot use the socket \"{name}\" of the service manager")]
    Inherited {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl ListenError {
    /// True when somebody else has the address: it may become free.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Unix(e) => matches!(e, BindError::InUse { .. }),
            Self::Tcp { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::Inherited { .. } => false,
        }
    }
}

/// A listener for `addr`: the service manager's socket of that name if it passed one (which then decides the address), else
/// bound here. Unix sockets get mode 0660.
///
/// # Errors
/// When the address is taken or cannot be bound.
pub async fn acquire_listener(addr: &Addr, name: &str, inherited: &Inherited) -> Result<Listener, ListenError> {
    if let Some(passed) = inherited.listener(name) {
        let listener = passed.map_err(|source| ListenError::Inherited { name: name.to_owned(), source })?;
        tracing::info!(name, at = listener.describe(), "socket taken from the service manager");
        return Ok(listener);
    }
    match addr {
        Addr::Unix(path) => {
            let bound = unix_socket::bind(path, 0o660).await?;
            Ok(Listener::Unix { listener: bound.listener, file: Some(bound.file) })
        }
        Addr::Tcp(addr) => {
            TcpListener::bind(addr).await.map(Listener::Tcp).map_err(|source| ListenError::Tcp { addr: *addr, source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unix_paths_or_ip_and_port() {
        assert_eq!("unix:/run/x.sock".parse(), Ok(Addr::Unix("/run/x.sock".into())));
        assert_eq!("127.0.0.1:8600".parse(), Ok(Addr::Tcp(([127, 0, 0, 1], 8600).into())));
        for bad in ["", "unix:", "8600", "host", "/run/x.sock"] {
            assert!(bad.parse::<Addr>().is_err(), "{bad}");
        }
        assert_eq!("unix:/a".parse::<Addr>().unwrap().to_string(), "unix:/a");
    }

    #[tokio::test]
    async fn a_taken_port_is_told_apart() {
        let none = Inherited::default();
        let first = acquire_listener(&"127.0.0.1:0".parse().unwrap(), "http", &none).await.unwrap();
        let error = acquire_listener(&first.describe().parse().unwrap(), "http", &none).await.unwrap_err();
        assert!(error.is_taken(), "{error}");
    }
}
