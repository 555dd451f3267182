//! Lines for a pipe.

use super::*;
use crate::cli::demo::testing::view;

#[test]
fn the_summary_has_leader_stations_journal_and_a_taste_of_the_values() {
    let expected = "12.3 s  leader b epoch 2  stations 1/2 good  journal seq 1,234 readings 1,200  \
                    boiler.temperature 78.46 °C  pump.status 0";
    assert_eq!(summary(&view()), expected);
}

#[test]
fn each_change_is_told_once() {
    let mut changes = Changes::default();
    let first = ["b leads under epoch 2", "station boiler is good", "station pump is backoff (timeout)"];
    assert_eq!(changes.of(&view()), first);
    assert!(changes.of(&view()).is_empty());
    let mut now = view();
    now.instances[0].word =
        now.instances[1].word.clone().map(|w| super::super::view::Word { role: Role::Follower, ..w });
    assert_eq!(changes.of(&now), ["a follows"]);
}

#[test]
fn a_new_leader_that_finds_all_as_it_was_is_the_only_news() {
    let mut changes = Changes::default();
    changes.of(&view());
    let mut gap = view();
    gap.instances[1].word = None;
    gap.status = None;
    assert_eq!(changes.of(&gap), ["nobody leads"]);
    let mut now = view();
    now.instances.swap(0, 1);
    now.instances[0].id = "a";
    assert_eq!(changes.of(&now), ["a leads under epoch 2"]);
}
