//! The instance: takes the lease's events, signals and wishes in turn, and leads, follows or drains accordingly.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Loaded, Manifest},
    errors::chain,
    lease::LeaseEvent,
    lifecycle::{
        drain::{Drain, DrainHook, Stage},
        notify::{Notifier, Word},
        parent,
        probes::{ProbeServer, ProbeState},
        signals::{Order, Signals},
    },
    memory,
    rpc::{api::ReloadReport, server::Server},
    status::Role,
    supervisor::{
        instance::{Instance, Leading, Wish},
        leader::{Leader, Start},
        listeners::{self, Http, LeaderListeners},
        reload::{Answer, Reloads, Reread, Stamp, between, told},
        setup::{self, SetupError},
    },
};

/// What a supervisor is started with.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The manifest's file, which a reload reads again.
    pub manifest_path: PathBuf,
    /// The file as it was before it was read.
    pub manifest_stamp: Stamp,
    /// This instance's id.
    pub instance: String,
    /// Journal, checkpoint, ids.
    pub state_dir: PathBuf,
    /// Lease, locks, sockets.
    pub run_dir: PathBuf,
    /// Where probes are answered.
    pub http: Http,
    /// Leave when this process is gone.
    pub exit_with_pid: Option<u32>,
    /// This build.
    pub build: String,
}

/// How a supervisor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was told to leave, and left in order.
    Drained,
    /// It was told to leave at once.
    Left,
    /// It lost its lease: all I/O has stopped, and the other instance takes over.
    Fenced(String),
    /// A critical part of it failed: it cannot go on, and the other instance takes over.
    Failed(String),
}

/// How often critical parts are looked at, and the watchdog is fed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs a supervisor to its end. What came to the signals' handlers before is obeyed.
///
/// # Errors
/// When it cannot start.
pub async fn run(options: RunOptions, loaded: Loaded, signals: Signals) -> Result<Ended, SetupError> {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let (wishes, wished) = mpsc::channel(16);
    let manifest = Arc::new(loaded.manifest);
    let ready = setup::prepare(&options, &manifest, wishes).await?;
    let notifier = Notifier::from_env();
    // Not at once: at the start there is more important work.
    let mut look = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let parent: BoxFuture<'static, ()> = match options.exit_with_pid {
        Some(pid) => Box::pin(parent::gone(pid)),
        None => Box::pin(std::future::pending()),
    };
    let supervisor = Supervisor {
        parent,
        events: ready.events,
        instance: ready.instance,
        inherited: ready.inherited,
        server: ready.server,
        probes: ready.probes,
        reloads: Reloads::of(options.manifest_path.clone()),
        options,
        manifest,
        notifier,
        look,
        leading: None,
        untidy: true,
    };
    supervisor.notifier.tell(&Word::Ready);
    Ok(supervisor.serve(signals, wished).await)
}

struct Supervisor {
    options: RunOptions,
    manifest: Arc<Manifest>,
    instance: Arc<Instance>,
    inherited: setup::Sockets,
    events: setup::LeaseEvents,
    parent: BoxFuture<'static, ()>,
    server: Server,
    probes: Option<ProbeServer>,
    reloads: Reloads,
    notifier: Notifier,
    look: Interval,
    leading: Option<(Leader, LeaderListeners)>,
    /// Something large was done with: its memory is given back when there is a moment.
    untidy: bool,
}

/// What comes next.
enum Next {
    Go,
    Drain,
    Leave(Ended),
    /// Drain, then end as failed.
    Fail(String),
}

impl Supervisor {
    async fn serve(mut self, mut signals: Signals, mut wished: mpsc::Receiver<Wish>) -> Ended {
        loop {
            let next = tokio::select! {
                order = signals.next() => match order {
                    Order::Drain | Order::EndWait => Next::Drain,
                    Order::Leave => Next::Leave(Ended::Left),
                    Order::Reload => {
                        self.reload(None);
                        Next::Go
                    }
                },
                event = self.events.recv() => self.lease_event(event).await,
                Some(wish) = wished.recv() => self.wish(wish).await,
                read = self.reloads.read() => {
                    self.reread(read).await;
                    Next::Go
                }
                () = &mut self.parent => {
                    tracing::info!("the process that this one was started with is gone");
                    Next::Drain
                }
                _ = self.look.tick() => self.look_around().await,
            };
            match next {
                Next::Go => {}
                Next::Drain => {
                    // Who wishes something from now on is told that the instance drains.
                    drop(wished);
                    return self.drain(signals).await;
                }
                Next::Leave(ended) => return ended,
                Next::Fail(why) => {
                    tracing::error!(why, "a critical part failed: draining, so that the other instance takes over");
                    drop(wished);
                    // How the drain went is in the log; that it had to be is what counts.
                    let _ = self.drain(signals).await;
                    return Ended::Failed(why);
                }
            }
        }
    }

