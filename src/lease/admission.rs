//! Whether an instance that starts belongs to the pair that leads here.
//!
//! Who has the state folder and not the `lease.lock` of our run folder is no leader of ours: another pair was given the
//! same state folder by mistake. An instance that starts is refused then, since it could only ever wait. Two things look
//! the same for moments, and are waited for: a leader that was just killed, whose locks the kernel frees one after the
//! other, and one whose run folder was cleaned, who makes lock and record anew at its next renewal.

use std::{thread, time::Duration};

use super::{
    lock::{LeaderLock, Standing},
    machine::Sight,
    store::Store,
};
use crate::clock::{Boot, boot_id};

/// How long to look, at least, before another pair is found at fault.
const PATIENCE: Duration = Duration::from_secs(3);
/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(10);

/// What a look shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// Nothing speaks against it.
    Fine,
    /// It cannot be told yet; in the end nothing speaks against it.
    Unclear,
    /// A leader that is none of ours has the state folder.
    Foreign,
}

/// Looks until it is clear; false when another pair leads with our state folder.
pub(super) fn admitted(lock: &LeaderLock, store: &mut dyn Store, ttl: Duration) -> bool {
    let until = Boot::now().plus(PATIENCE.max(ttl / 2));
    loop {
        // A lock that cannot be asked for is told by whoever waits for it.
        let Ok(standing) = lock.standing() else { return true };
        let sight = Sight::of(store.read(), Boot::now(), boot_id());
        match judge(standing, &sight, |sight| sight.of_this_boot().is_some_and(|r| r.process.is_alive())) {
            Finding::Fine => return true,
            found if Boot::now() >= until => return found != Finding::Foreign,
            Finding::Unclear | Finding::Foreign => thread::sleep(PAUSE),
        }
    }
}

fn judge(standing: Standing, sight: &Sight, alive: impl Fn(&Sight) -> bool) -> Finding {
    match (standing, sight) {
        (Standing::Free, _) | (Standing::Lease, Sight::Fresh(_) | Sight::Stale(_)) => Finding::Fine,
        // Somebody else of this pair is looking just as we do, or starts to lead.
        (Standing::Lease, Sight::Missing | Sight::Unreadable(_) | Sight::OtherBoot(_) | Sight::Released(_)) => {
            Finding::Unclear
        }
        // Our own leader, if it lives: its lock file was removed.
        (Standing::State, Sight::Fresh(_) | Sight::Stale(_)) if alive(sight) => Finding::Unclear,
        (
            Standing::State,
            Sight::Missing
            | Sight::Unreadable(_)
            | Sight::OtherBoot(_)
            | Sight::Released(_)
            | Sight::Fresh(_)
            | Sight::Stale(_),
        ) => Finding::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::sample, *};

    #[test]
    fn only_a_leader_that_our_record_does_not_name_is_foreign() {
        let sights = [
            Sight::Missing,
            Sight::Unreadable("torn".to_owned()),
            Sight::OtherBoot(sample()),
            Sight::Released(sample()),
            Sight::Fresh(sample()),
            Sight::Stale(sample()),
        ];
        let row = |standing, alive| sights.each_ref().map(|sight| judge(standing, sight, |_| alive));
        use Finding::{Fine as O, Foreign as X, Unclear as W};
        assert_eq!(row(Standing::Free, true), [O, O, O, O, O, O]);
        assert_eq!(row(Standing::Lease, false), [W, W, W, W, O, O]);
        assert_eq!(row(Standing::State, true), [X, X, X, X, W, W]);
        assert_eq!(row(Standing::State, false), [X, X, X, X, X, X]);
    }
}
