//! What an instance does about the lease: pure, with the time passed in.
//!
//! ```text
//!             Locked               Renewed               too late to renew
//! Following ─────────▶ Taking ─────────────▶ Leading ─────────────────────▶ Fenced
//!     ▲ │                │  too late            │                              │
//!     │ │ Release        └──────▶ Fenced        │ Release                      │ Release
//!     │ ▼                                       ▼                              ▼
//!   Released ◀──────────────────────────────────────────────────────────────────
//! ```
//!
//! Safety rests on the lock alone: the kernel gives it to one process at a time and takes it back only when that process
//! is gone or gives it up. The record and the times decide when a leader stops by itself, and when a follower may end
//! the process that holds the lock; they never make a leader.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use super::record::{Record, RecordError};
use crate::{
    clock::Boot,
    coordination::{Ended, Process},
};

/// The first look at the record, when the lock was not free at once: an idle lease is taken before that, and nobody is
/// told "following" for nothing.
const FIRST_LOOK: Duration = Duration::from_millis(20);

/// The times that follow from the time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// For how long a renewal holds.
    pub ttl: Duration,
}

impl Rules {
    /// From the start of one renewal to the start of the next.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        self.ttl / 3
    }

    /// From the start of the last renewal that succeeded to the end of all I/O.
    #[must_use]
    pub fn fence_after(&self) -> Duration {
        self.ttl * 2 / 3
    }

    /// From a renewal that failed to the next try.
    #[must_use]
    pub fn retry_every(&self) -> Duration {
        self.ttl / 12
    }

    /// From one look at a record that names no leader to the next.
    #[must_use]
    pub fn look_every(&self) -> Duration {
        self.ttl / 4
    }
}

/// What a look at the record shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sight {
    /// There is none.
    Missing,
    /// It is torn or foreign; why.
    Unreadable(String),
    /// It is of another boot: its process is gone, and a pid of that boot says nothing about this one.
    OtherBoot(Record),
    /// Its leader gave the lease up.
    Released(Record),
    /// Its leader renewed it within its time to live.
    Fresh(Record),
    /// Its leader did not.
    Stale(Record),
}

impl Sight {
    /// Judges what was read. `now` is taken after the reading, so an honest renewal is never in the future.
    #[must_use]
    pub fn of(read: Result<Option<Record>, RecordError>, now: Boot, boot_id: &str) -> Self {
        match read {
            Ok(None) => Self::Missing,
            Err(e) => Self::Unreadable(e.to_string()),
            Ok(Some(record)) if record.boot_id != boot_id => Self::OtherBoot(record),
            Ok(Some(record)) if record.renewed > now => Self::Unreadable("it was renewed in the future".to_owned()),
            Ok(Some(record)) if !record.held => Self::Released(record),
            Ok(Some(record)) if now.since(record.renewed) < record.ttl => Self::Fresh(record),
            Ok(Some(record)) => Self::Stale(record),
        }
    }

    /// The last leader of this boot.
    #[must_use]
    pub fn of_this_boot(&self) -> Option<&Record> {
        match self {
            Self::Released(record) | Self::Fresh(record) | Self::Stale(record) => Some(record),
            Self::Missing | Self::Unreadable(_) | Self::OtherBoot(_) => None,
        }
    }
}

/// What an instance is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for the lock and watches its holder.
    Following(Following),
    /// Has the lock, and has not written the record yet: no I/O before that.
    Taking {
        /// The epoch that it will lead under.
        epoch: u64,
        /// How it came by the lock.
        why: String,
        /// When it got the lock.
        since: Boot,
        /// When to write next.
        write_at: Boot,
        /// Why the last write failed.
        failing: Option<String>,
    },
    /// Leads.
    Leading {
        /// The epoch that it leads under.
        epoch: u64,
        /// When the last renewal that succeeded began.
        renewed: Boot,
        /// When to renew next.
        renew_at: Boot,
        /// Why the last renewal failed.
        failing: Option<String>,
    },
    /// Has stopped all I/O and waits for the end of its process. Keeps the lock until then.
    Fenced,
    /// Gave the lease up, or its wish for it.
    Released,
}

