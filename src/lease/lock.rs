//! The leader's lock: `RUN_DIR/lease.lock`, and behind it the state folder itself.
//!
//! The second lock is for the day on which somebody cleans the run folder under a living leader. Whoever then makes and
//! locks a new `lease.lock` still meets the leader at the state folder, which holds the journal and is never removed.
//! It also keeps apart two pairs that were given different run folders and one state folder by mistake.

use super::chain;
use crate::coordination::{Attempt, CoordinationLock, FileGuard, FileLock, LockError};

/// How often `lease.lock` may be replaced while we wait for the state folder.
const REPLACED_AT_MOST: u32 = 64;

/// The lock that makes a leader.
#[derive(Debug, Clone)]
pub struct LeaderLock {
    lease: FileLock,
    state: FileLock,
}

/// Holds a [`LeaderLock`].
#[derive(Debug)]
pub struct LeaderGuard {
    lease: FileGuard,
    /// `None` where the state folder could not even be opened: leading needs no disk.
    state: Option<FileGuard>,
}

impl LeaderLock {
    /// Over both paths.
    #[must_use]
    pub fn new(lease: FileLock, state: FileLock) -> Self {
        Self { lease, state }
    }

    /// Whether somebody holds the lock now. When that cannot be told, nobody does: a process that may not hold it is not
    /// to be ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.try_acquire(), Ok(Attempt::Held))
    }

    fn replaced(&self) -> LockError {
        LockError::Replaced { path: self.lease.path().to_owned() }
    }
}

impl CoordinationLock for LeaderLock {
    type Guard = LeaderGuard;
    type Error = LockError;

    fn try_acquire(&self) -> Result<Attempt<LeaderGuard>, LockError> {
        for _ in 0..REPLACED_AT_MOST {
            let Attempt::Acquired(lease) = self.lease.try_acquire()? else { return Ok(Attempt::Held) };
            let state = match self.state.try_acquire() {
                Ok(Attempt::Acquired(state)) => Some(state),
                Ok(Attempt::Held) => return Ok(Attempt::Held),
                Err(e) => without_state(&e),
            };
            if lease.is_current() {
                return Ok(Attempt::Acquired(LeaderGuard { lease, state }));
            }
        }
        Err(self.replaced())
    }

    fn acquire(&self) -> Result<LeaderGuard, LockError> {
        for _ in 0..REPLACED_AT_MOST {
            let lease = self.lease.acquire()?;
            let state = self.state.acquire().map_or_else(|e| without_state(&e), Some);
            // It may have been replaced while we waited for the second one.
            if lease.is_current() {
                return Ok(LeaderGuard { lease, state });
            }
        }
        Err(self.replaced())
    }
}

fn without_state(e: &LockError) -> Option<FileGuard> {
    tracing::warn!(error = chain(e), "leading without the lock on the state folder");
    None
}

impl LeaderGuard {
    /// Called now and then while leading: when somebody removed `lease.lock`, makes and locks it anew.
    ///
    /// # Errors
    /// When the lock is lost: somebody else may lead.
    pub fn mend(&mut self, lock: &LeaderLock) -> Result<(), String> {
        if self.lease.is_current() {
            return Ok(());
        }
        let path = lock.lease.path().display();
        let why = match lock.lease.try_acquire() {
            Ok(Attempt::Acquired(lease)) => {
                tracing::warn!(%path, "the lock file was removed while it was held; made anew");
                self.lease = lease;
                return Ok(());
            }
            Ok(Attempt::Held) => "another process holds the new one".to_owned(),
            Err(e) => chain(&e),
        };
        if self.state.is_some() {
            // Nobody passes the state folder while we hold it.
            return Ok(());
        }
        Err(format!("lock file {path} was removed while it was held: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_removed_lock_file_does_not_give_two_leaders() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease.lock");
        let lock = LeaderLock::new(FileLock::new(&path), FileLock::on_folder(dir.path()));
        let Ok(Attempt::Acquired(mut guard)) = lock.try_acquire() else { panic!("not free") };
        fs::remove_file(&path).unwrap();
        assert!(matches!(lock.try_acquire(), Ok(Attempt::Held)), "two leaders");
        guard.mend(&lock).unwrap();
        assert!(guard.lease.is_current());
        assert!(matches!(FileLock::new(&path).try_acquire(), Ok(Attempt::Held)));
        drop(guard);
        assert!(matches!(lock.try_acquire(), Ok(Attempt::Acquired(_))));
    }

    #[test]
    fn without_a_state_folder_a_removed_lock_file_that_another_one_has_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease.lock");
        let lock = LeaderLock::new(FileLock::new(&path), FileLock::on_folder(dir.path().join("none")));
        let Ok(Attempt::Acquired(mut guard)) = lock.try_acquire() else { panic!("not free") };
        fs::remove_file(&path).unwrap();
        let _other = FileLock::new(&path).acquire().unwrap();
        assert!(guard.mend(&lock).is_err());
    }
}
