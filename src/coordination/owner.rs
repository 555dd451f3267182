//! Whose a lock is, written into the lock's file, so that a holder that hangs can be ended by identity.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    file::FileGuard,
    process::{Ended, Process},
};

/// Why a lock's owner could not be written or ended.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The file cannot be written.
    #[error("cannot write the owner into {path}")]
    Write {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read the owner from {path}")]
    Read {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file names nobody.
    #[error("{path} names no owner")]
    Nobody {
        /// The lock's file.
        path: PathBuf,
    },
    /// The owner could not be ended.
    #[error("pid {pid}, the owner of {path}, could not be ended: {why}")]
    Lives {
        /// The lock's file.
        path: PathBuf,
        /// The owner.
        pid: u32,
        /// Why not.
        why: String,
    },
}

/// Writes this process into the file of a lock that it holds.
///
/// # Errors
/// When the file cannot be written.
pub fn write_owner(lock: &FileGuard) -> Result<(), OwnerError> {
    let failed = |source| OwnerError::Write { path: lock.path().to_owned(), source };
    let me = Process::current().map_err(failed)?;
    // In place: the lock is on this very inode.
    fs::write(lock.path(), format!("{} {}\n", me.pid, me.start)).map_err(failed)
}

/// The process that a lock's file names.
///
/// # Errors
/// When the file cannot be read or names nobody.
pub fn owner(path: &Path) -> Result<Process, OwnerError> {
    let text = fs::read_to_string(path).map_err(|source| OwnerError::Read { path: path.to_owned(), source })?;
    let mut words = text.split_ascii_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next(), words.next()) {
        (Some(Ok(pid)), Some(Ok(start)), None) if pid > 0 && u32::try_from(pid).is_ok() => {
            Ok(Process { pid: u32::try_from(pid).unwrap_or(u32::MAX), start })
        }
        _ => Err(OwnerError::Nobody { path: path.to_owned() }),
    }
}

/// Ends the process that holds a lock, and waits for its end.
///
/// # Errors
/// When nobody is named, or the process lives on.
pub fn end_owner(path: &Path, wait: Duration) -> Result<(), OwnerError> {
    let owner = owner(path)?;
    let why = match owner.end(wait, || true) {
        Ended::Killed | Ended::Gone => return Ok(()),
        Ended::CalledOff => "called off".to_owned(),
        Ended::Denied(why) => why,
        Ended::StillThere => "it was killed but has not gone: it hangs in the kernel".to_owned(),
    };
    Err(OwnerError::Lives { path: path.to_owned(), pid: owner.pid, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::{Attempt, CoordinationLock, FileLock};

    #[test]
    fn the_owner_of_a_lock_can_be_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.lock");
        let Attempt::Acquired(guard) = FileLock::new(&path).try_acquire().unwrap() else { panic!("nobody holds it") };
        write_owner(&guard).unwrap();
        assert_eq!(owner(&path).unwrap(), Process::current().unwrap());
        assert!(guard.is_current());
    }

    #[test]
    fn a_file_without_an_owner_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.lock");
        for text in ["", "x", "1", "0 0", "1 2 3", "-1 5", "99999999999 1"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(owner(&path), Err(OwnerError::Nobody { .. })), "{text:?}");
        }
    }
}
