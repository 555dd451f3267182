//! What a manifest means: always valid, every default filled in. Made by the check alone; see `docs/manifest.md` for the
//! keys behind each field.

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use worker_contract::{ConnectionConfig, StationConfig, WorkerConfig};

/// A whole manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Who this device is.
    pub facility: Facility,
    /// Every connection with its stations, in the manifest's order.
    pub connections: Vec<Connection>,
    /// `[lease]`.
    pub lease: LeaseSettings,
    /// `[journal]`.
    pub journal: JournalSettings,
    /// `[lifecycle]`.
    pub lifecycle: LifecycleSettings,
    /// `[workers]`.
    pub workers: WorkerSettings,
    /// `[upgrade]`.
    pub upgrade: UpgradeSettings,
    /// `[[uplinks]]`.
    pub uplinks: Vec<Uplink>,
    /// The alarm levels of points, those without any left out.
    pub alarms: Vec<PointAlarm>,
    /// `[[alarm_rules]]`.
    pub alarm_rules: Vec<AlarmRule>,
}

/// `[facility]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facility {
    /// The plant's id, as the uplink announces it.
    pub id: String,
    /// For people; the id where the manifest gives none.
    pub name: String,
}

/// A connection, switched on or off, with what is switched off behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// False when the manifest switches it off, and every station behind it with it.
    pub enabled: bool,
    /// The protocol's name, for example `modbus`.
    pub protocol: &'static str,
    /// Whether it has a worker of its own.
    pub isolation: Isolation,
    /// What a worker needs to know, with the stations (and of those the points) that are switched on.
    pub config: ConnectionConfig,
    /// The stations that are switched off one by one.
    pub disabled: Vec<DisabledStation>,
}

impl Connection {
    /// True when there is something to poll behind it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.enabled && !self.config.stations.is_empty()
    }

    /// The worker that serves it.
    #[must_use]
    pub fn worker_key(&self) -> WorkerKey {
        match self.isolation {
            Isolation::Protocol => WorkerKey::of_protocol(self.protocol),
            Isolation::Connection => WorkerKey::of_connection(self.protocol, &self.config.id),
        }
    }
}

/// A station that is switched off: what status tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisabledStation {
    /// The manifest's id.
    pub id: Box<str>,
    /// The connection that it is reached through.
    pub connection: Box<str>,
    /// Whether it would gate readiness.
    pub critical: bool,
    /// How many points it would have.
    pub points: u32,
}

/// Names a worker: `PROTOCOL`, or `PROTOCOL.CONNECTION` with a process for each connection. It is part of file names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerKey(Box<str>);

impl WorkerKey {
    /// The worker of a whole protocol.
    #[must_use]
    pub fn of_protocol(protocol: &str) -> Self {
        Self(protocol.into())
    }

    /// The worker of one connection.
    #[must_use]
    pub fn of_connection(protocol: &str, connection: &str) -> Self {
        Self(format!("{protocol}.{connection}").into())
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The protocol's name; protocols have no dot in theirs.
    #[must_use]
    pub fn protocol(&self) -> &str {
        self.0.split_once('.').map_or(&*self.0, |(protocol, _)| protocol)
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How connections share worker processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// One worker for all connections of the protocol.
    #[default]
    Protocol,
    /// A worker for the connection alone.
    Connection,
}

/// `[lease]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSettings {
    /// How old a lease's record may become.
    pub ttl: Duration,
    /// What the follower does meanwhile.
    pub standby: Standby,
}

/// What a follower does while it stands by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standby {
    /// Replays the journal when it is promoted.
    #[default]
    Cold,
    /// Reads the journal all along.
    Hot,
}

/// `[journal]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSettings {
    /// From the first uncommitted record to its commit, at most.
    pub commit_interval: Duration,
    /// A commit comes earlier when so many bytes wait.
    pub commit_bytes: u64,
    /// Bytes on disk, at most, all segments together.
    pub max_bytes: u64,
    /// The age at which a record may go.
    pub max_age: Duration,
    /// A segment is closed at this size.
    pub segment_bytes: u64,
    /// Bytes that wait in memory while the disk takes none, at most.
    pub memory_bytes: u64,
    /// What gives way when unsent records alone fill the disk's share.
    pub overflow: Overflow,
}

/// What gives way when the journal is full of unsent records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The oldest records, counted and told.
    #[default]
    DropOldest,
    /// Polling.
    StopPolling,
}

/// `[lifecycle]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifecycleSettings {
    /// From the signal to the exit of a supervisor, at most.
    pub drain_timeout: Duration,
}

/// `[workers]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// What a connection has when it says nothing of its own.
    pub isolation: Isolation,
    /// What becomes of workers whose supervisor is lost.
    pub on_failover: OnFailover,
}

/// What becomes of workers whose supervisor is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailover {
    /// They live on, and the next leader takes them over.
    #[default]
    Adopt,
    /// They end, and the next leader starts them anew.
    Respawn,
}

/// `[upgrade]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpgradeSettings {
    /// Where `upgrade` without a bundle looks; `None` when nowhere.
    pub source: Option<Box<str>>,
}