/// A follower's memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Following {
    /// When to start waiting for the lock; `None` once it waits.
    lock_at: Option<Boot>,
    look_at: Boot,
    /// Since when the lock is held by nobody that the record names.
    trouble_since: Option<Boot>,
    reported: bool,
    /// What was last told of the leader: `Some(None)` is "unknown".
    told: Option<Option<(Process, u64)>>,
    /// The last leader that was seen.
    met: Option<Process>,
    /// The leader that was killed, and for how long it had not renewed.
    killed: Option<(Process, Duration)>,
}

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time passed.
    Tick,
    /// The lock is ours. With the record as it stands, and the lowest epoch that is free.
    Locked {
        /// The record.
        sight: Sight,
        /// The epoch to lead under.
        epoch: u64,
    },
    /// The lock could not be waited for; why.
    LockFailed(String),
    /// The record was looked at.
    Looked(Sight),
    /// A process was to be ended.
    Killed {
        /// The process.
        process: Process,
        /// For how long it had not renewed.
        hung: Duration,
        /// How that went.
        ended: Ended,
    },
    /// The record was to be written.
    Renewed {
        /// When that began.
        began: Boot,
        /// Why it failed, if it did.
        failed: Option<String>,
    },
    /// The lock is no longer ours; why.
    LockLost(String),
    /// The lease is to be given up; why.
    Release(String),
    /// After a release: stand by again, behind whoever takes the lease now.
    Rejoin,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Wait for the lock, in a thread of its own.
    AwaitLock,
    /// Look at the record.
    Look,
    /// End the process that hangs, unless it has renewed or let go of the lock meanwhile.
    Kill(Record),
    /// Write the record for this epoch.
    Renew {
        /// The epoch.
        epoch: u64,
    },
    /// Open the fence and tell that we lead.
    Promote {
        /// The epoch.
        epoch: u64,
        /// How we came by the lease.
        why: String,
        /// Until when the fence is open.
        until: Boot,
    },
    /// Keep the fence open.
    Extend {
        /// Until when.
        until: Boot,
    },
    /// Close the fence, keep the lock, tell; the process is to end.
    Fence(String),
    /// Tell whom we follow.
    Follow(Option<Record>),
    /// Tell why this instance can neither follow nor lead.
    Report(String),
    /// The same, when the lock is held and the record does not say by whom; what it says instead. Who it is can be told
    /// from the lock, perhaps.
    ReportUnnamed(String),
    /// Close the fence, mark the record as released, give the lock up.
    HandOver(String),
    /// Stop waiting for the lock.
    Retire,
    /// Give a lock up that came too late.
    Unlock,
}

impl State {
    /// An instance that starts.
    #[must_use]
    pub fn start(now: Boot) -> Self {
        Self::following(now, now)
    }

    fn following(now: Boot, lock_at: Boot) -> Self {
        Self::Following(Following {
            lock_at: Some(lock_at),
            look_at: now.plus(FIRST_LOOK),
            trouble_since: None,
            reported: false,
            told: None,
            met: None,
            killed: None,
        })
    }

    /// When the next tick is due; `None` when only an event can change anything.
    #[must_use]
    pub fn wake(&self, rules: &Rules) -> Option<Boot> {
        match self {
            Self::Following(f) => Some(f.lock_at.map_or(f.look_at, |at| at.min(f.look_at))),
            Self::Taking { since, write_at, .. } => Some((*write_at).min(since.plus(rules.fence_after()))),
            Self::Leading { renewed, renew_at, .. } => Some((*renew_at).min(renewed.plus(rules.fence_after()))),
            Self::Fenced | Self::Released => None,
        }
    }
}

/// Decides; performs nothing.
#[must_use]
pub fn step(state: State, event: Event, now: Boot, rules: &Rules) -> (State, Option<Action>) {
    match state {
        State::Following(f) => following(f, event, now, rules),
        State::Taking { .. } | State::Leading { .. } => holding(state, event, now, rules),
        State::Fenced => match event {
            Event::Release(why) => (State::Released, Some(Action::HandOver(why))),
            Event::Tick
            | Event::Locked { .. }
            | Event::LockFailed(_)
            | Event::Looked(_)
            | Event::Killed { .. }
            | Event::Renewed { .. }
            | Event::LockLost(_)
            | Event::Rejoin => (State::Fenced, None),
        },
        State::Released => match event {
            // The wait for the lock could not be called off in time.
            Event::Locked { .. } => (State::Released, Some(Action::Unlock)),
            // Whoever waits for the lease comes first.
            Event::Rejoin => (State::following(now, now.plus(rules.ttl)), None),
            Event::Tick
            | Event::LockFailed(_)
            | Event::Looked(_)
            | Event::Killed { .. }
            | Event::Renewed { .. }
            | Event::LockLost(_)
            | Event::Release(_) => (State::Released, None),
        },
    }
}

