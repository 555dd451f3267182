//! Opening a journal after whatever end its last writer had: repair, then what a new leader must know.

use std::{
    collections::HashMap,
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};

use super::{
    JournalError,
    checkpoint::{Checkpoint, CheckpointData, CheckpointError, Sources},
    disk::{Disk, SystemDisk, replace_whole},
    fault::{Fault, What},
    line::Record,
    reader::{Item, Position, SegmentEnd, Start, walk},
    scan::Place,
    segment::{SegmentInfo, folder, list},
};
use crate::status::LatestReading;

/// How to recover.
#[derive(Debug, Clone, Copy)]
pub struct RecoverOptions {
    /// Remembers each point's newest reading, for at most this many points. 0 for none.
    pub last_values: usize,
}

impl Default for RecoverOptions {
    fn default() -> Self {
        Self { last_values: 200_000 }
    }
}

/// What a new leader must know of the journal.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// The folder that the journal's lies in.
    pub state_dir: PathBuf,
    /// Random, made with the journal; `None` when it is new and the disk refuses it.
    pub journal_id: Option<String>,
    /// The oldest record; 0 when there is none.
    pub first_seq: u64,
    /// The newest record; 0 when there was none ever.
    pub last_seq: u64,
    /// The highest epoch in it; 0 when it has no record.
    pub epoch: u64,
    /// Bytes in all segments.
    pub bytes: u64,
    /// The segments, oldest first.
    pub segments: Vec<SegmentInfo>,
    /// Up to where each worker's readings are committed.
    pub sources: Sources,
    /// What the caller gave to the last checkpoint; its `last` is brought up to date from the tail.
    pub caller: CheckpointData,
    /// What was found and put right.
    pub report: RecoveryReport,
}

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
    /// Pieces of damage that were skipped.
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
        self.fault_count == 0 && !matches!(self.checkpoint, CheckpointUse::Ignored(_))
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

    fn add(&mut self, fault: Fault) {
        self.fault_count += 1;
        match fault.what {
            What::Cut { end } => {
                self.repairs += 1;
                self.cut_bytes += end - fault.place.offset;
            }
            What::NewlineAdded | What::Removed => self.repairs += 1,
            What::Damaged { .. } => self.damaged += 1,
            What::Hole { from, to } => self.missing += to - from + 1,
            What::Duplicate { .. }
            | What::Superseded { .. }
            | What::Epoch { .. }
            | What::Unreadable { .. }
            | What::NotRepaired { .. }
            | What::Foreign => {}
        }
        if self.faults.len() < Self::MOST {
            self.faults.push(fault);
        }
    }
}

/// Recovers the journal under `state_dir`: repairs what the last writer left torn, makes it durable, and reads the
/// checkpoint and the tail. A disk that refuses repairs is reported and does not stop it.
///
/// Only the holder of the lease may call it: it writes to the predecessor's segments.
///
/// # Errors
/// When the journal's folder cannot be listed.
pub fn recover(state_dir: &Path, options: RecoverOptions) -> Result<Recovered, JournalError> {
    recover_with(state_dir, options, &mut SystemDisk)
}

/// As [`recover`], with another disk.
///
/// # Errors
/// As [`recover`].
pub fn recover_with(state_dir: &Path, options: RecoverOptions, disk: &mut dyn Disk) -> Result<Recovered, JournalError> {
    let began = Instant::now();
    let path = folder(state_dir);
    let mut out = Recovered { state_dir: state_dir.to_owned(), ..Recovered::default() };
    if let Err(error) = disk.make_dir(&path) {
        out.report.add(not_repaired("journal", "make the journal's folder", &error));
    }
    let listed = list(&path).map_err(|source| JournalError::List { path: path.clone(), source })?.unwrap_or_default();
    out.journal_id = identity(state_dir, disk, &mut out.report);
    let (start, checkpoint_seq) = begin(state_dir, &listed.segments, &mut out);
    let mut tail = Tail { disk, path: &path, out: &mut out, last: LastValues::new(options.last_values) };
    if !listed.segments.is_empty() {
        walk(state_dir, start, &mut |item| {
            tail.item(item);
            ControlFlow::Continue(())
        })?;
    }
    let last = std::mem::take(&mut tail.last);
    last.merge_into(&mut out.caller.last);
    if out.last_seq < checkpoint_seq {
        let what = What::Hole { from: out.last_seq + 1, to: checkpoint_seq };
        out.report.add(Fault::of_file("checkpoint.json", what));
        out.last_seq = checkpoint_seq;
    }
    out.sources.close();
    let listed = list(&path).map_err(|source| JournalError::List { path, source })?.unwrap_or_default();
    out.bytes = listed.segments.iter().map(|s| s.bytes).sum();
    out.first_seq = listed.segments.first().map_or(0, |s| s.id.first_seq);
    out.segments = listed.segments;
    out.report.took = began.elapsed();
    Ok(out)
}

