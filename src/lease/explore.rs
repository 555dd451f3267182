//! Explores every interleaving of two instances, the kernel's lock, the record, and faults, over the production's own
//! decisions. A world moves by the smallest steps: a process performs one action or takes one event, the kernel grants
//! the lock, a fault strikes, time passes by one unit. A process that is due and not stopped runs before time passes;
//! slowness is a stop and a continuation.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    epoch,
    machine::{Action, Event, Rules, Sight, State, step},
    record::{Record, RecordError},
};
use crate::{
    clock::{Boot, Wall},
    coordination::{Ended, Process},
};

/// Units of time; a third, a quarter and a twelfth of it are whole.
const TTL: u64 = 12;
const RULES: Rules = Rules { ttl: Duration::from_secs(TTL) };
/// Long enough for the end of a leader that hangs, and for its successor's first renewal.
const HORIZON: u64 = 18;
/// For walks, which cost little, and for the larger exploration.
const FAR: u64 = 22;
const START: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    /// Where time ends.
    horizon: u64,
    procs: [Proc; 2],
    /// Who holds the lock.
    lock: Option<usize>,
    record: Result<Option<Record>, RecordError>,
    writable: bool,
    ceiling: u64,
    /// The highest epoch that anybody was promoted to.
    highest: u64,
    faults: u8,
    restarts: u8,
    next_pid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Proc {
    alive: bool,
    stopped: bool,
    pid: u32,
    state: State,
    pending: Option<Action>,
    /// Blocked in `flock`.
    waiting: bool,
    /// The kernel gave it the lock, and it has not been told yet.
    granted: bool,
    seen: u64,
    /// The fence: epoch and deadline.
    fence: Option<(u64, u64)>,
    /// When its last successful write began.
    renewed: u64,
}

/// A record's fields that decide nothing stay empty: worlds are cloned by the hundred thousand.
fn record(epoch: u64, process: Process, renewed: Boot) -> Record {
    Record {
        epoch,
        held: true,
        instance: String::new(),
        process,
        boot_id: String::new(),
        renewed,
        ttl: RULES.ttl,
        since: Wall(0),
        build: String::new(),
        why: String::new(),
    }
}

fn at(t: u64) -> Boot {
    Boot(Duration::from_secs(t))
}

fn proc(pid: u32, now: u64) -> Proc {
    Proc {
        alive: true,
        stopped: false,
        pid,
        state: State::start(at(now)),
        pending: None,
        waiting: false,
        granted: false,
        seen: 0,
        fence: None,
        renewed: 0,
    }
}

impl World {
    fn new(faults: u8, horizon: u64) -> Self {
        Self {
            now: START,
            horizon: START + horizon,
            procs: [proc(1, START), proc(2, START)],
            lock: None,
            record: Ok(None),
            writable: true,
            ceiling: 0,
            highest: 0,
            faults,
            restarts: 1,
            next_pid: 3,
        }
    }

    fn sight(&self) -> Sight {
        Sight::of(self.record.clone(), at(self.now), "")
    }

    fn runs(&self, i: usize) -> bool {
        self.procs[i].alive && !self.procs[i].stopped
    }

    fn is_due(&self, i: usize) -> bool {
        let p = &self.procs[i];
        self.runs(i)
            && (p.pending.is_some() || p.granted || p.state.wake(&RULES).is_some_and(|wake| wake <= at(self.now)))
    }

    fn end(&mut self, i: usize) {
        // All the dead are alike.
        self.procs[i] = Proc { alive: false, state: State::Released, ..proc(0, 0) };
        if self.lock == Some(i) {
            self.lock = None;
        }
    }

    fn event(&mut self, i: usize, event: Event) {
        let (state, action) = step(self.procs[i].state.clone(), event, at(self.now), &RULES);
        self.procs[i].state = state;
        // What only tells people touches nothing that is shared.
        let tells = |a: &Action| matches!(a, Action::Follow(_) | Action::Report(_) | Action::ReportUnnamed(_));
        self.procs[i].pending = action.filter(|a| !tells(a));
    }

    /// The next small step of a process that is due.
    fn run(&mut self, i: usize) {
        if let Some(action) = self.procs[i].pending.take() {
            if let Some(event) = self.perform(i, action) {
                self.event(i, event);
            }
        } else if std::mem::take(&mut self.procs[i].granted) {
            let sight = self.sight();
            let record = sight.of_this_boot().map(|r| r.epoch);
            let epoch = epoch::next(record, || self.ceiling, 0, self.procs[i].seen);
            self.procs[i].seen = epoch;
            self.event(i, Event::Locked { sight, epoch });
        } else {
            self.event(i, Event::Tick);
        }
    }

