//! The writer's thread: wait, commit, tell, checkpoint.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{CloseReport, Commit, Failure, Hooks, Notice, Shared};
use crate::{
    clock::{Boot, Wall},
    journal::{
        Recovered,
        checkpoint::{Checkpoint, VERSION},
        commit::{CommitError, Core, Done},
        disk::replace_whole,
    },
};

/// The first pause after a refusal; doubled up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// A checkpoint is written when a segment was filled, but not more often than this,
const CHECKPOINT_AT_ROLL: Duration = Duration::from_secs(60);
/// and in any case this long after the one before, when anything was committed since,
const CHECKPOINT_AT_LATEST: Duration = Duration::from_secs(300);
/// and after this many bytes, so that the tail that a recovery reads is bounded at any rate.
const CHECKPOINT_BYTES: u64 = 128 * 1024 * 1024;

enum Wake {
    Commit,
    Checkpoint,
    Close,
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    core: Core,
    hooks: Hooks,
    state_dir: PathBuf,
    journal_id: String,
    /// The pause after the last refusal, and its end.
    trouble: Option<(Duration, Boot)>,
    checkpoint: CheckpointClock,
}

/// What decides when a checkpoint is due.
struct CheckpointClock {
    last: Boot,
    bytes_since: u64,
    dirty: bool,
    rolled: bool,
    /// The last one went, or points at what went.
    lost: bool,
}

impl CheckpointClock {
    fn due(&self, now: Boot) -> bool {
        let since = now.since(self.last);
        self.dirty
            && (self.lost
                || since >= CHECKPOINT_AT_LATEST
                || (since >= CHECKPOINT_AT_ROLL && self.rolled)
                || self.bytes_since >= CHECKPOINT_BYTES)
    }

    fn next(&self) -> Option<Boot> {
        self.dirty.then(|| self.last.plus(CHECKPOINT_AT_LATEST))
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, core: Core, hooks: Hooks, recovered: &Recovered) -> Self {
        Self {
            shared,
            core,
            hooks,
            state_dir: recovered.state_dir.clone(),
            journal_id: recovered.journal_id.clone().unwrap_or_default(),
            trouble: None,
            checkpoint: CheckpointClock {
                last: Boot::now(),
                bytes_since: recovered.report.bytes_read,
                dirty: false,
                rolled: false,
                lost: false,
            },
        }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        (self.hooks.notice)(notice);
    }

    /// Runs to the end: `None` when it was closed.
    pub(super) fn run(&mut self) -> Option<Failure> {
        loop {
            match self.wait() {
                Wake::Commit => {
                    if let Err(CommitError::Fenced) = self.commit() {
                        return Some(Failure::Fenced);
                    }
                    if self.checkpoint.due(Boot::now()) {
                        self.write_checkpoint();
                    }
                }
                Wake::Checkpoint => {
                    self.write_checkpoint();
                }
                Wake::Close => return self.close(),
            }
        }
    }

