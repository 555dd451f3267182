//! A lock on a file or folder (`flock`), released by the kernel when its holder dies, however it dies.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use fs4::{FileExt, TryLockError};

use super::{Attempt, CoordinationLock};
use crate::clock::Boot;

/// How often the file may be replaced under us within one attempt before we give up.
const REPLACED_AT_MOST: u32 = 64;
/// The pause between two attempts of [`FileLock::acquire_within`].
const PAUSE: Duration = Duration::from_millis(2);

/// Why a lock could not be asked for.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file could not be opened or made.
    #[error("cannot open lock file {}", path.display())]
    Open {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot lock {}", path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody replaces the file faster than we can lock it.
    #[error("lock file {} is replaced again and again; leave lock files alone", path.display())]
    Replaced {
        /// The lock's file.
        path: PathBuf,
    },
    /// Somebody held it for the whole time that we could wait.
    #[error("lock {} was held by another process for {} ms", path.display(), waited.as_millis())]
    Busy {
        /// The lock's file.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
}

/// A lock on a path.
///
/// - The descriptor is close-on-exec, so a child that is started while the lock is held does not hold it. (A process
///   that forked without exec would; nothing here does.)
/// - After locking, the file's inode is compared with the path's: whoever waited on a file that somebody removed
///   meanwhile would hold a lock that nobody else sees. It opens the path anew instead.
/// - The file stays when the lock is released: removing it would open that very race.
#[derive(Debug, Clone)]
pub struct FileLock {
    path: PathBuf,
    folder: bool,
    makes_folder: bool,
}

/// Holds a [`FileLock`] until it is dropped.
#[derive(Debug)]
pub struct FileGuard {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// A lock on a file, which is made when it is not there.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), folder: false, makes_folder: false }
    }

    /// A lock on a folder that is there already. It needs no write access.
    #[must_use]
    pub fn on_folder(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), folder: true, makes_folder: false }
    }

    /// Makes the folder of the lock's file as well when it is not there: somebody may remove the run folder under us.
    #[must_use]
    pub fn making_folder(self) -> Self {
        Self { makes_folder: true, ..self }
    }

    /// The lock's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the lock, but not longer than a deadline. For locks that are held for moments only.
    ///
    /// # Errors
    /// As [`CoordinationLock::try_acquire`], and [`LockError::Busy`] when the time is over.
    pub fn acquire_within(&self, wait: Duration) -> Result<FileGuard, LockError> {
        let deadline = Boot::now().plus(wait);
        loop {
            if let Attempt::Acquired(guard) = self.try_acquire()? {
                return Ok(guard);
            }
            if Boot::now() >= deadline {
                return Err(LockError::Busy { path: self.path.clone(), waited: wait });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Opens the file, making it when it is not there, and locks nothing: to find out early that it cannot be used.
    ///
    /// # Errors
    /// [`LockError::Open`].
    pub fn probe(&self) -> Result<(), LockError> {
        self.open().map(drop)
    }

    fn open(&self) -> Result<FileGuard, LockError> {
        let mut options = OpenOptions::new();
        options.read(true);
        if !self.folder {
            // Both instances run as one user and group; others have no business with the lock.
            options.write(true).create(true).truncate(false).mode(0o660);
        }
        let opened = match options.open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.makes_folder => {
                let folder = self.path.parent().unwrap_or(Path::new("."));
                DirBuilder::new().recursive(true).mode(0o750).create(folder).and_then(|()| options.open(&self.path))
            }
            opened => opened,
        };
        match opened {
            Ok(file) => Ok(FileGuard { file, path: self.path.clone() }),
            Err(source) => Err(LockError::Open { path: self.path.clone(), source }),
        }
    }

    fn locked(&self, take: impl Fn(&File) -> io::Result<bool>) -> Result<Attempt<FileGuard>, LockError> {
        for _ in 0..REPLACED_AT_MOST {
            let guard = self.open()?;
            let taken = loop {
                match take(&guard.file) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => return Err(LockError::Lock { path: self.path.clone(), source }),
                    Ok(taken) => break taken,
                }
            };
            if !taken {
                return Ok(Attempt::Held);
            }
            if guard.is_current() {
                return Ok(Attempt::Acquired(guard));
            }
        }
        Err(LockError::Replaced { path: self.path.clone() })
    }
}

