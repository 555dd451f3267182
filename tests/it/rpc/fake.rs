//! A supervisor that is none, and a raw peer that holds each message against the schema.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use sensor_poll::{
    rpc::{
        api::{Changes, Hub, Instance, ManifestFault, Refusal, ReloadError, ReloadReport, Subscription, Topic},
        server::{Limits, Server, serve},
        transport::UnixTransport,
    },
    status::{
        InstanceStatus, JournalStatus, LatestReading, Role, StationCounters, StationState, StationStatus, Status,
        WorkerState, WorkerStatus,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::Notify,
    time::timeout,
};
use worker_contract::{Quality, Reason};

use super::schema;

/// What a test waits for something at most.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A fake supervisor.
#[derive(Default)]
pub struct Fake {
    /// Who leads, when this one follows.
    pub follows: Option<String>,
    /// What a reload answers; a report without it.
    pub faults: Mutex<Option<Vec<ManifestFault>>>,
    pub hub: Hub,
    /// Lets `Worker.Restart` of the worker `slow` go on.
    pub go_on: Arc<Notify>,
    /// Calls of `Worker.Restart` that began.
    pub restarts: Arc<AtomicU64>,
    /// How many more notices the status has, each of a kibibyte.
    pub long: usize,
    /// Calls of `Lifecycle.Drain`.
    pub drains: Arc<AtomicU64>,
}

impl Fake {
    fn leader_only(&self) -> Result<(), Refusal> {
        match &self.follows {
            Some(id) => Err(Refusal::NotLeader { leader: Some(id.clone()) }),
            None => Ok(()),
        }
    }
}

impl Instance for Fake {
    fn status(&self) -> Status {
        let mut status = status(if self.follows.is_some() { Role::Follower } else { Role::Leader });
        status.notices.extend(std::iter::repeat_n("x".repeat(1 << 10), self.long));
        status
    }

    fn lease(&self) -> Value {
        json!({ "state": "leading", "epoch": 3 })
    }

    fn latest(&self, station: Option<&str>) -> Result<Vec<LatestReading>, Refusal> {
        self.leader_only()?;
        match station {
            None | Some("boiler") => Ok(latest()),
            Some(other) => Err(Refusal::Unknown { kind: "station".into(), name: other.into() }),
        }
    }

    fn drain(&self) -> BoxFuture<'static, Result<(), Refusal>> {
        self.drains.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }.boxed()
    }

    fn reload(&self) -> BoxFuture<'static, Result<ReloadReport, ReloadError>> {
        let faults = self.faults.lock().unwrap().clone();
        async move {
            match faults {
                Some(faults) => Err(ReloadError::Manifest { faults, more: 0 }),
                None => {
                    let stations = Changes { added: vec!["pump".into()], unchanged: 1, ..Changes::default() };
                    Ok(ReloadReport { stations, ..ReloadReport::default() })
                }
            }
        }
        .boxed()
    }

    fn restart_worker(&self, key: &str, _station: Option<&str>) -> BoxFuture<'static, Result<(), Refusal>> {
        if let Err(refusal) = self.leader_only() {
            return async { Err(refusal) }.boxed();
        }
        let (key, go_on, restarts) = (key.to_owned(), Arc::clone(&self.go_on), Arc::clone(&self.restarts));
        async move {
            restarts.fetch_add(1, Ordering::SeqCst);
            match key.as_str() {
                "slow" => go_on.notified().await,
                "panic" => panic!("the fake's own panic"),
                "modbus" => {}
                other => return Err(Refusal::Unknown { kind: "worker".into(), name: other.into() }),
            }
            Ok(())
        }
        .boxed()
    }

    fn subscribe(&self, topic: Topic) -> Result<Subscription, Refusal> {
        self.leader_only()?;
        self.hub.subscribe(topic)
    }
}

