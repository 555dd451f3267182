//! The leader's lock: `RUN_DIR/lease.lock`, and behind it the state folder itself.
//!
//! The second lock is for the day on which somebody cleans the run folder under a living leader. Whoever then makes and
//! locks a new `lease.lock` still meets the leader at the state folder, which holds the journal and is never removed.
//! It also keeps apart two pairs that were given different run folders and one state folder by mistake.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::coordination::{Attempt, CoordinationLock, FileGuard, FileLock, LockError, holder};
use crate::errors::chain;

/// How often `lease.lock` may be replaced while we wait for the state folder.
const REPLACED_AT_MOST: u32 = 64;

/// How long a leader tries for a `lease.lock` that was made anew: an instance that starts has it for moments.
const REMAKING: Duration = Duration::from_millis(10);

/// Which of the two locks somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// None.
    Free,
    /// `lease.lock`: somebody of this run folder leads, or is about to.
    Lease,
    /// The state folder only: whoever leads did not come by our `lease.lock`.
    State,
}

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

    /// Which of the two somebody else holds now. Holds what is free for that moment.
    ///
    /// # Errors
    /// When `lease.lock` cannot be asked for.
    pub fn standing(&self) -> Result<Standing, LockError> {
        let Attempt::Acquired(_lease) = self.lease.try_acquire()? else { return Ok(Standing::Lease) };
        // What cannot be opened is held by nobody: leading needs no disk.
        Ok(if matches!(self.state.try_acquire(), Ok(Attempt::Held)) { Standing::State } else { Standing::Free })
    }

    /// Waits for the lock as [`CoordinationLock::acquire`] does, and notes when only the state folder is still missing.
    ///
    /// # Errors
    /// When the lock could not be asked for.
    pub fn acquire_noting(&self, has_lease: &AtomicBool) -> Result<LeaderGuard, LockError> {
        for _ in 0..REPLACED_AT_MOST {
            has_lease.store(false, Ordering::Release);
            let lease = self.lease.acquire()?;
            has_lease.store(true, Ordering::Release);
            let state = self.state.acquire().map_or_else(|e| without_state(&e), Some);
            // It may have been replaced while we waited for the second one.
            if lease.is_current() {
                return Ok(LeaderGuard { lease, state });
            }
        }
        Err(self.replaced())
    }

    /// Who is in the way of somebody who waits, in words. `has_lease`: only the state folder is still missing.
    #[must_use]
    pub fn obstacle(&self, has_lease: bool) -> String {
        let (lease, state) = (self.lease.path(), self.state.path());
        if has_lease {
            return format!(
                "{} holds the state folder {} while {} is ours: another pair leads with it, or the run folder was \
                 cleaned under a living leader; give each pair its own --state-dir, or both instances the same \
                 --run-dir",
                somebody(state),
                state.display(),
                lease.display()
            );
        }
        format!("{} holds {} and does not lead", somebody(lease), lease.display())
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
        self.acquire_noting(&AtomicBool::new(false))
    }
}

fn somebody(path: &Path) -> String {
    holder(path).map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn without_state(e: &LockError) -> Option<FileGuard> {
    tracing::warn!(error = chain(e), "leading without the lock on the state folder");
    None
}

impl LeaderGuard {
    /// Called at each renewal while leading: when somebody removed `lease.lock`, makes and locks it anew.
    ///
    /// # Errors
    /// When the lock is lost: somebody else may lead.
    pub fn mend(&mut self, lock: &LeaderLock) -> Result<(), String> {
        if self.lease.is_current() {
            return Ok(());
        }
        let path = lock.lease.path().display();
        // Not the lock that makes its folder: sockets went with the folder, and a leader that has none is better
        // started anew.
        let new = FileLock::new(lock.lease.path());
        let wait = if self.state.is_some() { Duration::ZERO } else { REMAKING };
        let why = match new.acquire_within(wait) {
            Ok(lease) => {
                tracing::warn!(%path, "the lock file was removed while it was held; made anew");
                self.lease = lease;
                return Ok(());
            }
            Err(LockError::Busy { .. }) => "another process holds the new one".to_owned(),
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
    fn it_is_told_which_of_the_two_is_another_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (run, state) = (dir.path().join("run"), dir.path().join("state"));
        fs::create_dir(&state).unwrap();
        let lock = LeaderLock::new(FileLock::new(run.join("lease.lock")).making_folder(), FileLock::on_folder(&state));
        assert_eq!(lock.standing().unwrap(), Standing::Free);
        let other = FileLock::on_folder(&state).acquire().unwrap();
        assert_eq!(lock.standing().unwrap(), Standing::State);
        let told = lock.obstacle(true);
        assert!(told.contains("holds the state folder") && told.contains("--run-dir"), "{told}");
        drop(other);
        let _ours = lock.acquire().unwrap();
        assert_eq!(lock.standing().unwrap(), Standing::Lease);
        assert!(lock.obstacle(false).contains("lease.lock and does not lead"));
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