fn following(mut f: Following, event: Event, now: Boot, rules: &Rules) -> (State, Option<Action>) {
    let action = match event {
        Event::Tick if f.lock_at.is_some_and(|at| now >= at) => {
            f.lock_at = None;
            Some(Action::AwaitLock)
        }
        Event::Tick if now >= f.look_at => {
            f.look_at = now.plus(rules.look_every());
            Some(Action::Look)
        }
        Event::Tick => None,
        Event::Looked(sight) => f.looked(sight, now, rules),
        Event::Killed { process, hung, ended } => f.ended(process, hung, ended, now, rules),
        Event::Locked { sight, epoch } => {
            let why = f.how(&sight);
            let state =
                State::Taking { epoch, why, since: now, write_at: now.plus(rules.retry_every()), failing: None };
            return (state, Some(Action::Renew { epoch }));
        }
        Event::LockFailed(why) => {
            f.lock_at = Some(now.plus(rules.ttl));
            f.report(format!("the lock that makes a leader cannot be had: {why}"))
        }
        Event::Release(_) => return (State::Released, Some(Action::Retire)),
        Event::Renewed { .. } | Event::LockLost(_) | Event::Rejoin => None,
    };
    (State::Following(f), action)
}

impl Following {
    fn looked(&mut self, sight: Sight, now: Boot, rules: &Rules) -> Option<Action> {
        match sight {
            Sight::Fresh(record) => {
                self.trouble_since = None;
                self.killed = None;
                // The moment at which this record is too old, unless it is renewed.
                self.look_at = record.renewed.plus(record.ttl);
                if self.lock_at.is_some() {
                    // There is a leader to stand by for.
                    self.lock_at = Some(now);
                }
                let recovered = std::mem::take(&mut self.reported);
                self.follow(Some(record), recovered)
            }
            Sight::Stale(record) => Some(Action::Kill(record)),
            Sight::Missing => self.unnamed("there is no record", now, rules),
            Sight::Unreadable(why) => self.unnamed(&why, now, rules),
            Sight::OtherBoot(_) => self.unnamed("the record is of another boot", now, rules),
            Sight::Released(_) => self.unnamed("the record says that the lease was given up", now, rules),
        }
    }

    /// Somebody holds the lock, or is about to let it go, and the record does not say who. That is usual for moments
    /// while a leader starts; when it lasts, a person has to look.
    fn unnamed(&mut self, what: &str, now: Boot, rules: &Rules) -> Option<Action> {
        self.look_at = now.plus(rules.look_every());
        let since = *self.trouble_since.get_or_insert(now);
        if self.lock_at.is_none() && now.since(since) >= rules.ttl {
            return self.once(Action::ReportUnnamed(what.to_owned()));
        }
        self.follow(None, false)
    }

    fn ended(&mut self, process: Process, hung: Duration, ended: Ended, now: Boot, rules: &Rules) -> Option<Action> {
        self.look_at = now.plus(rules.look_every());
        match ended {
            Ended::Killed => {
                self.killed = Some((process, hung));
                self.trouble_since.get_or_insert(now);
                None
            }
            Ended::Gone => self.unnamed("the process of the record is gone", now, rules),
            Ended::CalledOff => {
                self.look_at = now.plus(rules.retry_every());
                None
            }
            Ended::Denied(why) => self.report(format!("the leader hangs and may not be ended: {why}")),
            Ended::StillThere => {
                self.killed = Some((process, hung));
                self.report(format!("the leader (pid {}) hangs in the kernel and was killed in vain", process.pid))
            }
        }
    }

    fn follow(&mut self, record: Option<Record>, again: bool) -> Option<Action> {
        let leader = record.as_ref().map(|r| (r.process, r.epoch));
        if !again && self.told == Some(leader) {
            return None;
        }
        self.told = Some(leader);
        self.met = leader.map(|(process, _)| process).or(self.met);
        Some(Action::Follow(record))
    }

    fn report(&mut self, why: String) -> Option<Action> {
        self.once(Action::Report(why))
    }

    /// Tells once, until a leader is seen again.
    fn once(&mut self, report: Action) -> Option<Action> {
        (!std::mem::replace(&mut self.reported, true)).then_some(report)
    }

