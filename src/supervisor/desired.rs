//! What the manifest asks of the workers: which there are, what each runs, and a handle for every station's very
//! configuration. Pure.

use std::{collections::HashMap, sync::Arc};

use worker_contract::{ConnectionConfig, StationConfig, config::names_digest};

use crate::{
    config::model::{Connection, Manifest, WorkerKey, WorkerPlan},
    journal::StationNames,
};

/// Gives out handles: a station keeps its handle while worker, connection and configuration stay the same.
#[derive(Debug, Default)]
pub struct Handles {
    last: u32,
    of: HashMap<String, Held>,
}

#[derive(Debug, Clone)]
struct Held {
    handle: u32,
    worker: WorkerKey,
    connection: String,
}

/// A manifest with handles.
#[derive(Debug)]
pub struct Desired {
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// The workers that have something to poll.
    pub workers: Vec<WorkerPlan>,
    handles: HashMap<String, u32>,
}

/// A station as the supervisor knows it.
#[derive(Debug)]
pub struct StationMeta {
    /// Names its configuration on the wire.
    pub handle: u32,
    /// Its worker.
    pub worker: WorkerKey,
    /// Its connection.
    pub connection: String,
    /// Whether it gates readiness.
    pub critical: bool,
    /// Its id and the names and units of its points.
    pub names: Arc<StationNames>,
    /// See [`names_digest`].
    pub digest: u64,
}

impl Handles {
    /// Gives every station of a manifest its handle. `before` is what is in force.
    pub fn assign(&mut self, manifest: Arc<Manifest>, before: Option<&Desired>) -> Desired {
        let old: HashMap<&str, (&Connection, &StationConfig)> =
            before.map(|d| d.manifest.stations().map(|(c, s)| (s.id.as_str(), (c, s))).collect()).unwrap_or_default();
        let mut of = HashMap::new();
        for (connection, station) in manifest.stations() {
            let worker = connection.worker_key();
            let kept = self.of.get(&station.id).filter(|held| {
                held.worker == worker
                    && held.connection == connection.config.id
                    && old.get(station.id.as_str()).is_some_and(|(_, s)| s.same(station))
            });
            let held = kept.cloned().unwrap_or_else(|| {
                self.last = self.last.wrapping_add(1);
                Held { handle: self.last, worker, connection: connection.config.id.clone() }
            });
            of.insert(station.id.clone(), held);
        }
        self.of = of;
        let handles = self.of.iter().map(|(id, held)| (id.clone(), held.handle)).collect();
        let workers = manifest.worker_plans();
        Desired { manifest, workers, handles }
    }
}

impl Desired {
    /// A worker's connections without their stations, as [`crate::worker::wire::ToWorker::Configure`] carries them.
    #[must_use]
    pub fn connections(&self, plan: &WorkerPlan) -> Vec<ConnectionConfig> {
        self.sources(plan)
            .map(|c| {
                let ConnectionConfig { id, kind, lanes, resources, settings, stations: _ } = &c.config;
                ConnectionConfig {
                    id: id.clone(),
                    kind: kind.clone(),
                    lanes: *lanes,
                    resources: resources.clone(),
                    settings: settings.clone(),
                    stations: Vec::new(),
                }
            })
            .collect()
    }

    /// How many stations a worker polls.
    #[must_use]
    pub fn station_count(&self, plan: &WorkerPlan) -> usize {
        self.sources(plan).map(|c| c.config.stations.len()).sum()
    }

    /// A worker's stations, each with its connection's place in [`Desired::connections`].
    pub fn stations(&self, plan: &WorkerPlan) -> impl Iterator<Item = (u32, StationConfig)> {
        self.sources(plan).enumerate().flat_map(move |(i, c)| {
            c.config.stations.iter().map(move |s| {
                let mut station = s.clone();
                station.handle = self.handle(&s.id);
                (u32::try_from(i).unwrap_or(u32::MAX), station)
            })
        })
    }

    fn sources(&self, plan: &WorkerPlan) -> impl Iterator<Item = &Connection> {
        plan.connections.iter().filter_map(|i| self.manifest.connections.get(*i)).collect::<Vec<_>>().into_iter()
    }

    /// A station's handle; 0 for one that is not polled.
    #[must_use]
    pub fn handle(&self, station: &str) -> u32 {
        self.handles.get(station).copied().unwrap_or(0)
    }

    /// Every station that is polled.
    #[must_use]
    pub fn metas(&self) -> Vec<StationMeta> {
        let meta = |(c, s): (&Connection, &StationConfig)| StationMeta {
            handle: self.handle(&s.id),
            worker: c.worker_key(),
            connection: c.config.id.clone(),
            critical: s.critical,
            names: Arc::new(names(s)),
            digest: names_digest(&s.points),
        };
        self.manifest.stations().map(meta).collect()
    }
}

fn names(station: &StationConfig) -> StationNames {
    StationNames::new(&station.id, station.points.iter().map(|p| (&*p.name, p.unit.as_deref())))
}