    async fn look_around(&mut self) -> Next {
        if std::mem::take(&mut self.untidy) {
            memory::give_back();
        }
        if let Some(why) = self.leading.as_ref().and_then(|(leader, _)| leader.broken()) {
            return Next::Fail(why.to_owned());
        }
        self.mend_sockets().await;
        if self.notifier.watchdog_interval().is_some() {
            self.notifier.tell(&Word::Watchdog);
        }
        Next::Go
    }

    async fn mend_sockets(&mut self) {
        // Without the lease's own file it is for the lease to say how things stand.
        if !self.options.run_dir.join("lease.lock").exists() {
            return;
        }
        let Self { options, inherited, instance, server, probes, .. } = self;
        let gone = listeners::mend_own(options, inherited, instance, server, probes).await;
        if let Some((_, listeners)) = &mut self.leading {
            listeners.mend(&self.options, &self.instance).await;
        }
        // Whoever removed the sockets may have removed the registry as well.
        if gone && let Err(error) = self.instance.of.registry.set_role(&self.options.instance, self.instance.role()) {
            tracing::warn!(%error, "the registry of instances");
        }
    }

    async fn lease_event(&mut self, event: Option<LeaseEvent>) -> Next {
        match event {
            None => Next::Fail("the lease's thread ended".to_owned()),
            Some(LeaseEvent::Promoted { epoch, why }) => self.promote(epoch, why).await,
            Some(LeaseEvent::Following { leader }) => {
                let leader = leader.map(|l| format!("{} (pid {})", l.instance, l.pid));
                tracing::info!(leader, "following");
                if leader.is_some() {
                    self.instance.set_lease_trouble(None);
                }
                self.notifier.tell(&Word::Status("following".to_owned()));
                Next::Go
            }
            Some(LeaseEvent::Fenced { why } | LeaseEvent::Lost { why }) => {
                tracing::error!(why, "the lease is lost: all I/O has stopped, leaving");
                Next::Leave(Ended::Fenced(why))
            }
            Some(LeaseEvent::CannotFence { why }) => {
                tracing::error!(why, "nobody is seen to lead; staying follower");
                self.instance.notice(format!("nobody is seen to lead: {why}"));
                self.instance.set_lease_trouble(Some(why));
                Next::Go
            }
            Some(LeaseEvent::EpochNotReserved { why }) => {
                tracing::warn!(why, "the epoch's ceiling could not be written");
                self.instance.notice(format!("the epoch's ceiling could not be written: {why}"));
                Next::Go
            }
        }
    }

    async fn promote(&mut self, epoch: u64, why: String) -> Next {
        tracing::info!(epoch, why, "leading");
        self.instance.set_lease_trouble(None);
        let start = Start {
            instance: self.options.instance.clone(),
            build: self.options.build.clone(),
            run_dir: self.options.run_dir.clone(),
            state_dir: self.options.state_dir.clone(),
            epoch,
            why,
            fence: self.instance.of.lease.fence(),
            manifest: Arc::clone(&self.manifest),
        };
        let leader = match Leader::start(start).await {
            Ok(leader) => leader,
            Err(error) => return Next::Fail(format!("no journal: {}", chain(&error))),
        };
        self.instance.of.hub.reopen();
        self.instance.set_leading(Some(Leading { board: Arc::clone(&leader.board), journal: leader.journal.clone() }));
        let listeners = listeners::of_leader(&self.options, &self.inherited, &self.instance).await;
        self.leading = Some((leader, listeners));
        // What a restart would read. Only now, since a file that is being written is waited for, and leading is not.
        if Stamp::of(&self.options.manifest_path) != self.options.manifest_stamp {
            self.reload(None);
        }
        if let Err(error) = self.instance.of.registry.set_role(&self.options.instance, Role::Leader) {
            tracing::warn!(%error, "the registry of instances");
        }
        self.untidy = true;
        self.notifier.tell(&Word::Status(format!("leading, epoch {epoch}")));
        Next::Go
    }

    fn reload(&mut self, answer: Option<Answer>) {
        self.notifier.tell(&Word::reloading_now());
        self.reloads.ask(answer);
    }

    async fn wish(&mut self, wish: Wish) -> Next {
        match wish {
            Wish::Drain(answer) => {
                tracing::info!("asked to drain");
                let _ = answer.send(());
                // The answer goes out before its server stops.
                tokio::task::yield_now().await;
                Next::Drain
            }
            Wish::Reload(answer) => {
                self.reload(Some(answer));
                Next::Go
            }
            Wish::Restart(key, answer) => {
                let found = match &self.leading {
                    Some((leader, _)) => leader.restart(&key).await,
                    None => false,
                };
                let _ = answer.send(found);
                Next::Go
            }
        }
    }

