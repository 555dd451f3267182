//! The drain: hooks in the order of their stages, one deadline for all, and a word on how it ended.

use std::{future::Future, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// When a hook runs. Hooks of one stage run together; a stage begins when the one before has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Readiness is false; take nothing new.
    StopAccepting,
    /// Requests in flight.
    Requests,
    /// Background tasks.
    Background,
    /// Worker processes.
    Workers,
    /// Commit, and disconnect upstream.
    Upstream,
    /// Release locks. Runs even when the deadline has passed.
    Locks,
    /// Remove temporary files. Runs even when the deadline has passed.
    Files,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 7] = [
        Self::StopAccepting,
        Self::Requests,
        Self::Background,
        Self::Workers,
        Self::Upstream,
        Self::Locks,
        Self::Files,
    ];

    fn always_runs(self) -> bool {
        match self {
            Self::Locks | Self::Files => true,
            Self::StopAccepting | Self::Requests | Self::Background | Self::Workers | Self::Upstream => false,
        }
    }
}

/// One thing to end.
pub struct DrainHook {
    stage: Stage,
    name: String,
    run: Box<dyn FnOnce(Instant) -> BoxFuture<'static, ()> + Send>,
}

impl DrainHook {
    /// A hook. `run` is given the drain's deadline; its future is dropped when that passes.
    pub fn new<F, Fut>(stage: Stage, name: impl Into<String>, run: F) -> Self
    where
        F: FnOnce(Instant) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self { stage, name: name.into(), run: Box::new(move |until| Box::pin(run(until))) }
    }
}

/// How a drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainReport {
    /// The hooks that had not ended, in the order of their stages. Empty: clean.
    pub held: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl DrainReport {
    /// True when every hook ended by itself.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.held.is_empty()
    }
}

/// The hooks of a process.
#[derive(Default)]
pub struct Drain {
    hooks: Vec<DrainHook>,
}

impl Drain {
    /// What locks and files get once the deadline has passed.
    pub const LAST: Duration = Duration::from_millis(500);

    /// No hooks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook.
    pub fn add(&mut self, hook: DrainHook) {
        self.hooks.push(hook);
    }

    /// Runs the hooks, and logs how it ended. `hurry` ends the wait as the deadline does (a second signal).
    pub async fn run(self, within: Duration, hurry: CancellationToken) -> DrainReport {
        let begun = Instant::now();
        let until = begun + within;
        let mut held = Vec::new();
        let mut hooks = self.hooks;
        // Stable: hooks of one stage are named in the order in which they were added.
        hooks.sort_by_key(|h| h.stage);
        let mut hooks = hooks.into_iter().peekable();
        while let Some(stage) = hooks.peek().map(|h| h.stage) {
            let these: Vec<_> = std::iter::from_fn(|| hooks.next_if(|h| h.stage == stage)).collect();
            held.extend(run_stage(these, stage, until, &hurry).await);
        }
        let report = DrainReport { held, took: begun.elapsed() };
        let took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
        if report.is_clean() {
            tracing::info!(took_ms, "drained");
        } else {
            tracing::warn!(took_ms, held = report.held.join(", "), "the drain's wait ended before its work");
        }
        report
    }
}

/// Runs the hooks of one stage together and gives the names of those that did not end.
async fn run_stage(hooks: Vec<DrainHook>, stage: Stage, until: Instant, hurry: &CancellationToken) -> Vec<String> {
    let over = || hurry.is_cancelled() || Instant::now() >= until;
    if over() && !stage.always_runs() {
        return hooks.into_iter().map(|h| h.name).collect();
    }
    let mut names: Vec<Option<String>> = Vec::with_capacity(hooks.len());
    let mut running = FuturesUnordered::new();
    for (at, hook) in hooks.into_iter().enumerate() {
        names.push(Some(hook.name));
        let run = (hook.run)(until);
        running.push(async move {
            run.await;
            at
        });
    }
    let wait = async {
        tokio::select! {
            () = sleep_until(until) => {}
            () = hurry.cancelled() => {}
        }
        if stage.always_runs() {
            tokio::time::sleep(Drain::LAST).await;
        }
    };
    tokio::pin!(wait);
    loop {
        tokio::select! {
            biased;
            ended = running.next() => match ended {
                Some(at) => if let Some(name) = names.get_mut(at) { *name = None },
                None => break,
            },
            () = &mut wait => break,
        }
    }
    names.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::sleep;

    use super::*;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    fn hook(log: &Log, stage: Stage, name: &'static str, seconds: u64) -> DrainHook {
        let log = Arc::clone(log);
        DrainHook::new(stage, name, move |_| async move {
            sleep(Duration::from_secs(seconds)).await;
            log.lock().unwrap().push(name);
        })
    }

    fn drain(log: &Log) -> Drain {
        let mut drain = Drain::new();
        drain.add(hook(log, Stage::Locks, "lease", 0));
        drain.add(hook(log, Stage::Workers, "modbus", 3));
        drain.add(hook(log, Stage::Workers, "s7", 2));
        drain.add(hook(log, Stage::StopAccepting, "listener", 1));
        drain
    }

    #[tokio::test(start_paused = true)]
    async fn stages_run_in_order_and_hooks_of_one_together() {
        let log = Log::default();
        let report = drain(&log).run(Duration::from_secs(30), CancellationToken::new()).await;
        assert!(report.is_clean());
        assert_eq!(report.took, Duration::from_secs(4), "1 for the listener, then 3 for the slower worker");
        assert_eq!(*log.lock().unwrap(), ["listener", "s7", "modbus", "lease"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_deadline_holds_for_all_and_locks_are_released_after_it() {
        let log = Log::default();
        let mut all = drain(&log);
        all.add(hook(&log, Stage::Upstream, "uplink", 1));
        let report = all.run(Duration::from_millis(3500), CancellationToken::new()).await;
        assert_eq!(report.held, ["modbus", "uplink"]);
        assert_eq!(report.took, Duration::from_millis(3500));
        assert_eq!(*log.lock().unwrap(), ["listener", "s7", "lease"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_wait() {
        let log = Log::default();
        let hurry = CancellationToken::new();
        let later = hurry.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(1500)).await;
            later.cancel();
        });
        let report = drain(&log).run(Duration::from_secs(30), hurry).await;
        assert_eq!(report.held, ["modbus", "s7"]);
        assert_eq!(report.took, Duration::from_millis(1500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_never_ends_does_not_hold_the_last_stages_for_ever() {
        let mut drain = Drain::new();
        drain.add(DrainHook::new(Stage::Locks, "stuck", |_| std::future::pending()));
        let report = drain.run(Duration::from_secs(1), CancellationToken::new()).await;
        assert_eq!(report.held, ["stuck"]);
        assert_eq!(report.took, Duration::from_secs(1) + Drain::LAST);
    }
}
