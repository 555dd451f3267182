//! A change of leaders that the demo brought about, as it is measured from outside. Pure: time is passed in.

use std::time::Duration;

use super::ledger::Ledger;
use crate::status::{Role, Status};

/// See the module. Times count from the kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    /// Which instance was killed.
    pub killed: &'static str,
    /// The epoch that it led under.
    pub epoch: u64,
    /// When, from the start of the demo.
    pub at: Duration,
    /// The new leader's first answer.
    pub answered: Option<Answered>,
    /// The first reading in the journal under a later epoch.
    pub first_reading: Option<Duration>,
}

/// A new leader's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Who.
    pub by: &'static str,
    /// Under which epoch.
    pub epoch: u64,
    /// How long after the kill.
    pub after: Duration,
}

impl Takeover {
    /// An instance has just been killed.
    #[must_use]
    pub fn begin(killed: &'static str, epoch: u64, at: Duration) -> Self {
        Self { killed, epoch, at, answered: None, first_reading: None }
    }

    /// Takes the word of an instance at `now`, from the start of the demo.
    pub fn heard(&mut self, id: &'static str, status: &Status, now: Duration) {
        // A late answer of the killed one has the old epoch, and counts for nothing.
        if self.answered.is_none() && status.role == Role::Leader && status.epoch > self.epoch {
            self.answered = Some(Answered { by: id, epoch: status.epoch, after: now.saturating_sub(self.at) });
        }
    }

    /// Takes the journal's word at `now`.
    pub fn journalled(&mut self, ledger: &Ledger, now: Duration) {
        if self.first_reading.is_none() && ledger.read_after(self.epoch).is_some() {
            self.first_reading = Some(now.saturating_sub(self.at));
        }
    }

    /// True when all that is measured closely has been seen.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.answered.is_some() && self.first_reading.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::testing::status;

    #[test]
    fn only_a_leader_under_a_later_epoch_is_an_answer_and_the_first_one_counts() {
        let mut takeover = Takeover::begin("a", 1, Duration::from_secs(10));
        let ms = |ms| Duration::from_millis(ms);
        takeover.heard("a", &Status { epoch: 1, ..status() }, ms(10_001));
        takeover.heard("b", &Status { role: Role::Follower, ..status() }, ms(10_002));
        assert_eq!(takeover.answered, None);
        takeover.heard("b", &status(), ms(10_009));
        takeover.heard("b", &status(), ms(10_500));
        assert_eq!(takeover.answered, Some(Answered { by: "b", epoch: 2, after: ms(9) }));
        assert!(!takeover.is_complete());
        let mut ledger = Ledger::default();
        ledger.feed(br#"{"seq":1,"epoch":1,"kind":"reading"}"#);
        takeover.journalled(&ledger, ms(10_050));
        assert_eq!(takeover.first_reading, None);
        ledger.feed(br#"{"seq":2,"epoch":2,"kind":"reading"}"#);
        takeover.journalled(&ledger, ms(10_104));
        assert_eq!(takeover.first_reading, Some(ms(104)));
        assert!(takeover.is_complete());
    }
}