    /// Puts a manifest that was read into force; one that was refused leaves the old one.
    async fn reread(&mut self, read: Reread) {
        let Reread { stamp, outcome, answers } = read;
        self.options.manifest_stamp = stamp;
        self.untidy = true;
        let report = match outcome {
            Ok(loaded) => Ok(self.put_into_force(loaded).await),
            Err(error) => {
                self.instance.notice(format!("{error}"));
                Err(error)
            }
        };
        for answer in answers {
            // Who has gone away meanwhile needs none.
            let _ = answer.send(report.clone());
        }
        self.notifier.tell(&Word::Ready);
    }

    async fn put_into_force(&mut self, loaded: Loaded) -> ReloadReport {
        let before = Arc::clone(&self.manifest);
        if loaded.manifest != *before {
            for warning in &loaded.warnings {
                tracing::warn!("{warning}");
            }
            self.manifest = Arc::new(loaded.manifest);
        }
        let mut report = match &mut self.leading {
            Some((leader, _)) => leader.apply(Arc::clone(&self.manifest)).await,
            None => between(&before, &self.manifest),
        };
        let s = &report.stations;
        let (added, removed, updated) = (s.added.len(), s.removed.len(), s.updated.len());
        tracing::info!(added, removed, updated, unchanged = s.unchanged, "manifest reloaded");
        for note in &report.notes {
            tracing::warn!("reload: {note}");
        }
        // Logged above, where the manifest is another one.
        report.notes.extend(told(&loaded.warnings));
        report
    }

    /// Leaves in order; see the stages. Its own socket and its probes answer that it drains until the very end.
    async fn drain(mut self, mut signals: Signals) -> Ended {
        signals.drain_began();
        self.instance.set_draining();
        self.notifier.tell(&Word::Stopping);
        let within = self.manifest.lifecycle.drain_timeout;
        let mut drain = Drain::new();
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let unwritten = Arc::new(AtomicU64::new(0));
        let server = self.server;
        drain.add(DrainHook::new(Stage::Files, "the instance's socket", move |_| async move {
            server.drain(Drain::LAST).await;
        }));
        if let Some((leader, listeners)) = self.leading.take() {
            let (pool, journal) = leader.into_parts();
            let hub = self.instance.of.hub.clone();
            drain.add(DrainHook::new(Stage::StopAccepting, "the leader's listeners", move |until| async move {
                hub.close();
                listeners.close(left(until).min(Duration::from_secs(2))).await;
            }));
            drain.add(DrainHook::new(Stage::Workers, "workers", move |until| async move {
                let killed = pool.drain(left(until)).await;
                if !killed.is_empty() {
                    tracing::warn!(workers = killed.join(", "), "workers that did not leave by themselves");
                }
            }));
            let unwritten = Arc::clone(&unwritten);
            drain.add(DrainHook::new(Stage::Upstream, "journal", move |until| async move {
                let closed = tokio::task::spawn_blocking(move || journal.close(left(until))).await;
                if let Ok(report) = closed
                    && report.unwritten > 0
                {
                    unwritten.store(report.unwritten, Ordering::Relaxed);
                    tracing::error!(
                        unwritten = report.unwritten,
                        "the disk did not take these readings; what the workers hold of them waits in the run folder"
                    );
                }
            }));
        }
        let instance = Arc::clone(&self.instance);
        let id = self.options.instance.clone();
        drain.add(DrainHook::new(Stage::Locks, "lease", move |_| async move {
            if let Err(error) = instance.of.lease.release("drained").await {
                tracing::error!(%error, "the lease");
            }
            let removed = tokio::task::spawn_blocking(move || instance.of.registry.remove(&id)).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "the registry of instances");
            }
        }));
        let hurry = CancellationToken::new();
        let drained = drain.run(within, hurry.clone());
        tokio::pin!(drained);
        let report = loop {
            tokio::select! {
                report = &mut drained => break report,
                order = signals.next() => match order {
                    Order::EndWait => hurry.cancel(),
                    Order::Leave => return Ended::Left,
                    Order::Drain | Order::Reload => {}
                },
            }
        };
        if let Some(probes) = self.probes.take() {
            let _ = tokio::time::timeout(Duration::from_millis(200), probes.stop()).await;
        }
        match unwritten.load(Ordering::Relaxed) {
            0 if report.is_clean() => Ended::Drained,
            // A person ended the wait, and got what was asked for.
            0 if hurry.is_cancelled() => Ended::Left,
            0 => Ended::Failed(format!("the drain's time was over before its work: {}", report.held.join(", "))),
            unwritten => Ended::Failed(format!("the disk did not take {unwritten} readings")),
        }
    }
}
