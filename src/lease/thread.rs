//! The thread that renews or watches. It performs what [`super::machine`] decides, and decides nothing.
//!
//! | thread | goes in | comes out | ends |
//! | --- | --- | --- | --- |
//! | `lease` | messages, time | events, the view, the fence | at [`Message::Stop`]; its death is [`LeaseEvent::Lost`] |
//! | `lease-lock` | | the lock, once | with the lock, or once it had it when nobody wants it any more |
//! | `lease-epoch` | an epoch | the ceiling | when the disk has answered; one at a time |

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Fence, LeaseEvent,
    epoch::{self, EpochStore},
    lock::{LeaderGuard, LeaderLock},
    machine::{Action, Event, Rules, Sight, State, step},
    record::Record,
    store::Store,
    view::{LeaderView, Outlet},
};
use crate::{
    clock::{Boot, Wall, boot_id},
    coordination::{Ended, FileGuard, Process},
    errors::chain,
    status::Role,
};

/// From an epoch that could not be reserved to the next try.
const RESERVE_AGAIN: Duration = Duration::from_secs(60);
/// How long to wait, at most, for the exit of a process that was killed.
const KILL_WAIT: Duration = Duration::from_secs(1);
/// How long to sleep when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    Locked(LeaderGuard),
    LockFailed(String),
    Reserved(Result<(), String>),
    Release { why: String, done: oneshot::Sender<()> },
    Rejoin,
    Stop { done: Option<oneshot::Sender<()>> },
}

/// What a [`Renewer`] is made of.
pub(super) struct Parts {
    pub(super) ttl: Duration,
    pub(super) instance: String,
    pub(super) build: String,
    pub(super) process: Process,
    /// Keeps a second process with this id away.
    #[expect(dead_code, reason = "held for as long as the thread lives, never read")]
    pub(super) own: FileGuard,
    pub(super) lock: LeaderLock,
    pub(super) store: Box<dyn Store>,
    pub(super) epochs: EpochStore,
    pub(super) floor: Box<dyn Fn() -> u64 + Send>,
    pub(super) fence: Fence,
    pub(super) outlet: Arc<Outlet>,
    pub(super) messages: SyncSender<Message>,
    pub(super) inbox: Receiver<Message>,
}

pub(super) struct Renewer {
    parts: Parts,
    rules: Rules,
    state: State,
    /// Ours, written at each renewal.
    record: Record,
    /// The lock, from the moment we get it to the end.
    held: Option<LeaderGuard>,
    /// The thread that waits for the lock.
    waiting: Option<Arc<Waiting>>,
    /// The highest epoch that we met.
    seen: u64,
    reserve: Reserve,
}

/// Between this thread and the one that waits for the lock.
#[derive(Default)]
struct Waiting {
    /// Nobody wants the lock any more.
    unwanted: AtomicBool,
    /// `lease.lock` is ours; only the state folder is still another's.
    has_lease: AtomicBool,
    /// It is ours, and the message that says so is on its way.
    got: AtomicBool,
}

/// The reservation of epochs, which goes on beside.
#[derive(Default)]
struct Reserve {
    running: bool,
    again_at: Option<Boot>,
    told: Option<String>,
}

impl Renewer {
    pub(super) fn new(parts: Parts) -> Self {
        let record = Record {
            epoch: 0,
            held: true,
            instance: parts.instance.clone(),
            process: parts.process,
            boot_id: boot_id().to_owned(),
            renewed: Boot::default(),
            ttl: parts.ttl,
            since: Wall::default(),
            build: parts.build.clone(),
            why: String::new(),
        };
        Self {
            rules: Rules { ttl: parts.ttl },
            state: State::start(Boot::now()),
            record,
            held: None,
            waiting: None,
            seen: 0,
            reserve: Reserve::default(),
            parts,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let wait = self.due().map_or(IDLE, |at| at.since(Boot::now()));
            match self.parts.inbox.recv_timeout(wait) {
                Ok(Message::Stop { done }) => return self.stop(done),
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                // Not while we hold a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => return self.stop(None),
            }
            self.feed(Event::Tick);
            self.reserve_when_due();
        }
    }

    fn due(&self) -> Option<Boot> {
        self.state.wake(&self.rules).into_iter().chain(self.reserve.again_at).min()
    }

