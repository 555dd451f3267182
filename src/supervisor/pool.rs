//! Owns the workers and makes them match what is desired. One task owns all state and takes commands in turn; what is
//! decided about a worker is decided by [`Unit`].

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::sleep,
};

use crate::{
    clock::Boot,
    config::{
        model::{WorkerKey, WorkerPlan},
        timeouts::{self, DrainTimes},
    },
    errors::chain,
    journal::WriterHandle,
    status::WorkerStatus,
    supervisor::{
        board::Board,
        budget::Verdict,
        child::{Launch, LaunchError, Launched, in_words},
        desired::Desired,
        event,
        inherit::{self, Inheritance},
        link::{Link, News, Order},
        machine::{Action, Event, Rules, Unit},
        member::{Ending, Left, LinkHandle, Worker, new_session},
    },
    worker::spool,
};

/// What the pool works with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The device's run folder.
    pub run_dir: std::path::PathBuf,
    /// This build.
    pub build: String,
    /// This instance.
    pub instance: String,
    /// The epoch that it leads under.
    pub epoch: u64,
    /// What is known.
    pub board: Arc<Board>,
    /// What is recorded.
    pub journal: WriterHandle,
    /// How long a drain may take.
    pub times: DrainTimes,
}

impl Tools {
    fn rules(&self) -> Rules {
        Rules { start: timeouts::WORKER_START, stop: self.times.worker_stop_grace }
    }
}

/// What the pool is told.
#[derive(Debug)]
pub enum Command {
    /// Makes the workers match a manifest. Answered once every worker that was changed has it in force, or is known to
    /// start later; the answer lists what was refused.
    Apply(Arc<Desired>, oneshot::Sender<Vec<(String, String)>>),
    /// Starts a worker anew, its budget cleared.
    Restart(String, oneshot::Sender<bool>),
    /// The journal has committed readings of a worker's process.
    Committed(Vec<(u64, u64)>),
    /// Drains every worker. Answered when all are gone, with the keys of those that had to be killed.
    Drain(oneshot::Sender<Vec<String>>),
}

/// The pool's end of a conversation with its tasks.
#[derive(Debug)]
enum Inner {
    Launched { key: String, launch: u64, result: Result<Box<Launched>, LaunchError>, left: Left },
    Exited { key: String, launch: u64, how: String },
    News { key: String, launch: u64, news: News },
}

/// A running pool.
#[derive(Debug)]
pub struct Pool {
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
}

impl Pool {
    /// Starts a pool without workers.
    #[must_use]
    pub fn start(tools: Tools, inheritance: Inheritance) -> Self {
        let (commands, receive) = mpsc::unbounded_channel();
        let (say, heard) = mpsc::unbounded_channel();
        let owner =
            Owner { tools, say, workers: BTreeMap::new(), desired: None, inheritance, generation: 0, draining: None };
        Self { commands, task: tokio::spawn(owner.run(receive, heard)) }
    }

    /// Where commands go. Unbounded: commands come from people and from commits, of which there are five a second.
    #[must_use]
    pub fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    /// True when the pool's task has ended, which nobody asked for: a defect that ends the process.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.task.is_finished()
    }

    /// Drains every worker within a time. The keys of those that had to be killed or are left.
    pub async fn drain(self, within: Duration) -> Vec<String> {
        let (answer, done) = oneshot::channel();
        let _ = self.commands.send(Command::Drain(answer));
        let killed = tokio::time::timeout(within, done).await;
        self.task.abort();
        match killed {
            Ok(Ok(killed)) => killed,
            Ok(Err(_)) | Err(_) => vec!["(not all workers ended in time)".to_owned()],
        }
    }
}

struct Owner {
    tools: Tools,
    say: mpsc::UnboundedSender<Inner>,
    workers: BTreeMap<String, Worker>,
    desired: Option<Arc<Desired>>,
    inheritance: Inheritance,
    generation: u64,
    draining: Option<(oneshot::Sender<Vec<String>>, Vec<String>)>,
}