    fn perform(&mut self, i: usize, action: Action) -> Option<Event> {
        match action {
            Action::AwaitLock => {
                self.procs[i].waiting = true;
                None
            }
            Action::Look => {
                let sight = self.sight();
                let seen = sight.of_this_boot().map_or(0, |r| r.epoch);
                self.procs[i].seen = self.procs[i].seen.max(seen);
                Some(Event::Looked(sight))
            }
            Action::Kill(record) => Some(self.kill(i, &record)),
            Action::Renew { epoch } => {
                let began = at(self.now);
                if !self.writable {
                    return Some(Event::Renewed { began, failed: Some("full".to_owned()) });
                }
                let process = Process { pid: self.procs[i].pid, start: 0 };
                self.record = Ok(Some(record(epoch, process, began)));
                self.procs[i].renewed = self.now;
                Some(Event::Renewed { began, failed: None })
            }
            Action::Promote { epoch, until, .. } => {
                assert!(epoch > self.highest, "epoch {epoch} after {}", self.highest);
                self.highest = epoch;
                self.ceiling = self.ceiling.max(epoch + 1_000);
                self.procs[i].fence = Some((epoch, until.0.as_secs()));
                None
            }
            Action::Extend { until } => {
                let fence = self.procs[i].fence.as_mut().expect("only a leader renews");
                // A stop right before this step lets the old deadline pass first. The record is renewed by then, so
                // nobody ends this process before the new one: `check` holds.
                fence.1 = until.0.as_secs();
                None
            }
            Action::Fence(_) => {
                self.procs[i].fence = None;
                None
            }
            Action::HandOver(_) => {
                self.procs[i].fence = None;
                if self.writable
                    && let Ok(Some(record)) = &mut self.record
                {
                    record.held = false;
                }
                self.lock = None;
                None
            }
            Action::Retire => {
                // The thread that waits may have been granted the lock already: both are explored, since a grant may
                // come before this step.
                self.procs[i].waiting = false;
                None
            }
            Action::Unlock => {
                self.lock = None;
                None
            }
            Action::Follow(_) | Action::Report(_) | Action::ReportUnnamed(_) => None,
        }
    }

    fn kill(&mut self, i: usize, stale: &Record) -> Event {
        let ours = self.procs[i].granted;
        let ended = if !ours && self.lock.is_some() && matches!(self.sight(), Sight::Stale(r) if r == *stale) {
            match self.procs.iter().position(|p| p.alive && p.pid == stale.process.pid) {
                Some(target) => {
                    assert_ne!(target, i, "a process ends itself");
                    assert_eq!(self.lock, Some(target), "one that does not hold the lock was ended");
                    assert!(self.now - stale.renewed.0.as_secs() >= TTL, "a leader was ended within its time");
                    self.end(target);
                    Ended::Killed
                }
                None => Ended::Gone,
            }
        } else {
            Ended::CalledOff
        };
        Event::Killed { process: stale.process, hung: Duration::ZERO, ended }
    }

    /// A tick decides from a process's own memory and the time alone, and nothing but its own end, stop or order can
    /// come between: it commutes with all that others do, so that only one order of them needs to be explored.
    fn ticks(&self) -> Option<usize> {
        (0..2).find(|i| self.is_due(*i) && self.procs[*i].pending.is_none() && !self.procs[*i].granted)
    }

