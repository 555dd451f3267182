//! What lets several processes of one device agree: locks, the registry of instances, the device's identity.
//!
//! | module | holds |
//! | --- | --- |
//! | [`file`](mod@file) | [`FileLock`]: a lock on a file, released by the kernel when its holder dies |
//! | [`holder`](mod@holder) | which process holds a lock, for people |
//! | [`process`] | a process by pid and start time, and how to end it without hitting another one |
//! | [`owner`] | whose a lock is, so that a holder that hangs can be ended |
//! | [`registry`] | the instances on this device |
//! | [`identity`] | the node's and the journal's ids, made once |

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

pub mod file;
pub mod holder;
pub mod identity;
pub mod owner;
pub mod process;
pub mod registry;

pub use file::{FileGuard, FileLock, LockError};
pub use holder::holder;
pub use identity::{Identity, IdentityError};
pub use owner::{OwnerError, end_owner, write_owner};
pub use process::{Ended, Process};
pub use registry::{Folder, Registered, Registration, Registry, RegistryError};

/// A new file to write before it takes another one's place by rename. For the service's user and group alone, as all that
/// it keeps, and made anew, since a draft that was left behind may be as open as an earlier version made it.
pub(crate) fn draft(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)
}

/// A lock that one process at a time holds, whatever it is made of.
///
/// The lock is held for as long as its guard lives, and is released by whoever keeps it (kernel, database) when the
/// process dies.
pub trait CoordinationLock {
    /// What holds the lock; dropping it releases the lock.
    type Guard: Send + 'static;
    /// Why the lock could not even be asked for.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the lock if nobody holds it. Never waits.
    ///
    /// # Errors
    /// When the lock could not be asked for. "Somebody else holds it" is no error: it is [`Attempt::Held`].
    fn try_acquire(&self) -> Result<Attempt<Self::Guard>, Self::Error>;

    /// Waits for the lock, for ever if need be: only for a thread of its own.
    ///
    /// # Errors
    /// When the lock could not be asked for.
    fn acquire(&self) -> Result<Self::Guard, Self::Error>;
}

/// How an attempt at a lock ended. Two variants and no bool, so that "not obtained" cannot be taken for success.
#[derive(Debug)]
#[must_use = "an attempt that was not looked at may have failed"]
pub enum Attempt<G> {
    /// The lock is ours for as long as the guard lives.
    Acquired(G),
    /// Somebody else holds it.
    Held,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::status::Role;

    #[test]
    fn what_is_replaced_by_rename_is_not_for_others_to_read() {
        let dir = tempfile::tempdir().unwrap();
        // What an earlier version may have left behind.
        for name in ["registry.json.new", "node_id.new"] {
            fs::write(dir.path().join(name), "old").unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        identity::node_id(dir.path()).unwrap();
        identity::journal_id(dir.path()).unwrap();
        let process = Process::current().unwrap();
        let (id, build, started_at) = ("a".to_owned(), String::new(), String::new());
        let a = Registration { id, role: Role::Follower, process, build, started_at };
        Registry::new(dir.path()).register(&a).unwrap();
        for name in ["registry.json", "node_id", "journal_id"] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o137, 0, "{name} has mode {mode:o}");
        }
    }
}
