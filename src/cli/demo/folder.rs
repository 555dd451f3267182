//! The demo's folder: private, and gone at the end unless it is kept.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
};

use super::leftovers::{self, Claim};
use crate::{clock::Boot, sim::plant::Dice};

/// A path of a Unix socket has 107 bytes at most, and the longest below the folder is `run/workers/KEY.sock`.
const MAX_PATH: usize = 70;

/// Why there is no folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It could not be made.
    #[error("cannot make the folder {}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The sockets in it would not fit.
    #[error("{} is too long a path for Unix sockets: set TMPDIR to a shorter one, for example /tmp", .0.display())]
    TooLong(PathBuf),
}

/// A folder of mode 0700 with `state` and `run` in it. Dropped, it is deleted unless it is to be kept.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    keep: bool,
    /// Says whose it is for as long as this process lives; one that is to be kept is nobody's.
    _claim: Option<Claim>,
}

impl Folder {
    /// Makes a new one below `parent`.
    ///
    /// # Errors
    /// When it cannot be made, or the sockets' paths in it would be too long.
    pub fn create(parent: &Path, keep: bool) -> Result<Self, FolderError> {
        let mut dice = Dice::new(u64::from(process::id()) << 32 ^ Boot::now().0.as_nanos() as u64);
        loop {
            // The name need not be a secret: making a folder fails on whatever is there already, links included. It is
            // short so that a command with a path in it fits a line of 80 columns.
            let path = parent.join(format!("{}{:06x}", leftovers::PREFIX, dice.next_u64() & 0xff_ffff));
            if path.as_os_str().len() > MAX_PATH {
                return Err(FolderError::TooLong(path));
            }
            match private(&path) {
                Ok(()) => {}
                Err(FolderError::Make { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            let claim = if keep { None } else { leftovers::claim(&path) };
            let folder = Self { path, keep, _claim: claim };
            private(&folder.state())?;
            private(&folder.run())?;
            return Ok(folder);
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pair's `--state-dir`.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The pair's `--run-dir`.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// The pair's `--manifest`.
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        self.path.join("plant.toml")
    }

    /// What an instance writes to stderr.
    #[must_use]
    pub fn log(&self, instance: &str) -> PathBuf {
        self.path.join(format!("{instance}.log"))
    }
}

fn private(path: &Path) -> Result<(), FolderError> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|source| FolderError::Make { path: path.to_owned(), source })
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // There is nobody left to tell, and a temporary folder that stays is not worth a failure.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_with_the_demo_unless_kept() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(parent.path(), false).unwrap();
        for path in [folder.path().to_owned(), folder.state(), folder.run()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        fs::write(folder.log("a"), "x").unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
        let kept = Folder::create(parent.path(), true).unwrap();
        let path = kept.path().to_owned();
        drop(kept);
        assert!(path.exists());
    }

    #[test]
    fn a_folder_whose_sockets_would_not_fit_is_refused_with_what_to_do() {
        let parent = tempfile::tempdir().unwrap();
        let long = parent.path().join("x".repeat(80));
        let error = Folder::create(&long, false).unwrap_err();
        assert!(error.to_string().contains("set TMPDIR"), "{error}");
    }
}
