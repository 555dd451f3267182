//! The one table of supervision's times, and the order that they must keep: each timeout is above the sum of those that
//! it waits for. Pure.

use std::time::Duration;

/// A worker that was launched says that it is ready within this time, or has failed.
pub const WORKER_START: Duration = Duration::from_secs(10);
/// A worker sends something once a second; one that is silent for this long hangs, and is killed and started again. Longer
/// than a stop of ten seconds, which a worker is to survive.
pub const WORKER_SILENCE: Duration = Duration::from_secs(20);
/// The service manager's `TimeoutStopSec`: what still runs then is killed.
pub const SERVICE_STOP: Duration = Duration::from_secs(90);
/// A worker whose supervisor stays lost leaves after this time; after two of them with work in hand.
pub const ORPHAN_WINDOW: Duration = Duration::from_secs(5 * 60);
/// A lost peer of a pair without a service manager is started again within this time.
pub const PEER_RELAUNCH: Duration = Duration::from_secs(60);
/// A quiesced worker opens its gate by itself after this time.
pub const QUIESCE_HOLD: Duration = Duration::from_secs(30);
/// A worker answers a request to quiesce within this time.
pub const QUIESCE_ANSWER: Duration = Duration::from_secs(5);
/// A worker with work records that anew so often.
pub const BUSY_REFRESH: Duration = Duration::from_secs(5 * 60);
/// A record of work counts for this long.
pub const BUSY_EVIDENCE: Duration = Duration::from_secs(25 * 60);
/// Wall clocks across a boot differ by no more than this.
pub const BUSY_SKEW: Duration = Duration::from_secs(2 * 60);
/// Failures within this time count together.
pub const RESTART_WINDOW: Duration = Duration::from_secs(15 * 60);
/// More failures than this within the window, and a worker is given up.
pub const RESTART_LIMIT: u32 = 5;
/// The pause after a first failure; it doubles with each further one in the window.
pub const RESTART_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);
/// What was given up is tried once more after this time.
pub const RESTART_COOLDOWN: Duration = Duration::from_secs(15 * 60);
/// A worker with nothing enabled asks to be stopped after this time.
pub const IDLE_EVICTION: Duration = Duration::from_secs(10 * 60);
/// The default of `[lifecycle] drain_timeout_ms`.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The service manager's stop is above the supervisor's drain by at least this.
pub const SERVICE_MARGIN: Duration = Duration::from_secs(5);

/// The times of a drain, from the innermost. Derived from the whole, so that a short drain shortens each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainTimes {
    /// From the word to a worker to the end of its work.
    pub worker_drain: Duration,
    /// From the word to a worker to the signal that ends it.
    pub worker_stop_grace: Duration,
    /// From the supervisor's signal to its exit.
    pub supervisor_drain: Duration,
}

impl DrainTimes {
    /// The times that fit into a supervisor's drain.
    #[must_use]
    pub fn within(supervisor_drain: Duration) -> Self {
        let margin = (supervisor_drain / 10).clamp(Duration::from_millis(50), Duration::from_secs(2));
        let worker_stop_grace = supervisor_drain.saturating_sub(margin);
        Self { worker_drain: worker_stop_grace.saturating_sub(margin), worker_stop_grace, supervisor_drain }
    }
}

/// Two times of which the second must be above the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What must end first.
    pub lower: (&'static str, Duration),
    /// What waits for it.
    pub upper: (&'static str, Duration),
}

impl Order {
    /// True when it is kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.lower.1 < self.upper.1
    }

    /// The rule in words: which must be above which.
    #[must_use]
    pub fn words(&self) -> String {
        let ((lower, a), (upper, b)) = (self.lower, self.upper);
        format!("the {upper} ({}) must be above the {lower} ({})", show(b), show(a))
    }
}

/// Every order that the settings of a manifest and the constants must keep.
#[must_use]
pub fn orders(drain_timeout: Duration, ttl: Duration, commit_interval: Duration) -> Vec<Order> {
    let drain = DrainTimes::within(drain_timeout);
    let order = |lower, a, upper, b| Order { lower: (lower, a), upper: (upper, b) };
    vec![
        order("journal's commit interval", commit_interval, "worker's drain", drain.worker_drain),
        order("worker's drain", drain.worker_drain, "worker's stop grace", drain.worker_stop_grace),
        order("worker's stop grace", drain.worker_stop_grace, "supervisor's drain", drain.supervisor_drain),
        order(
            "supervisor's drain with its margin",
            drain.supervisor_drain.saturating_add(SERVICE_MARGIN),
            "service manager's stop",
            SERVICE_STOP,
        ),
        order(
            "lease's time to live and the relaunch of a supervisor",
            ttl.saturating_add(PEER_RELAUNCH),
            "orphan window",
            ORPHAN_WINDOW,
        ),
        order("quiesce answer window", QUIESCE_ANSWER, "quiesce hold", QUIESCE_HOLD),
        order("refresh of busy evidence and the skew", BUSY_REFRESH + BUSY_SKEW, "busy evidence", BUSY_EVIDENCE),
        order("crash loop up to its give-up", crash_loop(), "restart window", RESTART_WINDOW),
    ]
}

/// How long the slowest crash loop takes to be given up: each launch runs into its start timeout.
fn crash_loop() -> Duration {
    (0..=RESTART_LIMIT).fold(Duration::ZERO, |sum, failure| {
        let pause = RESTART_PAUSE.saturating_mul(1 << failure).min(RESTART_PAUSE_MAX);
        sum + WORKER_START + pause
    })
}

/// A duration in words, to the millisecond.
#[must_use]
pub fn show(time: Duration) -> String {
    let millis = time.as_millis();
    if millis.is_multiple_of(1000) { format!("{} s", millis / 1000) } else { format!("{millis} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(drain_ms: u64, ttl_ms: u64, commit_ms: u64) -> Vec<String> {
        let ms = Duration::from_millis;
        let all = orders(ms(drain_ms), ms(ttl_ms), ms(commit_ms));
        all.iter().filter(|o| !o.holds()).map(Order::words).collect()
    }

    #[test]
    fn the_defaults_keep_every_order() {
        assert_eq!(broken(30_000, 3_000, 200), Vec::<String>::new());
        assert_eq!(broken(500, 300, 200), Vec::<String>::new());
        assert_eq!(broken(84_000, 60_000, 10_000), Vec::<String>::new());
    }

    #[test]
    fn a_drain_beyond_the_service_managers_patience_is_told() {
        let told = broken(85_000, 3_000, 200);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("the service manager's stop (90 s) must be above"), "{told:?}");
    }

    #[test]
    fn a_commit_that_outlasts_a_workers_drain_is_told() {
        assert_eq!(broken(1_000, 3_000, 5_000).len(), 1);
    }

    #[test]
    fn each_part_of_a_drain_fits_into_the_next_for_every_length() {
        for ms in (500..90_000).step_by(137) {
            let times = DrainTimes::within(Duration::from_millis(ms));
            assert!(times.worker_drain < times.worker_stop_grace && times.worker_stop_grace < times.supervisor_drain);
            assert!(times.worker_drain >= times.supervisor_drain / 2);
        }
    }
}
