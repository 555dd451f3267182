//! What is known of stations, workers and readings. One place that links write and status, metrics and readiness read;
//! locked for moments only.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use worker_contract::Reading;

use crate::{
    clock::Wall,
    config::model::{DisabledStation, WorkerKey},
    journal::StationNames,
    status::{LatestReading, StationCounters, StationState, StationStatus, WorkerState, WorkerStatus},
    supervisor::desired::StationMeta,
    worker::wire::StationReport,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Board {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    stations: BTreeMap<String, Station>,
    /// Names of every configuration whose readings may still arrive, those of the one before included.
    names: HashMap<u32, Arc<StationNames>>,
    retired: Vec<u32>,
    disabled: Vec<DisabledStation>,
    workers: BTreeMap<String, WorkerStatus>,
    /// Readings that workers lost at the bound of their memory.
    lost: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Station {
    meta: StationMeta,
    state: StationState,
    reason: Option<String>,
    polled: bool,
    counters: StationCounters,
    latest: Vec<Option<(i64, Reading)>>,
}

/// Where a station stands, for readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The station.
    pub id: String,
    /// Its worker.
    pub worker: String,
    /// Whether it gates readiness.
    pub critical: bool,
    /// Whether it was polled once.
    pub polled: bool,
    /// Its state.
    pub state: StationState,
    /// Why, when it is not good.
    pub reason: Option<String>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the stations those of a configuration. One whose handle stays keeps its state and its readings; the names of
    /// those that went are kept for one configuration more, for readings that are under way.
    pub fn configure(&self, metas: Vec<StationMeta>, disabled: Vec<DisabledStation>, idle: &[WorkerKey]) {
        let mut inner = self.lock();
        inner.workers.retain(|_, w| w.state != WorkerState::Disabled);
        for key in idle {
            // One that was just switched off is still on its way out, and is told as such until it is gone.
            inner.workers.entry(key.to_string()).or_insert_with(|| switched_off(key));
        }
        for handle in std::mem::take(&mut inner.retired) {
            inner.names.remove(&handle);
        }
        let mut before = std::mem::take(&mut inner.stations);
        for meta in metas {
            let id = meta.names.id().to_owned();
            let station = match before.remove(&id) {
                Some(old) if old.meta.handle == meta.handle => old,
                other => {
                    inner.retired.extend(other.map(|o| o.meta.handle));
                    inner.names.insert(meta.handle, Arc::clone(&meta.names));
                    Station {
                        latest: vec![None; meta.names.len()],
                        meta,
                        state: StationState::Connecting,
                        reason: None,
                        polled: false,
                        counters: StationCounters::default(),
                    }
                }
            };
            inner.stations.insert(id, station);
        }
        inner.retired.extend(before.into_values().map(|o| o.meta.handle));
        inner.disabled = disabled;
    }

    /// The names behind a handle, and the newest values kept for `Reading.Latest`.
    pub fn take_readings(&self, handle: u32, ts: i64, readings: &[Reading]) -> Option<Arc<StationNames>> {
        let mut inner = self.lock();
        let names = Arc::clone(inner.names.get(&handle)?);
        if let Some(station) = inner.stations.get_mut(names.id()).filter(|s| s.meta.handle == handle) {
            for reading in readings {
                if let Some(slot) = station.latest.get_mut(reading.point as usize) {
                    *slot = Some((ts, reading.clone()));
                }
            }
        }
        Some(names)
    }

    /// The names of a station whose points have this digest.
    #[must_use]
    pub fn names_of(&self, id: &str, digest: u64) -> Option<Arc<StationNames>> {
        let inner = self.lock();
        inner.stations.get(id).filter(|s| s.meta.digest == digest).map(|s| Arc::clone(&s.meta.names))
    }

    /// Takes a worker's reports. The stations whose state changed, with the state before.
    pub fn take_reports(&self, reports: Vec<StationReport>) -> Vec<(Standing, StationState)> {
        let mut inner = self.lock();
        let mut changed = Vec::new();
        for report in reports {
            let Some(names) = inner.names.get(&report.handle).map(Arc::clone) else { continue };
            let Some(station) = inner.stations.get_mut(names.id()).filter(|s| s.meta.handle == report.handle) else {
                continue;
            };
            let before = station.state;
            station.state = report.state;
            station.reason = report.reason;
            station.polled |= report.polled;
            station.counters = report.counters;
            if before != station.state {
                changed.push((standing(names.id(), station), before));
            }
        }
        changed
    }

    /// A worker's process ended: its stations are polled by nobody.
    pub fn worker_lost(&self, worker: &str, why: &str) {
        for station in self.lock().stations.values_mut().filter(|s| s.meta.worker.as_str() == worker) {
            station.state = StationState::Disconnected;
            station.reason = Some(why.to_owned());
            station.polled = false;
        }
    }

    /// Readings that a worker says it lost, in all.
    pub fn set_lost(&self, worker: &str, lost: u64) {
        if lost > 0 {
            self.lock().lost.insert(worker.to_owned(), lost);
        }
    }

    /// Readings lost by workers, in all.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lock().lost.values().sum()
    }

    /// Sets what is told of a worker.
    pub fn set_worker(&self, mut status: WorkerStatus) {
        let mut inner = self.lock();
        if let Some(old) = inner.workers.get(&status.key) {
            status.last_success = status.last_success.or(old.last_success);
        }
        inner.workers.insert(status.key.clone(), status);
    }

    /// Forgets a worker; one whose connections are still in the manifest is switched off.
    pub fn remove_worker(&self, key: &str, idle: Option<&WorkerKey>) {
        let mut inner = self.lock();
        inner.workers.remove(key);
        inner.lost.remove(key);
        if let Some(idle) = idle {
            inner.workers.insert(key.to_owned(), switched_off(idle));
        }
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let inner = self.lock();
        let mut workers: Vec<WorkerStatus> = inner.workers.values().cloned().collect();
        for worker in &mut workers {
            let of = inner.stations.values().filter(|s| s.meta.worker.as_str() == worker.key);
            let newest = of.map(|s| s.counters.last_good_us).max().unwrap_or(0);
            if newest > 0 {
                worker.last_success = Some(newest as f64 / 1e6);
            }
        }
        workers
    }

    /// The stations, those that are switched off included.
    #[must_use]
    pub fn stations(&self) -> Vec<StationStatus> {
        let inner = self.lock();
        let on = inner.stations.iter().map(|(id, s)| StationStatus {
            id: id.clone(),
            state: s.state,
            reason: s.reason.clone(),
            last_good: (s.counters.last_good_us > 0).then(|| Wall(s.counters.last_good_us).to_string()),
            critical: s.meta.critical,
            points: s.latest.len() as u64,
            connection: s.meta.connection.clone(),
            counters: s.counters.clone(),
        });
        let off = inner.disabled.iter().map(|d| StationStatus {
            id: d.id.to_string(),
            state: StationState::Disabled,
            reason: None,
            last_good: None,
            critical: d.critical,
            points: u64::from(d.points),
            connection: d.connection.to_string(),
            counters: StationCounters::default(),
        });
        on.chain(off).collect()
    }

    /// Where every station stands.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        self.lock().stations.iter().map(|(id, s)| standing(id, s)).collect()
    }

    /// The newest readings, of one station or of all; `None` when there is no such station.
    #[must_use]
    pub fn latest(&self, station: Option<&str>) -> Option<Vec<LatestReading>> {
        let inner = self.lock();
        match station {
            Some(id) => inner.stations.get(id).map(|s| latest_of(s).collect()),
            None => Some(inner.stations.values().flat_map(latest_of).collect()),
        }
    }
}