/// Takes the checkpoint when it fits the journal, and says where reading begins and which numbers are taken in any
/// case: those before the checkpoint, even when their records are gone.
fn begin(state_dir: &Path, segments: &[SegmentInfo], out: &mut Recovered) -> (Start, u64) {
    let checkpoint = match Checkpoint::load(state_dir) {
        Ok(None) => return (Start::Beginning, 0),
        Ok(Some(checkpoint)) => checkpoint,
        Err(error) => {
            out.report.checkpoint = CheckpointUse::Ignored(error.to_string());
            return (Start::Beginning, 0);
        }
    };
    match fits(&checkpoint, segments, state_dir, out) {
        Ok(start) => {
            out.report.checkpoint = CheckpointUse::Used;
            out.last_seq = checkpoint.seq;
            out.epoch = checkpoint.epoch;
            out.sources = Sources::from_positions(checkpoint.sources);
            out.caller = checkpoint.caller;
            (start, checkpoint.seq)
        }
        Err(error) => {
            out.report.checkpoint = CheckpointUse::Ignored(error.to_string());
            let ours = matches!(error, CheckpointError::Position(_));
            (Start::Beginning, if ours { checkpoint.seq } else { 0 })
        }
    }
}

fn fits(
    checkpoint: &Checkpoint,
    segments: &[SegmentInfo],
    state_dir: &Path,
    out: &Recovered,
) -> Result<Start, CheckpointError> {
    if out.journal_id.as_ref().is_some_and(|id| *id != checkpoint.journal_id) {
        return Err(CheckpointError::Foreign);
    }
    let id = checkpoint.segment_id().ok_or(CheckpointError::Damaged)?;
    let place = Place { line: checkpoint.line, offset: checkpoint.offset };
    let at = Start::At(Position { segment: id, place, seq: checkpoint.seq });
    match segments.iter().find(|s| s.id == id) {
        Some(info) if line_begins(&folder(state_dir).join(id.to_string()), info.bytes, place.offset) => Ok(at),
        Some(_) => Err(CheckpointError::Position(id.to_string())),
        // Removed to make space: everything that is left came later.
        None if segments.iter().all(|s| s.id > id) => Ok(at),
        None => Err(CheckpointError::Position(id.to_string())),
    }
}

fn line_begins(path: &Path, len: u64, offset: u64) -> bool {
    use std::os::unix::fs::FileExt;
    let mut before = [0];
    offset == 0
        || (offset <= len
            && fs::File::open(path).and_then(|f| f.read_exact_at(&mut before, offset - 1)).is_ok()
            && before == *b"\n")
}

/// The journal's identity, made when it is missing.
fn identity(state_dir: &Path, disk: &mut dyn Disk, report: &mut RecoveryReport) -> Option<String> {
    let path = state_dir.join("journal_id");
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Some(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            report.add(not_repaired("journal_id", "read the journal's identity", &error));
            return None;
        }
    }
    let made = fs::read_to_string("/proc/sys/kernel/random/uuid").and_then(|text| {
        let id = text.trim().replace('-', "");
        replace_whole(disk, &path, format!("{id}\n").as_bytes()).map(|()| id)
    });
    made.map_err(|error| report.add(not_repaired("journal_id", "write the journal's identity", &error))).ok()
}

fn not_repaired(file: impl Into<String>, operation: &'static str, error: &io::Error) -> Fault {
    Fault::of_file(file, What::NotRepaired { operation, error: error.to_string() })
}

/// Takes in the tail and repairs its segments' ends.
struct Tail<'a> {
    disk: &'a mut dyn Disk,
    path: &'a Path,
    out: &'a mut Recovered,
    last: LastValues,
}

