//! Readiness: latches while starting, health after that, and the pure rule that makes an answer of both.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::status::{Role, WorkerState};

/// How a part of the process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Its latch still holds readiness back; the words say what it waits for.
    Starting(String),
    /// It works.
    Up,
    /// It works, with a loss that a person should know of (a full disk). Does not gate readiness.
    Degraded(String),
    /// It does not work.
    Down(String),
}

/// A part of the process and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// For example `journal`, `lease`.
    pub name: String,
    /// How it is.
    pub health: Health,
}

/// A worker that serves at least one critical station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriticalWorker {
    /// Its key.
    pub key: String,
    /// Its state.
    pub state: WorkerState,
    /// The critical stations of its that were not polled even once (or, where it listens, whose session is not open).
    pub unpolled: Vec<String>,
}

/// What readiness is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// The role at present.
    pub role: Role,
    /// Whether the drain has begun.
    pub draining: bool,
    /// The process's own parts, of whichever role: all of them gate.
    pub parts: Vec<Part>,
    /// The workers with critical stations; they gate on the leader alone.
    pub workers: Vec<CriticalWorker>,
}

/// The body of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyReport {
    /// Whether to send work here.
    pub ready: bool,
    /// The role at present.
    pub role: Role,
    /// Each thing that holds readiness back; empty when ready.
    pub reasons: Vec<Why>,
    /// Each thing that works with a loss.
    pub degraded: Vec<Why>,
}

/// A part and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// For example `journal`, `worker modbus`, `station boiler`.
    pub part: String,
    /// In words.
    pub why: String,
}

impl Why {
    fn new(part: impl Into<String>, why: impl Into<String>) -> Self {
        Self { part: part.into(), why: why.into() }
    }
}

impl Readiness {
    /// The rule. A follower is ready when its own parts are up: it has no workers and needs none.
    #[must_use]
    pub fn evaluate(&self) -> ReadyReport {
        let mut reasons = Vec::new();
        let mut degraded = Vec::new();
        if self.draining || self.role == Role::Draining {
            reasons.push(Why::new("lifecycle", "draining"));
        }
        for part in &self.parts {
            match &part.health {
                Health::Up => {}
                Health::Starting(why) if why.is_empty() => reasons.push(Why::new(&part.name, "starting")),
                Health::Starting(why) => reasons.push(Why::new(&part.name, format!("starting: {why}"))),
                Health::Degraded(why) => degraded.push(Why::new(&part.name, why)),
                Health::Down(why) => reasons.push(Why::new(&part.name, why)),
            }
        }
        if self.role == Role::Leader {
            self.workers.iter().for_each(|w| w.judge(&mut reasons));
        }
        ReadyReport { ready: reasons.is_empty(), role: self.role, reasons, degraded }
    }
}

impl CriticalWorker {
    fn judge(&self, reasons: &mut Vec<Why>) {
        match self.state {
            WorkerState::Running => {}
            WorkerState::Starting
            | WorkerState::Failed
            | WorkerState::GaveUp
            | WorkerState::Stopped
            | WorkerState::Draining
            | WorkerState::Disabled
            | WorkerState::Missing => {
                reasons.push(Why::new(format!("worker {}", self.key), self.state.as_str()));
            }
        }
        for station in &self.unpolled {
            reasons.push(Why::new(format!("station {station}"), "not polled yet"));
        }
    }
}

/// The parts of a process, each with a latch. Cheap to clone; clones are the same set.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    all: Arc<Mutex<Set>>,
}

#[derive(Debug, Default)]
struct Set {
    parts: BTreeMap<String, (u64, Health)>,
    /// Tells the handles of one name apart, so that a late drop of the old one does not mark the new one as down.
    handles: u64,
}

/// A part's own end: it tells how it is. A part that drops it without [`PartHandle::leave`] is down, so that a task that
/// ended by a panic or by mistake is seen.
#[derive(Debug)]
pub struct PartHandle {
    name: String,
    id: u64,
    parts: Parts,
    left: bool,
}

