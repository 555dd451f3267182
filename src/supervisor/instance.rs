//! What commands and probes see of an instance.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock::Wall,
    coordination::Registry,
    journal::WriterHandle,
    lease::Lease,
    lifecycle::{
        probes::ProbeState,
        readiness::{CriticalWorker, Health, Part, Readiness},
    },
    metrics::render::{JournalCounters, LeaseCounters, Snapshot, render},
    rpc::api::{self, Hub, Refusal, ReloadError, ReloadReport, Subscription, Topic},
    status::{JournalStatus, LatestReading, Role, StationState, Status, WorkerState},
    supervisor::board::Board,
};

/// Committed lines that wait for the hub; beyond that the oldest go, and are counted.
const FEED_BYTES: usize = 4 << 20;
/// Without lines, whether anybody still listens is looked at so often.
const FEED_LOOK: std::time::Duration = std::time::Duration::from_secs(5);

/// What somebody wants of the instance's task, with the way back for the answer.
#[derive(Debug)]
pub enum Wish {
    /// Begin the drain.
    Drain(oneshot::Sender<()>),
    /// Read the manifest again.
    Reload(oneshot::Sender<Result<ReloadReport, ReloadError>>),
    /// Restart a worker.
    Restart(String, oneshot::Sender<bool>),
}

/// What there is to see while the instance leads.
#[derive(Clone)]
pub struct Leading {
    /// Workers, stations, readings.
    pub board: Arc<Board>,
    /// The journal.
    pub journal: WriterHandle,
}

/// What an instance is made of.
pub struct Given {
    /// Its id.
    pub id: String,
    /// Its build.
    pub build: String,
    /// The device's identity upstream.
    pub node_id: String,
    /// Who is on this device.
    pub registry: Registry,
    /// The lease.
    pub lease: Lease,
    /// Journal lines for those who listen.
    pub hub: Hub,
    /// Where wishes go. Bounded: who finds it full is told that the instance is busy.
    pub wishes: mpsc::Sender<Wish>,
}

/// See the module.
pub struct Instance {
    /// What it is made of.
    pub of: Given,
    draining: AtomicBool,
    /// Whether a task passes committed lines on to the hub.
    feeding: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    leading: Option<Leading>,
    since: Wall,
    notices: Vec<String>,
    /// How the lease is, when not well.
    lease_trouble: Option<String>,
}

impl Instance {
    /// An instance that follows.
    #[must_use]
    pub fn new(of: Given) -> Self {
        let state = State { leading: None, since: Wall::now(), notices: Vec::new(), lease_trouble: None };
        Self { of, draining: AtomicBool::new(false), feeding: Arc::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It leads from now on, or leads no more.
    pub fn set_leading(&self, leading: Option<Leading>) {
        let mut state = self.state();
        state.since = Wall::now();
        state.leading = leading;
    }

    /// It drains from now on.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.state().since = Wall::now();
    }

    /// Tells people something in status; the last few words are kept.
    pub fn notice(&self, words: String) {
        const KEEP: usize = 16;
        let mut state = self.state();
        if state.notices.len() >= KEEP {
            state.notices.remove(0);
        }
        state.notices.push(format!("{}: {words}", Wall::now()));
    }

    /// Tells how the lease is; `None` when well.
    pub fn set_lease_trouble(&self, trouble: Option<String>) {
        self.state().lease_trouble = trouble;
    }

    fn leading(&self) -> Option<Leading> {
        self.state().leading.clone()
    }

    fn leading_or_refuse(&self) -> Result<Leading, Refusal> {
        self.leading().ok_or_else(|| Refusal::NotLeader { leader: self.leader_id() })
    }

    fn leader_id(&self) -> Option<String> {
        self.of.lease.view().leader.map(|l| l.instance)
    }

    fn wish<T: Send + 'static>(
        &self,
        make: impl FnOnce(oneshot::Sender<T>) -> Wish,
    ) -> BoxFuture<'static, Result<T, Refusal>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.of.wishes.try_send(make(answer));
        Box::pin(async move {
            let busy = || Refusal::Busy { what: "other requests are being carried out".to_owned() };
            sent.map_err(|e| match e {
                mpsc::error::TrySendError::Full(_) => busy(),
                mpsc::error::TrySendError::Closed(_) => Refusal::Draining,
            })?;
            answered.await.map_err(|_| Refusal::Draining)
        })
    }
}

