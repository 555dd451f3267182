//! The life of one worker process: every cell of state × event. Pure; time is passed in.

#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::{
    clock::Boot,
    status::WorkerState,
    supervisor::budget::{Budget, Verdict},
};

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// From the launch to the worker's word that it is ready.
    pub start: Duration,
    /// From the request to drain to the kill.
    pub stop: Duration,
}

/// Where a worker is. A variant holds what exists in that state and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Expected, never started.
    Down,
    /// Launched; only its own word makes it ready.
    Starting {
        /// Then it is killed.
        ready_by: Boot,
    },
    /// Ready.
    Up,
    /// Asked to leave.
    Draining {
        /// Then it is killed.
        kill_at: Boot,
        /// Whether it is wanted again afterwards.
        again: bool,
    },
    /// Killed; its end is awaited.
    Killed {
        /// What its end means.
        then: Then,
    },
    /// Ended against our will.
    Waiting {
        /// Then it starts again.
        until: Boot,
    },
    /// Ended too often.
    GaveUp {
        /// Then it is tried once more.
        until: Boot,
    },
    /// Ended as it was told.
    Stopped,
}

/// What the end of a killed worker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// A failure: it was killed because it did not become ready.
    Fail,
    /// It is wanted at once.
    Start,
    /// It is not wanted.
    Stop,
}

/// What happens to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is wanted: by the configuration, or by a person's restart, which also clears the budget.
    Want,
    /// It is not wanted any more.
    Stop,
    /// It said that it is ready.
    Ready,
    /// Its process ended, or could not be started.
    Exited,
    /// Time went by.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a process.
    Launch,
    /// Ask the process to drain.
    Drain,
    /// Kill the process.
    Kill,
    /// Tell that it failed, and what follows.
    Tell(Verdict),
}

impl Unit {
    /// Decides; performs nothing. `now` is monotonic.
    #[must_use]
    pub fn step(self, event: Event, now: Boot, rules: &Rules, budget: &mut Budget) -> (Self, Vec<Action>) {
        use Event as E;
        let start = || (Self::Starting { ready_by: now.plus(rules.start) }, vec![Action::Launch]);
        let drain = || (Self::Draining { kill_at: now.plus(rules.stop), again: false }, vec![Action::Drain]);
        match (self, event) {
            (Self::Down | Self::Stopped | Self::Waiting { .. } | Self::GaveUp { .. }, E::Want) => start(),
            (Self::Down | Self::Stopped | Self::Waiting { .. } | Self::GaveUp { .. }, E::Stop) => {
                (Self::Stopped, vec![])
            }
            (Self::Waiting { until } | Self::GaveUp { until }, E::Tick) if now >= until => start(),

            (Self::Starting { .. }, E::Ready) => {
                budget.runs();
                (Self::Up, vec![])
            }
            (Self::Starting { ready_by }, E::Tick) if now >= ready_by => {
                (Self::Killed { then: Then::Fail }, vec![Action::Kill])
            }
            (Self::Starting { .. } | Self::Up, E::Exited) => Self::failed(now, budget),
            (Self::Starting { .. } | Self::Up, E::Stop) => drain(),

            (Self::Draining { kill_at, .. }, E::Want) => (Self::Draining { kill_at, again: true }, vec![]),
            (Self::Draining { kill_at, .. }, E::Stop) => (Self::Draining { kill_at, again: false }, vec![]),
            (Self::Draining { again: true, .. }, E::Exited) => start(),
            (Self::Draining { again: false, .. }, E::Exited) => (Self::Stopped, vec![]),
            (Self::Draining { kill_at, again }, E::Tick) if now >= kill_at => {
                (Self::Killed { then: if again { Then::Start } else { Then::Stop } }, vec![Action::Kill])
            }

            (Self::Killed { then: Then::Fail }, E::Exited) => Self::failed(now, budget),
            (Self::Killed { then: Then::Start }, E::Exited) => start(),
            (Self::Killed { then: Then::Stop }, E::Exited) => (Self::Stopped, vec![]),
            (Self::Killed { then: Then::Stop }, E::Want) => (Self::Killed { then: Then::Start }, vec![]),
            (Self::Killed { .. }, E::Stop) => (Self::Killed { then: Then::Stop }, vec![]),

            // What has no meaning in a state leaves it as it is: the word of a process that is already on its way out, the
            // end of one that was never there, a wish that is already met, a moment before the time.
            (Self::Down | Self::Stopped, E::Ready | E::Exited | E::Tick)
            | (Self::Waiting { .. } | Self::GaveUp { .. }, E::Ready | E::Exited | E::Tick)
            | (Self::Starting { .. }, E::Want | E::Tick)
            | (Self::Up, E::Want | E::Ready | E::Tick)
            | (Self::Draining { .. }, E::Ready | E::Tick)
            | (Self::Killed { .. }, E::Want | E::Ready | E::Tick) => (self, vec![]),
        }
    }