impl Parts {
    /// No parts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part that holds readiness back until it tells that it is up. A second one of a name replaces the first.
    #[must_use]
    pub fn hold(&self, name: impl Into<String>, waits_for: impl Into<String>) -> PartHandle {
        let name = name.into();
        let mut set = self.lock();
        set.handles += 1;
        let id = set.handles;
        set.parts.insert(name.clone(), (id, Health::Starting(waits_for.into())));
        drop(set);
        PartHandle { name, id, parts: self.clone(), left: false }
    }

    /// Every part and how it is, by name.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Part> {
        self.lock()
            .parts
            .iter()
            .map(|(name, (_, health))| Part { name: name.clone(), health: health.clone() })
            .collect()
    }
}

impl PartHandle {
    /// Tells how the part is.
    pub fn set(&self, health: Health) {
        if let Some((id, old)) = self.parts.lock().parts.get_mut(&self.name)
            && *id == self.id
        {
            *old = health;
        }
    }

    /// It works: lifts its latch.
    pub fn up(&self) {
        self.set(Health::Up);
    }

    /// Takes the part out of the set, which is not a failure.
    pub fn leave(mut self) {
        self.left = true;
        let mut set = self.parts.lock();
        if set.parts.get(&self.name).is_some_and(|(id, _)| *id == self.id) {
            set.parts.remove(&self.name);
        }
    }
}

impl Drop for PartHandle {
    fn drop(&mut self) {
        if !self.left {
            self.set(Health::Down("ended".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(role: Role) -> Readiness {
        Readiness {
            role,
            draining: false,
            parts: vec![Part { name: "journal".into(), health: Health::Up }],
            workers: vec![CriticalWorker { key: "modbus".into(), state: WorkerState::Running, unpolled: vec![] }],
        }
    }

    #[test]
    fn all_up_is_ready_and_a_drain_is_not() {
        assert!(base(Role::Leader).evaluate().ready);
        let report = Readiness { draining: true, ..base(Role::Leader) }.evaluate();
        assert!(!report.ready);
        assert_eq!(report.reasons, [Why::new("lifecycle", "draining")]);
        assert!(!base(Role::Draining).evaluate().ready);
    }

    #[test]
    fn a_healthy_follower_is_ready_whatever_the_workers_are() {
        let mut input = base(Role::Follower);
        input.workers[0].state = WorkerState::Missing;
        assert!(input.evaluate().ready);
    }

    #[test]
    fn each_worker_state_but_running_holds_the_leader_back() {
        for state in WorkerState::ALL {
            let mut input = base(Role::Leader);
            input.workers[0].state = state;
            assert_eq!(input.evaluate().ready, state == WorkerState::Running, "{state:?}");
        }
    }

    #[test]
    fn a_critical_station_that_was_never_polled_is_named() {
        let mut input = base(Role::Leader);
        input.workers[0].unpolled = vec!["boiler".into()];
        assert_eq!(input.evaluate().reasons, [Why::new("station boiler", "not polled yet")]);
    }

    #[test]
    fn a_full_disk_degrades_and_a_dead_part_gates() {
        let parts = Parts::new();
        let journal = parts.hold("journal", "recovery");
        let judge = || Readiness { parts: parts.snapshot(), ..base(Role::Leader) }.evaluate();
        assert_eq!(judge().reasons, [Why::new("journal", "starting: recovery")]);
        journal.up();
        assert!(judge().ready);
        journal.set(Health::Degraded("no space left on device".into()));
        let report = judge();
        assert!(report.ready);
        assert_eq!(report.degraded, [Why::new("journal", "no space left on device")]);
        drop(journal);
        assert_eq!(judge().reasons, [Why::new("journal", "ended")]);
        let old = parts.hold("journal", "");
        let new = parts.hold("journal", "");
        new.up();
        drop(old);
        assert!(judge().ready, "a late drop of the old handle leaves the new one alone");
        new.leave();
        assert!(parts.snapshot().is_empty());
    }

    #[test]
    fn the_body_has_the_promised_shape() {
        let report = Readiness { draining: true, ..base(Role::Leader) }.evaluate();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(
            json,
            r#"{"ready":false,"role":"leader","reasons":[{"part":"lifecycle","why":"draining"}],"degraded":[]}"#
        );
    }
}
