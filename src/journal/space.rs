//! Which segments go to make room. Pure.

use std::{collections::VecDeque, time::Duration};

use super::{queue::Overflow, segment::SegmentInfo};
use crate::clock::Wall;

/// The bounds of the journal's space.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) max_bytes: u64,
    pub(super) max_age: Duration,
    pub(super) overflow: Overflow,
}

/// More segments than this are over the bounds whatever their size: each costs a block and a name.
const MOST_SEGMENTS: usize = 4096;

/// A time before 2020 is that of a clock that was not set: such a segment's age is not known.
const CLOCK_SET: Wall = Wall(1_577_836_800_000_000);

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is room.
    Enough,
    /// The oldest segment goes; with it the unsent records of this range.
    Remove { unsent: Option<(u64, u64)> },
    /// There is no room, and what is there may not go.
    Blocked,
}

/// Decides on the oldest of the sealed segments. `after` is the first number behind them, `total` the bytes of all
/// segments with what is about to be written, `retain_from` the first record that an uplink still waits for.
pub(super) fn choose(
    sealed: &VecDeque<SegmentInfo>,
    after: u64,
    total: u64,
    retain_from: Option<u64>,
    bounds: &Bounds,
    now: Wall,
) -> Choice {
    let full = total > bounds.max_bytes || sealed.len() >= MOST_SEGMENTS;
    let Some(oldest) = sealed.front() else { return Choice::Enough };
    let max_age = i64::try_from(bounds.max_age.as_micros()).unwrap_or(i64::MAX);
    let old = oldest.modified >= CLOCK_SET && now.0.saturating_sub(oldest.modified.0) > max_age;
    if !full && !old {
        return Choice::Enough;
    }
    let end = sealed.get(1).map_or(after, |next| next.id.first_seq);
    let unsent = retain_from.map(|from| (from.max(oldest.id.first_seq), end.saturating_sub(1))).filter(|(a, b)| a <= b);
    match (unsent, bounds.overflow) {
        (None, _) | (Some(_), Overflow::DropOldest) => Choice::Remove { unsent },
        (Some(_), Overflow::StopPolling) if full => Choice::Blocked,
        (Some(_), Overflow::StopPolling) => Choice::Enough,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::segment::SegmentId;

    const NOW: Wall = Wall(1_796_040_000_000_000);

    fn sealed() -> VecDeque<SegmentInfo> {
        [1, 101, 201]
            .map(|first_seq| SegmentInfo {
                id: SegmentId { first_seq, epoch: 1, attempt: 0 },
                bytes: 100,
                modified: NOW,
            })
            .into()
    }

    fn bounds(overflow: Overflow) -> Bounds {
        Bounds { max_bytes: 1000, max_age: Duration::from_secs(60), overflow }
    }

    #[test]
    fn sent_segments_go_first_and_unsent_ones_as_the_manifest_says() {
        let (drop, stop) = (bounds(Overflow::DropOldest), bounds(Overflow::StopPolling));
        let table = [
            (1000, None, &drop, Choice::Enough),
            (1001, None, &drop, Choice::Remove { unsent: None }),
            (1001, Some(101), &stop, Choice::Remove { unsent: None }),
            (1001, Some(100), &stop, Choice::Blocked),
            (1001, Some(51), &drop, Choice::Remove { unsent: Some((51, 100)) }),
            (1000, Some(51), &stop, Choice::Enough),
        ];
        for (total, retain, bounds, wanted) in table {
            assert_eq!(choose(&sealed(), 301, total, retain, bounds, NOW), wanted, "{total} {retain:?}");
        }
        assert_eq!(choose(&VecDeque::new(), 1, 5000, None, &drop, NOW), Choice::Enough);
    }

    #[test]
    fn old_segments_go_but_not_those_of_a_clock_that_was_not_set() {
        let drop = bounds(Overflow::DropOldest);
        let later = Wall(NOW.0 + 61_000_000);
        assert_eq!(choose(&sealed(), 301, 0, None, &drop, later), Choice::Remove { unsent: None });
        assert_eq!(choose(&sealed(), 301, 0, Some(1), &bounds(Overflow::StopPolling), later), Choice::Enough);
        let mut unset = sealed();
        unset[0].modified = Wall(3_600_000_000);
        assert_eq!(choose(&unset, 301, 0, None, &drop, later), Choice::Enough);
        assert_eq!(choose(&sealed(), 301, 0, None, &drop, Wall(0)), Choice::Enough);
    }
}
