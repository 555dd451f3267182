//! One commit after the other: encode, make room, write, sync; and what to do when the disk refuses a step.
//!
//! A step that fails leaves nothing committed and the segment as it was before it: the file is cut back to its last
//! committed byte. Where that fails too, or where a sync failed (the kernel may have dropped the pages and will call a
//! later sync a success), the file is left for good and the same records, under the same numbers, go into a new segment;
//! the later segment counts (see `reader`).

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::PathBuf,
    sync::Arc,
};

use super::{
    checkpoint::{SourcePosition, Sources},
    disk::{Disk, DiskFile, Identity, write_all},
    entry::Entry,
    queue::{Loss, Progress, Waiting},
    record::{Encoder, Mark},
    scan::Place,
    segment::{SegmentId, SegmentInfo},
    space::{Bounds, Choice, choose},
};
use crate::clock::Wall;

mod error;
mod losses;
mod removed;

pub(super) use error::CommitError;
use error::disk;
use losses::Losses;

/// Says whether this process still leads.
pub type Fence = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a commit brought.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) acks: BTreeMap<u64, u64>,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) finished: Vec<Waiting>,
    pub(super) readings: bool,
}

/// The segment that is written to.
struct Active {
    file: Box<dyn DiskFile>,
    /// `None` when the system does not say.
    identity: Option<Identity>,
    id: SegmentId,
    /// Up to here it is committed.
    len: u64,
    line: u64,
    modified: Wall,
}

/// The committing half of the writer.
pub(super) struct Core {
    pub(super) disk: Box<dyn Disk>,
    folder: PathBuf,
    fence: Fence,
    encoder: Encoder,
    epoch: u64,
    commit_bytes: usize,
    segment_bytes: u64,
    bounds: Bounds,
    sealed: VecDeque<SegmentInfo>,
    active: Option<Active>,
    next_seq: u64,
    sources: Sources,
    buffer: Vec<u8>,
    losses: Losses,
    /// Acknowledgements of what memory had to drop.
    dropped_acks: BTreeMap<u64, u64>,
    /// Records removed unsent to make room.
    pub(super) dropped_unsent: u64,
    /// Segments left because the disk failed them.
    pub(super) abandoned: u64,
    /// Committed records whose segments someone else removed.
    pub(super) removed: u64,
}

/// What a core is made of.
pub(super) struct CoreOptions {
    pub(super) folder: PathBuf,
    pub(super) fence: Fence,
    pub(super) epoch: u64,
    pub(super) commit_bytes: usize,
    pub(super) segment_bytes: u64,
    pub(super) bounds: Bounds,
    pub(super) sealed: Vec<SegmentInfo>,
    pub(super) next_seq: u64,
    pub(super) sources: Sources,
}

impl Core {
    pub(super) fn new(options: CoreOptions, disk: Box<dyn Disk>) -> Self {
        let CoreOptions { folder, fence, epoch, commit_bytes, segment_bytes, bounds, sealed, next_seq, sources } =
            options;
        Self {
            disk,
            folder,
            fence,
            encoder: Encoder::new(epoch),
            epoch,
            commit_bytes,
            segment_bytes,
            bounds,
            sealed: sealed.into(),
            active: None,
            next_seq,
            sources,
            buffer: Vec::new(),
            losses: Losses::default(),
            dropped_acks: BTreeMap::new(),
            dropped_unsent: 0,
            abandoned: 0,
            removed: 0,
        }
    }

    /// Notes what memory had to drop: told with the next commit.
    pub(super) fn lost(&mut self, loss: Loss, acks: BTreeMap<u64, u64>) {
        self.losses.memory.merge(loss);
        merge(&mut self.dropped_acks, acks);
    }

    /// The newest committed record.
    pub(super) fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// The oldest record on disk; 0 when there is none.
    pub(super) fn first_seq(&self) -> u64 {
        self.sealed.front().map(|s| s.id.first_seq).or(self.active.as_ref().map(|a| a.id.first_seq)).unwrap_or_default()
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.sealed.iter().map(|s| s.bytes).sum::<u64>() + self.active.as_ref().map_or(0, |a| a.len)
    }