impl Tail<'_> {
    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Record { record, .. } => self.record(&record),
            Item::Fault(fault) => self.out.report.add(fault),
            Item::End(end) => self.end(end),
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        let out = &mut *self.out;
        out.report.records += 1;
        if record.epoch != out.epoch {
            out.sources.close();
        }
        out.epoch = out.epoch.max(record.epoch);
        if let Some(seq) = record.seq {
            out.last_seq = out.last_seq.max(seq);
            if let Some(mark) = record.mark {
                out.sources.set(super::checkpoint::SourcePosition {
                    source: mark.source,
                    up_to: mark.up_to,
                    records: 1,
                    of: mark.records,
                    seq,
                });
            } else {
                out.sources.count(seq);
            }
        }
        self.last.take(record);
    }

    /// Repairs a segment's end. A tail is torn, and goes, when nothing is missing between it and what follows, or when
    /// nothing of its leader follows; else records were there, and the damage is kept and told.
    fn end(&mut self, end: SegmentEnd) {
        self.out.report.bytes_read += end.end.offset.saturating_sub(end.begin.offset);
        let path = self.path.join(end.segment.to_string());
        let next = end.seq.map(|seq| seq + 1);
        let torn = end.last_of_epoch || (next.is_some() && end.next_first == next);
        if end.end.offset == 0 || (!end.any && torn) {
            if end.end.offset > 0 {
                self.told(&end, What::Cut { end: end.end.offset });
            }
            match self.disk.remove(&path).and_then(|()| self.disk.sync_dir(self.path)) {
                Ok(()) => self.told(&end, What::Removed),
                Err(error) => self.refused(&end, "remove the segment", &error),
            }
            return;
        }
        if !torn {
            end.tail.into_iter().for_each(|fault| self.out.report.add(fault));
            return;
        }
        match self.mend(&path, &end) {
            Ok(Some(what)) => self.told(&end, what),
            Ok(None) => {}
            Err((operation, error)) => self.refused(&end, operation, &error),
        }
    }

    /// Cuts what is torn, and makes the rest durable: a writer that was killed may have left it in the page cache alone,
    /// and from now on it is told as committed.
    fn mend(&mut self, path: &Path, end: &SegmentEnd) -> Result<Option<What>, (&'static str, io::Error)> {
        let mut file = self.disk.open(path).map_err(|e| ("open the segment for repair", e))?;
        let mut what = None;
        if end.end.offset > end.good_end.offset {
            file.truncate(end.good_end.offset).map_err(|e| ("cut the segment's torn tail", e))?;
            what = Some(What::Cut { end: end.end.offset });
        }
        if end.newline_missing {
            super::disk::write_all(&mut *file, b"\n", end.good_end.offset).map_err(|e| ("end the last line", e))?;
            what = what.or(Some(What::NewlineAdded));
        }
        file.sync().map_err(|e| ("make the segment durable", e))?;
        Ok(what)
    }

    fn told(&mut self, end: &SegmentEnd, what: What) {
        let place =
            if matches!(what, What::Cut { .. }) && !end.any { Place { line: 1, offset: 0 } } else { end.good_end };
        self.out.report.add(Fault::at(end.segment, place, what));
    }

    fn refused(&mut self, end: &SegmentEnd, operation: &'static str, error: &io::Error) {
        let what = What::NotRepaired { operation, error: error.to_string() };
        self.out.report.add(Fault::at(end.segment, end.good_end, what));
    }
}

/// Each point's newest line. Lines are kept as they are and read once, at the end.
#[derive(Default)]
struct LastValues {
    most: usize,
    lines: HashMap<Box<[u8]>, Vec<u8>>,
}

impl LastValues {
    fn new(most: usize) -> Self {
        Self { most, lines: HashMap::new() }
    }

    fn take(&mut self, record: &Record<'_>) {
        if self.most == 0 {
            return;
        }
        let Some(key) = record.point_key() else { return };
        if let Some(line) = self.lines.get_mut(key) {
            line.clear();
            line.extend_from_slice(record.line);
        } else if self.lines.len() < self.most {
            self.lines.insert(key.into(), record.line.to_vec());
        }
    }

    fn merge_into(self, known: &mut Vec<LatestReading>) {
        let mut newer: HashMap<(String, String), LatestReading> = self
            .lines
            .into_values()
            .filter_map(|line| serde_json::from_slice::<LatestReading>(&line).ok())
            .map(|reading| ((reading.station.clone(), reading.point.clone()), reading))
            .collect();
        for old in known.iter_mut() {
            if let Some(new) = newer.remove(&(old.station.clone(), old.point.clone())) {
                *old = new;
            }
        }
        known.extend(newer.into_values());
    }
}

#[cfg(test)]
mod tests;
