//! The writer: a thread that commits in groups, and the handle that feeds it.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    Batch, CheckpointData, Fence, JournalError, Overflow, Recovered, Rejected, RejectedWhy, Stats, Subscription,
    commit::{Core, CoreOptions},
    disk::{Disk, SystemDisk},
    feed::Feed,
    queue::Pending,
    segment::folder,
    space::Bounds,
};
use crate::clock::{Boot, Wall};

mod thread_loop;

use thread_loop::Writer;

/// How to write.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The leader's epoch.
    pub epoch: u64,
    /// What arrives within this time is committed as one.
    pub commit_interval: Duration,
    /// A group is committed sooner when it has about this many bytes, and no commit is much larger.
    pub commit_bytes: usize,
    /// A segment's size; made smaller when `max_bytes` is.
    pub segment_bytes: u64,
    /// The size of all segments.
    pub max_bytes: u64,
    /// The age of the oldest record, by wall time.
    pub max_age: Duration,
    /// What to do when memory or disk is full of what cannot go.
    pub overflow: Overflow,
    /// How much may wait in memory.
    pub memory_bytes: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            epoch: 1,
            commit_interval: Duration::from_millis(200),
            commit_bytes: 1024 * 1024,
            segment_bytes: 16 * 1024 * 1024,
            max_bytes: 1024 * 1024 * 1024,
            max_age: Duration::from_secs(30 * 86_400),
            overflow: Overflow::default(),
            memory_bytes: 16 * 1024 * 1024,
        }
    }
}

/// What the writer asks of its caller and tells it, on the writer's own thread: quick and without waiting.
pub struct Hooks {
    /// Asked before anything is written. When it says false the writer writes nothing more, ever, and ends.
    pub fence: Fence,
    /// Told of commits and of trouble.
    pub notice: Box<dyn FnMut(Notice) + Send>,
    /// Asked for the caller's part of a checkpoint, at most once a minute or so.
    pub checkpoint: Box<dyn FnMut() -> CheckpointData + Send>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// What the writer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Records are durable.
    Committed(Commit),
    /// Nothing can be committed, and why. The writer goes on trying; told once for each reason.
    Trouble(String),
    /// The trouble is over.
    Recovered,
    /// The writer has ended and will commit nothing more.
    Failed(Failure),
}

/// What is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Each source with its own number up to which it may forget: what is committed, and what was lost for good.
    pub acks: Vec<(u64, u64)>,
    /// The first record.
    pub first_seq: u64,
    /// The last; less than `first_seq` when only acknowledgements came.
    pub last_seq: u64,
    /// When.
    pub at: Wall,
}

/// Why the writer ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// This process does not lead any more.
    Fenced,
    /// A defect.
    Panicked(String),
}

/// How closing went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloseReport {
    /// The writer ended before the deadline.
    pub in_time: bool,
    /// The newest committed record.
    pub last_seq: u64,
    /// Records that were not committed.
    pub unwritten: u64,
    /// Why.
    pub trouble: Option<String>,
    /// A checkpoint holds all that is committed.
    pub checkpointed: bool,
}

pub(super) struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    ended: Condvar,
    feed: Feed,
    stats: Mutex<Stats>,
    /// `u64::MAX` for none.
    retain_from: AtomicU64,
    options: WriterOptions,
}

struct State {
    pending: Pending,
    closing: bool,
    /// Try again at once: something changed that the trouble may have hung on.
    kick: bool,
    /// No reading was committed yet: nothing waits for the interval.
    eager: bool,
    report: Option<CloseReport>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retain_from(&self) -> Option<u64> {
        Some(self.retain_from.load(Ordering::Relaxed)).filter(|seq| *seq != u64::MAX)
    }

    fn due(&self, state: &State) -> Option<Boot> {
        state.pending.due(self.options.commit_interval, self.options.commit_bytes, state.eager)
    }

    /// Notes how the writer ended. The first word counts.
    fn end(&self, report: CloseReport) {
        self.lock().report.get_or_insert(report);
        self.feed.end();
        self.ended.notify_all();
    }
}

/// The writer's handle. Clones are the same writer; when the last one goes it commits what waits and ends.
#[derive(Clone)]
pub struct WriterHandle(Arc<Last>);

struct Last(Arc<Shared>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.lock().closing = true;
        self.0.wake.notify_all();
    }
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterHandle").field("stats", &self.stats()).finish()
    }
}

/// Starts the writer on a journal that was recovered. It opens a segment with its first commit and never appends to
/// another's.
///
/// # Errors
/// When the system gives no thread.
pub fn start(options: WriterOptions, recovered: &Recovered, hooks: Hooks) -> Result<WriterHandle, JournalError> {
    start_with(options, recovered, hooks, Box::new(SystemDisk))
}