/// One of `[[uplinks]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Its id, which acknowledgements name.
    pub id: String,
    /// False when the manifest switches it off.
    pub enabled: bool,
    /// What it speaks.
    pub kind: UplinkKind,
    /// Where to.
    pub url: String,
    /// The file that holds its token; `None` when it needs none.
    pub token_file: Option<PathBuf>,
}

/// What an uplink speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UplinkKind {
    /// JSON-RPC 2.0 to `sensor-poll serve`.
    JsonRpc,
    /// MQTT.
    Mqtt,
    /// Sparkplug B over MQTT.
    Sparkplug,
}

/// A point's alarm, after ISA-18.2.
#[derive(Debug, Clone, PartialEq)]
pub struct PointAlarm {
    /// The station's id.
    pub station: Box<str>,
    /// The point's name.
    pub point: Box<str>,
    /// Its levels.
    pub levels: AlarmLevels,
}

/// Alarm levels in engineering units. A level that is absent raises nothing; those that are there rise in this order.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AlarmLevels {
    /// Low-low.
    pub ll: Option<f64>,
    /// Low.
    pub l: Option<f64>,
    /// High.
    pub h: Option<f64>,
    /// High-high.
    pub hh: Option<f64>,
    /// Rate of change, units a second.
    pub roc: Option<f64>,
    /// How far back a value must come before the alarm clears.
    pub hysteresis: f64,
    /// How many readings in a row raise or clear it.
    pub debounce: u32,
}

/// One of `[[alarm_rules]]`: a level of one point, told from outside its station.
#[derive(Debug, Clone, PartialEq)]
pub struct AlarmRule {
    /// Its id, unique among the rules.
    pub id: Box<str>,
    /// The station's id.
    pub station: Box<str>,
    /// The point's name.
    pub point: Box<str>,
    /// Which level it raises.
    pub level: AlarmLevel,
    /// Where, in engineering units.
    pub threshold: f64,
}

/// A level of ISA-18.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmLevel {
    /// Low-low.
    LowLow,
    /// Low.
    Low,
    /// High.
    High,
    /// High-high.
    HighHigh,
    /// Rate of change.
    RateOfChange,
}

/// Which connections a worker serves, as places in [`Manifest::connections`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPlan {
    /// The worker.
    pub key: WorkerKey,
    /// Its protocol's name.
    pub protocol: &'static str,
    /// Connections with something to poll; at least one.
    pub connections: Vec<usize>,
}

impl Manifest {
    /// The workers that have something to poll, by the manifest's order. A worker without is not in it: one that
    /// still runs has nothing to do, and none is started for it.
    #[must_use]
    pub fn worker_plans(&self) -> Vec<WorkerPlan> {
        let mut plans: Vec<WorkerPlan> = Vec::new();
        let mut place = std::collections::HashMap::new();
        for (index, connection) in self.connections.iter().enumerate().filter(|(_, c)| c.is_active()) {
            let key = connection.worker_key();
            let at = *place.entry(key.clone()).or_insert_with(|| {
                plans.push(WorkerPlan { key, protocol: connection.protocol, connections: Vec::new() });
                plans.len() - 1
            });
            plans[at].connections.push(index);
        }
        plans
    }

    /// What a planned worker runs. A copy: its stations' handles are the supervisor's to give out.
    #[must_use]
    pub fn worker_config(&self, plan: &WorkerPlan) -> WorkerConfig {
        let connections = plan.connections.iter().filter_map(|i| self.connections.get(*i));
        WorkerConfig {
            protocol: plan.protocol.to_owned(),
            connections: connections.map(|c| c.config.clone()).collect(),
        }
    }

    /// Every worker that has something to poll, with what it runs.
    #[must_use]
    pub fn workers(&self) -> Vec<(WorkerKey, WorkerConfig)> {
        self.worker_plans().into_iter().map(|plan| (plan.key.clone(), self.worker_config(&plan))).collect()
    }

    /// The workers that the manifest names and that have nothing to poll, since all is switched off (or not written
    /// yet) behind them.
    #[must_use]
    pub fn disabled_workers(&self) -> Vec<WorkerKey> {
        let active: std::collections::BTreeSet<_> = self.worker_plans().into_iter().map(|p| p.key).collect();
        let mut idle: Vec<_> = self.connections.iter().map(Connection::worker_key).collect();
        idle.sort();
        idle.dedup();
        idle.retain(|key| !active.contains(key));
        idle
    }

    /// The stations that are polled, each with its connection.
    pub fn stations(&self) -> impl Iterator<Item = (&Connection, &StationConfig)> {
        self.connections.iter().filter(|c| c.enabled).flat_map(|c| c.config.stations.iter().map(move |s| (c, s)))
    }

    /// The stations that are switched off, alone or with their connection.
    #[must_use]
    pub fn disabled_stations(&self) -> Vec<DisabledStation> {
        let mut off = Vec::new();
        for connection in &self.connections {
            off.extend(connection.disabled.iter().cloned());
            if !connection.enabled {
                off.extend(connection.config.stations.iter().map(|s| DisabledStation {
                    id: s.id.as_str().into(),
                    connection: connection.config.id.as_str().into(),
                    critical: s.critical,
                    points: u32::try_from(s.points.len()).unwrap_or(u32::MAX),
                }));
            }
        }
        off
    }
}
