//! The probes of an instance over HTTP: `/healthz`, `/readyz`, `/leader`, `/metrics`.
//!
//! Tasks of a [`ProbeServer`]: the accept loop, and in its set one for each connection, which ends within
//! [`REQUEST_DEADLINE`] whatever its peer does. One request a connection: a probe has no use for more, and the deadline
//! then bounds all of it. A new connection always gets in: at the bound, the oldest one that has not sent its request is
//! closed for it. So whoever connects and is silent, however often, keeps no probe from its answer.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::service::{Service, service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet, yield_now},
    time::{Instant, interval, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    hush::{EVERY, Hush},
    inherited::Inherited,
    listen::{Addr, Listener, acquire_listener},
    readiness::Readiness,
};
use crate::status::Role;

/// From a connection to the end of its answer.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// From a connection to the end of its request's headers.
pub const HEADER_DEADLINE: Duration = Duration::from_secs(1);
/// Connections at once; see the module on what happens to more.
pub const MAX_CONNECTIONS: usize = 64;
/// Out of descriptors or memory: when accepting is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// A request's line and headers. A body is never read.
const MAX_HEADERS: usize = 16 << 10;
/// How often a taken address is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What the probes ask of a run mode. Called on each request: must be quick and must not wait.
pub trait ProbeState: Send + Sync + 'static {
    /// What readiness is judged by.
    fn readiness(&self) -> Readiness;

    /// The role at present.
    fn role(&self) -> Role;

    /// The metrics in Prometheus' text format 0.0.4.
    fn metrics(&self) -> String;
}

type Shared = Arc<dyn ProbeState>;

/// The application: paths to answers.
pub fn app(state: Shared) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/leader", get(leader))
        .route("/metrics", get(metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "not found; there are /healthz, /readyz, /leader and /metrics\n"))
        .with_state(state)
}

async fn readyz(State(state): State<Shared>) -> Response {
    let report = state.readiness().evaluate();
    let code = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(report)).into_response()
}

async fn leader(State(state): State<Shared>) -> Response {
    let role = state.role();
    let code = match role {
        Role::Leader => StatusCode::OK,
        Role::Follower | Role::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", role.as_str())).into_response()
}

async fn metrics(State(state): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics()).into_response()
}

/// A running probe listener. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct ProbeServer {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl ProbeServer {
    /// Serves the probes on a listener. Needs a Tokio runtime.
    #[must_use]
    pub fn start(listener: Listener, state: Shared) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, app(state), stop.clone()));
        Self { stop, task: Some(task) }
    }

    /// Serves the leader's own listener from now until [`ProbeServer::stop`]: the service manager's socket `name` if it
    /// passed one, else `addr`. An address that is taken or cannot be bound is tried again every few seconds and told once:
    /// a leader without this listener still leads.
    #[must_use]
    pub fn start_leader(addr: Addr, name: String, inherited: Arc<Inherited>, state: Shared) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                listener = acquire_at_last(&addr, &name, &inherited) => serve(listener, app(state), stopped.clone()).await,
            }
        });
        Self { stop, task: Some(task) }
    }

    /// Stops accepting at once, and waits until answers in flight are sent (at most [`REQUEST_DEADLINE`]).
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for ProbeServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn acquire_at_last(addr: &Addr, name: &str, inherited: &Inherited) -> Listener {
    let mut told = false;
    loop {
        match acquire_listener(addr, name, inherited).await {
            Ok(listener) => {
                if told {
                    tracing::info!(%addr, "the address of the leader's probes is free again");
                }
                return listener;
            }
            Err(e) if !told => {
                told = true;
                let cause = std::error::Error::source(&e).map(ToString::to_string);
                tracing::warn!(error = %e, cause, "the leader's probes do not listen yet; trying again every few seconds");
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

async fn serve(listener: Listener, app: Router, stop: CancellationToken) {
    let at = listener.describe();
    tracing::info!(at, "probes open");
    let mut connections = Connections::default();
    let refused = Hush::default();
    let mut overdue = interval(EVERY);
    // Set while there is no use in accepting.
    let mut again: Option<Instant> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.tasks.join_next_with_id(), if !connections.tasks.is_empty() => {
                connections.forget(&ended);
            }
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => again = None,
            _ = overdue.tick() => {
                if let Some(more) = refused.overdue(Instant::now()) {
                    tracing::warn!(at, more, "probes that could not be accepted");
                }
            }
            accepted = accept(&listener), if again.is_none() => match accepted {
                Ok(io) => {
                    connections.admit(io, &app);
                    // Its task reads what has come before many others are accepted.
                    yield_now().await;
                }
                Err(e) => {
                    if let Some(untold) = refused.note(Instant::now()) {
                        tracing::warn!(at, error = %e, untold, "cannot accept a probe");
                    }
                    // It may be descriptors that are short, and idle connections have some.
                    connections.shed();
                    again = Some(Instant::now() + ACCEPT_AGAIN);
                }
            },
        }
    }
    drop(listener);
    while connections.tasks.join_next().await.is_some() {}
    tracing::info!(at, "probes closed");
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: VecDeque<Open>,
}

struct Open {
    task: AbortHandle,
    /// Its request is here.
    asked: Arc<AtomicBool>,
}

impl Connections {
    fn admit(&mut self, io: Io, app: &Router) {
        if self.open.len() >= MAX_CONNECTIONS {
            self.shed();
        }
        let asked = Arc::<AtomicBool>::default();
        let task = match io {
            Io::Unix(stream) => self.tasks.spawn(answer(stream, app.clone(), Arc::clone(&asked))),
            Io::Tcp(stream) => self.tasks.spawn(answer(stream, app.clone(), Arc::clone(&asked))),
        };
        self.open.push_back(Open { task, asked });
    }

    /// Closes the oldest connection that has not sent its request; when all have, the one that takes the longest to read
    /// its answer.
    fn shed(&mut self) {
        let silent = self.open.iter().position(|o| !o.asked.load(Ordering::Relaxed));
        if let Some(open) = self.open.remove(silent.unwrap_or(0)) {
            open.task.abort();
        }
    }

    fn forget(&mut self, ended: &Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(e) => e.id(),
        };
        self.open.retain(|o| o.task.id() != id);
    }
}

enum Io {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream),
}

async fn accept(listener: &Listener) -> io::Result<Io> {
    match listener {
        Listener::Unix { listener, .. } => listener.accept().await.map(|(stream, _)| Io::Unix(stream)),
        Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| Io::Tcp(stream)),
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, app: Router, asked: Arc<AtomicBool>) {
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        app.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(MAX_HEADERS)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .serve_connection(TokioIo::new(stream), service);
    // The deadline of the headers once more, since a peer may send no byte of them at all.
    let silent = async {
        sleep(HEADER_DEADLINE).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let served = async {
        tokio::select! {
            ended = connection => Some(ended),
            () = silent => None,
        }
    };
    // A peer that breaks HTTP or is too slow is its own trouble.
    match timeout(REQUEST_DEADLINE, served).await {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(e))) => tracing::debug!(error = %e, "a probe came to nothing"),
        Ok(None) | Err(_) => tracing::debug!("a probe was too slow"),
    }
}
