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
    /// The bounds are reached, and what is there is unsent and may not go.
    FullOfUnsent,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("this instance does not lead any more"),
            Self::Disk { operation, path, source } => write!(f, "cannot {operation} {}: {source}", path.display()),
            Self::FullOfUnsent => f.write_str("the journal is full of records that no uplink has taken yet"),
        }
    }
}

pub(super) fn disk(operation: &'static str, path: &Path, source: io::Error) -> CommitError {
    CommitError::Disk { operation, path: path.to_owned(), source }
}
