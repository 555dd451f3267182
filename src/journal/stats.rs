//! What the writer says of itself.

use std::time::Duration;

use crate::{clock::Boot, status::JournalStatus};

/// Counted since the writer started, but for what says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The oldest record on disk; 0 when there is none.
    pub first_seq: u64,
    /// The newest committed record.
    pub last_seq: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Records committed.
    pub records: u64,
    /// Bytes committed.
    pub written_bytes: u64,
    /// Commits.
    pub commits: u64,
    /// How long the last commit took.
    pub commit_last: Duration,
    /// How long the longest took.
    pub commit_max: Duration,
    /// How long all took.
    pub commit_sum: Duration,
    /// Since when a commit has been under way; a disk that hangs shows here.
    pub committing_since: Option<Boot>,
    /// Bytes of memory that wait to be committed.
    pub pending_bytes: u64,
    /// Records lost because memory was full.
    pub dropped_memory: u64,
    /// Records removed before an uplink took them.
    pub dropped_unsent: u64,
    /// Committed records whose segments someone else removed.
    pub removed: u64,
    /// Segments left because the disk failed them.
    pub abandoned: u64,
    /// Repairs at recovery.
    pub repairs: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written.
    pub checkpoint_failures: u64,
    /// Why nothing can be committed at present.
    pub trouble: Option<String>,
}

impl From<&Stats> for JournalStatus {
    fn from(stats: &Stats) -> Self {
        Self {
            first_seq: stats.first_seq,
            last_seq: stats.last_seq,
            bytes: stats.bytes,
            trouble: stats.trouble.clone(),
            pending_bytes: stats.pending_bytes,
            dropped: stats.dropped_memory + stats.dropped_unsent + stats.removed,
        }
    }
}
