//! When each station of a lane is polled. Pure: time is passed in.
//!
//! A station is due at the points of its own grid (start + n × interval). A lane polls one station at a time, the one that
//! has been due for longest. Ticks that pass while it cannot be polled (a long poll, a stopped process) are counted and
//! skipped, never made up for in a burst. A station that does not answer backs off alone: after two failed cycles it is
//! asked again after 1 s, doubling to 30 s.

#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use worker_contract::Slot;

use crate::clock::Boot;

/// So many cycles without any answer start the back-off.
pub const FAILED_CYCLES: u32 = 2;
/// The first pause of a back-off.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The longest pause of a back-off.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long a probe waits for its answer: a tenth of the pause before it, at most the station's own timeout. So a silent
/// station takes no more than a tenth of its lane's time from the others, and one that is slow to answer is heard again
/// once its pauses are long.
#[must_use]
pub fn probe_timeout(pause: Duration, timeout: Duration) -> Duration {
    timeout.min((pause / 10).max(PROBE_LEAST))
}

/// A probe waits at least this long.
pub const PROBE_LEAST: Duration = Duration::from_millis(50);

/// How a cycle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycle {
    /// The station answered at least once, be it a refusal.
    Answered,
    /// The station did not answer at all.
    Silent,
    /// It was not asked: the connection failed, which has a back-off of its own.
    NotAsked,
}

/// What a lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Poll the station. `missed` ticks were skipped before; a probe starts with one request and goes on only when that
    /// is answered.
    Poll {
        /// The station.
        slot: Slot,
        /// Ticks skipped.
        missed: u64,
        /// The pause that the station has just sat out in its back-off, if it is in one.
        probe: Option<Duration>,
        /// Whether it answered the last time it was asked: what is silent is not asked again within a cycle.
        lively: bool,
    },
    /// Nothing is due before.
    Wait(Boot),
    /// There is no station.
    Idle,
}

/// The stations of a lane.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    slot: Slot,
    interval: Duration,
    due: Boot,
    silent_cycles: u32,
}

impl Entry {
    fn backoff(&self) -> Option<Duration> {
        let beyond = self.silent_cycles.checked_sub(FAILED_CYCLES)?;
        Some(BACKOFF_FIRST.saturating_mul(1 << beyond.min(5)).min(BACKOFF_MAX))
    }
}

impl Schedule {
    /// Adds a station that is due at once.
    pub fn add(&mut self, slot: Slot, interval: Duration, now: Boot) {
        self.entries.push(Entry { slot, interval, due: now, silent_cycles: 0 });
    }

    /// Forgets a station.
    pub fn remove(&mut self, slot: Slot) {
        self.entries.retain(|e| e.slot != slot);
    }

    /// True without stations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What to do now. A poll that is handed out counts as begun: its next tick is already set, and the outcome is told
    /// by [`Schedule::finished`].
    pub fn next(&mut self, now: Boot) -> Step {
        let Some(entry) = self.entries.iter_mut().min_by_key(|e| e.due) else { return Step::Idle };
        if entry.due > now {
            return Step::Wait(entry.due);
        }
        let probe = entry.backoff();
        let missed = if probe.is_some() { 0 } else { skipped(now.since(entry.due), entry.interval) };
        // On the grid, so that a late poll does not shift those after it.
        let ticks = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        entry.due = if entry.interval.is_zero() || probe.is_some() {
            // A moment later than those that are due already, so that stations without an interval take turns.
            now.plus(entry.interval.max(Duration::from_nanos(1)))
        } else {
            entry.due.plus(entry.interval.saturating_mul(ticks))
        };
        Step::Poll { slot: entry.slot, missed, probe, lively: entry.silent_cycles == 0 }
    }

    /// Tells how the poll of a station ended. The back-off that is now in force, if any.
    pub fn finished(&mut self, slot: Slot, cycle: Cycle, now: Boot) -> Option<Duration> {
        let entry = self.entries.iter_mut().find(|e| e.slot == slot)?;
        match cycle {
            Cycle::Answered => entry.silent_cycles = 0,
            Cycle::Silent => entry.silent_cycles = entry.silent_cycles.saturating_add(1),
            Cycle::NotAsked => {}
        }
        let backoff = entry.backoff();
        if let Some(pause) = backoff {
            entry.due = now.plus(pause.max(entry.interval));
        }
        backoff
    }

    /// When the next station is due; `None` without stations.
    #[must_use]
    pub fn next_due(&self) -> Option<Boot> {
        self.entries.iter().map(|e| e.due).min()
    }

