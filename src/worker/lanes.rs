//! Makes the lanes match the configuration: removals first, then updates, then creations. A station whose handle stays is
//! left alone with its connection and its schedule.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use worker_contract::{ConnectionConfig, Protocol, StationConfig};

use crate::worker::{
    gate::Gate,
    lane::{Command, Lane, Shared},
};

/// A lane that does not end by itself within this time is aborted; no request is waited for longer.
pub const STOP_WITHIN: Duration = Duration::from_secs(5);

/// See the module.
pub struct Lanes {
    protocol: &'static dyn Protocol,
    lock_dir: PathBuf,
    shared: Arc<Shared>,
    connections: BTreeMap<String, Connection>,
    paused: bool,
}

struct Connection {
    config: ConnectionConfig,
    lanes: Vec<LaneHandle>,
}

struct LaneHandle {
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
    handles: HashSet<u32>,
}

impl Lanes {
    /// No lanes yet.
    #[must_use]
    pub fn new(protocol: &'static dyn Protocol, lock_dir: PathBuf, shared: Arc<Shared>) -> Self {
        Self { protocol, lock_dir, shared, connections: BTreeMap::new(), paused: false }
    }

    /// Puts a configuration into force. What could not be is returned by id, with why; the rest is in force.
    pub async fn apply(&mut self, wanted: Vec<ConnectionConfig>) -> Vec<(String, String)> {
        let gone: Vec<String> = self
            .connections
            .iter()
            .filter(|(id, c)| !wanted.iter().any(|w| w.id == **id && same_endpoint(w, &c.config)))
            .map(|(id, _)| id.clone())
            .collect();
        let gone: Vec<Connection> = gone.iter().filter_map(|id| self.connections.remove(id)).collect();
        stop(gone, STOP_WITHIN).await;
        let mut refused = Vec::new();
        for mut config in wanted {
            let stations = std::mem::take(&mut config.stations);
            if !self.connections.contains_key(&config.id) {
                match self.create(&config) {
                    Ok(connection) => {
                        self.connections.insert(config.id.clone(), connection);
                    }
                    Err(why) => {
                        refused.push((config.id, why));
                        continue;
                    }
                }
            }
            if let Some(connection) = self.connections.get_mut(&config.id) {
                connection.update(stations);
            }
        }
        refused
    }

    fn create(&self, config: &ConnectionConfig) -> Result<Connection, String> {
        let gate = Arc::new(Gate::new(&self.lock_dir, &config.resources));
        let mut lanes = Vec::new();
        for _ in 0..config.lanes.max(1) {
            let driver = self.protocol.open(config).map_err(|e| e.to_string())?;
            let (commands, receive) = mpsc::unbounded_channel();
            let lane = Lane {
                id: config.id.clone(),
                driver,
                gate: Arc::clone(&gate),
                shared: Arc::clone(&self.shared),
                commands: receive,
            };
            let lane = LaneHandle { commands, task: tokio::spawn(lane.run()), handles: HashSet::new() };
            lane.tell(Command::Pause(self.paused));
            lanes.push(lane);
        }
        Ok(Connection { config: config.clone(), lanes })
    }

    /// Stops or resumes all polling.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        for lane in self.connections.values().flat_map(|c| &c.lanes) {
            lane.tell(Command::Pause(paused));
        }
    }

    /// Ends every lane after its request in flight, which is waited for within a time.
    pub async fn stop(&mut self, within: Duration) {
        let all = std::mem::take(&mut self.connections);
        stop(all.into_values().collect(), within).await;
    }

    /// True when a lane's task has ended though nobody stopped it: a panic.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.connections.iter().find(|(_, c)| c.lanes.iter().any(|l| l.task.is_finished())).map(|(id, _)| id.as_str())
    }
}

/// True when the connection itself is the same, whatever stations it has.
fn same_endpoint(a: &ConnectionConfig, b: &ConnectionConfig) -> bool {
    a.kind == b.kind && a.lanes == b.lanes && a.resources == b.resources && a.settings == b.settings
}

impl Connection {
    fn update(&mut self, stations: Vec<StationConfig>) {
        let keep: HashSet<u32> = stations.iter().map(|s| s.handle).collect();
        for lane in &mut self.lanes {
            let gone: Vec<u32> = lane.handles.difference(&keep).copied().collect();
            for handle in gone {
                lane.handles.remove(&handle);
                lane.tell(Command::Remove(handle));
            }
        }
        for station in stations {
            if self.lanes.iter().any(|l| l.handles.contains(&station.handle)) {
                continue;
            }
            if let Some(lane) = self.lanes.iter_mut().min_by_key(|l| l.handles.len()) {
                lane.handles.insert(station.handle);
                lane.tell(Command::Add(station));
            }
        }
    }
}

impl LaneHandle {
    fn tell(&self, command: Command) {
        // A lane that has ended is seen by `Lanes::broken`.
        let _ = self.commands.send(command);
    }
}

async fn stop(connections: Vec<Connection>, within: Duration) {
    let deadline = Instant::now() + within;
    let lanes: Vec<LaneHandle> = connections.into_iter().flat_map(|c| c.lanes).collect();
    for lane in &lanes {
        lane.tell(Command::Stop);
    }
    for mut lane in lanes {
        if timeout_at(deadline, &mut lane.task).await.is_err() {
            lane.task.abort();
            // Its end must be seen: until then it may hold the transport.
            let _ = lane.task.await;
        }
    }
}
