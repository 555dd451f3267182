//! The checkpoint: where the journal stood, so that recovery reads the tail alone.

use std::{fs, io, path::Path, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    disk::{Disk, replace_whole},
    line::sealed,
    record::{HIGHEST, seal},
    segment::SegmentId,
};
use crate::status::LatestReading;

/// The layout that this build writes and reads.
pub const VERSION: u32 = 1;
/// A larger file is not ours.
const LARGEST: u64 = 64 * 1024 * 1024;

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    /// See [`VERSION`].
    pub version: u32,
    /// The journal that it belongs to.
    pub journal_id: String,
    /// The last record before it.
    pub seq: u64,
    /// The highest epoch up to it.
    pub epoch: u64,
    /// Where reading goes on: a segment's name, a byte in it, and that byte's line.
    pub segment: String,
    /// See `segment`.
    pub offset: u64,
    /// See `segment`.
    pub line: u64,
    /// Up to where each source is committed.
    #[serde(default)]
    pub sources: Vec<SourcePosition>,
    /// What the caller gave.
    #[serde(default)]
    pub caller: CheckpointData,
}

/// The caller's part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckpointData {
    /// Each point's newest reading.
    #[serde(default)]
    pub last: Vec<LatestReading>,
    /// Anything else: alarm states, restart budgets.
    #[serde(default)]
    pub extra: serde_json::Value,
}

/// What of a source's readings is committed: everything up to `up_to` when `records` of `of` are there. With fewer, the
/// last batch was cut off by the end of its writer: what comes before that batch is committed, and of the batch itself its
/// first `records` records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePosition {
    /// See [`super::Batch::source`].
    pub source: u64,
    /// The source's number of what its last batch ends with.
    pub up_to: u64,
    /// How many of that batch's records are committed.
    pub records: u64,
    /// How many it has.
    pub of: u64,
    /// The number of the batch's first record.
    pub seq: u64,
}

impl SourcePosition {
    /// True when the last batch is committed as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.records >= self.of
    }
}

/// The sources' positions. Bounded: worker processes come and go, and only those of late can still be alive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// In the order of `seq`.
    positions: Vec<SourcePosition>,
    /// The last one's batch may still grow.
    open: bool,
}

impl Sources {
    const MOST: usize = 256;

    /// Takes positions from a checkpoint.
    #[must_use]
    pub fn from_positions(mut positions: Vec<SourcePosition>) -> Self {
        positions.sort_by_key(|p| p.seq);
        positions.drain(..positions.len().saturating_sub(Self::MOST));
        Self { positions, open: true }
    }

    /// Notes a source's newest batch.
    pub fn set(&mut self, position: SourcePosition) {
        self.positions.retain(|p| p.source != position.source);
        if self.positions.len() >= Self::MOST {
            self.positions.remove(0);
        }
        self.positions.push(position);
        self.open = true;
    }

    /// Ends the batch in progress: the records of another writer follow.
    pub(super) fn close(&mut self) {
        self.open = false;
    }

    /// Notes a numbered record: the batch in progress is its owner.
    pub(super) fn count(&mut self, seq: u64) {
        if let Some(last) = self.positions.last_mut()
            && self.open
            && (last.seq..last.seq.saturating_add(last.of)).contains(&seq)
        {
            last.records = seq - last.seq + 1;
        }
    }

    /// All, oldest first.
    #[must_use]
    pub fn positions(&self) -> &[SourcePosition] {
        &self.positions
    }

    /// One source's.
    #[must_use]
    pub fn get(&self, source: u64) -> Option<&SourcePosition> {
        self.positions.iter().find(|p| p.source == source)
    }
}

/// Why a checkpoint is of no use. Recovery then reads the whole journal.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It cannot be read.
    #[error("cannot read it")]
    Read(#[source] io::Error),
    /// It holds nothing: the file system lost it in a power cut.
    #[error("it is empty")]
    Empty,
    /// It is larger than any checkpoint.
    #[error("it is larger than any checkpoint")]
    TooLarge,
    /// Its checksum is another's, or its content is not a checkpoint's.
    #[error("it is damaged")]
    Damaged,
    /// Another build's layout.
    #[error("its layout is version {0}, this build reads {VERSION}")]
    Version(u32),
    /// It belongs to another journal.
    #[error("it belongs to another journal")]
    Foreign,
    /// The journal does not have what it points at.
    #[error("it points past the journal's segment {0}")]
    Position(String),
}

/// Where it lies.
#[must_use]
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("checkpoint.json")
}