impl api::Instance for Instance {
    fn status(&self) -> Status {
        let view = self.of.lease.view();
        let leading = self.leading();
        let (since, mut notices) = {
            let state = self.state();
            (state.since.to_string(), state.notices.clone())
        };
        let board = leading.as_ref().map(|l| &l.board);
        if let Some(lost) = board.map(|b| b.lost()).filter(|n| *n > 0) {
            notices.push(format!("{lost} readings were lost at the bound of the workers' memory"));
        }
        Status {
            instance: self.of.id.clone(),
            role: self.role(),
            node_id: self.of.node_id.clone(),
            epoch: view.epoch,
            build: self.of.build.clone(),
            since,
            instances: self.of.registry.list().unwrap_or_default(),
            workers: board.map(|b| b.workers()).unwrap_or_default(),
            stations: board.map(|b| b.stations()).unwrap_or_default(),
            journal: leading.as_ref().map(|l| journal_status(&l.journal)),
            uplinks: Vec::new(),
            alarms: Vec::new(),
            notices,
        }
    }

    fn lease(&self) -> Value {
        let view = self.of.lease.view();
        json!({
            "role": self.role().as_str(),
            "epoch": view.epoch,
            "leader": view.leader.map(|l| json!({ "instance": l.instance, "pid": l.pid, "build": l.build })),
            "renewals": view.renewals,
            "promotions": view.promotions,
            "fencings": view.fencings,
        })
    }

    fn latest(&self, station: Option<&str>) -> Result<Vec<LatestReading>, Refusal> {
        let unknown = || Refusal::Unknown { kind: "station".to_owned(), name: station.unwrap_or_default().to_owned() };
        self.leading_or_refuse()?.board.latest(station).ok_or_else(unknown)
    }

    fn drain(&self) -> BoxFuture<'static, Result<(), Refusal>> {
        self.wish(Wish::Drain)
    }

    fn reload(&self) -> BoxFuture<'static, Result<ReloadReport, ReloadError>> {
        let answer = self.wish(Wish::Reload);
        Box::pin(async move { answer.await.map_err(ReloadError::Refused)? })
    }

    fn restart_worker(&self, key: &str, station: Option<&str>) -> BoxFuture<'static, Result<(), Refusal>> {
        if let Err(refusal) = self.leading_or_refuse() {
            return Box::pin(async { Err(refusal) });
        }
        if let Some(station) = station {
            // Nothing sets single stations aside in this version, so there is nothing to lift.
            let why =
                format!("station \"{station}\" is not quarantined; without a station the whole worker is restarted");
            return Box::pin(async { Err(Refusal::Failed { why }) });
        }
        let name = key.to_owned();
        let found = self.wish({
            let key = name.clone();
            move |answer| Wish::Restart(key, answer)
        });
        Box::pin(async move {
            if found.await? { Ok(()) } else { Err(Refusal::Unknown { kind: "worker".to_owned(), name }) }
        })
    }

    fn subscribe(&self, topic: Topic) -> Result<Subscription, Refusal> {
        let leading = self.leading_or_refuse()?;
        let subscription = self.of.hub.subscribe(topic)?;
        if !self.feeding.swap(true, Ordering::AcqRel) {
            tokio::spawn(feed(leading.journal, self.of.hub.clone(), Arc::clone(&self.feeding)));
        }
        Ok(subscription)
    }
}

