//! What waits in memory to be committed: bounded, and what happens when it is full. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::entry::{Batch, Entry};
use crate::clock::{Boot, Wall};

/// What to do when memory or disk is full of what cannot go yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The oldest readings go; counted, and told by an event record.
    #[default]
    DropOldest,
    /// Nothing more is taken: the caller stops polling.
    StopPolling,
}

/// Why a batch was not taken. It comes back with it: nothing of it is recorded.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Rejected {
    /// Why.
    pub why: RejectedWhy,
    /// The batch.
    pub batch: Box<Batch>,
}

/// See [`Rejected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RejectedWhy {
    /// Memory is full, and the manifest says to stop polling.
    #[error("the journal's memory is full: its disk takes nothing, or holds unsent records alone")]
    Full,
    /// The writer has ended.
    #[error("the journal's writer has ended")]
    Closed,
}

/// Readings that were lost before they had a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) records: u64,
    pub(super) from: Wall,
    pub(super) to: Wall,
}

impl Loss {
    fn add(&mut self, batch: &Waiting) {
        for entry in &batch.entries {
            let ts = entry.ts();
            self.from = if self.records == 0 { ts } else { self.from.min(ts) };
            self.to = self.to.max(ts);
            self.records += entry.numbered();
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        if other.records > 0 {
            self.from = if self.records == 0 { other.from } else { self.from.min(other.from) };
            self.to = self.to.max(other.to);
            self.records += other.records;
        }
    }
}

/// How far a batch is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) entry: usize,
    pub(super) line: usize,
    pub(super) numbered: u64,
}

/// A batch that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) source: u64,
    pub(super) up_to: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) numbered: u64,
    pub(super) done: Progress,
    arrived: Boot,
    urgent: bool,
    memory: usize,
    /// About how many bytes its lines have.
    encoded: usize,
}

impl Waiting {
    fn new(batch: Batch, now: Boot) -> Self {
        let Batch { source, up_to, entries, urgent } = batch;
        let memory = size_of::<Self>() + entries.iter().map(Entry::memory).sum::<usize>();
        Self {
            numbered: entries.iter().map(Entry::numbered).sum(),
            encoded: entries.iter().map(|e| e.lines() * 160).sum(),
            source,
            up_to,
            entries,
            done: Progress::default(),
            arrived: now,
            urgent,
            memory,
        }
    }

    fn has_readings(&self) -> bool {
        self.entries.iter().any(Entry::is_readings)
    }

    fn begun(&self) -> bool {
        self.done != Progress::default()
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.entry >= self.entries.len()
    }

