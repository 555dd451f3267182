//! The one table of exit codes. Scripts rely on them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Bad usage (clap's own code as well).
    Usage = 2,
    /// The manifest has faults.
    Manifest = 3,
    /// No supervisor is listening.
    NoSupervisor = 4,
    /// Refused: busy, not the leader, a downgrade.
    Refused = 5,
    /// The lease could not be fenced, or was lost to another instance.
    Fenced = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