    fn failed(now: Boot, budget: &mut Budget) -> (Self, Vec<Action>) {
        let verdict = budget.fail(now);
        let next = match verdict {
            Verdict::Pause(pause) => Self::Waiting { until: now.plus(pause) },
            Verdict::GiveUp(cooldown) => Self::GaveUp { until: now.plus(cooldown) },
        };
        (next, vec![Action::Tell(verdict)])
    }

    /// When time alone changes something.
    #[must_use]
    pub fn deadline(self) -> Option<Boot> {
        match self {
            Self::Starting { ready_by } => Some(ready_by),
            Self::Draining { kill_at, .. } => Some(kill_at),
            Self::Waiting { until } | Self::GaveUp { until } => Some(until),
            Self::Down | Self::Up | Self::Killed { .. } | Self::Stopped => None,
        }
    }

    /// True when no process of it is left.
    #[must_use]
    pub fn is_gone(self) -> bool {
        match self {
            Self::Down | Self::Waiting { .. } | Self::GaveUp { .. } | Self::Stopped => true,
            Self::Starting { .. } | Self::Up | Self::Draining { .. } | Self::Killed { .. } => false,
        }
    }

    /// The word for status.
    #[must_use]
    pub fn state(self, budget: &Budget) -> WorkerState {
        match self {
            Self::Down => WorkerState::Missing,
            Self::Starting { .. } if budget.gave_up() => WorkerState::GaveUp,
            Self::Starting { .. } => WorkerState::Starting,
            Self::Up => WorkerState::Running,
            Self::Draining { .. } => WorkerState::Draining,
            Self::Killed { then: Then::Fail } | Self::Waiting { .. } => WorkerState::Failed,
            Self::Killed { .. } => WorkerState::Draining,
            Self::GaveUp { .. } => WorkerState::GaveUp,
            Self::Stopped => WorkerState::Stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;

    const RULES: Rules = Rules { start: Duration::from_secs(10), stop: Duration::from_secs(5) };

    /// Every state that any sequence of events reaches, with a process that exists exactly when one was launched and has
    /// not ended, keeps its promises.
    #[test]
    fn no_sequence_of_events_doubles_or_forgets_a_process() {
        #[derive(Clone, PartialEq, Eq, Hash)]
        struct World {
            unit: String,
            alive: bool,
            wanted: bool,
        }
        let mut queue = VecDeque::from([(Unit::Down, Budget::default(), false, false, 0_u64)]);
        let mut seen = HashSet::new();
        let mut explored = 0;
        while let Some((unit, budget, alive, wanted, depth)) = queue.pop_front() {
            for event in [Event::Want, Event::Stop, Event::Ready, Event::Exited, Event::Tick] {
                // Ready and Exited come from a living process only.
                if matches!(event, Event::Ready | Event::Exited) && !alive {
                    continue;
                }
                let mut budget = budget.clone();
                let now = Boot(Duration::from_secs(1000 * (depth + 1)));
                let (next, actions) = unit.step(event, now, &RULES, &mut budget);
                let mut alive = alive && event != Event::Exited;
                let wanted = match event {
                    Event::Want => true,
                    Event::Stop => false,
                    _ => wanted,
                };
                for action in actions {
                    match action {
                        Action::Launch => {
                            assert!(!alive, "{unit:?} {event:?} launches beside a living process");
                            assert!(wanted, "{unit:?} {event:?} launches what nobody wants");
                            alive = true;
                        }
                        Action::Drain | Action::Kill => assert!(alive, "{unit:?} {event:?} acts on nothing"),
                        Action::Tell(_) => {}
                    }
                }
                assert_eq!(alive, !next.is_gone(), "{unit:?} {event:?} → {next:?}");
                assert!(!(wanted && next == Unit::Stopped), "{unit:?} {event:?} forgets that it is wanted");
                explored += 1;
                let world =
                    World { unit: format!("{next:?}").split_whitespace().next().unwrap_or("").into(), alive, wanted };
                if depth < 9 && (seen.insert(world) || depth < 5) {
                    queue.push_back((next, budget, alive, wanted, depth + 1));
                }
            }
        }
        println!("worker machine: {explored} steps explored");
        assert!(explored > 500);
    }

    #[test]
    fn a_worker_that_is_not_ready_in_time_is_killed_and_counts_as_failed() {
        let mut budget = Budget::default();
        let at = |s| Boot(Duration::from_secs(s));
        let (unit, _) = Unit::Down.step(Event::Want, at(0), &RULES, &mut budget);
        let (unit, actions) = unit.step(Event::Tick, at(10), &RULES, &mut budget);
        assert_eq!(actions, [Action::Kill]);
        let (unit, actions) = unit.step(Event::Exited, at(10), &RULES, &mut budget);
        assert_eq!(unit.state(&budget), WorkerState::Failed);
        assert_eq!(actions, [Action::Tell(Verdict::Pause(Duration::from_millis(250)))]);
    }
}