    /// How we came by the lock, for people.
    fn how(&self, sight: &Sight) -> String {
        let Some(record) = sight.of_this_boot() else {
            return match self.met {
                Some(leader) => format!("the leader (pid {}) died and its record is gone", leader.pid),
                None => "first to start".to_owned(),
            };
        };
        let Record { instance, process, .. } = record;
        match self.killed {
            _ if !record.held => format!("leader {instance} handed over: {}", record.why),
            Some((killed, hung)) if killed == *process => {
                format!("leader {instance} (pid {}) hung for {:.1} s and was killed", process.pid, hung.as_secs_f64())
            }
            Some(_) | None => format!("leader {instance} (pid {}) died", process.pid),
        }
    }
}

/// Taking and Leading: the lock is ours.
fn holding(state: State, event: Event, now: Boot, rules: &Rules) -> (State, Option<Action>) {
    match event {
        Event::Tick => on_time(state, now, rules),
        Event::Renewed { began, failed } => on_renewed(state, began, failed, now, rules),
        Event::LockLost(why) => (State::Fenced, Some(Action::Fence(why))),
        Event::Release(why) => (State::Released, Some(Action::HandOver(why))),
        // One thread waits for the lock, and it has ended.
        Event::Locked { .. } | Event::LockFailed(_) | Event::Looked(_) | Event::Killed { .. } | Event::Rejoin => {
            (state, None)
        }
    }
}

fn on_time(state: State, now: Boot, rules: &Rules) -> (State, Option<Action>) {
    match state {
        State::Taking { since, failing, .. } if now >= since.plus(rules.fence_after()) => fence(now, since, failing),
        State::Leading { renewed, failing, .. } if now >= renewed.plus(rules.fence_after()) => {
            fence(now, renewed, failing)
        }
        State::Taking { epoch, why, since, write_at, failing } if now >= write_at => {
            let write_at = now.plus(rules.retry_every());
            (State::Taking { epoch, why, since, write_at, failing }, Some(Action::Renew { epoch }))
        }
        State::Leading { epoch, renewed, renew_at, failing } if now >= renew_at => {
            let renew_at = now.plus(rules.retry_every());
            (State::Leading { epoch, renewed, renew_at, failing }, Some(Action::Renew { epoch }))
        }
        State::Taking { .. } | State::Leading { .. } | State::Following(_) | State::Fenced | State::Released => {
            (state, None)
        }
    }
}

fn on_renewed(state: State, began: Boot, failed: Option<String>, now: Boot, rules: &Rules) -> (State, Option<Action>) {
    let until = began.plus(rules.fence_after());
    let renew_at = began.plus(rules.renew_every());
    match (state, failed) {
        (State::Taking { epoch, why, since, failing, .. }, None) => {
            // Measured from its start: a write that took that long promises nothing any more.
            if now >= until {
                return fence(now, since, failing);
            }
            let state = State::Leading { epoch, renewed: began, renew_at, failing: None };
            (state, Some(Action::Promote { epoch, why, until }))
        }
        (State::Leading { epoch, renewed, failing, .. }, None) => {
            // I/O may have been refused since; a leader that was once too late stays stopped.
            if now >= renewed.plus(rules.fence_after()) {
                return fence(now, renewed, failing);
            }
            (State::Leading { epoch, renewed: began, renew_at, failing: None }, Some(Action::Extend { until }))
        }
        (State::Taking { epoch, why, since, .. }, Some(e)) => {
            let write_at = now.plus(rules.retry_every());
            (State::Taking { epoch, why, since, write_at, failing: Some(e) }, None)
        }
        (State::Leading { epoch, renewed, .. }, Some(e)) => {
            let renew_at = now.plus(rules.retry_every());
            (State::Leading { epoch, renewed, renew_at, failing: Some(e) }, None)
        }
        (state @ (State::Following(_) | State::Fenced | State::Released), _) => (state, None),
    }
}

fn fence(now: Boot, last: Boot, failing: Option<String>) -> (State, Option<Action>) {
    let age = now.since(last).as_secs_f64();
    let why = match failing {
        Some(e) => format!("could not renew the lease for {age:.1} s: {e}"),
        None => format!("the process stood still: the lease was last renewed {age:.1} s ago"),
    };
    (State::Fenced, Some(Action::Fence(why)))
}