/// As [`start`], with another disk.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    mut options: WriterOptions,
    recovered: &Recovered,
    hooks: Hooks,
    disk: Box<dyn Disk>,
) -> Result<WriterHandle, JournalError> {
    /// So that there is always a sealed segment that may go.
    const PARTS: u64 = 16;
    options.segment_bytes = options.segment_bytes.min(options.max_bytes / PARTS).max(64 * 1024);
    let core = Core::new(
        CoreOptions {
            folder: folder(&recovered.state_dir),
            fence: Arc::clone(&hooks.fence),
            epoch: options.epoch,
            commit_bytes: options.commit_bytes.max(1),
            segment_bytes: options.segment_bytes,
            bounds: Bounds { max_bytes: options.max_bytes, max_age: options.max_age, overflow: options.overflow },
            sealed: recovered.segments.clone(),
            next_seq: recovered.last_seq + 1,
            sources: recovered.sources.clone(),
        },
        disk,
    );
    let stats = Stats {
        first_seq: core.first_seq(),
        last_seq: core.last_seq(),
        bytes: core.bytes(),
        repairs: recovered.report.repairs,
        ..Stats::default()
    };
    let pending = Pending::new(options.memory_bytes, options.overflow);
    let shared = Arc::new(Shared {
        state: Mutex::new(State { pending, closing: false, kick: false, eager: true, report: None }),
        wake: Condvar::new(),
        ended: Condvar::new(),
        feed: Feed::default(),
        stats: Mutex::new(stats),
        retain_from: AtomicU64::new(u64::MAX),
        options,
    });
    let writer = Writer::new(Arc::clone(&shared), core, hooks, recovered);
    thread::Builder::new().name("journal".into()).spawn(move || run(writer)).map_err(JournalError::Thread)?;
    Ok(WriterHandle(Arc::new(Last(shared))))
}

/// The thread. A panic ends the writer, and is told: never a writer that takes readings and commits none.
fn run(mut writer: Writer) {
    let shared = Arc::clone(&writer.shared);
    let outcome = catch_unwind(AssertUnwindSafe(|| writer.run()));
    let failure = match outcome {
        Ok(None) => None,
        Ok(Some(failure)) => Some(failure),
        Err(panic) => Some(Failure::Panicked(panic_text(&*panic))),
    };
    if let Some(failure) = failure {
        let why = match &failure {
            Failure::Fenced => "this instance does not lead any more".to_owned(),
            Failure::Panicked(text) => format!("the writer's thread panicked: {text}"),
        };
        let unwritten = shared.lock().pending.records();
        let last_seq = shared.stats().last_seq;
        shared.stats().trouble = Some(why.clone());
        shared.end(CloseReport { in_time: true, last_seq, unwritten, trouble: Some(why), checkpointed: false });
        // A notice that panics again has nobody left to tell.
        let _ = catch_unwind(AssertUnwindSafe(|| writer.tell(Notice::Failed(failure))));
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

impl WriterHandle {
    /// Hands over a batch. Never waits: what does not fit memory is dropped or refused as the options say.
    ///
    /// # Errors
    /// When the batch is refused; it comes back with the reason.
    pub fn append(&self, batch: Batch) -> Result<(), Rejected> {
        let shared = &self.0.0;
        let mut state = shared.lock();
        if state.closing || state.report.is_some() {
            return Err(Rejected { why: RejectedWhy::Closed, batch: Box::new(batch) });
        }
        let before = shared.due(&state);
        state.pending.push(batch, Boot::now())?;
        let after = shared.due(&state);
        drop(state);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            shared.wake.notify_one();
        }
        Ok(())
    }

    /// The first record that an uplink still waits for, so that none before it counts as unsent. `None`, as at the
    /// start: nothing waits for an uplink.
    pub fn set_retain_from(&self, seq: Option<u64>) {
        let shared = &self.0.0;
        shared.retain_from.store(seq.unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut state = shared.lock();
        // Wakes the writer only where it can matter: an idle one sleeps on.
        if shared.due(&state).is_some() && !state.kick {
            state.kick = true;
            shared.wake.notify_one();
        }
    }

    /// Follows what is committed, holding up to about `capacity` bytes that were not read yet.
    #[must_use]
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        self.0.0.feed.subscribe(capacity)
    }

    /// What the writer says of itself.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.0.0;
        let (pending_bytes, dropped) = {
            let state = shared.lock();
            (state.pending.memory() as u64, state.pending.dropped_records)
        };
        Stats { pending_bytes, dropped_memory: dropped, ..shared.stats().clone() }
    }

    /// False once the writer has ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.0.lock().report.is_none()
    }

    /// Commits what waits, writes a checkpoint and ends the writer; takes nothing new from now on. Waits for it, up to
    /// the deadline: blocks the calling thread.
    #[must_use]
    pub fn close(&self, deadline: Duration) -> CloseReport {
        let shared = &self.0.0;
        let mut state = shared.lock();
        state.closing = true;
        shared.wake.notify_all();
        let until = Boot::now().plus(deadline);
        loop {
            if let Some(report) = &state.report {
                return report.clone();
            }
            let left = until.since(Boot::now());
            if left.is_zero() {
                let unwritten = state.pending.records();
                drop(state);
                let stats = shared.stats().clone();
                let trouble = stats.trouble.or_else(|| Some("the disk did not answer in time".to_owned()));
                return CloseReport {
                    in_time: false,
                    last_seq: stats.last_seq,
                    unwritten,
                    trouble,
                    checkpointed: false,
                };
            }
            state = shared.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;
