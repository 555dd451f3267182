//! Why a commit failed.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why nothing is committed at present.
#[derive(Debug)]
pub(in crate::journal) enum CommitError {
    /// This process does not lead any more.
    Fenced,
    /// The disk refuses.
    Disk { operation: &'static str, path: PathBuf, source: io::Error },
    /// The segment that was written to is not under its path any more: what was written went nowhere.
    Removed { path: PathBuf },
    /// The bounds are reached, and what is there is unsent and may not go.
    FullOfUnsent,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("this instance does not lead any more"),
            Self::Disk { operation, path, source } => write!(f, "cannot {operation} {}: {source}", path.display()),
            Self::Removed { path } => write!(
                f,
                "the journal segment {} was removed or replaced while it was written to; a new one is begun with what \
                 is not committed yet",
                path.display()
            ),
            Self::FullOfUnsent => f.write_str("the journal is full of records that no uplink has taken yet"),
        }
    }
}

pub(super) fn disk(operation: &'static str, path: &Path, source: io::Error) -> CommitError {
    CommitError::Disk { operation, path: path.to_owned(), source }
}
