//! The process: takes its lock, waits for its supervisor, obeys it, and leaves when the supervisor is gone.

use std::{
    collections::HashMap,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};
use worker_contract::{ConnectionConfig, Protocol, StationConfig, config::names_digest};

use crate::{
    coordination::{Attempt, CoordinationLock, FileGuard, FileLock, LockError, OwnerError, write_owner},
    errors::chain,
    memory,
    worker::{
        lane::Shared,
        lanes::{Lanes, STOP_WITHIN},
        spool::{self, Header, SpoolStation},
        wire::{self, FromWorker, Reader, ToWorker, WireError, Writer},
    },
};

/// A worker that nobody talks to leaves after this time.
const SUPERVISOR_WITHIN: Duration = Duration::from_secs(10);
/// Readings that wait for their commit take no more memory than this, packed.
const OUTBOX_BYTES: usize = 8 << 20;
/// Counters are told so often; a change of state at once.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Without its supervisor a worker is in the next leader's way: requests in flight are not waited for longer.
const ORPHANED_WITHIN: Duration = Duration::from_millis(50);
/// What a signal leaves for the drain.
const DRAIN_ON_SIGNAL: Duration = Duration::from_secs(2);

/// What a worker process is started with.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The worker's key.
    pub key: String,
    /// Where the device's locks and sockets are.
    pub run_dir: PathBuf,
    /// The build that it says it is.
    pub build: String,
}

