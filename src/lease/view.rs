//! What the lease says of itself: events for the supervisor, a view for status and metrics.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::record::Record;
use crate::{clock::Wall, status::Role};

/// What happened to the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEvent {
    /// This instance leads: start I/O, under this epoch.
    Promoted {
        /// The epoch.
        epoch: u64,
        /// How it came by the lease.
        why: String,
    },
    /// This instance led and stopped: no I/O from here on; the process is to end.
    Fenced {
        /// Why.
        why: String,
    },
    /// This instance stands by.
    Following {
        /// For whom; `None` when the record does not say.
        leader: Option<LeaderView>,
    },
    /// This instance stays follower and nobody is seen to lead: a leader that hangs cannot be ended, somebody holds the
    /// lock whom the record does not name, or the lock cannot be had. The reason is a whole sentence.
    CannotFence {
        /// Why.
        why: String,
    },
    /// The ceiling of epochs could not be read or reserved; this instance leads all the same, and tries again.
    EpochNotReserved {
        /// Why.
        why: String,
    },
    /// The part of the process that holds the lease is dead: the process is to end.
    Lost {
        /// Why.
        why: String,
    },
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderView {
    /// Its instance's id.
    pub instance: String,
    /// Its process.
    pub pid: u32,
    /// The version of its binary.
    pub build: String,
    /// Since when it leads.
    pub since: Wall,
    /// The epoch that it leads under.
    pub epoch: u64,
}

impl From<&Record> for LeaderView {
    fn from(record: &Record) -> Self {
        Self {
            instance: record.instance.clone(),
            pid: record.process.pid,
            build: record.build.clone(),
            since: record.since,
            epoch: record.epoch,
        }
    }
}

/// The lease as this instance sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Leader, follower, or on its way out (fenced, or it gave the lease up).
    pub role: Role,
    /// Since when it has this role.
    pub since: Wall,
    /// The epoch that it leads under, or that it last saw a leader under; 0 when it saw none.
    pub epoch: u64,
    /// Who leads; this instance itself while it does.
    pub leader: Option<LeaderView>,
    /// Renewals that succeeded.
    pub renewals: u64,
    /// How often this instance was promoted.
    pub promotions: u64,
    /// How often it fenced itself.
    pub fencings: u64,
    /// How often it ended a leader that hung.
    pub kills: u64,
    /// What a person should know: why nobody is seen to lead, or how the lease was lost.
    pub trouble: Option<String>,
    /// Events that nobody took in time.
    pub events_dropped: u64,
    /// Whether the part that renews and watches is alive.
    pub alive: bool,
}

/// The view, and the way out for events.
#[derive(Debug)]
pub(super) struct Outlet {
    view: Mutex<LeaseView>,
    events: mpsc::Sender<LeaseEvent>,
}

impl Outlet {
    /// With room for `capacity` events. They are few and follow changes alone; when nobody takes them, the newest is
    /// dropped and counted. The view is published before its event, so a late reader finds the newest state there.
    pub(super) fn new(capacity: usize) -> (Self, mpsc::Receiver<LeaseEvent>) {
        let (events, taken) = mpsc::channel(capacity);
        let view = LeaseView {
            role: Role::Follower,
            since: Wall::now(),
            epoch: 0,
            leader: None,
            renewals: 0,
            promotions: 0,
            fencings: 0,
            kills: 0,
            trouble: None,
            events_dropped: 0,
            alive: true,
        };
        (Self { view: Mutex::new(view), events }, taken)
    }

    pub(super) fn view(&self) -> LeaseView {
        self.lock().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut LeaseView)) {
        let mut view = self.lock();
        let role = view.role;
        change(&mut view);
        if view.role != role {
            view.since = Wall::now();
        }
    }

    pub(super) fn tell(&self, event: LeaseEvent) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.events.try_send(event) {
            self.change(|v| v.events_dropped += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseView> {
        // Nothing in here can panic half-way, and a view is better than none.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