    /// The lines of the last commit.
    pub(super) fn lines(&self) -> &[u8] {
        &self.buffer
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Where a recovery would go on reading.
    pub(super) fn position(&self) -> Option<(SegmentId, Place)> {
        let active = self.active.as_ref().filter(|a| a.len > 0);
        active.map(|a| (a.id, Place { line: a.line, offset: a.len }))
    }

    pub(super) fn fenced(&self) -> bool {
        !(self.fence)()
    }

    /// Commits what fits one group of what was taken from the queue. On success the finished batches are in the result
    /// and the rest stays in `taken`; on failure all of it does, and nothing is committed.
    pub(super) fn commit(
        &mut self,
        taken: &mut VecDeque<Waiting>,
        retain_from: Option<u64>,
        now: Wall,
    ) -> Result<Done, CommitError> {
        if self.fenced() {
            return Err(CommitError::Fenced);
        }
        let plan = self.encode(taken, now);
        if !self.buffer.is_empty() {
            if self.make_room(retain_from, now)? {
                // Told in this very commit: encode again, with the event first.
                return self.commit(taken, retain_from, now);
            }
            let before = self.active.as_ref().map(|a| a.id);
            self.write(now)?;
            let done = self.settle(taken, plan);
            if let Some(active) = self.active.as_ref().map(|a| a.id).filter(|id| Some(*id) != before) {
                // The older ones are looked after once a segment, not once a commit.
                self.forget_removed(active.first_seq);
            }
            return Ok(done);
        }
        Ok(self.settle(taken, plan))
    }

    /// Encodes one group. Touches nothing but the buffer.
    fn encode(&mut self, taken: &VecDeque<Waiting>, now: Wall) -> Plan {
        let limit = self.commit_bytes.min(usize::try_from(self.segment_bytes).unwrap_or(usize::MAX));
        self.buffer.clear();
        let mut plan = Plan { seq: self.next_seq, progress: Vec::with_capacity(taken.len()), own_events: false };
        // Not between the records of one batch: its mark counts them.
        if taken.front().is_none_or(|w| w.done == Progress::default()) {
            for event in self.losses.events(now) {
                self.encoder.lines(&mut self.buffer, &event, 0, plan.seq, None, usize::MAX);
                plan.seq += 1;
                plan.own_events = true;
            }
        }
        for waiting in taken {
            if self.buffer.len() >= limit {
                break;
            }
            let progress = self.encode_batch(waiting, &mut plan.seq, limit);
            plan.progress.push(progress);
        }
        plan
    }

    fn encode_batch(&mut self, waiting: &Waiting, seq: &mut u64, limit: usize) -> Progress {
        let mut at = waiting.done;
        while let Some(entry) = waiting.entries.get(at.entry) {
            if at.line >= entry.lines() {
                at = Progress { entry: at.entry + 1, line: 0, ..at };
                continue;
            }
            if self.buffer.len() >= limit {
                break;
            }
            let begins = waiting.source != 0 && at.numbered == 0 && entry.numbered() > 0;
            let mark =
                begins.then_some(Mark { source: waiting.source, up_to: waiting.up_to, records: waiting.numbered });
            let lines = self.encoder.lines(&mut self.buffer, entry, at.line, *seq, mark, limit);
            let numbered = if entry.numbered() == 0 { 0 } else { lines as u64 };
            *seq += numbered;
            at.line += lines;
            at.numbered += numbered;
        }
        at
    }

    /// Removes old segments until what is to be written fits. True when unsent records went, which is to be told.
    fn make_room(&mut self, retain_from: Option<u64>, now: Wall) -> Result<bool, CommitError> {
        let mut unsent_went = false;
        loop {
            let after = self.active.as_ref().map_or(self.next_seq, |a| a.id.first_seq);
            let total = self.bytes() + self.buffer.len() as u64;
            let unsent = match choose(&self.sealed, after, total, retain_from, &self.bounds, now) {
                Choice::Enough => return Ok(unsent_went),
                Choice::Blocked => return Err(CommitError::FullOfUnsent),
                Choice::Remove { unsent } => unsent,
            };
            let Some(oldest) = self.sealed.front() else { return Ok(unsent_went) };
            let path = self.folder.join(oldest.id.to_string());
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(disk("remove the journal segment", &path, error));
                }
                Ok(()) | Err(_) => {}
            }
            self.sealed.pop_front();
            if let Some((from, to)) = unsent {
                unsent_went = true;
                self.dropped_unsent += to - from + 1;
                self.losses.unsent(from, to);
            }
        }
    }

    /// Writes the buffer and makes it durable.
    fn write(&mut self, now: Wall) -> Result<(), CommitError> {
        let full = |a: &Active, more: usize| a.len > 0 && a.len + more as u64 > self.segment_bytes;
        if self.active.as_ref().is_some_and(|a| full(a, self.buffer.len())) {
            self.seal();
        }
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.open(now)?,
        };
        let path = self.folder.join(active.id.to_string());
        if let Err(source) = write_all(&mut *active.file, &self.buffer, active.len) {
            if active.file.truncate(active.len).is_ok() {
                self.active = Some(active);
            } else {
                self.abandon(active);
            }
            return Err(disk("write to the journal segment", &path, source));
        }
        if let Err(source) = active.file.sync() {
            // What the file holds past its last good sync is not known any more. Cut it if it can be, and never return.
            let _ = active.file.truncate(active.len);
            self.abandon(active);
            return Err(disk("make durable the journal segment", &path, source));
        }
        // After the sync: what is told as committed was under the path when it became durable. One system call.
        if active.identity.is_some() && self.disk.identity(&path).is_ok_and(|there| there != active.identity) {
            self.left_behind(&active);
            return Err(CommitError::Removed { path });
        }
        active.len += self.buffer.len() as u64;
        active.line += memchr::memchr_iter(b'\n', &self.buffer).count() as u64;
        active.modified = now;
        self.active = Some(active);
        Ok(())
    }

    /// Opens a segment that begins with the next record.
    fn open(&mut self, now: Wall) -> Result<Active, CommitError> {
        let mut id = SegmentId { first_seq: self.next_seq, epoch: self.epoch, attempt: 0 };
        let folder = self.folder.clone();
        self.disk.make_dir(&folder).map_err(|e| disk("make the journal's folder", &folder, e))?;
        loop {
            let path = folder.join(id.to_string());
            match self.disk.create(&path) {
                Ok(file) => {
                    if let Err(source) = self.disk.sync_dir(&folder) {
                        let _ = self.disk.remove(&path);
                        return Err(disk("make durable the name of the journal segment", &path, source));
                    }
                    let identity = file.identity().ok();
                    return Ok(Active { file, identity, id, len: 0, line: 1, modified: now });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && id.attempt < 10_000 => id.attempt += 1,
                Err(source) => return Err(disk("create the journal segment", &path, source)),
            }
        }
    }

    /// Leaves a file whose disk failed it.
    fn abandon(&mut self, active: Active) {
        let Active { file, id, len, modified, .. } = active;
        drop(file);
        self.abandoned += 1;
        if len == 0 && self.disk.remove(&self.folder.join(id.to_string())).is_ok() {
            return;
        }
        // Nobody knows how much of the last group is there: it counts as if all were.
        let bytes = len + self.buffer.len() as u64;
        self.sealed.push_back(SegmentInfo { id, bytes, modified });
    }

    /// Ends the active segment. An empty one goes.
    pub(super) fn seal(&mut self) {
        let Some(Active { file, id, len, modified, .. }) = self.active.take() else { return };
        drop(file);
        if len == 0 {
            let _ = self.disk.remove(&self.folder.join(id.to_string()));
        } else {
            self.sealed.push_back(SegmentInfo { id, bytes: len, modified });
        }
    }

    /// Takes in a commit that is durable.
    fn settle(&mut self, taken: &mut VecDeque<Waiting>, plan: Plan) -> Done {
        let mut done = Done { first_seq: self.next_seq, last_seq: plan.seq - 1, ..Done::default() };
        let batches: u64 = taken.iter().zip(&plan.progress).map(|(w, to)| to.numbered - w.done.numbered).sum();
        let mut seq = plan.seq - batches;
        self.next_seq = plan.seq;
        if plan.own_events {
            self.losses = Losses::default();
        }
        for (waiting, to) in taken.iter_mut().zip(&plan.progress) {
            let records = to.numbered - waiting.done.numbered;
            if waiting.source != 0 && to.numbered > 0 {
                let first = seq - waiting.done.numbered;
                self.sources.set(SourcePosition {
                    source: waiting.source,
                    up_to: waiting.up_to,
                    records: to.numbered,
                    of: waiting.numbered,
                    seq: first,
                });
            }
            seq += records;
            done.readings |= records > 0 && waiting.entries.iter().any(Entry::is_readings);
            waiting.done = *to;
        }
        while taken.front().is_some_and(Waiting::is_done) {
            let Some(front) = taken.pop_front() else { break };
            if front.source != 0 {
                done.acks.insert(front.source, front.up_to);
            }
            done.finished.push(front);
        }
        merge(&mut done.acks, std::mem::take(&mut self.dropped_acks));
        done
    }
}

/// What a group, once durable, changes.
struct Plan {
    /// The number after its last record.
    seq: u64,
    /// How far each of the batches is then written.
    progress: Vec<Progress>,
    own_events: bool,
}

fn merge(into: &mut BTreeMap<u64, u64>, more: BTreeMap<u64, u64>) {
    for (source, up_to) in more {
        let known = into.entry(source).or_default();
        *known = up_to.max(*known);
    }
}

#[cfg(test)]
mod tests;