/// Why a worker process failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Another process is the worker of this key.
    #[error("another process holds {path}: the worker is running already")]
    Running {
        /// The lock.
        path: PathBuf,
    },
    /// The lock cannot be used.
    #[error("the worker's lock")]
    Lock(#[source] LockError),
    /// The lock's file cannot be written.
    #[error("the worker's lock")]
    Owner(#[source] OwnerError),
    /// Standard input is not the socket that a supervisor hands over.
    #[error("standard input is no listening socket: a worker is started by its supervisor, not by hand")]
    Socket(#[source] io::Error),
    /// No supervisor came.
    #[error("no supervisor connected within {SUPERVISOR_WITHIN:?}")]
    Alone,
    /// The conversation broke.
    #[error("talking to the supervisor")]
    Wire(#[source] WireError),
    /// The supervisor did not say who it is, or sent stations without a configuration.
    #[error("the supervisor broke the protocol: {0}")]
    Order(&'static str),
    /// A lane ended though nobody stopped it.
    #[error("the lane of connection \"{0}\" broke down")]
    Lane(String),
    /// Signal handlers cannot be set.
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
}

/// A configuration that arrives station by station.
struct Arriving {
    generation: u64,
    connections: Vec<ConnectionConfig>,
    missing: u32,
}

/// Runs a worker to its end.
///
/// # Errors
/// See [`HostError`]; a supervisor that goes away is not one.
pub async fn run(protocol: &'static dyn Protocol, options: HostOptions) -> Result<(), HostError> {
    let dir = options.run_dir.join("workers");
    let _lock = lock(&dir, &options.key)?;
    let stream = accept().await?;
    let (mut reader, mut writer) = wire::open(stream, SUPERVISOR_WITHIN).await.map_err(HostError::Wire)?;
    let hello = FromWorker::Hello {
        build: options.build.clone(),
        pid: std::process::id(),
        protocol: protocol.name().to_owned(),
    };
    writer.send(&hello).await.map_err(HostError::Wire)?;
    let hello: ToWorker = reader.receive_within(SUPERVISOR_WITHIN).await.map_err(HostError::Wire)?;
    let ToWorker::Hello { epoch, instance, session, .. } = hello else { return Err(HostError::Order("no hello")) };
    tracing::debug!(worker = options.key, epoch, instance, "supervisor connected");
    let shared = Shared::new(OUTBOX_BYTES);
    let (say, said) = mpsc::channel(16);
    let writing = tokio::spawn(write(writer, said, Arc::clone(&shared)));
    let mut host = Host {
        lanes: Lanes::new(protocol, dir.clone(), Arc::clone(&shared)),
        shared: Arc::clone(&shared),
        say,
        arriving: None,
        untidy: false,
        stations: HashMap::new(),
        retired: Vec::new(),
    };
    let ended = host.obey(&mut reader).await;
    writing.abort();
    leave_behind(&dir, &options.key, Header { session, stations: host.stations }, &shared);
    ended
}

/// Takes the worker's lock and writes into it whose it is, so that a leader can end a worker that hangs.
fn lock(dir: &Path, key: &str) -> Result<FileGuard, HostError> {
    let path = dir.join(format!("{key}.lock"));
    match FileLock::new(&path).try_acquire().map_err(HostError::Lock)? {
        Attempt::Acquired(guard) => {
            write_owner(&guard).map_err(HostError::Owner)?;
            Ok(guard)
        }
        Attempt::Held => Err(HostError::Running { path }),
    }
}

/// The supervisor makes the socket and hands it over as standard input, so that it can connect before the worker is up.
async fn accept() -> Result<UnixStream, HostError> {
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(HostError::Socket)?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.local_addr().map_err(HostError::Socket)?;
    listener.set_nonblocking(true).map_err(HostError::Socket)?;
    let listener = UnixListener::from_std(listener).map_err(HostError::Socket)?;
    let accepted = timeout(SUPERVISOR_WITHIN, listener.accept()).await.map_err(|_| HostError::Alone)?;
    Ok(accepted.map_err(HostError::Socket)?.0)
}

/// Leaves what is not committed to the next leader.
fn leave_behind(dir: &Path, key: &str, header: Header, shared: &Shared) {
    let outbox = shared.outbox();
    let (readings, session) = (outbox.uncommitted(), header.session);
    if outbox.is_empty() {
        return;
    }
    let frames: Vec<Bytes> = outbox.frames().collect();
    drop(outbox);
    let written = spool::encode(&header, frames)
        .map_err(|e| chain(&e))
        .and_then(|bytes| spool::write(dir, key, session, &bytes).map_err(|e| chain(&e)));
    match written {
        Ok(path) => {
            tracing::info!(readings, spool = %path.display(), "readings that are not committed are left behind")
        }
        Err(error) => tracing::error!(readings, "readings that are not committed are lost: {error}"),
    }
}

struct Host {
    lanes: Lanes,
    shared: Arc<Shared>,
    say: mpsc::Sender<FromWorker>,
    arriving: Option<Arriving>,
    /// The stations behind the handles whose readings may be in the outbox: those of this configuration and the last.
    stations: HashMap<u32, SpoolStation>,
    retired: Vec<u32>,
    /// A configuration was taken: the memory that this needed is given back at the next look.
    untidy: bool,
}

impl Host {
    async fn obey(&mut self, reader: &mut Reader) -> Result<(), HostError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(HostError::Signals)?;
        // The terminal's and the service manager's other signals are for the supervisor, which tells its workers.
        let _interrupt = signal(SignalKind::interrupt()).map_err(HostError::Signals)?;
        let _hangup = signal(SignalKind::hangup()).map_err(HostError::Signals)?;
        let mut watch = interval(REPORT_EVERY);
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = reader.receive() => match message {
                    Ok(ToWorker::Drain { within_ms }) => return self.drain(reader, Duration::from_millis(within_ms)).await,
                    Ok(message) => self.take(message).await?,
                    Err(WireError::Closed | WireError::Io(_)) => return self.orphaned().await,
                    Err(error) => {
                        self.lanes.stop(ORPHANED_WITHIN).await;
                        return Err(HostError::Wire(error));
                    }
                },
                _ = terminate.recv() => return self.drain(reader, DRAIN_ON_SIGNAL).await,
                _ = watch.tick() => {
                    if let Some(id) = self.lanes.broken() {
                        return Err(HostError::Lane(id.to_owned()));
                    }
                    if std::mem::take(&mut self.untidy) {
                        memory::give_back();
                    }
                }
            }
        }
    }

    async fn take(&mut self, message: ToWorker) -> Result<(), HostError> {
        match message {
            ToWorker::Ack { up_to } => self.shared.outbox().ack(up_to),
            ToWorker::Pause(paused) => self.lanes.pause(paused),
            ToWorker::Configure { generation, connections, stations } => {
                self.arriving = Some(Arriving { generation, connections, missing: stations });
                self.configure_when_whole().await;
            }
            ToWorker::Station { connection, station } => {
                self.add(connection, station)?;
                self.configure_when_whole().await;
            }
            ToWorker::Hello { .. } => return Err(HostError::Order("a second hello")),
            // Taken by the caller.
            ToWorker::Drain { .. } => {}
        }
        Ok(())
    }

    fn add(&mut self, connection: u32, station: StationConfig) -> Result<(), HostError> {
        let arriving = self.arriving.as_mut().ok_or(HostError::Order("a station without a configuration"))?;
        let list = arriving.connections.get_mut(connection as usize);
        list.ok_or(HostError::Order("a station of no connection"))?.stations.push(station);
        arriving.missing = arriving.missing.checked_sub(1).ok_or(HostError::Order("a station too many"))?;
        Ok(())
    }

    async fn configure_when_whole(&mut self) {
        let Some(arriving) = self.arriving.take_if(|a| a.missing == 0) else { return };
        self.remember(&arriving.connections);
        let refused = self.lanes.apply(arriving.connections).await;
        self.untidy = true;
        let _ = self.say.send(FromWorker::Configured { generation: arriving.generation, refused }).await;
    }

    fn remember(&mut self, connections: &[ConnectionConfig]) {
        for handle in std::mem::take(&mut self.retired) {
            self.stations.remove(&handle);
        }
        let now: HashMap<u32, SpoolStation> = connections
            .iter()
            .flat_map(|c| &c.stations)
            .map(|s| (s.handle, SpoolStation { id: s.id.clone(), names: names_digest(&s.points) }))
            .collect();
        self.retired = self.stations.keys().filter(|h| !now.contains_key(h)).copied().collect();
        self.stations.extend(now);
    }

    /// Ends polling, waits for the acks of what was read, says goodbye.
    async fn drain(&mut self, reader: &mut Reader, within: Duration) -> Result<(), HostError> {
        let deadline = Instant::now() + within;
        self.lanes.stop(STOP_WITHIN.min(within)).await;
        self.shared.news.notify_one();
        while !self.shared.outbox().is_empty() {
            match timeout_at(deadline, reader.receive()).await {
                Ok(Ok(ToWorker::Ack { up_to })) => self.shared.outbox().ack(up_to),
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
        let uncommitted = self.shared.outbox().uncommitted();
        let _ = self.say.send(FromWorker::Drained { uncommitted }).await;
        // The writer closes its channel once the goodbye is out.
        let _ = timeout(Duration::from_millis(500), self.say.closed()).await;
        Ok(())
    }

    async fn orphaned(&mut self) -> Result<(), HostError> {
        self.lanes.stop(ORPHANED_WITHIN).await;
        tracing::info!("supervisor gone, leaving");
        Ok(())
    }
}

/// Sends what the outbox holds, the host's words and the stations' reports, as fast as the supervisor takes it.
async fn write(mut writer: Writer, mut said: mpsc::Receiver<FromWorker>, shared: Arc<Shared>) {
    let mut every = interval(REPORT_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut report = shared.is_urgent();
        let mut word = None;
        tokio::select! {
            () = shared.news.notified() => report |= shared.is_urgent(),
            _ = every.tick() => report = true,
            message = said.recv() => match message {
                Some(message) => word = Some(message),
                None => return,
            },
        }
        if send(&mut writer, &shared, report || word.is_some(), word.as_ref()).await.is_err() {
            return;
        }
        if matches!(word, Some(FromWorker::Drained { .. })) {
            return;
        }
    }
}

async fn send(writer: &mut Writer, shared: &Shared, report: bool, word: Option<&FromWorker>) -> Result<(), WireError> {
    loop {
        let next: Option<Bytes> = shared.outbox().next_unsent();
        let Some(frame) = next else { break };
        writer.feed(frame).await?;
    }
    if report {
        let reports = shared.take_reports();
        let lost = shared.outbox().lost();
        // Sent without any too: a supervisor takes silence for a hang.
        if !reports.is_empty() || word.is_none() {
            writer.feed(wire::pack(&FromWorker::Stations { reports, lost })?).await?;
        }
    }
    if let Some(word) = word {
        writer.feed(wire::pack(word)?).await?;
    }
    writer.flush().await
}