    fn stop(mut self, done: Option<oneshot::Sender<()>>) {
        match done {
            Some(_) => self.feed(Event::Release("shut down".to_owned())),
            // Dropped, not given up: I/O may be under way, so the lock goes with the process.
            None => mem::forget(self.held.take()),
        }
        self.parts.outlet.change(|v| v.alive = false);
        // All locks are free before anybody is told so.
        drop(self);
        answer(done);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Locked(guard) => {
                self.held = Some(guard);
                self.waiting = None;
                let sight = self.look();
                let epoch = self.next_epoch(&sight);
                self.feed(Event::Locked { sight, epoch });
            }
            Message::LockFailed(why) => {
                self.waiting = None;
                self.feed(Event::LockFailed(why));
            }
            Message::Reserved(result) => self.reserved(result),
            Message::Release { why, done } => {
                self.feed(Event::Release(why));
                answer(Some(done));
            }
            Message::Rejoin => {
                self.feed(Event::Rejoin);
                if matches!(self.state, State::Following(_)) {
                    self.parts.outlet.change(|v| v.role = Role::Follower);
                }
            }
            // Taken before it gets here.
            Message::Stop { done } => answer(done),
        }
    }

    fn feed(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let state = mem::replace(&mut self.state, State::Fenced);
            let (state, action) = step(state, event, Boot::now(), &self.rules);
            self.state = state;
            next = action.and_then(|action| self.perform(action));
        }
    }

    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::AwaitLock => self.await_lock(),
            Action::Look => Some(Event::Looked(self.look())),
            Action::Kill(record) => Some(self.kill(&record)),
            Action::Renew { epoch } => Some(self.renew(epoch)),
            Action::Promote { epoch, why, until } => self.promote(epoch, why, until),
            Action::Extend { until } => {
                self.parts.fence.extend(until);
                self.parts.outlet.change(|v| v.renewals += 1);
                None
            }
            Action::Fence(why) => self.fence(why),
            Action::Follow(record) => self.follow(record.as_ref()),
            Action::Report(why) => self.report(why),
            Action::ReportUnnamed(what) => {
                let has_lease = self.waiting.as_ref().is_some_and(|w| w.has_lease.load(Ordering::Acquire));
                self.report(format!("{}, and {what}", self.parts.lock.obstacle(has_lease)))
            }
            Action::HandOver(why) => self.hand_over(why),
            Action::Retire => {
                self.parts.outlet.change(|v| v.role = Role::Draining);
                if let Some(waiting) = self.waiting.take() {
                    waiting.unwanted.store(true, Ordering::Release);
                }
                None
            }
            Action::Unlock => {
                self.held = None;
                None
            }
        }
    }

    fn report(&self, why: String) -> Option<Event> {
        self.parts.outlet.change(|v| v.trouble = Some(why.clone()));
        self.tell(LeaseEvent::CannotFence { why })
    }

    fn tell(&self, event: LeaseEvent) -> Option<Event> {
        self.parts.outlet.tell(event);
        None
    }

    fn await_lock(&mut self) -> Option<Event> {
        let waiting = Arc::new(Waiting::default());
        let (lock, messages, shared) = (self.parts.lock.clone(), self.parts.messages.clone(), Arc::clone(&waiting));
        let wait = move || {
            let message = match lock.acquire_noting(&shared.has_lease) {
                Ok(guard) => {
                    shared.got.store(true, Ordering::Release);
                    Message::Locked(guard)
                }
                Err(e) => Message::LockFailed(chain(&e)),
            };
            if !shared.unwanted.load(Ordering::Acquire) {
                // Fails when the lease's thread is gone; the message, and with it the lock, is dropped then.
                let _ = messages.send(message);
            }
        };
        match thread::Builder::new().name("lease-lock".to_owned()).spawn(wait) {
            Ok(_) => {
                self.waiting = Some(waiting);
                None
            }
            Err(e) => Some(Event::LockFailed(format!("cannot start a thread that waits for the lock: {e}"))),
        }
    }

    fn look(&mut self) -> Sight {
        let sight = self.sight();
        if let Some(record) = sight.of_this_boot() {
            self.seen = self.seen.max(record.epoch);
        }
        sight
    }

    fn sight(&mut self) -> Sight {
        let read = self.parts.store.read();
        Sight::of(read, Boot::now(), boot_id())
    }

    fn next_epoch(&mut self, sight: &Sight) -> u64 {
        let record = sight.of_this_boot().map(|r| r.epoch);
        let mut trouble = None;
        let ceiling = || {
            self.parts.epochs.ceiling().unwrap_or_else(|e| {
                trouble = Some(chain(&e));
                0
            })
        };
        let epoch = epoch::next(record, ceiling, (self.parts.floor)(), self.seen);
        if let Some(why) = trouble {
            self.tell(LeaseEvent::EpochNotReserved { why });
        }
        self.seen = epoch;
        epoch
    }

    fn kill(&mut self, stale: &Record) -> Event {
        let hung = Boot::now().since(stale.renewed);
        let same = |r: &Record| r.renewed == stale.renewed && r.process == stale.process;
        let ended = stale.process.end(KILL_WAIT.min(self.rules.ttl), || {
            // Between the look and the signal it may have come back, or have let go of the lock without a word in the
            // record; then the lock is ours, or free and about to be.
            let ours = self.waiting.as_ref().is_none_or(|w| w.got.load(Ordering::Acquire));
            !ours && self.parts.lock.is_held() && matches!(self.sight(), Sight::Stale(r) if same(&r))
        });
        if ended == Ended::Killed {
            self.parts.outlet.change(|v| v.kills += 1);
        }
        Event::Killed { process: stale.process, hung, ended }
    }

    fn renew(&mut self, epoch: u64) -> Event {
        // Each time, so that a record that was removed is there again before a follower wonders who leads.
        self.parts.store.check();
        if let Some(Err(why)) = self.held.as_mut().map(|held| held.mend(&self.parts.lock)) {
            return Event::LockLost(why);
        }
        if self.record.epoch != epoch {
            self.record.epoch = epoch;
            self.record.since = Wall::now();
        }
        if let State::Taking { why, .. } = &self.state {
            self.record.why.clone_from(why);
        }
        self.record.held = true;
        let began = Boot::now();
        self.record.renewed = began;
        let failed = self.parts.store.write(&self.record).err();
        Event::Renewed { began, failed: failed.map(|e| chain(&e)) }
    }

    fn promote(&mut self, epoch: u64, why: String, until: Boot) -> Option<Event> {
        self.parts.fence.open(epoch, until);
        let leader = LeaderView::from(&self.record);
        self.parts.outlet.change(|v| {
            v.role = Role::Leader;
            v.epoch = epoch;
            v.leader = Some(leader);
            v.renewals += 1;
            v.promotions += 1;
            v.trouble = None;
        });
        self.tell(LeaseEvent::Promoted { epoch, why });
        self.reserve.again_at = Some(Boot::now());
        None
    }

    fn fence(&mut self, why: String) -> Option<Event> {
        self.parts.fence.close();
        self.reserve.again_at = None;
        self.parts.outlet.change(|v| {
            v.role = Role::Draining;
            v.leader = None;
            v.fencings += 1;
            v.trouble = Some(why.clone());
        });
        self.tell(LeaseEvent::Fenced { why })
    }

    fn follow(&mut self, record: Option<&Record>) -> Option<Event> {
        let leader = record.map(LeaderView::from);
        self.parts.outlet.change(|v| {
            v.leader.clone_from(&leader);
            v.trouble = None;
            if let Some(leader) = &leader {
                v.epoch = leader.epoch;
            }
        });
        self.tell(LeaseEvent::Following { leader })
    }

    fn hand_over(&mut self, why: String) -> Option<Event> {
        self.parts.fence.close();
        self.reserve.again_at = None;
        self.record.held = false;
        self.record.why = why;
        self.record.renewed = Boot::now();
        // Only a courtesy: the lock alone decides, and the successor says "died" instead of "handed over".
        if let Err(e) = self.parts.store.write(&self.record) {
            tracing::warn!(error = chain(&e), "the record could not be marked as released");
        }
        self.held = None;
        self.parts.outlet.change(|v| {
            v.role = Role::Draining;
            v.leader = None;
        });
        None
    }

    fn reserve_when_due(&mut self) {
        if self.reserve.running || self.reserve.again_at.is_none_or(|at| at > Boot::now()) {
            return;
        }
        self.reserve.again_at = None;
        let (epochs, messages, epoch) = (self.parts.epochs.clone(), self.parts.messages.clone(), self.record.epoch);
        let reserve = move || {
            let result = epochs.reserve(epoch).map(|_| ()).map_err(|e| chain(&e));
            // Fails when the lease's thread is gone: nobody needs to know then.
            let _ = messages.send(Message::Reserved(result));
        };
        match thread::Builder::new().name("lease-epoch".to_owned()).spawn(reserve) {
            Ok(_) => self.reserve.running = true,
            Err(e) => self.reserved(Err(format!("cannot start a thread that reserves epochs: {e}"))),
        }
    }

    fn reserved(&mut self, result: Result<(), String>) {
        self.reserve.running = false;
        let Err(why) = result else {
            self.reserve.told = None;
            return;
        };
        if matches!(self.state, State::Leading { .. }) {
            self.reserve.again_at = Some(Boot::now().plus(RESERVE_AGAIN));
        }
        if self.reserve.told.as_ref() != Some(&why) {
            self.reserve.told = Some(why.clone());
            self.tell(LeaseEvent::EpochNotReserved { why });
        }
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.parts.fence.close();
        if thread::panicking() {
            // I/O may be under way. The lock stays with the process until it ends, by itself or by the follower's hand.
            mem::forget(self.held.take());
            let why = "the thread that holds the lease ended unexpectedly".to_owned();
            self.parts.outlet.change(|v| {
                v.role = Role::Draining;
                v.alive = false;
                v.leader = None;
                v.trouble = Some(why.clone());
            });
            self.parts.outlet.tell(LeaseEvent::Lost { why });
        }
        if let Some(waiting) = &self.waiting {
            waiting.unwanted.store(true, Ordering::Release);
        }
    }
}

fn answer(done: Option<oneshot::Sender<()>>) {
    if let Some(done) = done {
        // Nobody waits any more: as good.
        let _ = done.send(());
    }
}
