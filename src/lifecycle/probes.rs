//! The probes of an instance over HTTP: `/healthz`, `/readyz`, `/leader`, `/metrics`.
//!
//! Tasks of a [`ProbeServer`]: the accept loop, and in its set one for each connection, which ends within
//! [`REQUEST_DEADLINE`] whatever its peer does. One request a connection: a probe has no use for more, and the deadline
//! then bounds all of it.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    inherited::Inherited,
    listen::{Addr, Listener, acquire_listener},
    readiness::Readiness,
};
use crate::status::Role;

/// From a connection to the end of its answer.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// Connections at once; more wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 32;
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
    let mut connections = JoinSet::new();
    loop {
        let room = connections.len() < MAX_CONNECTIONS;
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = accept(&listener), if room => match accepted {
                Ok(Io::Unix(stream)) => { connections.spawn(answer(stream, app.clone())); }
                Ok(Io::Tcp(stream)) => { connections.spawn(answer(stream, app.clone())); }
                Err(e) => {
                    tracing::warn!(at, error = %e, "cannot accept a probe");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    tracing::info!(at, "probes closed");
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

async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, app: Router) {
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(MAX_HEADERS)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    // A peer that breaks HTTP or is too slow is its own trouble.
    match timeout(REQUEST_DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::debug!(error = %e, "a probe came to nothing"),
        Err(_) => tracing::debug!("a probe was too slow"),
    }
}