impl Checkpoint {
    /// Reads a checkpoint; `Ok(None)` when there is none.
    ///
    /// # Errors
    /// When there is one and it is of no use.
    pub fn load(state_dir: &Path) -> Result<Option<Self>, CheckpointError> {
        let path = path(state_dir);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CheckpointError::Read(error)),
            Ok(meta) if meta.len() > LARGEST => return Err(CheckpointError::TooLarge),
            Ok(_) => {}
        }
        Self::decode(&fs::read(&path).map_err(CheckpointError::Read)?).map(Some)
    }

    /// Reads a checkpoint's bytes.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if line.is_empty() {
            return Err(CheckpointError::Empty);
        }
        let content = sealed(line).map_err(|_| CheckpointError::Damaged)?;
        #[derive(Deserialize)]
        struct Layout {
            version: u32,
        }
        let text = [content, b"}"].concat();
        let layout: Layout = serde_json::from_slice(&text).map_err(|_| CheckpointError::Damaged)?;
        if layout.version != VERSION {
            return Err(CheckpointError::Version(layout.version));
        }
        let read: Self = serde_json::from_slice(&text).map_err(|_| CheckpointError::Damaged)?;
        // A checksum says who wrote it, not that its numbers can be: those that come after are counted from these.
        let line_is_there = read.line >= 1 && read.line - 1 <= read.offset;
        let possible = read.seq <= HIGHEST && read.epoch <= HIGHEST && line_is_there;
        possible.then_some(read).ok_or(CheckpointError::Damaged)
    }

    /// One line of JSON with a checksum, as the journal's records have it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // A checkpoint is plain data with text keys: it always has a JSON form.
        let mut out = serde_json::to_vec(self).unwrap_or_default();
        out.pop();
        seal(&mut out, 0);
        out
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// When the disk refuses; the old one is then still there.
    pub fn store(&self, disk: &mut dyn Disk, state_dir: &Path) -> io::Result<()> {
        replace_whole(disk, &path(state_dir), &self.encode())
    }

    /// The segment that it points into.
    #[must_use]
    pub fn segment_id(&self) -> Option<SegmentId> {
        SegmentId::parse(&self.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::disk::SystemDisk;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            version: VERSION,
            journal_id: "ab".into(),
            seq: 41,
            epoch: 3,
            segment: SegmentId { first_seq: 1, epoch: 3, attempt: 0 }.to_string(),
            offset: 200,
            line: 2,
            sources: vec![SourcePosition { source: 7, up_to: 9, records: 2, of: 3, seq: 40 }],
            caller: CheckpointData { last: vec![], extra: serde_json::json!({"budget": [1, 2]}) },
        }
    }

    #[test]
    fn it_is_read_back_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Checkpoint::load(dir.path()).unwrap().is_none());
        for seq in [41, 42] {
            let wanted = Checkpoint { seq, ..checkpoint() };
            wanted.store(&mut SystemDisk, dir.path()).unwrap();
            assert_eq!(Checkpoint::load(dir.path()).unwrap(), Some(wanted));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_cut_flipped_or_foreign_one_is_refused_with_its_reason() {
        let bytes = checkpoint().encode();
        assert!(matches!(Checkpoint::decode(b""), Err(CheckpointError::Empty)));
        assert!(matches!(Checkpoint::decode(&[0; 4096]), Err(CheckpointError::Damaged)));
        for cut in 1..bytes.len() - 1 {
            assert!(matches!(Checkpoint::decode(&bytes[..cut]), Err(CheckpointError::Damaged)), "{cut}");
        }
        for at in 0..bytes.len() - 1 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(Checkpoint::decode(&flipped).is_err(), "{at}");
        }
        for impossible in [
            Checkpoint { seq: HIGHEST + 1, ..checkpoint() },
            Checkpoint { epoch: u64::MAX, ..checkpoint() },
            Checkpoint { line: 0, ..checkpoint() },
            Checkpoint { line: u64::MAX, ..checkpoint() },
        ] {
            assert!(matches!(Checkpoint::decode(&impossible.encode()), Err(CheckpointError::Damaged)));
        }
        let mut later = b"{\"version\":2".to_vec();
        seal(&mut later, 0);
        assert!(matches!(Checkpoint::decode(&later), Err(CheckpointError::Version(2))));
    }

    #[test]
    fn the_sources_of_late_are_kept() {
        let mut sources = Sources::default();
        for source in 1..=1000 {
            sources.set(SourcePosition { source, up_to: 1, records: 1, of: 1, seq: source });
        }
        assert_eq!(sources.positions().len(), Sources::MOST);
        assert!(sources.get(1000).is_some() && sources.get(1).is_none());
    }

    #[test]
    fn records_count_toward_the_batch_that_they_follow() {
        let mut sources = Sources::default();
        sources.set(SourcePosition { source: 7, up_to: 9, records: 0, of: 3, seq: 40 });
        sources.count(40);
        sources.count(41);
        assert_eq!(sources.get(7).map(|p| (p.records, p.is_whole())), Some((2, false)));
        sources.count(42);
        sources.count(43);
        assert_eq!(sources.get(7).map(|p| (p.records, p.is_whole())), Some((3, true)));
    }
}
