//! What the server listens on. Unix sockets here; the trait is what TCP and WebSockets implement as well.

use std::{future::Future, io, path::Path};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixListener, UnixStream},
};

use crate::lifecycle::unix_socket::{self, BindError, SocketFile};

/// The mode of a control socket: its owner and its group.
pub const SOCKET_MODE: u32 = 0o660;

/// Who is at the other end, as far as the transport knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peer {
    /// The user id of the peer's process.
    pub uid: Option<u32>,
    /// The peer's process.
    pub pid: Option<i32>,
}

/// Something that connections come from.
pub trait Transport: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection. Safe to drop at its await point.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;

    /// Whether this peer may talk to us at all.
    fn admits(&self, peer: &Peer) -> bool;

    /// Where it listens, for logs.
    fn describe(&self) -> String;

    /// Keeps new peers from finding it; those that have connected can still be accepted.
    fn retire(&mut self) {}
}

/// A Unix socket. Its file, if this process made it, goes with it.
#[derive(Debug)]
pub struct UnixTransport {
    listener: UnixListener,
    file: Option<SocketFile>,
    own_uid: u32,
}

impl UnixTransport {
    /// Binds the path with [`SOCKET_MODE`], over a stale file if there is one.
    ///
    /// # Errors
    /// See [`unix_socket::bind`].
    pub async fn bind(path: &Path) -> Result<Self, BindError> {
        let bound = unix_socket::bind(path, SOCKET_MODE).await?;
        Ok(Self::over(bound.listener, Some(bound.file)))
    }

    /// Serves a listener that was made elsewhere, for example by the service manager.
    #[must_use]
    pub fn over(listener: UnixListener, file: Option<SocketFile>) -> Self {
        Self { listener, file, own_uid: nix::unistd::geteuid().as_raw() }
    }
}

impl Transport for UnixTransport {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let cred = stream.peer_cred()?;
        Ok((stream, Peer { uid: Some(cred.uid()), pid: cred.pid() }))
    }

    fn admits(&self, peer: &Peer) -> bool {
        is_owner_or_root(peer, self.own_uid)
    }

    fn describe(&self) -> String {
        let path = self.file.as_ref().map(|f| f.path().display().to_string());
        format!("unix:{}", path.as_deref().unwrap_or("(inherited)"))
    }

    fn retire(&mut self) {
        self.file = None;
    }
}

fn is_owner_or_root(peer: &Peer, own_uid: u32) -> bool {
    peer.uid.is_some_and(|uid| uid == own_uid || uid == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_user_and_root_are_admitted() {
        let from = |uid| Peer { uid, pid: Some(1) };
        assert!(is_owner_or_root(&from(Some(990)), 990));
        assert!(is_owner_or_root(&from(Some(0)), 990));
        assert!(!is_owner_or_root(&from(Some(1000)), 990));
        assert!(!is_owner_or_root(&from(None), 990));
    }
}
