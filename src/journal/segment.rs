//! Segments: their names, their order, and which of them are there.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use crate::clock::Wall;

/// A segment's name: `FIRST_SEQ-EPOCH.jsonl`, so that the order of the names is the order of the records. `attempt` is
/// for the writer that had to leave a file because its disk failed it, and begins again at the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The number of its first record.
    pub first_seq: u64,
    /// The epoch of all its records.
    pub epoch: u64,
    /// 0 for the first file of this name.
    pub attempt: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:010}", self.first_seq, self.epoch)?;
        if self.attempt > 0 {
            write!(f, ".{}", self.attempt)?;
        }
        f.write_str(".jsonl")
    }
}

impl SegmentId {
    /// Reads a file's name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".jsonl")?;
        let (stem, attempt) = match stem.split_once('.') {
            Some((stem, attempt)) => (stem, attempt.parse().ok().filter(|a| *a > 0)?),
            None => (stem, 0),
        };
        let (first, epoch) = stem.split_once('-')?;
        let id = Self { first_seq: first.parse().ok()?, epoch: epoch.parse().ok()?, attempt };
        // One name for each segment: `7-1.jsonl` and `+7-1.jsonl` are someone else's.
        (id.to_string() == name).then_some(id)
    }
}

/// A segment on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its name.
    pub id: SegmentId,
    /// Its size.
    pub bytes: u64,
    /// When it was last written to.
    pub modified: Wall,
}

/// What lies in the journal's folder.
#[derive(Debug, Default)]
pub struct Listing {
    /// The segments, oldest first.
    pub segments: Vec<SegmentInfo>,
    /// Names that are no segment's; at most 16.
    pub foreign: Vec<String>,
}

/// The journal's folder.
#[must_use]
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("journal")
}

/// Lists a journal's folder; `Ok(None)` when it does not exist. Beside a running writer too: no segment is missing
/// between two that are listed.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(folder: &Path) -> io::Result<Option<Listing>> {
    // A name that is made while a folder is read may be passed over, and yet one that is made after it may be found. Names
    // are made in their order: all up to the newest of a first reading are sure to be found by a second one.
    let Some(newest) = read(folder)?.map(|first| first.segments.last().map(|s| s.id)) else { return Ok(None) };
    let listing = read(folder)?.map(|mut listing| {
        listing.segments.retain(|s| Some(s.id) <= newest);
        listing
    });
    Ok(listing)
}

fn read(folder: &Path) -> io::Result<Option<Listing>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut listing = Listing::default();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let id = name.to_str().and_then(SegmentId::parse);
        let meta = match entry.metadata() {
            Ok(meta) => meta,
            // Removed since it was listed: a running leader makes space.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match id.filter(|_| meta.is_file()) {
            Some(id) => listing.segments.push(SegmentInfo { id, bytes: meta.len(), modified: modified(&meta) }),
            None if listing.foreign.len() < 16 => listing.foreign.push(name.to_string_lossy().into_owned()),
            None => {}
        }
    }
    listing.segments.sort_unstable_by_key(|s| s.id);
    Ok(Some(listing))
}

fn modified(meta: &fs::Metadata) -> Wall {
    let since = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Wall(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_sorts_as_its_records_do() {
        let ids = [(1, 1, 0), (9, 1, 0), (10, 1, 0), (10, 1, 1), (10, 2, 0), (u64::MAX, 9, 2)]
            .map(|(first_seq, epoch, attempt)| SegmentId { first_seq, epoch, attempt });
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for id in ids {
            assert_eq!(SegmentId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn other_names_are_no_segments() {
        for name in
            ["", "x.jsonl", "1-1.jsonl", "00000000000000000001-0000000001", "00000000000000000001-0000000001.0.jsonl"]
        {
            assert_eq!(SegmentId::parse(name), None, "{name}");
        }
    }
}
