//! The law of the restart budget: a pause that doubles per failure, and after too many failures a long cooldown, since
//! nobody visits the cabinet.

#![deny(clippy::disallowed_methods)]

use std::{collections::VecDeque, time::Duration};

use crate::{
    clock::Boot,
    config::timeouts::{
        RESTART_COOLDOWN as COOLDOWN, RESTART_LIMIT, RESTART_PAUSE as PAUSE_FIRST, RESTART_PAUSE_MAX as PAUSE_MAX,
        RESTART_WINDOW as WINDOW,
    },
};

const MAX_FAILURES: usize = RESTART_LIMIT as usize;

/// What a failure leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Start again after the pause.
    Pause(Duration),
    /// Given up; try once more after the cooldown.
    GiveUp(Duration),
}

/// The failures of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    failures: VecDeque<Boot>,
    gave_up: bool,
}

impl Budget {
    /// Counts a failure and says what follows.
    pub fn fail(&mut self, now: Boot) -> Verdict {
        while self.failures.front().is_some_and(|f| now.since(*f) > WINDOW) {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        // One more than the limit decides; older ones are of no use.
        if self.failures.len() > MAX_FAILURES + 1 {
            self.failures.pop_front();
        }
        if self.gave_up || self.failures.len() > MAX_FAILURES {
            self.gave_up = true;
            return Verdict::GiveUp(COOLDOWN);
        }
        let doublings = u32::try_from(self.failures.len() - 1).unwrap_or(u32::MAX).min(16);
        Verdict::Pause(PAUSE_FIRST.saturating_mul(1 << doublings).min(PAUSE_MAX))
    }

    /// The unit runs: it is no longer given up, though its failures still count.
    pub fn runs(&mut self) {
        self.gave_up = false;
    }

    /// A person, or another configuration, wipes the slate.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the unit was given up and has not run since.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(s: u64) -> Boot {
        Boot(Duration::from_secs(s))
    }

    #[test]
    fn pauses_double_and_the_sixth_failure_within_the_window_gives_up() {
        let mut b = Budget::default();
        let pauses: Vec<Verdict> = (0..6).map(|i| b.fail(at(i))).collect();
        let ms = |n| Verdict::Pause(Duration::from_millis(n));
        assert_eq!(pauses, [ms(250), ms(500), ms(1000), ms(2000), ms(4000), Verdict::GiveUp(COOLDOWN)]);
        assert!(b.gave_up());
    }

    #[test]
    fn a_crash_outside_the_window_does_not_count() {
        let mut b = Budget::default();
        for i in 0..20 {
            assert_eq!(b.fail(at(i * 901)), Verdict::Pause(PAUSE_FIRST));
        }
    }

    #[test]
    fn a_unit_given_up_is_tried_once_a_cooldown_until_it_runs() {
        let mut b = Budget::default();
        for i in 0..6 {
            b.fail(at(i));
        }
        assert_eq!(b.fail(at(2000)), Verdict::GiveUp(COOLDOWN));
        b.runs();
        assert_eq!(b.fail(at(4000)), Verdict::Pause(PAUSE_FIRST));
    }

    proptest! {
        #[test]
        fn never_gives_up_within_the_budget_and_no_pause_exceeds_its_cap(gaps in prop::collection::vec(0_u64..600, 0..60)) {
            let mut b = Budget::default();
            let (mut now, mut all) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                all.push(now);
                let within = all.iter().filter(|f| now - **f <= WINDOW.as_secs()).count();
                match b.fail(at(now)) {
                    Verdict::Pause(p) => {
                        prop_assert!(p >= PAUSE_FIRST && p <= PAUSE_MAX);
                        prop_assert!(within <= MAX_FAILURES);
                    }
                    Verdict::GiveUp(_) => {
                        prop_assert!(within > MAX_FAILURES);
                        b.runs();
                    }
                }
            }
        }
    }
}
