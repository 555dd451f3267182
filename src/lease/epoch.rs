//! Epochs: the number that rises by one at each promotion and never falls, reboots included.
//!
//! Within a boot, the record in the run folder carries it. `STATE_DIR/epoch` carries it over boots: a ceiling reserved
//! far ahead, so that a promotion needs no disk. A boot starts above the ceiling.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::record::EPOCH_MAX;
use crate::coordination::draft;

/// How far ahead epochs are reserved.
const AHEAD: u64 = 1_000;
/// A new ceiling is reserved when fewer than this are left.
const LEFT_AT_LEAST: u64 = 500;

/// Why the ceiling could not be read or reserved.
#[derive(Debug, thiserror::Error)]
pub enum EpochError {
    /// It could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The ceiling's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no ceiling.
    #[error("{} holds no epoch ceiling", path.display())]
    Corrupt {
        /// The ceiling's file.
        path: PathBuf,
    },
    /// It could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The ceiling's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The epoch of a promotion.
///
/// `record`: the epoch of this boot's record. `seen`: the highest that this process met in any other way. `ceiling` is
/// asked only when no record of this boot is there, since it lies far above the present epoch.
#[must_use]
pub fn next(record: Option<u64>, ceiling: impl FnOnce() -> u64, floor: u64, seen: u64) -> u64 {
    let base = record.unwrap_or_else(ceiling).max(floor).max(seen);
    base.saturating_add(1).min(EPOCH_MAX)
}

/// The ceiling's file.
#[derive(Debug, Clone)]
pub struct EpochStore {
    folder: PathBuf,
    path: PathBuf,
}

impl EpochStore {
    /// The ceiling of a state folder.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.to_owned(), path: state_dir.join("epoch") }
    }

    /// The ceiling; 0 when none was ever reserved.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn ceiling(&self) -> Result<u64, EpochError> {
        match fs::read(&self.path) {
            Ok(bytes) => parse(&bytes).ok_or_else(|| EpochError::Corrupt { path: self.path.clone() }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(source) => Err(EpochError::Read { path: self.path.clone(), source }),
        }
    }

    /// Sees to it that enough epochs above this one are reserved. Blocks on the disk: never on the path of promotion.
    ///
    /// # Errors
    /// When the ceiling could not be written. A corrupt one is overwritten.
    pub fn reserve(&self, epoch: u64) -> Result<u64, EpochError> {
        if let Ok(ceiling) = self.ceiling()
            && ceiling >= epoch.saturating_add(LEFT_AT_LEAST)
        {
            return Ok(ceiling);
        }
        let ceiling = epoch.saturating_add(AHEAD);
        self.write(ceiling).map_err(|source| EpochError::Write { path: self.path.clone(), source })?;
        Ok(ceiling)
    }

    fn write(&self, ceiling: u64) -> io::Result<()> {
        // A name of our own: a leader that was replaced may still be at it.
        let path = self.folder.join(format!("epoch.{}.new", std::process::id()));
        let written = (|| {
            let mut file = draft(&path)?;
            file.write_all(line(ceiling).as_bytes())?;
            file.sync_all()?;
            fs::rename(&path, &self.path)
        })();
        if written.is_err() {
            // Best effort: the error that is told is the one above.
            let _ = fs::remove_file(&path);
        }
        written?;
        File::open(&self.folder)?.sync_all()
    }
}

/// The number, and a checksum over it.
fn line(ceiling: u64) -> String {
    let number = ceiling.to_string();
    let crc = crc32c::crc32c(number.as_bytes());
    format!("{number} {crc:08x}\n")
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let ceiling = text.split(' ').next()?.parse().ok().filter(|c| *c <= EPOCH_MAX)?;
    (line(ceiling) == text).then_some(ceiling)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn epochs_rise_by_one_within_a_boot_and_above_the_ceiling_after_it() {
        assert_eq!(next(Some(7), || unreachable!(), 0, 0), 8);
        assert_eq!(next(None, || 1_000, 7, 0), 1_001);
        assert_eq!(next(None, || 0, 0, 0), 1);
        assert_eq!(next(Some(7), || 0, 9, 0), 10);
        assert_eq!(next(None, || 0, 0, 12), 13);
    }

    #[test]
    fn a_ceiling_is_reserved_ahead_and_only_when_it_is_near() {
        let dir = tempfile::tempdir().unwrap();
        let store = EpochStore::new(dir.path());
        assert_eq!(store.ceiling().unwrap(), 0);
        assert_eq!(store.reserve(1).unwrap(), 1_001);
        assert_eq!(store.reserve(400).unwrap(), 1_001);
        assert_eq!(store.reserve(600).unwrap(), 1_600);
        assert_eq!(store.ceiling().unwrap(), 1_600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = fs::metadata(dir.path().join("epoch")).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "others may read it: {mode:o}");
    }

    #[test]
    fn a_corrupt_ceiling_is_told_and_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let store = EpochStore::new(dir.path());
        for garbage in [&b""[..], b"1000", b"1000 00000000\n", &[0; 4096], b"\xff"] {
            fs::write(dir.path().join("epoch"), garbage).unwrap();
            assert!(matches!(store.ceiling(), Err(EpochError::Corrupt { .. })), "{garbage:?}");
            assert_eq!(store.reserve(5).unwrap(), 1_005);
            fs::remove_file(dir.path().join("epoch")).unwrap();
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_a_typed_error() {
        let store = EpochStore::new(Path::new("/proc/none"));
        assert!(matches!(store.reserve(1), Err(EpochError::Write { .. })));
    }

    proptest! {
        #[test]
        fn the_ceiling_is_read_as_written_and_no_input_panics(c in 0..=EPOCH_MAX, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(parse(line(c).as_bytes()), Some(c));
            let _ = parse(&bytes);
        }

        #[test]
        fn an_epoch_is_always_above_all_that_is_known(r in proptest::option::of(0..1u64 << 50), c in 0..1u64 << 50, f in 0..1u64 << 50, s in 0..1u64 << 50) {
            let e = next(r, || c, f, s);
            prop_assert!(e > f && e > s && e > r.unwrap_or(c));
        }
    }
}