    /// Whether a station is due.
    #[must_use]
    pub fn is_due(&self, slot: Slot, now: Boot) -> bool {
        self.entries.iter().any(|e| e.slot == slot && e.due <= now)
    }

    /// Asks every station at once after an outage of the connection itself: their silence was the connection's.
    pub fn after_outage(&mut self, now: Boot) {
        for entry in &mut self.entries {
            entry.silent_cycles = 0;
            entry.due = entry.due.min(now);
        }
    }
}

fn skipped(late: Duration, interval: Duration) -> u64 {
    if interval.is_zero() {
        return 0;
    }
    u64::try_from(late.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Boot {
        Boot(Duration::from_millis(ms))
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn ten_seconds_of_standstill_cost_one_poll_and_are_counted() {
        let mut s = Schedule::default();
        s.add(1, ms(100), at(0));
        assert_eq!(s.next(at(0)), Step::Poll { slot: 1, missed: 0, probe: None, lively: true });
        assert_eq!(s.next(at(10)), Step::Wait(at(100)));
        assert_eq!(s.next(at(10_150)), Step::Poll { slot: 1, missed: 100, probe: None, lively: true });
        assert_eq!(s.next(at(10_151)), Step::Wait(at(10_200)));
    }

    #[test]
    fn the_grid_holds_when_polls_are_late() {
        let mut s = Schedule::default();
        s.add(1, ms(100), at(5));
        let mut polls = Vec::new();
        let mut now = 5;
        while now < 1005 {
            match s.next(at(now)) {
                Step::Poll { .. } => {
                    polls.push(now);
                    now += 7;
                }
                Step::Wait(until) => now = u64::try_from(until.0.as_millis()).unwrap() + 1,
                Step::Idle => unreachable!("there is a station"),
            }
        }
        assert_eq!(polls.len(), 10);
        assert_eq!(polls.last(), Some(&906));
    }

    #[test]
    fn a_silent_station_backs_off_alone_and_is_asked_once_a_step() {
        let mut s = Schedule::default();
        s.add(1, ms(1000), at(0));
        s.add(2, ms(1000), at(0));
        let (mut good, mut silent, mut now) = (0, Vec::new(), 0);
        while now < 120_000 {
            match s.next(at(now)) {
                Step::Poll { slot: 2, probe, .. } => {
                    silent.push((now, probe));
                    now += 300;
                    s.finished(2, Cycle::Silent, at(now));
                }
                Step::Poll { slot, .. } => {
                    good += 1;
                    now += 5;
                    s.finished(slot, Cycle::Answered, at(now));
                }
                Step::Wait(until) => now = u64::try_from(until.0.as_millis()).unwrap(),
                Step::Idle => unreachable!("there are stations"),
            }
        }
        assert!(good >= 115, "{good}");
        let gaps: Vec<u64> = silent.windows(2).map(|w| (w[1].0 - w[0].0 - 300 + 500) / 1000).collect();
        assert_eq!(gaps, [1, 1, 2, 4, 8, 16, 30, 30], "{silent:?}");
        assert!(silent.iter().skip(2).all(|(_, probe)| probe.is_some()));
    }

    #[test]
    fn a_probe_takes_a_tenth_of_the_pause_before_it_and_no_more_than_the_timeout() {
        let within = |pause, timeout| probe_timeout(ms(pause), ms(timeout));
        assert_eq!(within(1_000, 1_000), ms(100));
        assert_eq!(within(8_000, 1_000), ms(800));
        assert_eq!(within(30_000, 1_000), ms(1_000));
        assert_eq!(within(1_000, 80), ms(80));
        assert_eq!(within(100, 1_000), PROBE_LEAST);
    }

    #[test]
    fn an_answer_ends_the_back_off() {
        let mut s = Schedule::default();
        s.add(1, ms(100), at(0));
        for _ in 0..10 {
            s.finished(1, Cycle::Silent, at(0));
        }
        assert_eq!(s.next(at(30_000)), Step::Poll { slot: 1, missed: 0, probe: Some(BACKOFF_MAX), lively: false });
        assert_eq!(s.finished(1, Cycle::Answered, at(30_010)), None);
        assert_eq!(s.next(at(30_010)), Step::Wait(at(30_100)));
    }

    #[test]
    fn without_an_interval_stations_take_turns() {
        let mut s = Schedule::default();
        s.add(1, ms(0), at(0));
        s.add(2, ms(0), at(0));
        let mut turns = [0, 0];
        for now in 0..100 {
            if let Step::Poll { slot, missed: 0, .. } = s.next(at(now)) {
                turns[slot as usize - 1] += 1;
            }
        }
        assert_eq!(turns, [50, 50]);
    }
}
