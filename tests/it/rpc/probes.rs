//! Probes over Unix sockets and TCP.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use sensor_poll::{
    lifecycle::{
        inherited::Inherited,
        listen::{Addr, acquire_listener},
        probes::{ProbeServer, ProbeState},
        readiness::{Health, Part, Readiness},
    },
    status::Role,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::fake::PATIENCE;

struct State(Mutex<(Role, bool)>);

impl State {
    fn new(role: Role) -> Arc<Self> {
        Arc::new(Self(Mutex::new((role, false))))
    }

    fn set(&self, role: Role, draining: bool) {
        *self.0.lock().unwrap() = (role, draining);
    }
}

impl ProbeState for State {
    fn readiness(&self) -> Readiness {
        let (role, draining) = *self.0.lock().unwrap();
        let parts = vec![Part { name: "journal".into(), health: Health::Degraded("no space".into()) }];
        Readiness { role, draining, parts, workers: vec![] }
    }

    fn role(&self) -> Role {
        self.0.lock().unwrap().0
    }

    fn metrics(&self) -> String {
        "# HELP x y\n".into()
    }
}

/// Sends a request as it stands; gives status and body.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, request: &str) -> (u16, String) {
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer in time");
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

async fn get(path: &Path, target: &str) -> (u16, String) {
    exchange(UnixStream::connect(path).await.unwrap(), &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")).await
}

async fn start(dir: &Path, state: Arc<State>) -> (ProbeServer, std::path::PathBuf) {
    let path = dir.join("a.http.sock");
    let listener = acquire_listener(&Addr::Unix(path.clone()), "http", &Inherited::default()).await.unwrap();
    (ProbeServer::start(listener, state), path)
}

#[tokio::test]
async fn probes_answer_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::new(Role::Follower);
    let (server, path) = start(dir.path(), Arc::clone(&state)).await;
    assert_eq!(get(&path, "/healthz").await, (200, "ok\n".into()));
    assert_eq!(get(&path, "/metrics").await, (200, "# HELP x y\n".into()));
    assert_eq!(get(&path, "/leader").await, (503, "follower\n".into()));
    let (status, body) = get(&path, "/readyz").await;
    let degraded = json!([{ "part": "journal", "why": "no space" }]);
    assert_eq!(status, 200, "a healthy follower is ready");
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({ "ready": true, "role": "follower", "reasons": [], "degraded": degraded })
    );
    state.set(Role::Leader, false);
    assert_eq!(get(&path, "/leader").await.0, 200);
    state.set(Role::Leader, true);
    let (status, body) = get(&path, "/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()["reasons"],
        json!([{ "part": "lifecycle", "why": "draining" }])
    );
    assert_eq!(get(&path, "/healthz").await.0, 200, "alive while it drains");
    let (status, body) = get(&path, "/nothing").await;
    assert!(status == 404 && body.contains("/readyz"), "{status} {body}");
    server.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn peers_that_break_http_do_not_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, path) = start(dir.path(), State::new(Role::Leader)).await;
    let send = async |request: String| exchange(UnixStream::connect(&path).await.unwrap(), &request).await.0;
    assert_eq!(send("garbage\r\n\r\n".into()).await, 400);
    assert_eq!(send("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".into()).await, 405);
    let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(send(long).await, 431, "headers are bounded");
    // Silent ones hold up nobody.
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    assert_eq!(get(&path, "/healthz").await.0, 200);
}

#[tokio::test]
async fn idle_connections_keep_no_probe_from_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (_unix, path) = start(dir.path(), State::new(Role::Leader)).await;
    let listener = acquire_listener(&"127.0.0.1:0".parse().unwrap(), "http", &Inherited::default()).await.unwrap();
    let at: std::net::SocketAddr = listener.describe().parse().unwrap();
    let _tcp = ProbeServer::start(listener, State::new(Role::Leader));
    let (mut on_unix, mut on_tcp) = (Vec::new(), Vec::new());
    for i in 0..150 {
        let (mut unix, mut tcp) = (UnixStream::connect(&path).await.unwrap(), TcpStream::connect(at).await.unwrap());
        if i % 2 == 0 {
            let _ = unix.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await;
            let _ = tcp.write_all(b"G").await;
        }
        on_unix.push(unix);
        on_tcp.push(tcp);
    }
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let answers = async {
        assert_eq!(get(&path, "/healthz").await.0, 200);
        assert_eq!(exchange(TcpStream::connect(at).await.unwrap(), request).await.0, 200);
    };
    timeout(Duration::from_millis(900), answers).await.expect("an answer within a second");
    // The oldest went first, and silence has its deadline.
    assert!(on_unix[0].read_u8().await.is_err() && on_tcp[0].read_u8().await.is_err());
    let last = on_unix.last_mut().unwrap();
    let _ = timeout(Duration::from_secs(4), last.read_to_end(&mut Vec::new())).await.expect("closed by its deadline");
}

#[tokio::test]
async fn a_burst_of_whole_requests_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, path) = start(dir.path(), State::new(Role::Leader)).await;
    let asked = (0..60).map(|_| get(&path, "/healthz"));
    for (code, _) in futures_util::future::join_all(asked).await {
        assert_eq!(code, 200);
    }
}

#[tokio::test]
async fn a_leader_whose_port_is_taken_gets_it_when_it_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let state = State::new(Role::Leader);
    let server = ProbeServer::start_leader(Addr::Tcp(at), "leader".into(), Arc::default(), state);
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(taken);
    let request = "GET /leader HTTP/1.1\r\nHost: x\r\n\r\n";
    let ask = async {
        loop {
            if let Ok(stream) = TcpStream::connect(at).await
                && exchange(stream, request).await.0 == 200
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, ask).await.expect("the port is taken when it is free");
    server.stop().await;
    assert!(TcpStream::connect(at).await.is_err(), "closed with the leadership");
}
