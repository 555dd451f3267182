//! Leading: from promotion to drain.
//!
//! Promotion: recover the journal, open a writer whose every commit asks the fence, tell of the promotion, start the
//! workers. The lease is held already; nothing here waits for a disk that takes no writes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock::Wall,
    config::{
        self,
        model::{Manifest, Overflow},
        timeouts::DrainTimes,
    },
    journal::{
        self, Batch, CheckpointData, Entry, Hooks, JournalError, Notice, RecoverOptions, Recovered, WriterHandle,
        WriterOptions,
    },
    lease::Fence,
    rpc::api::{Changes, ReloadReport},
    supervisor::{
        board::Board,
        desired::{Desired, Handles},
        event,
        inherit::Inheritance,
        pool::{Command, Pool, Tools},
    },
};

/// What an instance brings along when it begins to lead.
pub struct Start {
    /// Its id.
    pub instance: String,
    /// Its build.
    pub build: String,
    /// The device's run folder.
    pub run_dir: PathBuf,
    /// Where the journal is.
    pub state_dir: PathBuf,
    /// The epoch that it leads under.
    pub epoch: u64,
    /// How it came to lead, in words.
    pub why: String,
    /// Asked before each commit.
    pub fence: Fence,
    /// What to do.
    pub manifest: Arc<Manifest>,
}

/// So long a reload waits to hear which stations its workers refuse. Together with the wait for a manifest that is being
/// written it stays below the deadline of a request.
const REFUSALS_WITHIN: Duration = Duration::from_secs(4);

/// A leader at work.
pub struct Leader {
    /// What is known of workers and stations.
    pub board: Arc<Board>,
    /// The journal.
    pub journal: WriterHandle,
    /// The epoch.
    pub epoch: u64,
    pool: Pool,
    handles: Handles,
    desired: Arc<Desired>,
}

impl Leader {
    /// Begins to lead.
    ///
    /// # Errors
    /// When there is no journal to be had.
    pub async fn start(start: Start) -> Result<Self, JournalError> {
        let state_dir = start.state_dir.clone();
        let recovered =
            tokio::task::spawn_blocking(move || journal::recover(&state_dir, RecoverOptions { last_values: 0 }))
                .await
                .map_err(|e| JournalError::Thread(std::io::Error::other(e)))??;
        let board = Arc::new(Board::default());
        tell_recovery(&recovered);
        let report = (!recovered.report.is_clean()).then(|| recovered.report.fields());
        let last_seq = recovered.last_seq;
        let inheritance = Inheritance::new(&recovered.sources);
        let (commits, committed) = mpsc::unbounded_channel();
        let journal = open_writer(&start, recovered, commits)?;
        let tools = Tools {
            run_dir: start.run_dir.clone(),
            build: start.build.clone(),
            instance: start.instance.clone(),
            epoch: start.epoch,
            board: Arc::clone(&board),
            journal: journal.clone(),
            times: DrainTimes::within(start.manifest.lifecycle.drain_timeout),
        };
        let pool = Pool::start(tools, inheritance);
        tokio::spawn(pass_on(committed, pool.commands()));
        let mut handles = Handles::default();
        let desired = Arc::new(handles.assign(Arc::clone(&start.manifest), None));
        board.configure(desired.metas(), start.manifest.disabled_stations(), &start.manifest.disabled_workers());
        let leader = Self { board, journal, epoch: start.epoch, pool, handles, desired };
        leader.record(
            "promoted",
            [
                ("instance", start.instance.as_str().into()),
                ("build", start.build.as_str().into()),
                ("why", start.why.as_str().into()),
                ("recovered_up_to", last_seq.into()),
            ],
        );
        if let Some(report) = report {
            let entry = Entry::Event { ts: Wall::now(), event: "journal_recovered".into(), fields: report };
            let _ = leader.journal.append(Batch::own(entry));
        }
        let (answer, _) = oneshot::channel();
        let _ = leader.pool.commands().send(Command::Apply(Arc::clone(&leader.desired), answer));
        Ok(leader)
    }

    /// Puts another manifest into force: the stations that changed, and no other.
    pub async fn apply(&mut self, manifest: Arc<Manifest>) -> ReloadReport {
        let changes = config::diff(&self.desired.manifest, &manifest);
        let desired = Arc::new(self.handles.assign(Arc::clone(&manifest), Some(&self.desired)));
        // The board first: readings of a new handle must find their names.
        self.board.configure(desired.metas(), manifest.disabled_stations(), &manifest.disabled_workers());
        let workers = worker_changes(&self.desired, &desired);
        self.desired = Arc::clone(&desired);
        let (answer, refused) = oneshot::channel();
        let _ = self.pool.commands().send(Command::Apply(desired, answer));
        let refused = tokio::time::timeout(REFUSALS_WITHIN, refused).await.ok().and_then(Result::ok);
        let mut notes: Vec<String> = changes
            .restart_needed
            .iter()
            .map(|key| format!("{key} takes effect at the next start of both instances"))
            .collect();
        let journal = changes.settings.iter().filter(|key| key.starts_with("journal."));
        notes.extend(journal.map(|key| format!("{key} takes effect when the next leader opens the journal")));
        for (id, why) in refused.unwrap_or_default() {
            notes.push(format!("{id}: {why}"));
        }
        notes.extend(connection_notes(&changes.connections));
        let stations = changed_stations(changes.stations, &manifest);
        let report = ReloadReport { stations, workers, notes };
        self.record(
            "configuration",
            [
                ("added", list(&report.stations.added)),
                ("removed", list(&report.stations.removed)),
                ("updated", list(&report.stations.updated)),
                ("connections", list(&changes.connections.changed)),
                ("unchanged", report.stations.unchanged.into()),
            ],
        );
        report
    }

