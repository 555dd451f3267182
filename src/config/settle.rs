//! When a file that is reloaded counts as whole. Half of a TOML file is often a valid one by itself, so that its text
//! cannot tell: only that nobody goes on writing it can.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

/// A file that was left alone for this long is whole.
pub const LEFT_ALONE: Duration = Duration::from_secs(1);
/// A file that is still being written after this time is not waited for any longer. A reload is answered within 8 s, and
/// the workers have their share of these.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// So often the file is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What tells one state of a file from another.
pub type Stamp = (u64, u64, i64, i64, u64);

/// The stamp of a file.
#[must_use]
pub fn stamp(meta: &Metadata) -> Stamp {
    (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size())
}

/// What to do about a file now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is whole: read it.
    Whole,
    /// Look again later.
    Wait,
    /// It keeps changing, and patience is at its end.
    Never,
}

/// Watches the states of a file. Pure: times are passed in.
#[derive(Debug, Default)]
pub struct Watch {
    /// The last state, since when it was seen, and how old it was then.
    last: Option<(Stamp, Duration, Duration)>,
}

impl Watch {
    /// Takes what was seen of the file at `now`, counted from the begin of the watch by a clock that does not jump.
    /// `age` is that of its last change by the wall clock; a change in the future says that the clock was set, and
    /// then only what was seen counts.
    pub fn look(&mut self, stamp: Stamp, age: Option<Duration>, now: Duration) -> Settled {
        let (since, age) = match self.last {
            Some((last, since, age)) if last == stamp => (since, age),
            // Once it was seen to change, the wall clock has nothing more to say.
            Some(_) => (now, Duration::ZERO),
            None => (now, age.unwrap_or_default()),
        };
        self.last = Some((stamp, since, age));
        if age.saturating_add(now.saturating_sub(since)) >= LEFT_ALONE {
            Settled::Whole
        } else if now >= PATIENCE {
            Settled::Never
        } else {
            Settled::Wait
        }
    }
}

/// Waits for one file.
pub struct Waiting {
    start: Instant,
    watch: Watch,
}

impl Waiting {
    /// Begins; the patience counts from here.
    #[must_use]
    pub fn begin() -> Self {
        Self { start: Instant::now(), watch: Watch::default() }
    }

    /// Blocks until the file is whole, and gives the state in which it is. `None` when it kept changing for as long as
    /// anybody waits.
    ///
    /// # Errors
    /// When the file cannot be looked at.
    pub fn wait(&mut self, path: &Path) -> io::Result<Option<Stamp>> {
        loop {
            let meta = fs::metadata(path)?;
            let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            match self.watch.look(stamp(&meta), age, self.start.elapsed()) {
                Settled::Whole => return Ok(Some(stamp(&meta))),
                Settled::Never => return Ok(None),
                Settled::Wait => thread::sleep(LOOK_EVERY),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Option<Duration> = Some(Duration::from_secs(1));
    const FRESH: Option<Duration> = Some(Duration::from_millis(200));

    fn at(state: u64) -> Stamp {
        (1, 1, 0, 0, state)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_old_file_is_taken_at_once_and_a_fresh_one_once_it_is_old() {
        assert_eq!(Watch::default().look(at(1), OLD, ms(0)), Settled::Whole);
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(1), FRESH, ms(0)), Settled::Wait);
        assert_eq!(watch.look(at(1), FRESH, ms(799)), Settled::Wait);
        assert_eq!(watch.look(at(1), FRESH, ms(800)), Settled::Whole);
    }

    #[test]
    fn each_change_starts_the_wait_anew_whatever_the_wall_clock_says() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(1), FRESH, ms(0)), Settled::Wait);
        assert_eq!(watch.look(at(2), OLD, ms(500)), Settled::Wait);
        assert_eq!(watch.look(at(2), OLD, ms(1499)), Settled::Wait);
        assert_eq!(watch.look(at(2), None, ms(1500)), Settled::Whole);
    }

    #[test]
    fn a_change_in_the_future_is_waited_for_no_longer_than_any_other() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(1), None, ms(0)), Settled::Wait);
        assert_eq!(watch.look(at(1), None, ms(1000)), Settled::Whole);
    }

    #[test]
    fn a_file_that_changes_without_end_is_given_up() {
        let mut watch = Watch::default();
        for i in 0..30 {
            assert_eq!(watch.look(at(i), FRESH, ms(100 * i)), Settled::Wait);
        }
        assert_eq!(watch.look(at(30), FRESH, ms(3000)), Settled::Never);
    }
}
