//! What a run mode implements so that commands can talk to it, and what the methods answer.
//!
//! Every call returns fast or hands back a future; the server gives each request a deadline and drops the future when it
//! has passed, so an implementation must not leave things half done at an await point.

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub use super::subscription::{Hub, Subscription, Topic};
pub use crate::lifecycle::{
    probes::ProbeState,
    readiness::{Health, Part, Readiness},
};
use crate::status::{LatestReading, Status};

/// A running supervisor, as the JSON-RPC server sees it.
pub trait Instance: Send + Sync + 'static {
    /// The whole status: `Lifecycle.Status`, and the workers in it for `Worker.Status`.
    fn status(&self) -> Status;

    /// The lease as this instance sees it: `Lease.Status`. An object; its keys are the lease's to choose.
    fn lease(&self) -> serde_json::Value;

    /// The newest reading of each point, of one station or of all: `Reading.Latest`.
    ///
    /// # Errors
    /// [`Refusal::NotLeader`] on an instance that holds no readings; [`Refusal::Unknown`] for a station that is not there.
    fn latest(&self, station: Option<&str>) -> Result<Vec<LatestReading>, Refusal>;

    /// Begins the drain: `Lifecycle.Drain`. Resolves once it has begun, not when it has ended, since the answer must go
    /// out before the server closes.
    fn drain(&self) -> BoxFuture<'static, Result<(), Refusal>>;

    /// Reads the manifest again: `Lifecycle.Reload`. Resolves once it is in force or refused.
    fn reload(&self) -> BoxFuture<'static, Result<ReloadReport, ReloadError>>;

    /// Restarts a worker, or lifts one station of it out of quarantine or cooldown: `Worker.Restart`.
    fn restart_worker(&self, key: &str, station: Option<&str>) -> BoxFuture<'static, Result<(), Refusal>>;

    /// Opens a bounded stream of committed journal lines: `Reading.Subscribe`, `Event.Subscribe`. [`Hub::subscribe`]
    /// makes one.
    ///
    /// # Errors
    /// [`Refusal::NotLeader`] on an instance that commits nothing.
    fn subscribe(&self, topic: Topic) -> Result<Subscription, Refusal>;
}

/// Why an instance does not do what it was asked, though it understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Only the leader can.
    #[error("this instance is not the leader{}", leader.as_ref().map(|id| format!("; ask instance {id}")).unwrap_or_default())]
    NotLeader {
        /// Who leads, if anyone is seen to.
        leader: Option<String>,
    },
    /// It is on its way out.
    #[error("this instance is draining and takes nothing new")]
    Draining,
    /// It has something in hand that must not be interrupted.
    #[error("busy: {what}")]
    Busy {
        /// What is in hand.
        what: String,
    },
    /// There is nothing of that name.
    #[error("there is no {kind} \"{name}\"")]
    Unknown {
        /// For example `worker`, `station`.
        kind: String,
        /// The name that was asked for.
        name: String,
    },
    /// A bound was reached.
    #[error("too many {what} (at most {limit})")]
    TooMany {
        /// Of what.
        what: String,
        /// The bound.
        limit: u64,
    },
    /// It tried, and it did not work.
    #[error("{why}")]
    Failed {
        /// In words, with what to do about it.
        why: String,
    },
}

/// Why a reload left everything as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The manifest has faults.
    #[error("the manifest has {} fault{}; the old one stays in force", faults.len() + *more, if faults.len() + *more == 1 { "" } else { "s" })]
    Manifest {
        /// Each one, in the order of the text.
        faults: Vec<ManifestFault>,
        /// How many more there were than are listed.
        more: usize,
    },
    /// It was not tried.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// One fault of a manifest, as `check --json` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFault {
    /// The file.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(default)]
    pub hint: Option<String>,
}

/// What a reload changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The stations.
    pub stations: Changes,
    /// The workers.
    pub workers: Changes,
    /// What a person should know, for example a setting that takes effect at the next start only.
    pub notes: Vec<String>,
}

/// What became of the things of one kind, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those that go on under another configuration.
    pub updated: Vec<String>,
    /// How many were left alone.
    pub unchanged: u64,
}

impl Changes {
    /// True when nothing was added, removed or updated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.updated.is_empty()
    }
}