    /// All worlds one step on, but for those that differ by the order of steps that commute.
    fn successors(&self) -> Vec<Self> {
        let mut out = Vec::new();
        let ticks = self.ticks();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            out.push(world);
        };
        for i in (0..2).filter(|i| ticks.is_none_or(|t| t == *i)) {
            let p = &self.procs[i];
            if self.is_due(i) {
                push(&|w| w.run(i));
            }
            if self.lock.is_none() && p.waiting && self.runs(i) {
                push(&|w| w.grant(i));
            }
            if p.alive && p.state == State::Fenced {
                push(&|w| w.end(i));
            }
            if p.alive && p.stopped {
                push(&|w| w.procs[i].stopped = false);
            }
            if !p.alive && self.restarts > 0 {
                push(&|w| {
                    w.restarts -= 1;
                    w.procs[i] = proc(w.next_pid, w.now);
                    w.next_pid += 1;
                });
            }
            if self.faults > 0 && p.alive {
                push(&|w| {
                    w.faults -= 1;
                    w.end(i);
                });
                if !p.stopped {
                    push(&|w| {
                        w.faults -= 1;
                        w.procs[i].stopped = true;
                    });
                    if p.pending.is_none() && p.state != State::Released {
                        push(&|w| {
                            w.faults -= 1;
                            w.event(i, Event::Release("asked".to_owned()));
                        });
                    }
                }
            }
        }
        if self.faults > 0 && ticks.is_none() {
            push(&|w| {
                w.faults -= 1;
                w.writable = !w.writable;
            });
            for garbage in [Ok(None), Err(RecordError::Torn)] {
                push(&|w| {
                    w.faults -= 1;
                    w.record = garbage.clone();
                });
            }
        }
        if !(0..2).any(|i| self.is_due(i)) && self.now < self.horizon {
            push(&|w| w.now += 1);
        }
        if let [only] = &mut out[..]
            && only.now > self.now
        {
            // Nothing but time can pass: to where something can be done.
            while only.now < self.horizon && !(0..2).any(|i| only.is_due(i)) {
                only.now += 1;
            }
        }
        out
    }

    fn grant(&mut self, i: usize) {
        self.lock = Some(i);
        (self.procs[i].waiting, self.procs[i].granted) = (false, true);
    }

    fn check(&self) {
        let mut leaders = 0;
        for (i, p) in self.procs.iter().enumerate().filter(|(_, p)| p.alive) {
            let holds = matches!(p.state, State::Taking { .. } | State::Leading { .. } | State::Fenced);
            assert!(!holds || self.lock == Some(i), "{:?} without the lock", p.state);
            // Stopped processes count: they would go on in the middle of a write.
            if let Some((epoch, until)) = p.fence
                && self.now < until
            {
                leaders += 1;
                assert_eq!(epoch, self.highest, "I/O under an old epoch");
                assert!(until <= p.renewed + TTL * 2 / 3, "the fence is open for longer than 2/3 of the TTL");
            }
        }
        assert!(leaders <= 1, "two leaders");
    }

    /// Without further faults, and with somebody there who can, somebody leads within a while.
    fn somebody_leads_in_the_end(mut self) {
        self.faults = 0;
        self.writable = true;
        let able = |w: &Self| (0..2).any(|i| w.runs(i) && !matches!(w.procs[i].state, State::Fenced | State::Released));
        let until = self.now + 3 * TTL;
        let begin = self.clone();
        while self.now < until {
            for i in 0..2 {
                while self.is_due(i) {
                    self.run(i);
                }
                if self.procs[i].alive && matches!(self.procs[i].state, State::Fenced | State::Released) && self.runs(i)
                {
                    self.end(i);
                }
            }
            for i in 0..2 {
                if self.lock.is_none() && self.procs[i].waiting && self.runs(i) {
                    self.grant(i);
                }
            }
            if !able(&self) || (0..2).any(|i| self.runs(i) && matches!(self.procs[i].state, State::Leading { .. })) {
                return;
            }
            if !(0..2).any(|i| self.is_due(i)) {
                self.now += 1;
            }
            self.check();
        }
        // The one case without a leader: the process that holds the lock is stopped and the record does not name it.
        let holder = self.lock.expect("somebody waits for the lock, and it is free");
        let named = matches!(&self.record, Ok(Some(r)) if r.held && r.process.pid == self.procs[holder].pid);
        assert!(self.procs[holder].stopped && !named, "nobody leads: {begin:#?}\n{self:#?}");
    }
}

/// Every world that can be reached, breadth first. Only hashes are kept of those that were seen.
fn explore(faults: u8, horizon: u64) {
    let mut seen: HashSet<u64> = HashSet::new();
    let (mut led, mut ends) = (0u32, 0u32);
    let mut queue = VecDeque::from([World::new(faults, horizon)]);
    while let Some(world) = queue.pop_front() {
        for next in world.successors() {
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                next.check();
                led += u32::from(next.procs.iter().any(|p| matches!(p.state, State::Leading { .. })));
                if seen.len().is_multiple_of(256) {
                    next.clone().somebody_leads_in_the_end();
                    ends += 1;
                }
                queue.push_back(next);
            }
        }
    }
    let worlds = seen.len();
    println!(
        "{worlds} worlds with up to {faults} faults, in {led} of which somebody leads. In each: at most one leader, none \
         without the lock, no I/O under an old epoch or past two thirds of the time to live, nobody ended who was in \
         time or does not hold the lock. From {ends} of them: somebody leads in the end"
    );
    assert!(worlds > 10_000 && led > 1_000 && ends > 100, "the exploration is cut short");
}

#[test]
fn no_interleaving_with_one_fault_gives_two_leaders() {
    explore(1, HORIZON);
}

/// For whoever changes the machine: `cargo test --release --lib lease::explore -- --ignored --nocapture`.
#[test]
#[ignore = "takes long, and gigabytes"]
fn no_interleaving_with_two_faults_gives_two_leaders() {
    explore(2, FAR);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Deeper than the exhaustive one: up to six faults, at random places.
    #[test]
    fn no_random_walk_with_many_faults_gives_two_leaders(choices in proptest::collection::vec(any::<u16>(), 300)) {
        let mut world = World { restarts: 4, ..World::new(6, FAR) };
        for choice in choices {
            let mut next = world.successors();
            if next.is_empty() {
                break;
            }
            world = next.swap_remove(usize::from(choice) % next.len());
            world.check();
        }
        world.somebody_leads_in_the_end();
    }
}