    /// Starts a worker anew. False when there is none of that key.
    pub async fn restart(&self, key: &str) -> bool {
        let (answer, found) = oneshot::channel();
        let _ = self.pool.commands().send(Command::Restart(key.to_owned(), answer));
        found.await.unwrap_or(false)
    }

    /// Why the process cannot go on, if a critical part of it has died.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        if !self.journal.is_alive() {
            Some("the journal writer ended")
        } else if self.pool.is_dead() {
            Some("the task that owns the workers ended")
        } else {
            None
        }
    }

    /// Takes the leader apart for the drain: the workers first, then the journal.
    #[must_use]
    pub fn into_parts(self) -> (Pool, WriterHandle) {
        (self.pool, self.journal)
    }

    /// Records an event.
    pub fn record<const N: usize>(&self, event: &'static str, fields: [(&'static str, Value); N]) {
        event::record(&self.journal, event, fields);
    }
}

fn open_writer(
    start: &Start,
    recovered: Recovered,
    commits: mpsc::UnboundedSender<Vec<(u64, u64)>>,
) -> Result<WriterHandle, JournalError> {
    let settings = &start.manifest.journal;
    let fence = start.fence.clone();
    let options = WriterOptions {
        epoch: start.epoch,
        commit_interval: settings.commit_interval,
        commit_bytes: size(settings.commit_bytes),
        segment_bytes: settings.segment_bytes,
        max_bytes: settings.max_bytes,
        max_age: settings.max_age,
        overflow: match settings.overflow {
            Overflow::DropOldest => journal::Overflow::DropOldest,
            Overflow::StopPolling => journal::Overflow::StopPolling,
        },
        memory_bytes: size(settings.memory_bytes),
    };
    let hooks = Hooks {
        fence: Arc::new(move || fence.check().is_ok()),
        notice: Box::new(move |notice| tell(notice, &commits)),
        checkpoint: Box::new(CheckpointData::default),
    };
    journal::writer::start(options, &recovered, hooks)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn tell(notice: Notice, commits: &mpsc::UnboundedSender<Vec<(u64, u64)>>) {
    match notice {
        Notice::Committed(commit) => {
            // Nobody is left to tell during the very end of a drain.
            let _ = commits.send(commit.acks);
        }
        Notice::Trouble(why) => tracing::error!(why, "nothing can be committed; readings wait in memory"),
        Notice::Recovered => tracing::info!("the journal commits again"),
        Notice::Failed(failure) => tracing::error!(?failure, "the journal writer ended"),
    }
}

/// Passes commits on to the workers' links. Bounded by the commits, of which there are a few a second.
async fn pass_on(mut committed: mpsc::UnboundedReceiver<Vec<(u64, u64)>>, pool: mpsc::UnboundedSender<Command>) {
    while let Some(acks) = committed.recv().await {
        if !acks.is_empty() && pool.send(Command::Committed(acks)).is_err() {
            return;
        }
    }
}

/// The log names so many faults; the event record has more, and `journal verify` all.
const FAULTS_IN_LOG: usize = 5;

fn tell_recovery(recovered: &Recovered) {
    let report = &recovered.report;
    let took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
    let (first, last) = (recovered.first_seq, recovered.last_seq);
    if report.is_clean() {
        tracing::info!(first, last, took_ms, "journal recovered");
        return;
    }
    for fault in report.faults.iter().take(FAULTS_IN_LOG) {
        tracing::warn!(%fault, "journal");
    }
    let (faults, repairs, cut_bytes, missing) = (report.fault_count, report.repairs, report.cut_bytes, report.missing);
    tracing::warn!(first, last, took_ms, faults, repairs, cut_bytes, missing, "journal recovered with faults");
}

/// The stations that a reload changes, as it tells them.
#[must_use]
pub fn changed_stations(changes: config::Changes, after: &Manifest) -> Changes {
    let config::Changes { added, removed, changed } = changes;
    let unchanged = after.stations().count().saturating_sub(added.len() + changed.len()) as u64;
    Changes { added, removed, updated: changed, unchanged }
}

/// The connections that a reload changes, as notes of its report. The stations behind them are told in full.
#[must_use]
pub fn connection_notes(changes: &config::Changes) -> Vec<String> {
    const MOST: usize = 10;
    let kinds = [("added", &changes.added), ("removed", &changes.removed), ("changed", &changes.changed)];
    let told = kinds.into_iter().filter(|(_, ids)| !ids.is_empty()).map(|(word, ids)| {
        let what = if ids.len() == 1 { "connection" } else { "connections" };
        let more = if ids.len() > MOST { format!(", … and {} more", ids.len() - MOST) } else { String::new() };
        format!("{what} {word}: {}{more}", ids[..ids.len().min(MOST)].join(", "))
    });
    told.collect()
}

fn worker_changes(before: &Desired, after: &Desired) -> Changes {
    let keys = |d: &Desired| d.workers.iter().map(|p| p.key.to_string()).collect::<Vec<_>>();
    let (old, new) = (keys(before), keys(after));
    Changes {
        added: new.iter().filter(|k| !old.contains(k)).cloned().collect(),
        removed: old.iter().filter(|k| !new.contains(k)).cloned().collect(),
        updated: Vec::new(),
        unchanged: new.iter().filter(|k| old.contains(k)).count() as u64,
    }
}

fn list(ids: &[String]) -> Value {
    ids.iter().map(|id| Value::from(id.as_str())).collect()
}