pub fn status(role: Role) -> Status {
    Status {
        instance: "a".into(),
        role,
        node_id: "plant-7".into(),
        epoch: 3,
        build: "0.1.0".into(),
        since: "2026-11-30T12:00:00.000000Z".into(),
        instances: vec![InstanceStatus {
            id: "a".into(),
            role,
            pid: std::process::id(),
            build: "0.1.0".into(),
            started_at: "2026-11-30T12:00:00.000000Z".into(),
            generation: 1,
        }],
        workers: vec![WorkerStatus {
            key: "modbus".into(),
            protocol: "modbus".into(),
            state: WorkerState::Running,
            pid: Some(1),
            restarts: 0,
            last_exit: None,
            adopted: false,
            last_success: Some(1.5),
            uncommitted: 0,
        }],
        stations: vec![StationStatus {
            id: "boiler".into(),
            state: StationState::Degraded,
            reason: Some("exception:2".into()),
            last_good: None,
            critical: true,
            points: 2,
            connection: "skid".into(),
            counters: StationCounters { errors: vec![(Reason::Exception(2), 1)], ..StationCounters::default() },
        }],
        journal: Some(JournalStatus { first_seq: 1, last_seq: 9, bytes: 4096, ..JournalStatus::default() }),
        uplinks: vec![],
        alarms: vec![],
        notices: vec!["the fake speaks".into()],
    }
}

pub fn latest() -> Vec<LatestReading> {
    vec![LatestReading {
        station: "boiler".into(),
        point: "temperature".into(),
        ts: "2026-11-30T12:00:00.123456Z".into(),
        value: Some(21.5.into()),
        unit: Some("°C".into()),
        quality: Quality::Good,
        reason: None,
    }]
}

/// A journal line. The odd spacing and escape are on purpose: it must arrive byte for byte.
pub fn line(kind: &str, station: &str, seq: u64) -> String {
    format!(
        "{{\"seq\":{seq},\"epoch\":3,\"ts\":\"2026-11-30T12:00:00.123456Z\",\"kind\":\"{kind}\",\"station\":\"{station}\",\
         \"point\":\"t\\u00e9mp\",\"value\":21.50,\"unit\":\"°C\",\"quality\":\"good\", \"crc\":\"10ec6446\"}}"
    )
}

pub fn publish(hub: &Hub, lines: &[String]) {
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    hub.publish(text.as_bytes(), lines.len() as u64);
}

/// A fake that is served on a socket of its own.
pub struct Served {
    pub fake: Arc<Fake>,
    pub server: Server,
    pub path: PathBuf,
    pub dir: tempfile::TempDir,
}

impl Served {
    pub async fn new(fake: Fake, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let fake = Arc::new(fake);
        let server = serve_at(&path, Arc::clone(&fake), limits).await;
        Self { fake, server, path, dir }
    }

    pub async fn leader() -> Self {
        Self::new(Fake::default(), Limits::default()).await
    }

    pub async fn peer(&self) -> Peer {
        Peer::connect(&self.path).await
    }
}

pub async fn serve_at(path: &Path, fake: Arc<Fake>, limits: Limits) -> Server {
    serve(UnixTransport::bind(path).await.unwrap(), fake, limits)
}

/// A raw peer.
pub struct Peer {
    pub stream: BufReader<UnixStream>,
}

impl Peer {
    pub async fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).await.unwrap())
    }

    pub fn over(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    pub async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).await.unwrap();
    }

    /// The next frame as text; `None` at the end.
    pub async fn frame(&mut self) -> Option<String> {
        let mut frame = String::new();
        match timeout(PATIENCE, self.stream.read_line(&mut frame)).await.expect("a frame in time") {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(frame.trim_end().to_owned()),
        }
    }

    /// The next message, held against the schema.
    pub async fn message(&mut self) -> Option<Value> {
        let message = serde_json::from_str(&self.frame().await?).expect("the server speaks JSON");
        schema::check_message(&message);
        Some(message)
    }

    /// Calls a method and holds parameters and answer against the schema.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.send(format!("{}\n", json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": method }))).await;
        loop {
            let message = self.message().await.expect("an answer");
            if message.get("id") == Some(&json!(method)) {
                schema::check_answer(method, &message);
                return message;
            }
        }
    }

    /// The code of the next message, which must be an error.
    pub async fn code(&mut self) -> i64 {
        let message = self.message().await.expect("an answer");
        message["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {message}"))
    }
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}