impl CoordinationLock for FileLock {
    type Guard = FileGuard;
    type Error = LockError;

    fn try_acquire(&self) -> Result<Attempt<FileGuard>, LockError> {
        // The trait's method by its full name: `File` has one of the same name in newer standard libraries.
        self.locked(|file| match FileExt::try_lock(file) {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(source),
        })
    }

    fn acquire(&self) -> Result<FileGuard, LockError> {
        match self.locked(|file| FileExt::lock(file).map(|()| true))? {
            Attempt::Acquired(guard) => Ok(guard),
            // A lock call that waits cannot come back empty-handed; were it to, this is no lock.
            Attempt::Held => Err(LockError::Busy { path: self.path.clone(), waited: Duration::ZERO }),
        }
    }
}

impl FileGuard {
    /// Whether the path still names the file that is locked. False: somebody removed or replaced it.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let (Ok(ours), Ok(theirs)) = (self.file.metadata(), std::fs::metadata(&self.path)) else { return false };
        ours.ino() == theirs.ino() && ours.dev() == theirs.dev()
    }

    /// The locked path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    fn acquired(lock: &FileLock) -> FileGuard {
        match lock.try_acquire().unwrap() {
            Attempt::Acquired(guard) => guard,
            Attempt::Held => panic!("{} is held", lock.path().display()),
        }
    }

    #[test]
    fn a_lock_is_held_once_and_is_free_after_its_guard() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::new(dir.path().join("x.lock"));
        let guard = acquired(&lock);
        assert!(matches!(lock.try_acquire(), Ok(Attempt::Held)));
        assert!(matches!(lock.acquire_within(Duration::from_millis(5)), Err(LockError::Busy { .. })));
        drop(guard);
        acquired(&lock);
    }

    #[test]
    fn a_child_does_not_hold_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::new(dir.path().join("x.lock"));
        let guard = acquired(&lock);
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        drop(guard);
        let again = lock.acquire_within(Duration::from_secs(2));
        child.kill().unwrap();
        child.wait().unwrap();
        again.unwrap();
    }

    #[test]
    fn a_removed_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::new(dir.path().join("x.lock"));
        let guard = acquired(&lock);
        assert!(guard.is_current());
        fs::remove_file(lock.path()).unwrap();
        assert!(!guard.is_current());
    }

    #[test]
    fn who_waited_on_a_removed_file_takes_the_one_of_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::new(dir.path().join("x.lock"));
        let first = acquired(&lock);
        let waiting = {
            let lock = lock.clone();
            thread::spawn(move || lock.acquire().unwrap())
        };
        // Give it time to block; if it has not yet, the test is only weaker.
        thread::sleep(Duration::from_millis(20));
        fs::remove_file(lock.path()).unwrap();
        let second = acquired(&lock);
        drop(first);
        thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished(), "it leads on a file that nobody else sees");
        drop(second);
        assert!(waiting.join().unwrap().is_current());
    }

    #[test]
    fn the_folder_is_made_where_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::new(dir.path().join("run/x.lock"));
        assert!(matches!(lock.try_acquire(), Err(LockError::Open { .. })));
        acquired(&lock.making_folder());
    }

    #[test]
    fn a_folder_can_be_locked() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::on_folder(dir.path());
        let guard = acquired(&lock);
        assert!(matches!(lock.try_acquire(), Ok(Attempt::Held)));
        drop(guard);
        assert!(matches!(FileLock::on_folder(dir.path().join("none")).try_acquire(), Err(LockError::Open { .. })));
    }
}
