//! What an instance says of itself: the object of `status --json`. Names here are relied on from outside; additions are
//! free.

use serde::{Deserialize, Serialize};
use worker_contract::{Quality, Reason};

/// The whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This instance's id.
    pub instance: String,
    /// What it is at present.
    pub role: Role,
    /// The device's identity upstream.
    pub node_id: String,
    /// The epoch that it leads under, or that it sees the leader under; 0 when nobody has led yet.
    pub epoch: u64,
    /// The version of the binary.
    pub build: String,
    /// Since when it has its role (RFC 3339).
    pub since: String,
    /// Every instance on this device.
    pub instances: Vec<InstanceStatus>,
    /// The leader's workers; empty on a follower.
    pub workers: Vec<WorkerStatus>,
    /// The leader's stations; empty on a follower.
    pub stations: Vec<StationStatus>,
    /// The journal; `None` on a follower.
    pub journal: Option<JournalStatus>,
    /// The uplinks.
    pub uplinks: Vec<serde_json::Value>,
    /// Standing alarms.
    pub alarms: Vec<serde_json::Value>,
    /// What a person should know, in words.
    pub notices: Vec<String>,
}

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds the lease.
    Leader,
    /// Stands by.
    Follower,
    /// On its way out.
    Draining,
}

impl Role {
    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Draining => "draining",
        }
    }
}

/// An instance on this device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// Its id.
    pub id: String,
    /// Its role, as it last registered it.
    pub role: Role,
    /// Its process.
    pub pid: u32,
    /// The version of its binary.
    pub build: String,
    /// RFC 3339.
    pub started_at: String,
    /// Rises each time an instance of this id starts.
    pub generation: u64,
}

/// A worker's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Launched, not ready yet.
    Starting,
    /// Ready.
    Running,
    /// Ended against our will; starts again after a pause.
    Failed,
    /// Given up for the cooldown.
    GaveUp,
    /// Ended because it was told to.
    Stopped,
    /// On its way out.
    Draining,
    /// Switched off in the manifest.
    Disabled,
    /// Expected, but never started.
    Missing,
}

impl WorkerState {
    /// Every state, for the metrics.
    pub const ALL: [Self; 8] = [
        Self::Starting,
        Self::Running,
        Self::Failed,
        Self::GaveUp,
        Self::Stopped,
        Self::Draining,
        Self::Disabled,
        Self::Missing,
    ];

    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::GaveUp => "gave_up",
            Self::Stopped => "stopped",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
            Self::Missing => "missing",
        }
    }
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its key: the protocol's name, or `PROTOCOL.CONNECTION` with a process for each connection.
    pub key: String,
    /// The protocol's name.
    pub protocol: String,
    /// Its state.
    pub state: WorkerState,
    /// Its process, while there is one.
    pub pid: Option<u32>,
    /// How often it was started again since this leader leads.
    pub restarts: u64,
    /// How its last process ended, in words.
    pub last_exit: Option<String>,
    /// Whether it was taken over from the previous leader.
    pub adopted: bool,
    /// Wall seconds of the last successful poll; `None` before the first.
    #[serde(default)]
    pub last_success: Option<f64>,
    /// Readings that it holds because they are not committed yet.
    #[serde(default)]
    pub uncommitted: u64,
}

/// A station's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StationState {
    /// Not polled yet.
    Connecting,
    /// Every point is good.
    Good,
    /// Some points are bad.
    Degraded,
    /// It does not answer and is asked again after a pause.
    Backoff,
    /// There is no connection to it.
    Disconnected,
    /// Set aside: it brings its worker down.
    Quarantined,
    /// Switched off in the manifest.
    Disabled,
}

impl StationState {
    /// Every state, for the metrics.
    pub const ALL: [Self; 7] = [
        Self::Connecting,
        Self::Good,
        Self::Degraded,
        Self::Backoff,
        Self::Disconnected,
        Self::Quarantined,
        Self::Disabled,
    ];

    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Good => "good",
            Self::Degraded => "degraded",
            Self::Backoff => "backoff",
            Self::Disconnected => "disconnected",
            Self::Quarantined => "quarantined",
            Self::Disabled => "disabled",
        }
    }
}

/// A station.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StationStatus {
    /// The manifest's id.
    pub id: String,
    /// Its state.
    pub state: StationState,
    /// Why, when the state is not good.
    pub reason: Option<String>,
    /// When a poll last brought every point good (RFC 3339).
    pub last_good: Option<String>,
    /// Whether it gates readiness.
    pub critical: bool,
    /// How many points it has.
    pub points: u64,
    /// The connection that it is reached through.
    #[serde(default)]
    pub connection: String,
    /// What was counted since its worker started.
    #[serde(default)]
    pub counters: StationCounters,
}

/// What is counted of a station.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StationCounters {
    /// Polls begun.
    pub polls: u64,
    /// Ticks skipped because the poll before took too long, or the process stood still.
    pub missed: u64,
    /// Requests sent, repeats included.
    pub requests: u64,
    /// Points read with a value.
    pub reads: u64,
    /// Points read without a value, by reason.
    #[serde(with = "by_reason")]
    pub errors: Vec<(Reason, u64)>,
    /// The last round trip, in microseconds.
    pub round_trip_us: u64,
    /// The present back-off, in milliseconds; 0 when there is none.
    pub backoff_ms: u64,
    /// Wall microseconds of the last good poll; 0 before the first.
    pub last_good_us: i64,
    /// Bytes sent to it and received from it.
    pub bytes_sent: u64,
    /// See `bytes_sent`.
    pub bytes_received: u64,
}

/// For people and scripts an object of words (`{"timeout":4}`), for the wire between processes a list.
mod by_reason {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use worker_contract::Reason;

    pub(super) fn serialize<S: Serializer>(errors: &[(Reason, u64)], to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_map(errors.iter().map(|(r, n)| (r.to_string(), n)))
        } else {
            errors.serialize(to)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(Reason, u64)>, D::Error> {
        if !from.is_human_readable() {
            return Vec::deserialize(from);
        }
        let words = BTreeMap::<String, u64>::deserialize(from)?;
        words.into_iter().map(|(word, n)| Ok((word.parse().map_err(D::Error::custom)?, n))).collect()
    }
}

/// The journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JournalStatus {
    /// The oldest record that is still there.
    pub first_seq: u64,
    /// The newest committed record.
    pub last_seq: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Why nothing can be written at present; `None` when it can.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Bytes that wait in memory.
    #[serde(default)]
    pub pending_bytes: u64,
    /// Records that were lost to the bounds of memory or disk.
    #[serde(default)]
    pub dropped: u64,
}

/// A point's newest reading, as `Reading.Latest` gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatestReading {
    /// The station's id.
    pub station: String,
    /// The point's name.
    pub point: String,
    /// RFC 3339.
    pub ts: String,
    /// A bool, number or string; absent when bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// The engineering unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How far to trust it.
    pub quality: Quality,
    /// Why not further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words_in_json_and_survive_both_forms() {
        let counters = StationCounters {
            errors: vec![(Reason::Exception(2), 1), (Reason::Timeout, 4)],
            ..StationCounters::default()
        };
        let json = serde_json::to_value(&counters).unwrap();
        assert_eq!(json["errors"], serde_json::json!({ "exception:2": 1, "timeout": 4 }));
        assert_eq!(serde_json::from_value::<StationCounters>(json).unwrap(), counters);
        let packed = rmp_serde::to_vec(&counters).unwrap();
        assert_eq!(rmp_serde::from_slice::<StationCounters>(&packed).unwrap(), counters);
    }
}
