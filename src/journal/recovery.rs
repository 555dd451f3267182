//! Opening a journal after whatever end its last writer had: repair, then what a new leader must know.

use std::{
    collections::HashSet,
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    JournalError,
    checkpoint::{Checkpoint, CheckpointData, CheckpointError, Sources},
    disk::{Disk, SystemDisk, replace_whole},
    fault::{Fault, What},
    line::Record,
    reader::{Item, Position, SegmentEnd, Start, walk},
    scan::Place,
    segment::{SegmentId, SegmentInfo, folder, list},
};

mod last_values;
mod report;

use last_values::LastValues;
pub use report::{CheckpointUse, RecoveryReport};

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
    let (start, floor) = begin(state_dir, &listed.segments, &mut out);
    // The checkpoint's own number says nothing of the segments when there is none of them left.
    let empty = listed.segments.is_empty();
    let last = LastValues::new(options.last_values);
    let mut tail = Tail { disk, path: &path, out: &mut out, last, misnamed: HashSet::new() };
    if !empty {
        walk(state_dir, start, &mut |item| {
            tail.item(item);
            ControlFlow::Continue(())
        })?;
    }
    let Tail { last, misnamed, .. } = tail;
    last.merge_into(&mut out.caller.last);
    if empty && floor.seq > 0 {
        out.report.add(Fault::of_file("checkpoint.json", What::Vanished { from: 1, to: floor.seq }));
        out.last_seq = out.last_seq.max(floor.seq);
    } else if out.last_seq < floor.seq {
        let what = What::Vanished { from: out.last_seq + 1, to: floor.seq };
        out.report.add(Fault::of_file("checkpoint.json", what));
        out.last_seq = floor.seq;
    }
    out.epoch = out.epoch.max(floor.epoch);
    out.sources.close();
    let mut listed = list(&path).map_err(|source| JournalError::List { path, source })?.unwrap_or_default();
    // What is passed over is none of the writer's: neither counted nor removed to make room.
    listed.segments.retain(|s| !misnamed.contains(&s.id));
    out.bytes = listed.segments.iter().map(|s| s.bytes).sum();
    out.first_seq = listed.segments.first().map_or(0, |s| s.id.first_seq);
    out.segments = listed.segments;
    out.report.took = began.elapsed();
    Ok(out)
}

/// Numbers that are taken in any case: those up to the checkpoint, even when their records are gone.
#[derive(Default)]
struct Floor {
    seq: u64,
    epoch: u64,
}

/// Takes the checkpoint when it fits the journal, and says where reading begins and which numbers are taken.
fn begin(state_dir: &Path, segments: &[SegmentInfo], out: &mut Recovered) -> (Start, Floor) {
    let checkpoint = match Checkpoint::load(state_dir) {
        Ok(None) => return (Start::Beginning, Floor::default()),
        Ok(Some(checkpoint)) => checkpoint,
        Err(error) => {
            out.report.ignore_checkpoint(&error);
            return (Start::Beginning, Floor::default());
        }
    };
    let floor = Floor { seq: checkpoint.seq, epoch: checkpoint.epoch };
    match fits(&checkpoint, segments, state_dir, out) {
        Ok(start) => {
            out.report.checkpoint = CheckpointUse::Used;
            out.last_seq = checkpoint.seq;
            out.epoch = checkpoint.epoch;
            out.sources = Sources::from_positions(checkpoint.sources);
            out.caller = checkpoint.caller;
            (start, floor)
        }
        Err(error) => {
            out.report.ignore_checkpoint(&error);
            let ours = matches!(error, CheckpointError::Position(_));
            (Start::Beginning, if ours { floor } else { Floor::default() })
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
    misnamed: HashSet<SegmentId>,
}

impl Tail<'_> {
    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Record { record, .. } => self.record(&record),
            Item::Fault(fault) => {
                if let What::Misnamed { .. } = fault.what {
                    self.misnamed.extend(SegmentId::parse(&fault.file));
                }
                self.out.report.add(fault);
            }
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

#[cfg(test)]
mod tests;