impl ProbeState for Instance {
    fn readiness(&self) -> Readiness {
        let leading = self.leading();
        let mut parts = vec![Part {
            name: "lease".to_owned(),
            health: self.state().lease_trouble.clone().map_or(Health::Up, Health::Degraded),
        }];
        let mut workers = Vec::new();
        if let Some(leading) = leading {
            let stats = leading.journal.stats();
            let health = match stats.trouble {
                _ if !leading.journal.is_alive() => Health::Down("the journal writer ended".to_owned()),
                Some(why) => Health::Degraded(why),
                None => Health::Up,
            };
            parts.push(Part { name: "journal".to_owned(), health });
            workers = judge(&leading.board, &mut parts);
        }
        Readiness { role: self.role(), draining: self.draining.load(Ordering::Relaxed), parts, workers }
    }

    fn role(&self) -> Role {
        if self.draining.load(Ordering::Relaxed) {
            Role::Draining
        } else if self.state().leading.is_some() {
            Role::Leader
        } else {
            Role::Follower
        }
    }

    fn metrics(&self) -> String {
        let view = self.of.lease.view();
        let states = [Role::Leader, Role::Follower, Role::Draining].map(|r| r.as_str().to_owned()).to_vec();
        render(&Snapshot {
            status: api::Instance::status(self),
            lease: LeaseCounters {
                state: self.role().as_str().to_owned(),
                states,
                renewals: view.renewals,
                promotions: view.promotions,
                fencings: view.fencings,
            },
            journal: self.leading().map(|l| journal_counters(&l.journal)),
            uplinks: Vec::new(),
            events_dropped: Vec::new(),
            now: Wall::now(),
        })
    }
}

/// Passes committed lines on for as long as somebody listens: without, the writer copies none.
async fn feed(journal: WriterHandle, hub: Hub, feeding: Arc<AtomicBool>) {
    let mut lines = journal.subscribe(FEED_BYTES);
    // The writer's handle is not held: its last one going ends the writer.
    drop(journal);
    loop {
        match tokio::time::timeout(FEED_LOOK, lines.next()).await {
            Ok(Some((lost, chunk))) => {
                hub.publish(&chunk.lines, lost + chunk.last_seq.saturating_sub(chunk.first_seq) + 1)
            }
            Ok(None) => break feeding.store(false, Ordering::Release),
            Err(_) => {}
        }
        if hub.wanted() {
            continue;
        }
        feeding.store(false, Ordering::Release);
        // Somebody who came in between saw this task still at work and started no other.
        if !hub.wanted() || feeding.swap(true, Ordering::AcqRel) {
            break;
        }
    }
}

/// Critical workers gate readiness; what is not critical and not well degrades it.
fn judge(board: &Board, parts: &mut Vec<Part>) -> Vec<CriticalWorker> {
    let standings = board.standings();
    let mut critical = Vec::new();
    for worker in board.workers() {
        let own: Vec<_> = standings.iter().filter(|s| s.worker == worker.key).collect();
        if own.iter().any(|s| s.critical) {
            let unpolled = own.iter().filter(|s| s.critical && !s.polled).map(|s| s.id.clone()).collect();
            critical.push(CriticalWorker { key: worker.key, state: worker.state, unpolled });
        } else if !matches!(worker.state, WorkerState::Running | WorkerState::Disabled) {
            let health = Health::Degraded(worker.state.as_str().to_owned());
            parts.push(Part { name: format!("worker {}", worker.key), health });
        }
    }
    for station in standings.iter().filter(|s| s.state != StationState::Good) {
        let why = station.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
        let health = Health::Degraded(format!("{}{why}", station.state.as_str()));
        parts.push(Part { name: format!("station {}", station.id), health });
    }
    critical
}

fn journal_status(journal: &WriterHandle) -> JournalStatus {
    JournalStatus::from(&journal.stats())
}

fn journal_counters(journal: &WriterHandle) -> JournalCounters {
    let stats = journal.stats();
    JournalCounters {
        records: stats.records,
        bytes: stats.written_bytes,
        commits: stats.commits,
        commit_time: stats.commit_sum,
        last_commit: stats.commit_last,
        repairs: stats.repairs,
    }
}