    fn back(self) -> Batch {
        Batch { source: self.source, up_to: self.up_to, entries: self.entries, urgent: self.urgent }
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Pending {
    queue: VecDeque<Waiting>,
    overflow: Overflow,
    limit: usize,
    memory: usize,
    encoded: usize,
    urgent: usize,
    loss: Loss,
    /// Up to where each source's dropped readings go: they are acknowledged with the next commit, or their worker would
    /// hold them for ever.
    dropped: BTreeMap<u64, u64>,
    /// All records ever dropped.
    pub(super) dropped_records: u64,
}

/// What is lost is told even when memory is full.
const SPARE: usize = 1024 * 1024;

impl Pending {
    pub(super) fn new(limit: usize, overflow: Overflow) -> Self {
        Self {
            queue: VecDeque::new(),
            overflow,
            limit,
            memory: 0,
            encoded: 0,
            urgent: 0,
            loss: Loss::default(),
            dropped: BTreeMap::new(),
            dropped_records: 0,
        }
    }

    /// Takes a batch, or says why not. Never waits.
    pub(super) fn push(&mut self, batch: Batch, now: Boot) -> Result<(), Rejected> {
        let waiting = Waiting::new(batch, now);
        let readings = waiting.has_readings();
        let room = if readings { self.limit } else { self.limit.saturating_add(SPARE) };
        if self.memory.saturating_add(waiting.memory) > room {
            match self.overflow {
                Overflow::StopPolling => {
                    let batch = Box::new(waiting.back());
                    return Err(Rejected { why: RejectedWhy::Full, batch });
                }
                Overflow::DropOldest => {
                    self.make_room(waiting.memory, room);
                    if self.memory.saturating_add(waiting.memory) > room {
                        self.lose(&waiting);
                        return Ok(());
                    }
                }
            }
        }
        self.count(&waiting);
        self.queue.push_back(waiting);
        Ok(())
    }

    fn count(&mut self, waiting: &Waiting) {
        self.memory += waiting.memory;
        self.encoded += waiting.encoded;
        self.urgent += usize::from(waiting.urgent);
    }

    /// Drops the oldest batches of readings, then the oldest of anything. A batch that is partly written stays: its
    /// mark promises the rest.
    fn make_room(&mut self, need: usize, room: usize) {
        for readings_alone in [true, false] {
            let mut at = 0;
            while self.memory.saturating_add(need) > room && at < self.queue.len() {
                if self.queue[at].begun() || (readings_alone && !self.queue[at].has_readings()) {
                    at += 1;
                } else if let Some(old) = self.queue.remove(at) {
                    self.memory -= old.memory;
                    self.encoded -= old.encoded;
                    self.urgent -= usize::from(old.urgent);
                    self.lose(&old);
                }
            }
        }
    }

    fn lose(&mut self, batch: &Waiting) {
        let before = self.loss.records;
        self.loss.add(batch);
        self.dropped_records += self.loss.records - before;
        if batch.source != 0 {
            let up_to = self.dropped.entry(batch.source).or_default();
            *up_to = batch.up_to.max(*up_to);
        }
    }

    /// Hands out the oldest batches, up to about `bytes` of lines. Their memory counts until [`Self::release`].
    pub(super) fn take(&mut self, bytes: usize) -> VecDeque<Waiting> {
        let mut taken = VecDeque::new();
        let mut sum = 0;
        while sum < bytes
            && let Some(next) = self.queue.pop_front()
        {
            sum += next.encoded;
            self.encoded -= next.encoded;
            self.urgent -= usize::from(next.urgent);
            taken.push_back(next);
        }
        taken
    }

    /// What was dropped since this was last asked.
    pub(super) fn take_loss(&mut self) -> (Loss, BTreeMap<u64, u64>) {
        (std::mem::take(&mut self.loss), std::mem::take(&mut self.dropped))
    }

    /// Takes back what could not be written, in its old place.
    pub(super) fn put_back(&mut self, taken: VecDeque<Waiting>) {
        for waiting in taken.into_iter().rev() {
            self.encoded += waiting.encoded;
            self.urgent += usize::from(waiting.urgent);
            self.queue.push_front(waiting);
        }
    }

    /// Frees the memory of batches that are committed.
    pub(super) fn release(&mut self, done: &[Waiting]) {
        self.memory -= done.iter().map(|w| w.memory).sum::<usize>();
    }

    /// When the next commit is due; `None` when nothing waits.
    pub(super) fn due(&self, interval: Duration, bytes: usize, eager: bool) -> Option<Boot> {
        let Some(oldest) = self.queue.front() else {
            return (self.loss.records > 0).then(Boot::default);
        };
        if eager || self.urgent > 0 || self.encoded >= bytes || oldest.begun() {
            return Some(Boot::default());
        }
        Some(oldest.arrived.plus(interval))
    }

    /// Bytes that wait.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Records that wait.
    pub(super) fn records(&self) -> u64 {
        self.queue.iter().map(|w| w.numbered - w.done.numbered).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use worker_contract::{Reading, Value};

    use super::*;
    use crate::journal::StationNames;

    fn batch(source: u64, up_to: u64, n: usize) -> Batch {
        let station = Arc::new(StationNames::new("s", [("p", None)]));
        let reading = Reading { point: 0, value: Some(Value::Int(1)), reason: None };
        let ts = Wall(i64::try_from(up_to).unwrap());
        Batch {
            source,
            up_to,
            entries: vec![Entry::Readings { station, ts, readings: vec![reading; n] }],
            urgent: false,
        }
    }

    fn event() -> Batch {
        Batch::own(Entry::Event { ts: Wall(0), event: "e".into(), fields: serde_json::Map::new() })
    }

    fn size(batch: Batch) -> usize {
        Waiting::new(batch, Boot::default()).memory
    }

    #[test]
    fn the_oldest_readings_go_first_and_events_stay() {
        let limit = size(batch(1, 1, 10)) * 3;
        let mut pending = Pending::new(limit, Overflow::DropOldest);
        pending.push(event(), Boot::default()).unwrap();
        for up_to in 1..=10 {
            pending.push(batch(1, up_to, 10), Boot::default()).unwrap();
            assert!(pending.memory() <= limit);
        }
        let (loss, dropped) = pending.take_loss();
        assert_eq!(loss, Loss { records: 80, from: Wall(1), to: Wall(8) });
        assert_eq!(dropped, BTreeMap::from([(1, 8)]));
        let left: Vec<u64> = pending.take(usize::MAX).iter().map(|w| w.up_to).collect();
        assert_eq!(left, [0, 9, 10]);
    }

    #[test]
    fn with_stop_polling_a_full_queue_gives_the_batch_back() {
        let mut pending = Pending::new(size(batch(1, 1, 10)), Overflow::StopPolling);
        pending.push(batch(1, 1, 10), Boot::default()).unwrap();
        let rejected = pending.push(batch(1, 2, 10), Boot::default()).unwrap_err();
        assert_eq!((rejected.why, rejected.batch.up_to), (RejectedWhy::Full, 2));
        pending.push(event(), Boot::default()).unwrap();
    }

    #[test]
    fn a_batch_that_is_partly_written_is_never_dropped() {
        let mut pending = Pending::new(size(batch(1, 1, 10)) * 2, Overflow::DropOldest);
        pending.push(batch(1, 1, 10), Boot::default()).unwrap();
        let mut taken = pending.take(1);
        taken[0].done = Progress { entry: 0, line: 3, numbered: 3 };
        pending.put_back(taken);
        for up_to in 2..9 {
            pending.push(batch(1, up_to, 10), Boot::default()).unwrap();
        }
        let left: Vec<u64> = pending.take(usize::MAX).iter().map(|w| w.up_to).collect();
        assert_eq!(left, [1, 8]);
    }

    #[test]
    fn a_batch_larger_than_all_memory_is_lost_and_told() {
        let mut pending = Pending::new(1000, Overflow::DropOldest);
        pending.push(batch(4, 7, 1000), Boot::default()).unwrap();
        assert_eq!(pending.memory(), 0);
        assert_eq!(pending.take_loss().0.records, 1000);
    }

    #[test]
    fn a_commit_is_due_after_the_interval_or_at_once() {
        let (interval, at) = (Duration::from_millis(200), Boot(Duration::from_secs(5)));
        let mut pending = Pending::new(1 << 20, Overflow::DropOldest);
        assert_eq!(pending.due(interval, 100_000, false), None);
        pending.push(batch(1, 1, 1), at).unwrap();
        pending.push(batch(1, 2, 1), at.plus(interval)).unwrap();
        assert_eq!(pending.due(interval, 100_000, false), Some(at.plus(interval)));
        assert_eq!(pending.due(interval, 100_000, true), Some(Boot::default()));
        assert_eq!(pending.due(interval, 200, false), Some(Boot::default()));
        pending.push(Batch { urgent: true, ..event() }, at).unwrap();
        assert_eq!(pending.due(interval, 100_000, false), Some(Boot::default()));
    }
}