impl Owner {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>, mut heard: mpsc::UnboundedReceiver<Inner>) {
        loop {
            let pause = self.deadline().map_or(Duration::from_secs(3600), |d| d.since(Boot::now()));
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                Some(inner) = heard.recv() => self.heard(inner),
                () = sleep(pause) => {}
            }
            for key in self.workers.keys().cloned().collect::<Vec<_>>() {
                self.step(&key, Event::Tick);
            }
            if self.drained() {
                return;
            }
        }
    }

    fn deadline(&self) -> Option<Boot> {
        self.workers.values().filter_map(|w| w.unit.deadline()).min()
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Apply(desired, answer) => self.apply(desired, answer),
            Command::Restart(key, answer) => {
                let _ = answer.send(self.restart(&key));
            }
            Command::Committed(acks) => {
                for (source, up_to) in acks {
                    self.inheritance.committed(source, up_to);
                    if let Some(link) = self.workers.values().find(|w| w.launch == source).and_then(|w| w.link.as_ref())
                    {
                        link.committed.send_replace(up_to);
                    }
                }
            }
            Command::Drain(answer) => {
                self.draining = Some((answer, Vec::new()));
                for key in self.workers.keys().cloned().collect::<Vec<_>>() {
                    self.step(&key, Event::Stop);
                }
            }
        }
    }

    fn apply(&mut self, desired: Arc<Desired>, answer: oneshot::Sender<Vec<(String, String)>>) {
        if self.draining.is_some() {
            return;
        }
        let before = self.desired.replace(Arc::clone(&desired));
        self.generation += 1;
        let (waiting, refusals) = mpsc::unbounded_channel();
        let plans: BTreeMap<String, WorkerPlan> =
            desired.workers.iter().map(|p| (p.key.as_str().to_owned(), p.clone())).collect();
        for key in self.workers.keys().filter(|k| !plans.contains_key(*k)).cloned().collect::<Vec<_>>() {
            if let Some(worker) = self.workers.get_mut(&key) {
                worker.leaving = true;
            }
            self.step(&key, Event::Stop);
            self.forget_if_gone(&key);
        }
        for (key, plan) in plans {
            let changed = !before.as_deref().is_some_and(|b| same(b, &desired, &plan));
            let generation = self.generation;
            let worker = self.workers.entry(key.clone()).or_insert_with(|| Worker::new(plan.clone()));
            worker.leaving = false;
            worker.plan = plan;
            if changed {
                // Another configuration is another chance.
                worker.budget.clear();
                // A worker that has its first configuration and is not ready yet takes this one after it; one that is
                // still being launched is given what is desired then.
                if matches!(worker.unit, Unit::Starting { .. } | Unit::Up) && worker.link.is_some() {
                    worker.answers.push((generation, waiting.clone()));
                    worker.order(Order::Configure {
                        generation,
                        desired: Arc::clone(&desired),
                        plan: worker.plan.clone(),
                    });
                }
            }
            self.step(&key, Event::Want);
            self.publish(&key);
        }
        drop(waiting);
        if before.is_none() {
            self.take_over_the_rest();
        }
        tokio::spawn(collect(refusals, answer));
    }

    /// What was left behind by workers that are not started again: another isolation, or none at all by now.
    fn take_over_the_rest(&mut self) {
        for found in inherit::find(&self.tools.run_dir.join("workers"), None) {
            if !spool::key_of(&found.0).is_some_and(|key| self.workers.contains_key(key)) {
                self.inheritance.take(found, &self.tools.board, &self.tools.journal);
            }
        }
    }

    fn restart(&mut self, key: &str) -> bool {
        let Some(worker) = self.workers.get_mut(key) else { return false };
        worker.budget.clear();
        if !worker.unit.is_gone() {
            self.step(key, Event::Stop);
        }
        self.step(key, Event::Want);
        true
    }

    fn heard(&mut self, inner: Inner) {
        match inner {
            Inner::Launched { key, launch, result, left } => {
                if let Some((session, recorded)) = left.recorded {
                    self.inheritance.note(session, recorded);
                }
                for found in left.spools {
                    self.inheritance.take(found, &self.tools.board, &self.tools.journal);
                }
                if let Some((session, _)) = left.recorded {
                    self.inheritance.done_with(session);
                }
                self.launched(&key, launch, result);
            }
            Inner::Exited { key, launch, how } => self.exited(&key, launch, how),
            Inner::News { key, launch, news } => self.news(&key, launch, news),
        }
    }

    fn launched(&mut self, key: &str, launch: u64, result: Result<Box<Launched>, LaunchError>) {
        let Some(worker) = self.workers.get_mut(key).filter(|w| w.launch == launch) else { return };
        match result {
            Err(error) => {
                let how = chain(&error);
                self.exited(key, launch, how);
            }
            Ok(launched) => {
                let Launched { mut child, identity, stream } = *launched;
                if worker.kill_on_launch {
                    identity.kill();
                }
                let pid = identity.pid;
                worker.process = Some(identity);
                worker.restarts += u64::from(std::mem::replace(&mut worker.started, true));
                let say = self.say.clone();
                let name = key.to_owned();
                tokio::spawn(async move {
                    let how = match child.wait().await {
                        Ok(status) => in_words(status),
                        Err(e) => format!("could not be waited for: {e}"),
                    };
                    let _ = say.send(Inner::Exited { key: name, launch, how });
                });
                let plan = worker.plan.clone();
                let link = self.link(key, launch, stream);
                let generation = self.generation;
                if let Some(desired) = self.desired.clone() {
                    let _ = link.orders.try_send(Order::Configure { generation, desired, plan });
                }
                if let Some(worker) = self.workers.get_mut(key) {
                    worker.link = Some(link);
                    if matches!(worker.unit, Unit::Draining { .. }) {
                        worker.order(Order::Drain { within: self.tools.times.worker_drain });
                    }
                }
                tracing::info!(worker = key, pid, "worker launched");
                self.publish(key);
            }
        }
    }

    fn link(&self, key: &str, launch: u64, stream: tokio::net::UnixStream) -> LinkHandle {
        let (orders, receive) = mpsc::channel(16);
        let (committed, watch) = watch::channel(0);
        let recorded = Arc::new(AtomicU64::new(0));
        let link = Link {
            key: key.to_owned(),
            source: launch,
            build: self.tools.build.clone(),
            instance: self.tools.instance.clone(),
            epoch: self.tools.epoch,
            board: Arc::clone(&self.tools.board),
            journal: self.tools.journal.clone(),
            recorded: Arc::clone(&recorded),
            committed: watch,
            orders: receive,
        };
        let (say, name) = (self.say.clone(), key.to_owned());
        let tell = move |news| {
            let _ = say.send(Inner::News { key: name.clone(), launch, news });
        };
        LinkHandle { orders, committed, recorded, task: tokio::spawn(link.run(stream, tell)) }
    }

    fn exited(&mut self, key: &str, launch: u64, how: String) {
        let Some(worker) = self.workers.get_mut(key).filter(|w| w.launch == launch) else { return };
        if worker.process.take().is_some() {
            // The next launch makes its own; without one, nothing is to be left behind.
            let _ = std::fs::remove_file(self.tools.run_dir.join("workers").join(format!("{key}.sock")));
        }
        worker.kill_on_launch = false;
        worker.answers.clear();
        if let Some(link) = worker.link.take() {
            // What the worker sent before its end may still be in the socket: the link reads it and ends by itself.
            drop(link.orders);
            worker.ending = Some(Ending { session: launch, recorded: link.recorded, task: link.task });
        }
        let wanted = matches!(worker.unit, Unit::Starting { .. } | Unit::Up);
        let how = match worker.killed_because.take() {
            Some(why) => format!("{how}: {why}"),
            None => how,
        };
        worker.last_exit = Some(how.clone());
        if wanted {
            tracing::warn!(worker = key, how, "worker ended");
        } else {
            tracing::info!(worker = key, how, "worker ended");
        }
        self.record("worker_ended", key, &[("how", how.as_str().into()), ("wanted", wanted.into())]);
        self.tools.board.worker_lost(key, &format!("worker {how}"));
        self.step(key, Event::Exited);
        self.publish(key);
        self.forget_if_gone(key);
    }

    fn news(&mut self, key: &str, launch: u64, news: News) {
        let Some(worker) = self.workers.get_mut(key).filter(|w| w.launch == launch) else { return };
        match news {
            News::Configured { generation, refused } => {
                for (id, why) in &refused {
                    tracing::error!(worker = key, what = id, why, "the worker refused a part of its configuration");
                }
                for (_, waiting) in worker.answers.extract_if(.., |(g, _)| *g <= generation) {
                    for refusal in &refused {
                        let _ = waiting.send(refusal.clone());
                    }
                }
                if matches!(worker.unit, Unit::Starting { .. }) {
                    self.record("worker_ready", key, &[]);
                    self.step(key, Event::Ready);
                    self.publish(key);
                }
            }
            News::Drained { uncommitted } if uncommitted > 0 => {
                tracing::warn!(worker = key, uncommitted, "worker left with readings that were not committed");
            }
            News::Drained { .. } => {}
            News::Closed(why) => {
                // A worker without its socket leaves; one that does not is of no use.
                tracing::debug!(worker = key, why = why.as_deref(), "link closed");
                if matches!(worker.unit, Unit::Up | Unit::Starting { .. })
                    && let Some(process) = &worker.process
                {
                    worker.killed_because = why;
                    process.kill();
                }
            }
        }
    }

    fn step(&mut self, key: &str, event: Event) {
        let Some(worker) = self.workers.get_mut(key) else { return };
        let (next, actions) = worker.unit.step(event, Boot::now(), &self.tools.rules(), &mut worker.budget);
        let moved = next != worker.unit;
        worker.unit = next;
        for action in actions {
            self.act(key, action);
        }
        if moved {
            self.publish(key);
        }
    }

    fn act(&mut self, key: &str, action: Action) {
        let Some(worker) = self.workers.get_mut(key) else { return };
        match action {
            Action::Launch => {
                worker.launch = new_session();
                worker.kill_on_launch = false;
                let launch = Launch {
                    key: key.to_owned(),
                    protocol: worker.plan.protocol.to_owned(),
                    run_dir: self.tools.run_dir.clone(),
                };
                let ending = worker.ending.take();
                let (say, key, number) = (self.say.clone(), key.to_owned(), worker.launch);
                let dir = self.tools.run_dir.join("workers");
                tokio::spawn(async move {
                    let result = launch.go().await.map(Box::new);
                    // The earlier worker is gone by now: what it left is whole, and its link is at the end of its socket.
                    let recorded = match ending {
                        Some(ending) => Some(ending.settle().await),
                        None => None,
                    };
                    let of = key.clone();
                    let spools = tokio::task::spawn_blocking(move || inherit::find(&dir, Some(&of))).await;
                    let left = Left { recorded, spools: spools.unwrap_or_default() };
                    let _ = say.send(Inner::Launched { key, launch: number, result, left });
                });
            }
            Action::Drain => worker.order(Order::Drain { within: self.tools.times.worker_drain }),
            Action::Kill => {
                match &worker.process {
                    Some(process) => process.kill(),
                    None => worker.kill_on_launch = true,
                }
                tracing::warn!(worker = key, "worker did not obey in time and is killed");
                if let Some((_, killed)) = &mut self.draining {
                    killed.push(key.to_owned());
                }
            }
            Action::Tell(Verdict::Pause(pause)) => {
                tracing::info!(worker = key, pause_ms = pause.as_millis(), "worker starts again after a pause");
            }
            Action::Tell(Verdict::GiveUp(cooldown)) => {
                let minutes = cooldown.as_secs() / 60;
                tracing::error!(
                    worker = key,
                    minutes,
                    "worker failed too often: given up, tried once more after a cooldown"
                );
                self.record("worker_gave_up", key, &[("cooldown_s", cooldown.as_secs().into())]);
            }
        }
    }

    fn record(&self, event: &'static str, key: &str, more: &[(&'static str, serde_json::Value)]) {
        let fields = std::iter::once(("worker", key.into())).chain(more.iter().cloned());
        event::record(&self.tools.journal, event, fields);
    }

    fn publish(&self, key: &str) {
        let Some(worker) = self.workers.get(key) else { return };
        self.tools.board.set_worker(WorkerStatus {
            key: key.to_owned(),
            protocol: worker.plan.protocol.to_owned(),
            state: worker.unit.state(&worker.budget),
            pid: worker.process.as_ref().map(|p| p.pid),
            restarts: worker.restarts,
            last_exit: worker.last_exit.clone(),
            adopted: false,
            last_success: None,
            uncommitted: 0,
        });
    }

    fn forget_if_gone(&mut self, key: &str) {
        if self.workers.get(key).is_some_and(|w| w.leaving && w.unit.is_gone()) {
            self.workers.remove(key);
            let idle = self.desired.as_ref().map(|d| d.manifest.disabled_workers()).unwrap_or_default();
            self.tools.board.remove_worker(key, idle.iter().find(|k| k.as_str() == key));
        }
    }

    fn drained(&mut self) -> bool {
        if self.draining.is_none() || !self.workers.values().all(|w| w.unit.is_gone()) {
            return false;
        }
        if let Some((answer, killed)) = self.draining.take() {
            let _ = answer.send(killed);
        }
        true
    }
}

/// True when a worker runs the same under both.
fn same(before: &Desired, after: &Desired, plan: &WorkerPlan) -> bool {
    let find = |d: &Desired, key: &WorkerKey| d.workers.iter().find(|p| p.key == *key).cloned();
    let Some(old) = find(before, &plan.key) else { return false };
    let handles = |d: &Desired, p: &WorkerPlan| -> Vec<u32> {
        let ids = p.connections.iter().filter_map(|i| d.manifest.connections.get(*i));
        ids.flat_map(|c| &c.config.stations).map(|s| d.handle(&s.id)).collect()
    };
    before.connections(&old) == after.connections(plan) && handles(before, &old) == handles(after, plan)
}

/// Gathers what workers refused until each has answered or ended, at most for a while.
async fn collect(
    mut refusals: mpsc::UnboundedReceiver<(String, String)>,
    answer: oneshot::Sender<Vec<(String, String)>>,
) {
    let mut all = Vec::new();
    let _ = tokio::time::timeout(timeouts::WORKER_START, async {
        while let Some(refusal) = refusals.recv().await {
            all.push(refusal);
        }
    })
    .await;
    let _ = answer.send(all);
}
