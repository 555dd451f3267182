//! The leader's own deadline, checked before each journal commit, device write and uplink message.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::clock::Boot;

/// Says whether this process may do I/O as the leader. Cheap to clone and to ask: two loads and the clock (vDSO).
#[derive(Clone, Default)]
pub struct Fence(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Nanoseconds of CLOCK_BOOTTIME; 0 closes the fence.
    until: AtomicU64,
    epoch: AtomicU64,
}

/// This process does not lead, or no longer knows that it does: no I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this instance does not hold the lease; nothing is written")]
pub struct Fenced;

impl Fence {
    /// A fence that is closed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The epoch to do I/O under.
    ///
    /// # Errors
    /// [`Fenced`] before the promotion, after a release, and from 2/3 of the time to live after the last renewal on.
    pub fn check(&self) -> Result<u64, Fenced> {
        self.check_at(Boot::now())
    }

    fn check_at(&self, now: Boot) -> Result<u64, Fenced> {
        if nanos(now) < self.0.until.load(Ordering::Acquire) {
            Ok(self.0.epoch.load(Ordering::Acquire))
        } else {
            Err(Fenced)
        }
    }

    pub(super) fn open(&self, epoch: u64, until: Boot) {
        // The epoch first: whoever sees the new deadline sees the new epoch too.
        self.0.epoch.store(epoch, Ordering::Release);
        self.extend(until);
    }

    pub(super) fn extend(&self, until: Boot) {
        self.0.until.store(nanos(until), Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.0.until.store(0, Ordering::Release);
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&self.check()).finish()
    }
}

fn nanos(at: Boot) -> u64 {
    u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fence_is_open_from_promotion_to_its_deadline_or_release() {
        let fence = Fence::new();
        let at = |s| Boot(Duration::from_secs(s));
        assert_eq!(fence.check_at(at(1)), Err(Fenced));
        fence.open(7, at(10));
        assert_eq!(fence.clone().check_at(at(9)), Ok(7));
        assert_eq!(fence.check_at(at(10)), Err(Fenced));
        fence.extend(at(20));
        assert_eq!(fence.check_at(at(10)), Ok(7));
        fence.close();
        assert_eq!(fence.check_at(at(10)), Err(Fenced));
    }
}
