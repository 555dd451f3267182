//! The server: accepts within a bound, serves each connection in a task of its own, drains.
//!
//! Tasks: the accept loop (ends on drain, then waits for its connections) and, in its set, one for each connection (see
//! the module `connection`; ends with its peer, on a deadline, or on drain once its calls in flight are answered).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    api::{Instance, Refusal},
    connection,
    message::{Answer, Id, RpcError, code},
    transport::{Peer, Transport},
};
use crate::lifecycle::hush::{EVERY, Hush};

/// On a drain, connections that wait to be accepted are taken and refused: until none came for so long.
const LAST_ACCEPT: Duration = Duration::from_millis(20);
/// So many of them.
const MAX_LAST: usize = 64;

/// The bounds of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once; the next one is told so and closed.
    pub connections: usize,
    /// Calls (or batches) of one connection at once; beyond that it is not read from.
    pub in_flight: usize,
    /// Subscriptions of one connection.
    pub subscriptions: usize,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// From a frame to its answer. Below the clients' own deadline of 10 s, so that they hear of it.
    pub request: Duration,
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// How long a connection without a call or a subscription may stay.
    pub idle: Duration,
    /// How long a peer may take no byte of what is sent to it.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            in_flight: 16,
            subscriptions: 8,
            frame_bytes: 1 << 20,
            request: Duration::from_secs(8),
            frame: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            write: Duration::from_secs(10),
        }
    }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every call in flight was answered.
    Clean,
    /// The deadline passed; so many connections were cut.
    Cut(usize),
}

/// What the accept loop and its connections share.
#[derive(Clone)]
pub(super) struct Shared {
    pub instance: Arc<dyn Instance>,
    pub limits: Arc<Limits>,
    pub drain: CancellationToken,
    pub noise: Arc<Noise>,
}

/// Log lines that peers cause.
#[derive(Debug, Default)]
pub(super) struct Noise {
    pub forbidden: Hush,
    pub full: Hush,
    pub accept: Hush,
    pub stuck: Hush,
    pub panicked: Hush,
}

impl Noise {
    /// Tells what went by untold.
    fn tell_overdue(&self, at: &str) {
        let now = Instant::now();
        for (hush, what) in [
            (&self.forbidden, "connections refused: not the supervisor's user"),
            (&self.full, "connections refused: too many"),
            (&self.accept, "connections that could not be accepted"),
            (&self.stuck, "control connections closed: their peers take nothing"),
            (&self.panicked, "control requests that panicked"),
        ] {
            if let Some(more) = hush.overdue(now) {
                tracing::warn!(at, more, "{what}");
            }
        }
    }
}

/// A running server. Dropping it begins a drain and does not wait for it.
#[derive(Debug)]
pub struct Server {
    drain: CancellationToken,
    open: Arc<AtomicUsize>,
    task: Option<JoinHandle<()>>,
}

/// Starts to serve `instance` on a transport; must be called inside a Tokio runtime. Several transports may serve one
/// instance.
#[must_use]
pub fn serve<T: Transport>(transport: T, instance: Arc<dyn Instance>, limits: Limits) -> Server {
    let drain = CancellationToken::new();
    let open = Arc::new(AtomicUsize::new(0));
    let shared = Shared { instance, limits: Arc::new(limits), drain: drain.clone(), noise: Arc::default() };
    let task = tokio::spawn(accept_loop(transport, shared, Arc::clone(&open)));
    Server { drain, open, task: Some(task) }
}

impl Server {
    /// Stops accepting at once and waits until the calls in flight are answered, at most for `deadline`.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        self.drain.cancel();
        let Some(mut task) = self.task.take() else { return Drained::Clean };
        match timeout(deadline, &mut task).await {
            Ok(_) => Drained::Clean,
            Err(_) => {
                let cut = self.open.load(Ordering::Relaxed);
                task.abort();
                Drained::Cut(cut)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain.cancel();
    }
}

/// Counts a connection for as long as it lives, however it ends.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept_loop<T: Transport>(mut transport: T, shared: Shared, open: Arc<AtomicUsize>) {
    let at = transport.describe();
    tracing::info!(at, "control socket open");
    let mut connections = JoinSet::new();
    let mut overdue = interval(EVERY);
    overdue.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            () = shared.drain.cancelled() => break,
            _ = overdue.tick() => {
                shared.noise.tell_overdue(&at);
                continue;
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = transport.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(refusal) = refusal(&transport, &peer, connections.len(), &shared.limits) {
                    let noise = &shared.noise;
                    let hush = if refusal.code == code::FORBIDDEN { &noise.forbidden } else { &noise.full };
                    if let Some(untold) = hush.note(Instant::now()) {
                        let (uid, pid) = (peer.uid, peer.pid);
                        tracing::warn!(at, uid, pid, untold, why = refusal.message, "connection refused");
                    }
                    refuse(stream, refusal).await;
                    continue;
                }
                tracing::debug!(at, uid = peer.uid, pid = peer.pid, "connection accepted");
                let counted = Counted::new(&open);
                let shared = shared.clone();
                connections.spawn(async move {
                    connection::run(stream, shared).await;
                    drop(counted);
                });
            }
            Err(e) => {
                // Out of descriptors or memory: it passes, and a busy loop would not help.
                if let Some(untold) = shared.noise.accept.note(Instant::now()) {
                    tracing::warn!(at, error = %e, untold, "cannot accept a connection");
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // The socket's file goes now, so that whoever comes next is told that nobody listens, rather than waiting.
    transport.retire();
    refuse_waiting(transport).await;
    while connections.join_next().await.is_some() {}
    tracing::info!(at, "control socket closed");
}

fn refusal<T: Transport>(transport: &T, peer: &Peer, open: usize, limits: &Limits) -> Option<RpcError> {
    if !transport.admits(peer) {
        return Some(RpcError::new(code::FORBIDDEN, "only the supervisor's own user and root may use this socket"));
    }
    let limit = limits.connections;
    (open >= limit).then(|| Refusal::TooMany { what: "connections".into(), limit: limit as u64 }.into())
}

/// Who has connected already and waits to be accepted is told that the instance drains, rather than cut off.
async fn refuse_waiting<T: Transport>(transport: T) {
    for _ in 0..MAX_LAST {
        let Ok(Ok((stream, peer))) = timeout(LAST_ACCEPT, transport.accept()).await else { break };
        if transport.admits(&peer) {
            refuse(stream, Refusal::Draining.into()).await;
        }
    }
}

/// One small frame into an empty send buffer: it does not wait, and the deadline is for the case that it does.
async fn refuse<S: tokio::io::AsyncWrite + Unpin>(mut stream: S, error: RpcError) {
    let frame = Answer { id: Id::NULL, outcome: Err(error) }.into_frame();
    let _ = timeout(Duration::from_millis(100), async {
        stream.write_all(&frame).await?;
        stream.shutdown().await
    })
    .await;
}
