//! What changes from one manifest to the next. Pure, O(n).

use std::collections::HashMap;

use serde::Serialize;
use worker_contract::{ConnectionConfig, StationConfig};

use super::model::{Connection, Manifest};

/// What changes between two manifests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Diff {
    /// Of stations that are polled: one that is switched on counts as added, one that is switched off as removed. One
    /// whose connection changed, or that is reached through another, is polled in another way and counts as changed.
    pub stations: Changes,
    /// Of connections that are switched on, their stations left aside.
    pub connections: Changes,
    /// Settings of the process that a reload applies, as `table.key`.
    pub settings: Vec<String>,
    /// Settings that only a restart applies, as `table.key`.
    pub restart_needed: Vec<String>,
}

/// Ids, in the order of the manifest that has them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Changes {
    /// Only in the new one.
    pub added: Vec<String>,
    /// Only in the old one.
    pub removed: Vec<String>,
    /// In both, and not the same.
    pub changed: Vec<String>,
}

impl Changes {
    /// True when nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    fn between<'m, T: Copy + 'm>(
        old: impl Iterator<Item = (&'m str, T)>,
        new: impl Iterator<Item = (&'m str, T)>,
        same: impl Fn(T, T) -> bool,
    ) -> Self {
        let old: Vec<_> = old.collect();
        let mut left: HashMap<&str, T> = old.iter().copied().collect();
        let mut changes = Self::default();
        for (id, now) in new {
            match left.remove(id) {
                None => changes.added.push(id.to_owned()),
                Some(before) if !same(before, now) => changes.changed.push(id.to_owned()),
                Some(_) => {}
            }
        }
        let gone = old.iter().filter(|(id, _)| left.contains_key(id));
        changes.removed = gone.map(|(id, _)| (*id).to_owned()).collect();
        changes
    }

    /// The first of those that are there before and after, in brackets: of these the counts say least.
    fn named(&self) -> String {
        const MOST: usize = 10;
        match self.changed.len() {
            0 => String::new(),
            n if n > MOST => format!(" ({}, … and {} more)", self.changed[..MOST].join(", "), n - MOST),
            _ => format!(" ({})", self.changed.join(", ")),
        }
    }

    fn words(&self, one: &str, many: &str) -> Option<String> {
        let parts = [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)];
        let told = parts.iter().filter(|(_, ids)| !ids.is_empty());
        let told: Vec<_> = told.map(|(word, ids)| format!("{} {word}", ids.len())).collect();
        let total = self.added.len() + self.removed.len() + self.changed.len();
        (total > 0).then(|| format!("{}: {}", if total == 1 { one } else { many }, told.join(", ")))
    }
}

impl Diff {
    /// True when the two mean the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stations.is_empty()
            && self.connections.is_empty()
            && self.settings.is_empty()
            && self.restart_needed.is_empty()
    }

    /// One line for a log.
    #[must_use]
    pub fn summary(&self) -> String {
        let settings = |what: &str, keys: &[String]| (!keys.is_empty()).then(|| format!("{what}: {}", keys.join(", ")));
        let parts = [
            self.stations.words("station", "stations"),
            self.connections.words("connection", "connections").map(|told| told + &self.connections.named()),
            settings("settings", &self.settings),
            settings("changed, but applied by a restart only", &self.restart_needed),
        ];
        let told: Vec<_> = parts.into_iter().flatten().collect();
        if told.is_empty() { "nothing changes".to_owned() } else { told.join("; ") }
    }
}

/// What changes from `old` to `new`.
#[must_use]
pub fn diff(old: &Manifest, new: &Manifest) -> Diff {
    let mut diff = Diff {
        stations: Changes::between(stations(old), stations(new), same_station),
        connections: Changes::between(connections(old), connections(new), same_connection),
        ..Diff::default()
    };
    // Destructured, so that a new table cannot be forgotten here.
    let Manifest {
        facility,
        connections: _,
        lease,
        journal,
        lifecycle,
        workers,
        upgrade,
        uplinks,
        alarms,
        alarm_rules,
    } = old;
    let mut live = |key: &str, same: bool| {
        if !same {
            diff.settings.push(key.to_owned())
        }
    };
    live("facility", *facility == new.facility);
    live("journal.commit_interval_ms", journal.commit_interval == new.journal.commit_interval);
    live("journal.commit_bytes", journal.commit_bytes == new.journal.commit_bytes);
    live("journal.max_bytes", journal.max_bytes == new.journal.max_bytes);
    live("journal.max_age", journal.max_age == new.journal.max_age);
    live("journal.segment_bytes", journal.segment_bytes == new.journal.segment_bytes);
    live("journal.memory_bytes", journal.memory_bytes == new.journal.memory_bytes);
    live("journal.overflow", journal.overflow == new.journal.overflow);
    live("lifecycle.drain_timeout_ms", lifecycle.drain_timeout == new.lifecycle.drain_timeout);
    live("workers.isolation", workers.isolation == new.workers.isolation);
    live("upgrade.source", upgrade.source == new.upgrade.source);
    live("uplinks", *uplinks == new.uplinks);
    live("alarms", *alarms == new.alarms);
    live("alarm_rules", *alarm_rules == new.alarm_rules);
    let mut restart = |key: &str, same: bool| {
        if !same {
            diff.restart_needed.push(key.to_owned())
        }
    };
    // Both instances count by the record's time to live: it changes for both at once, or not at all.
    restart("lease.ttl_ms", lease.ttl == new.lease.ttl);
    restart("lease.standby", lease.standby == new.lease.standby);
    restart("workers.on_failover", workers.on_failover == new.workers.on_failover);
    diff
}

type StationIn<'m> = (&'m Connection, &'m StationConfig);

fn stations(manifest: &Manifest) -> impl Iterator<Item = (&str, StationIn<'_>)> {
    manifest.stations().map(|(connection, station)| (station.id.as_str(), (connection, station)))
}

fn same_station(old: StationIn<'_>, new: StationIn<'_>) -> bool {
    old.0.config.id == new.0.config.id && same_connection(old.0, new.0) && old.1.same(new.1)
}

fn connections(manifest: &Manifest) -> impl Iterator<Item = (&str, &Connection)> {
    manifest.connections.iter().filter(|c| c.enabled).map(|c| (c.config.id.as_str(), c))
}

fn same_connection(old: &Connection, new: &Connection) -> bool {
    let ConnectionConfig { id: _, kind, lanes, resources, settings, stations: _ } = &old.config;
    *kind == new.config.kind
        && *lanes == new.config.lanes
        && *resources == new.config.resources
        && *settings == new.config.settings
        && old.isolation == new.isolation
        && old.protocol == new.protocol
}
