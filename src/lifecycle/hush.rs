//! Log lines that a peer can cause as often as it likes: the first one at once, then one a minute with a count.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// From one line to the next of its kind.
pub const EVERY: Duration = Duration::from_secs(60);

/// One kind of line.
#[derive(Debug, Default)]
pub struct Hush(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    untold: u64,
}

impl Hush {
    /// It happened. Gives how many went by untold before it when it is to be told, and `None` when it is to be counted
    /// alone.
    pub fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < EVERY) {
            state.untold = state.untold.saturating_add(1);
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.untold))
    }

    /// To be asked now and then: how many went by untold, when it is time to tell. Without, the last of them would stay
    /// untold until it happens again.
    pub fn overdue(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.told.is_some_and(|told| now.saturating_duration_since(told) >= EVERY);
        if !due || state.untold == 0 {
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_and_then_a_count_a_minute() {
        let (hush, start) = (Hush::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(hush.overdue(at(0)), None);
        assert_eq!(hush.note(at(0)), Some(0), "the first at once");
        for _ in 0..3000 {
            assert_eq!(hush.note(at(1)), None);
        }
        assert_eq!(hush.overdue(at(59)), None);
        assert_eq!(hush.overdue(at(60)), Some(3000), "told though it has ended");
        assert_eq!(hush.overdue(at(120)), None, "nothing more");
        assert_eq!(hush.note(at(119)), None);
        assert_eq!(hush.note(at(121)), Some(1));
    }
}
