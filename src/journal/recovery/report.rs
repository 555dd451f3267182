//! What recovery has to tell.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::journal::{
    checkpoint::CheckpointError,
    fault::{Fault, What},
};

/// What recovery found and did.
#[derive(Debug, Clone, Default)]
pub struct RecoveryReport {
    /// The first faults; `fault_count` has the number of all.
    pub faults: Vec<Fault>,
    /// All faults.
    pub fault_count: u64,
    /// Torn tails that were cut, newlines that were added, empty segments that were removed.
    pub repairs: u64,
    /// Bytes that were cut.
    pub cut_bytes: u64,
    /// Damaged lines that were skipped.
    pub damaged: u64,
    /// Records that are missing, by their numbers.
    pub missing: u64,
    /// Records that were read.
    pub records: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Whether the checkpoint was used, and why not when there is one.
    pub checkpoint: CheckpointUse,
    /// How long it took.
    pub took: Duration,
}

/// What became of the checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CheckpointUse {
    /// There was none.
    #[default]
    None,
    /// Reading began at it.
    Used,
    /// It is of no use, and why.
    Ignored(String),
}

impl RecoveryReport {
    /// At most this many faults are held.
    pub const MOST: usize = 64;

    /// True when there is nothing to tell.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.fault_count == 0
    }

    /// The fields of the event record that tells of it.
    #[must_use]
    pub fn fields(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("faults".into(), self.fault_count.into());
        map.insert("repairs".into(), self.repairs.into());
        map.insert("cut_bytes".into(), self.cut_bytes.into());
        map.insert("damaged".into(), self.damaged.into());
        map.insert("missing".into(), self.missing.into());
        map.insert("records_read".into(), self.records.into());
        map.insert("took_ms".into(), json!(u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX)));
        if let CheckpointUse::Ignored(why) = &self.checkpoint {
            map.insert("checkpoint_ignored".into(), why.clone().into());
        }
        if !self.faults.is_empty() {
            map.insert("places".into(), self.faults.iter().map(Fault::to_json).collect());
        }
        map
    }

    /// Notes that the checkpoint is of no use: as its state, and as a fault among the others.
    pub(super) fn ignore_checkpoint(&mut self, error: &CheckpointError) {
        let why = match error {
            CheckpointError::Read(source) => format!("{error}: {source}"),
            other => other.to_string(),
        };
        self.add(Fault::of_file("checkpoint.json", What::Checkpoint { why: why.clone() }));
        self.checkpoint = CheckpointUse::Ignored(why);
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.fault_count += 1;
        match fault.what {
            What::Cut { end } => {
                self.repairs += 1;
                self.cut_bytes += end - fault.place.offset;
            }
            What::NewlineAdded | What::Removed => self.repairs += 1,
            What::Damaged { last_line, .. } => self.damaged += last_line - fault.place.line + 1,
            What::Hole { from, to } | What::Vanished { from, to } => {
                self.missing = self.missing.saturating_add(to - from + 1)
            }
            What::Duplicate { .. }
            | What::Superseded { .. }
            | What::Epoch { .. }
            | What::Unreadable { .. }
            | What::NotRepaired { .. }
            | What::Foreign
            | What::Checkpoint { .. }
            | What::Misnamed { .. } => {}
        }
        if self.faults.len() < Self::MOST {
            self.faults.push(fault);
        }
    }
}
