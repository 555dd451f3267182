//! Takes over what workers left behind: readings that were not committed when their supervisor died.
//!
//! What the journal has already is known from recovery (every batch names its source and number) and, for workers of this
//! leader, from what was handed to the journal since. So a spool can be read any number of times, and no reading is
//! recorded twice. It is removed once the last of its readings is committed.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    clock::Wall,
    errors::chain,
    journal::{Batch, Entry, WriterHandle, checkpoint::Sources},
    supervisor::{board::Board, event},
    worker::{
        spool::{self, Spool, SpoolError},
        wire::Readings,
    },
};

/// A spool that was found, and what is in it.
pub type Found = (PathBuf, Result<Spool, SpoolError>);

/// Up to where the readings of each worker process are recorded, and the spools that wait for their commit.
#[derive(Debug, Default)]
pub struct Inheritance {
    recorded: HashMap<u64, u64>,
    waiting: HashMap<u64, (PathBuf, u64)>,
}

/// The spools of a worker, or of all. Blocks.
#[must_use]
pub fn find(dir: &Path, key: Option<&str>) -> Vec<Found> {
    match spool::list(dir, key) {
        Ok(paths) => paths.into_iter().map(|path| (path.clone(), spool::read(&path))).collect(),
        Err(error) => {
            tracing::warn!("{}", chain(&error));
            Vec::new()
        }
    }
}

impl Inheritance {
    /// What a recovered journal has of each source.
    #[must_use]
    pub fn new(sources: &Sources) -> Self {
        // Of a last batch that its writer did not finish, the first records are there.
        let recorded = sources.positions().iter().map(|p| (p.source, p.up_to - p.of.saturating_sub(p.records)));
        Self { recorded: recorded.collect(), waiting: HashMap::new() }
    }

    /// A worker of this leader ended: so far its readings were handed to the journal.
    pub fn note(&mut self, session: u64, up_to: u64) {
        let recorded = self.recorded.entry(session).or_default();
        *recorded = (*recorded).max(up_to);
    }

    /// Hands the readings of a spool to the journal, but for those that it has.
    pub fn take(&mut self, (path, spool): Found, board: &Board, journal: &WriterHandle) {
        let worker = spool::key_of(&path).unwrap_or_default().to_owned();
        let spool = match spool {
            Ok(spool) => spool,
            Err(error) => {
                tracing::error!(worker, "readings that a worker left behind are lost: {}", chain(&error));
                set_aside(&path);
                return;
            }
        };
        let session = spool.header.session;
        let recorded = self.recorded.get(&session).copied().unwrap_or(0);
        let mut counts = Counts::default();
        let mut last = 0;
        for batch in spool.batches {
            let Some(batch) = beyond(recorded, batch, &mut counts) else { continue };
            let station = spool.header.stations.get(&batch.handle);
            let Some(names) = station.and_then(|s| board.names_of(&s.id, s.names)) else {
                counts.foreign += batch.readings.len();
                continue;
            };
            let (up_to, taken) = (batch.first + batch.readings.len() as u64 - 1, batch.readings.len());
            let entries = vec![Entry::Readings { station: names, ts: Wall(batch.ts), readings: batch.readings }];
            if journal.append(Batch { source: session, up_to, entries, urgent: false }).is_err() {
                tracing::warn!(worker, "the journal takes no more: the rest of what a worker left behind waits");
                return self.note(session, last);
            }
            (last, counts.taken) = (up_to, counts.taken + taken);
        }
        counts.tell(&worker, journal);
        if last == 0 {
            self.forget(session, &path);
        } else {
            self.note(session, last);
            self.waiting.insert(session, (path, last));
        }
    }

    /// The journal has committed readings of a source.
    pub fn committed(&mut self, source: u64, up_to: u64) {
        if self.waiting.get(&source).is_some_and(|(_, last)| *last <= up_to)
            && let Some((path, _)) = self.waiting.remove(&source)
        {
            self.forget(source, &path);
        }
    }
}

impl Inheritance {
    /// Removes a spool that is recorded; what is recorded of it is forgotten only when the file is gone, or it would be taken
    /// again.
    fn forget(&mut self, session: u64, path: &Path) {
        match fs::remove_file(path) {
            Ok(()) => self.done_with(session),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a spool that was taken over cannot be removed");
            }
        }
    }

    /// Nothing more comes of a worker's process, unless its spool still waits.
    pub fn done_with(&mut self, session: u64) {
        if !self.waiting.contains_key(&session) {
            self.recorded.remove(&session);
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    taken: usize,
    known: usize,
    foreign: usize,
}

impl Counts {
    fn tell(&self, worker: &str, journal: &WriterHandle) {
        let Self { taken, known, foreign } = *self;
        tracing::info!(worker, taken, known, foreign, "readings that a worker left behind are taken over");
        if foreign > 0 {
            tracing::error!(worker, foreign, "readings of stations that the manifest no longer has like that are lost");
        }
        if taken + foreign > 0 {
            let fields = [("worker", worker.into()), ("taken", taken.into()), ("lost", foreign.into())];
            event::record(journal, "readings_taken_over", fields);
        }
    }
}

/// What of a batch has a number above the last that is recorded.
fn beyond(recorded: u64, mut batch: Readings, counts: &mut Counts) -> Option<Readings> {
    let known = (recorded + 1).saturating_sub(batch.first).min(batch.readings.len() as u64);
    // At most the length, which is a usize.
    let known = usize::try_from(known).unwrap_or(batch.readings.len());
    counts.known += known;
    batch.readings.drain(..known);
    batch.first += known as u64;
    (!batch.readings.is_empty()).then_some(batch)
}

/// Keeps what cannot be read for a person to look at, and out of the way.
fn set_aside(path: &Path) {
    if let Err(error) = fs::rename(path, path.with_extension("unreadable")) {
        tracing::warn!(path = %path.display(), %error, "a spool that cannot be read cannot be set aside");
    }
}

#[cfg(test)]
mod tests {
    use worker_contract::Reading;

    use super::*;

    fn batch(first: u64, count: usize) -> Readings {
        let reading = Reading { point: 0, value: None, reason: None };
        Readings { first, handle: 1, ts: 0, readings: vec![reading; count] }
    }

    #[test]
    fn only_what_has_a_number_above_the_last_recorded_is_taken() {
        let mut counts = Counts::default();
        let mut part = |recorded, first, count| {
            beyond(recorded, batch(first, count), &mut counts).map(|b| (b.first, b.readings.len()))
        };
        assert_eq!(part(0, 1, 3), Some((1, 3)));
        assert_eq!(part(2, 1, 3), Some((3, 1)));
        assert_eq!(part(3, 1, 3), None);
        assert_eq!(part(9, 1, 3), None);
        assert_eq!(part(3, 7, 2), Some((7, 2)));
        assert_eq!(counts.known, 2 + 3 + 3);
    }
}
