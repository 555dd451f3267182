//! What a follower makes of a record that is not there.

use std::time::Duration;

use super::{
    machine::{Action, Event, Rules, Sight, State, step},
    record::tests::sample,
};
use crate::clock::Boot;

const RULES: Rules = Rules { ttl: Duration::from_millis(1_200) };

fn at(ms: u64) -> Boot {
    Boot(Duration::from_millis(100_000 + ms))
}

/// A follower that waits for the lock since 0 ms.
fn waits() -> State {
    step(State::start(at(0)), Event::Tick, at(0), &RULES).0
}

fn look(state: State, sight: Sight, now: Boot) -> (State, Option<Action>) {
    step(state, Event::Looked(sight), now, &RULES)
}

#[test]
fn a_record_that_is_missing_for_less_than_its_time_to_live_is_no_trouble() {
    let mut state = waits();
    // A leader makes it anew at each third; over and over, and never for a whole time to live.
    for round in 0..10 {
        let begin = round * 2_000;
        let fresh = Sight::Fresh(super::record::Record { renewed: at(begin), ttl: RULES.ttl, ..sample() });
        state = look(state, fresh, at(begin)).0;
        for ms in [100, 400, 700, 1_000, 1_299] {
            let (next, action) = look(state, Sight::Missing, at(begin + ms));
            state = next;
            assert!(!matches!(action, Some(Action::Report(_) | Action::ReportUnnamed(_))), "{action:?} after {ms} ms");
        }
    }
    let (state, action) = look(state, Sight::Missing, at(18_000 + 1_300));
    assert_eq!(action, Some(Action::ReportUnnamed("there is no record".to_owned())));
    assert_eq!(look(state, Sight::Missing, at(18_000 + 2_600)).1, None, "told twice");
}

#[test]
fn a_lock_that_cannot_be_had_is_told_as_that() {
    let (_, action) = step(waits(), Event::LockFailed("no such folder".to_owned()), at(10), &RULES);
    assert_eq!(action, Some(Action::Report("the lock that makes a leader cannot be had: no such folder".to_owned())));
}

#[test]
fn who_followed_a_leader_is_not_the_first_to_start_when_the_record_is_gone() {
    let fresh = Sight::Fresh(super::record::Record { renewed: at(0), ..sample() });
    let state = look(look(waits(), fresh, at(0)).0, Sight::Missing, at(300)).0;
    let (state, _) = step(state, Event::Locked { sight: Sight::Missing, epoch: 8 }, at(400), &RULES);
    let State::Taking { why, .. } = state else { panic!("{state:?}") };
    assert!(why.ends_with("died and its record is gone"), "{why}");
}
