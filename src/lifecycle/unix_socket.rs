//! Unix sockets in the file system: bound with their mode from the first moment, a stale file replaced, a living one left
//! alone, and removed by the one that made it only.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};

/// Why a Unix socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{path} is in use: another process listens there; stop it, or use another path")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The path holds something that is not ours to remove.
    #[error("{path} exists and is not a socket; remove it, or use another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A listening Unix socket and its file, which goes with it.
#[derive(Debug)]
pub struct BoundSocket {
    /// The listener.
    pub listener: UnixListener,
    /// Removes the file when dropped.
    pub file: SocketFile,
}

/// A socket's file. Dropping it removes the file if it is still the one that was made.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True while the path still leads to this socket.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours()
            && let Err(e) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), error = %e, "cannot remove the socket's file");
        }
    }
}

/// Binds `path` with `mode` (for example `0o660`).
///
/// The socket is made under another name, given its mode and renamed, so that nobody sees it with a wider mode or before
/// it listens. A lock on the folder keeps two starters from taking each other's new socket for a stale one.
///
/// # Errors
/// When another process listens there, or the path holds no socket, or a system call fails.
pub async fn bind(path: &Path, mode: u32) -> Result<BoundSocket, BindError> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let fail = |operation, path: &Path, source| BindError::Io { operation, path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let guard = lock_folder(folder).await.map_err(|e| fail("lock the folder", folder, e))?;

    check_free(path).await?;
    let draft = folder.join(format!(".{}.{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
    let _ = fs::remove_file(&draft);
    let listener = UnixListener::bind(&draft).map_err(|e| fail("bind", path, e))?;
    let finish = || -> io::Result<(u64, u64)> {
        fs::set_permissions(&draft, fs::Permissions::from_mode(mode))?;
        let made = fs::symlink_metadata(&draft)?;
        fs::rename(&draft, path)?;
        Ok((made.dev(), made.ino()))
    };
    let identity = finish().map_err(|e| {
        let _ = fs::remove_file(&draft);
        fail("make the socket", path, e)
    })?;
    drop(guard);
    Ok(BoundSocket { listener, file: SocketFile { path: path.to_owned(), identity } })
}

/// Takes the folder's lock, which its holders keep for a few system calls only; the process's end lifts it as well.
async fn lock_folder(folder: &Path) -> io::Result<fs::File> {
    const TRIES: u32 = 200;
    let file = fs::File::open(folder)?;
    let mut tries = 0;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if tries < TRIES => tries += 1,
            Err(e) => return Err(e.into()),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn check_free(path: &Path) -> Result<(), BindError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(BindError::Io { operation: "look at", path: path.to_owned(), source }),
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    // Tokio connects without blocking: a listener whose queue is full says so (EAGAIN), and lives.
    match UnixStream::connect(path).await {
        Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Err(BindError::Io { operation: "connect to", path: path.to_owned(), source: e })
        }
        Ok(_) | Err(_) => Err(BindError::InUse { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_file_is_replaced_and_a_living_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind, as a crash does");
        let bound = bind(&path, 0o660).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(matches!(bind(&path, 0o660).await, Err(BindError::InUse { .. })));
        assert!(path.exists());
        drop(bound);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no draft stays");
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path, 0o660).await, Err(BindError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_socket_file_that_another_process_put_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let bound = bind(&path, 0o660).await.unwrap();
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(!bound.file.is_ours());
        drop(bound);
        assert!(path.exists());
    }
}