fn switched_off(key: &WorkerKey) -> WorkerStatus {
    WorkerStatus {
        key: key.to_string(),
        protocol: key.protocol().to_owned(),
        state: WorkerState::Disabled,
        pid: None,
        restarts: 0,
        last_exit: None,
        adopted: false,
        last_success: None,
        uncommitted: 0,
    }
}

fn standing(id: &str, s: &Station) -> Standing {
    Standing {
        id: id.to_owned(),
        worker: s.meta.worker.as_str().to_owned(),
        critical: s.meta.critical,
        polled: s.polled,
        state: s.state,
        reason: s.reason.clone(),
    }
}

fn latest_of(station: &Station) -> impl Iterator<Item = LatestReading> {
    station.latest.iter().enumerate().filter_map(|(i, slot)| {
        let (ts, reading) = slot.as_ref()?;
        let point = u32::try_from(i).ok()?;
        Some(LatestReading {
            station: station.meta.names.id().to_owned(),
            point: station.meta.names.name(point)?.into_owned(),
            ts: Wall(*ts).to_string(),
            value: reading.value.as_ref().map(json),
            unit: station.meta.names.unit(point).map(Cow::into_owned),
            quality: reading.quality(),
            reason: reading.reason.map(|r| r.to_string()),
        })
    })
}

/// A value as JSON, single-precision floats by their shortest decimal.
fn json(value: &worker_contract::Value) -> serde_json::Value {
    use worker_contract::Value;
    match value {
        Value::Bool(b) => (*b).into(),
        Value::Int(i) => (*i).into(),
        Value::UInt(u) => (*u).into(),
        Value::F32(f) => f.to_string().parse::<f64>().unwrap_or(f64::from(*f)).into(),
        Value::F64(f) => (*f).into(),
        Value::Text(s) => s.as_str().into(),
    }
}