    /// Sleeps until there is something to do; without a timer when there is nothing to wait for.
    fn wait(&mut self) -> Wake {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if state.closing {
                return Wake::Close;
            }
            let now = Boot::now();
            if std::mem::take(&mut state.kick)
                && let Some((_, until)) = &mut self.trouble
            {
                *until = now;
            }
            let commit = shared.due(&state).map(|due| self.trouble.map_or(due, |(_, until)| due.max(until)));
            if commit.is_some_and(|due| due <= now) {
                return Wake::Commit;
            }
            let checkpoint = self.checkpoint.next();
            if checkpoint.is_some_and(|due| due <= now) {
                return Wake::Checkpoint;
            }
            let next = commit.into_iter().chain(checkpoint).min();
            state = match next {
                None => shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let pause = due.since(now).max(Duration::from_millis(1));
                    shared.wake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Commits one group.
    fn commit(&mut self) -> Result<(), CommitError> {
        let began = Boot::now();
        self.shared.stats().committing_since = Some(began);
        let (mut taken, loss) = {
            let mut state = self.shared.lock();
            (state.pending.take(self.shared.options.commit_bytes), state.pending.take_loss())
        };
        self.core.lost(loss.0, loss.1);
        let before = self.core.position();
        let outcome = self.core.commit(&mut taken, self.shared.retain_from(), Wall::now());
        {
            let mut state = self.shared.lock();
            if let Ok(done) = &outcome {
                state.pending.release(&done.finished);
                state.eager &= !done.readings;
            }
            state.pending.put_back(taken);
        }
        self.shared.stats().committing_since = None;
        match outcome {
            Ok(done) => {
                self.checkpoint.rolled |= before.is_some_and(|(id, _)| self.core.position().is_some_and(|p| p.0 != id));
                self.committed(done, Boot::now().since(began));
                Ok(())
            }
            Err(error) => {
                self.refused(&error);
                Err(error)
            }
        }
    }

    fn committed(&mut self, done: Done, took: Duration) {
        let bytes = self.core.lines().len() as u64;
        let records = (done.last_seq + 1).saturating_sub(done.first_seq);
        {
            let mut stats = self.shared.stats();
            stats.first_seq = self.core.first_seq();
            stats.last_seq = self.core.last_seq();
            stats.bytes = self.core.bytes();
            stats.dropped_unsent = self.core.dropped_unsent;
            stats.abandoned = self.core.abandoned;
            stats.removed = self.core.removed;
            stats.trouble = None;
            if bytes > 0 {
                stats.records += records;
                stats.written_bytes += bytes;
                stats.commits += 1;
                stats.commit_last = took;
                stats.commit_max = stats.commit_max.max(took);
                stats.commit_sum += took;
            }
        }
        self.checkpoint.dirty |= bytes > 0;
        self.checkpoint.bytes_since += bytes;
        if self.trouble.take().is_some() {
            self.tell(Notice::Recovered);
        }
        self.shared.feed.send(done.first_seq, done.last_seq, self.core.lines());
        let acks = done.acks.into_iter().collect();
        let commit = Commit { acks, first_seq: done.first_seq, last_seq: done.last_seq, at: Wall::now() };
        self.tell(Notice::Committed(commit));
    }

    fn refused(&mut self, error: &CommitError) {
        self.checkpoint.lost |= matches!(error, CommitError::Removed { .. });
        let text = error.to_string();
        let pause = self.trouble.map_or(FIRST_PAUSE, |(pause, _)| (pause * 2).min(LAST_PAUSE));
        self.trouble = Some((pause, Boot::now().plus(pause)));
        let changed = {
            let mut stats = self.shared.stats();
            stats.bytes = self.core.bytes();
            stats.abandoned = self.core.abandoned;
            stats.removed = self.core.removed;
            let changed = stats.trouble.as_ref() != Some(&text);
            stats.trouble = Some(text.clone());
            changed
        };
        if changed && !matches!(error, CommitError::Fenced) {
            self.tell(Notice::Trouble(text));
        }
    }

    /// Commits what waits until the disk refuses, writes a checkpoint and reports.
    fn close(&mut self) -> Option<Failure> {
        let mut trouble = None;
        let mut again = true;
        loop {
            // A loss that is not told yet is told as well; with an empty queue this is one more, empty commit.
            if self.shared.due(&self.shared.lock()).is_none() {
                break;
            }
            match self.commit() {
                Ok(()) => {}
                Err(CommitError::Fenced) => return Some(Failure::Fenced),
                // The disk refuses nothing: a new segment takes it, once.
                Err(CommitError::Removed { .. }) if std::mem::take(&mut again) => {}
                Err(error) => {
                    trouble = Some(error.to_string());
                    break;
                }
            }
        }
        let checkpointed = !self.checkpoint.dirty || self.write_checkpoint();
        self.core.seal();
        let unwritten = self.shared.lock().pending.records();
        let last_seq = self.core.last_seq();
        self.shared.end(CloseReport { in_time: true, last_seq, unwritten, trouble, checkpointed });
        None
    }

    /// Writes the journal's identity again when it was removed with the rest: without it the next leader would take the
    /// checkpoint for another journal's. A disk that refuses it is told by that leader.
    fn restore_identity(&mut self) {
        let path = self.state_dir.join("journal_id");
        if !self.journal_id.is_empty() && matches!(self.core.disk.identity(&path), Ok(None)) {
            let _ = replace_whole(&mut *self.core.disk, &path, format!("{}\n", self.journal_id).as_bytes());
        }
    }

    /// Writes a checkpoint. A disk that refuses it is no trouble: only the next recovery reads more.
    fn write_checkpoint(&mut self) -> bool {
        let Some((segment, place)) = self.core.position() else {
            // Nothing committed since the last segment was left: the next commit brings a position.
            self.checkpoint.last = Boot::now();
            return false;
        };
        if self.core.fenced() {
            return false;
        }
        if self.checkpoint.lost {
            self.restore_identity();
        }
        let checkpoint = Checkpoint {
            version: VERSION,
            journal_id: self.journal_id.clone(),
            seq: self.core.last_seq(),
            epoch: self.shared.options.epoch,
            segment: segment.to_string(),
            offset: place.offset,
            line: place.line,
            sources: self.core.sources().positions().to_vec(),
            caller: (self.hooks.checkpoint)(),
        };
        let stored = checkpoint.store(&mut *self.core.disk, &self.state_dir).is_ok();
        let mut stats = self.shared.stats();
        if stored {
            stats.checkpoints += 1;
            self.checkpoint.dirty = false;
        } else {
            stats.checkpoint_failures += 1;
        }
        // After a refusal the next try waits as well.
        self.checkpoint.rolled = false;
        self.checkpoint.lost = false;
        self.checkpoint.bytes_since = 0;
        self.checkpoint.last = Boot::now();
        stored
    }
}
