//! Calls, batches, faults, bounds and the drain.

use std::{sync::atomic::Ordering, time::Duration};

use sensor_poll::rpc::{
    client::{Client, ClientError},
    message::code,
    server::{Drained, Limits},
    transport::UnixTransport,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{
    fake::{Fake, PATIENCE, Peer, Served, latest, serve_at, status, until},
    schema,
};

fn request(id: Value, method: &str) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "id": id }).to_string()
}

#[tokio::test]
async fn every_method_answers_by_the_schema() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    for method in schema::methods() {
        let params = if method == "Worker.Restart" { json!({ "key": "modbus" }) } else { json!({}) };
        let answer = peer.call(method, params).await;
        assert!(answer.get("result").is_some(), "{answer}");
    }
    assert_eq!(served.fake.drains.load(Ordering::SeqCst), 1);
    let mut client = Client::connect(&served.path, PATIENCE).await.unwrap();
    let got: sensor_poll::status::Status = client.call("Lifecycle.Status", json!({})).await.unwrap();
    assert_eq!(got, status(sensor_poll::status::Role::Leader));
    let got: Value = client.call("Reading.Latest", json!({ "station": "boiler" })).await.unwrap();
    assert_eq!(got["readings"], json!(latest()));
}

#[tokio::test]
async fn faults_of_the_caller_have_their_codes_and_do_not_end_the_connection() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    for (frame, wanted) in [
        ("{\"jsonrpc\": \"2.0\", \"method\"", code::PARSE),
        ("\u{0}\u{1}garbage", code::PARSE),
        ("[]", code::INVALID_REQUEST),
        ("{}", code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","result":1,"id":1}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","method":"No.Such","id":1}"#, code::METHOD_NOT_FOUND),
        (r#"{"jsonrpc":"2.0","method":"Lifecycle.Status","params":{"x":1},"id":1}"#, code::INVALID_PARAMS),
        (r#"{"jsonrpc":"2.0","method":"Lifecycle.Status","params":[1],"id":1}"#, code::INVALID_PARAMS),
        (r#"{"jsonrpc":"2.0","method":"Worker.Restart","id":1}"#, code::INVALID_PARAMS),
        (r#"{"jsonrpc":"2.0","method":"Worker.Restart","params":{"key":"x"},"id":1}"#, code::UNKNOWN),
        (r#"{"jsonrpc":"2.0","method":"Worker.Restart","params":{"key":"panic"},"id":1}"#, code::INTERNAL),
        (r#"{"jsonrpc":"2.0","method":"Reading.Latest","params":{"station":"x"},"id":1}"#, code::UNKNOWN),
    ] {
        peer.send(format!("{frame}\n")).await;
        assert_eq!(peer.code().await, wanted, "{frame}");
    }
    peer.send(b"\xff\xfe\n").await;
    assert_eq!(peer.code().await, code::PARSE);
    assert!(peer.call("Lease.Status", json!([])).await["result"].is_object());
}

#[tokio::test]
async fn a_batch_is_answered_together_and_notifications_are_not_answered() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    let drain = r#"{"jsonrpc":"2.0","method":"Lifecycle.Drain"}"#;
    peer.send(format!("[{},1,{drain},{}]\n", request(json!("a"), "Lease.Status"), request(json!(null), "No.Such")))
        .await;
    let answers = peer.message().await.unwrap();
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|a| a["id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!(null), json!(null)]);
    assert_eq!(answers[1]["error"]["code"], code::INVALID_REQUEST);
    assert_eq!(answers[2]["error"]["code"], code::METHOD_NOT_FOUND);
    assert_eq!(served.fake.drains.load(Ordering::SeqCst), 1);

    peer.send(format!("[{drain},{drain}]\n{drain}\n{}\n", request(json!(7.5), "Lease.Status"))).await;
    assert_eq!(peer.message().await.unwrap()["id"], json!(7.5), "the first thing to come back");
    until("three more drains", || served.fake.drains.load(Ordering::SeqCst) == 4).await;
}

#[tokio::test]
async fn a_huge_frame_is_refused_and_the_server_lives_on() {
    let served = Served::leader().await;
    for end in ["", "\n"] {
        let mut peer = served.peer().await;
        let huge = "x".repeat((1 << 20) + 1) + end;
        // The server may close before it has taken all of it.
        let _ = peer.stream.write_all(huge.as_bytes()).await;
        assert_eq!(peer.code().await, code::INVALID_REQUEST);
        assert_eq!(peer.message().await, None, "closed");
    }
    let mut peer = served.peer().await;
    let padded = format!("{}{}\n", request(json!(1), "Lease.Status"), " ".repeat((1 << 20) - 100));
    peer.send(padded).await;
    assert_eq!(peer.message().await.unwrap()["id"], 1, "just below the limit");
}

#[tokio::test]
async fn half_a_frame_waits_until_its_deadline_only() {
    let limits = Limits { frame: Duration::from_millis(100), ..Limits::default() };
    let served = Served::new(Fake::default(), limits).await;
    let mut peer = served.peer().await;
    let whole = request(json!(1), "Lease.Status");
    let (first, second) = whole.split_at(20);
    peer.send(first).await;
    tokio::task::yield_now().await;
    peer.send(format!("{second}\n")).await;
    assert_eq!(peer.message().await.unwrap()["id"], 1);
    peer.send(first).await;
    assert_eq!(peer.code().await, code::DEADLINE);
    assert_eq!(peer.message().await, None);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let limits = Limits { idle: Duration::from_millis(50), ..Limits::default() };
    let served = Served::new(Fake::default(), limits).await;
    let mut peer = served.peer().await;
    assert_eq!(peer.code().await, code::DEADLINE);
    assert_eq!(peer.message().await, None);
}

#[tokio::test]
async fn a_last_call_without_a_line_feed_is_answered_after_the_peers_half_closed() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    peer.send(format!("{}\n{}", request(json!(1), "Lease.Status"), request(json!(2), "Lease.Status"))).await;
    peer.stream.shutdown().await.unwrap();
    assert_eq!(peer.message().await.unwrap()["id"], 1);
    assert_eq!(peer.message().await.unwrap()["id"], 2);
    assert_eq!(peer.message().await, None);
}

#[tokio::test]
async fn a_slow_call_holds_up_no_other_and_more_than_the_bound_wait() {
    let limits = Limits { in_flight: 3, ..Limits::default() };
    let served = Served::new(Fake::default(), limits).await;
    let mut peer = served.peer().await;
    let slow = |id| json!({ "jsonrpc": "2.0", "method": "Worker.Restart", "params": { "key": "slow" }, "id": id });
    peer.send(format!("{}\n{}\n", slow(1), request(json!("quick"), "Lease.Status"))).await;
    assert_eq!(peer.message().await.unwrap()["id"], "quick");
    for id in 2..=5 {
        peer.send(format!("{}\n", slow(id))).await;
    }
    until("three in flight", || served.fake.restarts.load(Ordering::SeqCst) == 3).await;
    assert!(served.peer().await.call("Lease.Status", json!({})).await["result"].is_object(), "another connection");
    assert_eq!(served.fake.restarts.load(Ordering::SeqCst), 3);
    for _ in 1..=5 {
        served.fake.go_on.notify_one();
        assert!(peer.message().await.unwrap()["result"].is_object());
    }
}

#[tokio::test]
async fn a_call_past_its_deadline_is_answered() {
    let limits = Limits { request: Duration::from_millis(50), ..Limits::default() };
    let served = Served::new(Fake::default(), limits).await;
    let answer = served.peer().await.call("Worker.Restart", json!({ "key": "slow" })).await;
    assert_eq!(answer["error"]["code"], code::DEADLINE);
    let mut client = Client::connect(&served.path, Duration::from_millis(20)).await.unwrap();
    let error = client.call::<Value>("Worker.Restart", json!({ "key": "slow" })).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn connections_are_bounded_and_the_next_one_is_told() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let served = Served::new(Fake::default(), limits).await;
    let (mut first, mut second) = (served.peer().await, served.peer().await);
    first.call("Lease.Status", json!({})).await;
    second.call("Lease.Status", json!({})).await;
    let mut third = served.peer().await;
    assert_eq!(third.code().await, code::TOO_MANY);
    assert_eq!(third.message().await, None);
    drop(first);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut client = Client::connect(&served.path, PATIENCE).await.unwrap();
        match client.call::<Value>("Lease.Status", json!({})).await {
            Ok(_) => break,
            Err(e) => assert!(tokio::time::Instant::now() < deadline, "{e}"),
        }
    }
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_flight_and_takes_nothing_new() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    peer.send("{\"jsonrpc\":\"2.0\",\"method\":\"Worker.Restart\",\"params\":{\"key\":\"slow\"},\"id\":1}\n").await;
    until("the call is in flight", || served.fake.restarts.load(Ordering::SeqCst) == 1).await;
    let (path, go_on) = (served.path.clone(), std::sync::Arc::clone(&served.fake.go_on));
    let drain = tokio::spawn(served.server.drain(PATIENCE));
    until("the socket's file is gone", || !path.exists()).await;
    assert!(matches!(Client::connect(&path, PATIENCE).await, Err(ClientError::Nobody { .. })));
    assert!(!drain.is_finished());
    go_on.notify_one();
    assert_eq!(peer.message().await.unwrap()["result"]["key"], "slow");
    assert_eq!(peer.message().await, None);
    assert_eq!(drain.await.unwrap(), Drained::Clean);
}

#[tokio::test]
async fn a_call_that_comes_while_the_server_drains_is_refused_and_not_cut_off() {
    let served = Served::leader().await;
    let mut between = served.peer().await;
    between.call("Lifecycle.Status", json!({})).await;
    let mut late = Client::connect(&served.path, PATIENCE).await.unwrap();
    late.call::<Value>("Lifecycle.Status", json!({})).await.unwrap();
    let mut busy = served.peer().await;
    busy.send("{\"jsonrpc\":\"2.0\",\"method\":\"Worker.Restart\",\"params\":{\"key\":\"slow\"},\"id\":1}\n").await;
    until("the call is in flight", || served.fake.restarts.load(Ordering::SeqCst) == 1).await;
    // Not accepted yet, since nothing else runs until this test waits.
    let mut waiting = std::os::unix::net::UnixStream::connect(&served.path).unwrap();
    std::io::Write::write_all(&mut waiting, format!("{}\n", request(json!(1), "Lifecycle.Drain")).as_bytes()).unwrap();

    let (path, go_on) = (served.path.clone(), std::sync::Arc::clone(&served.fake.go_on));
    let drain = tokio::spawn(served.server.drain(PATIENCE));
    until("the socket's file is gone", || !path.exists()).await;
    for peer in [&mut between, &mut busy] {
        peer.send(format!("{}\n", request(json!(2), "Lifecycle.Drain"))).await;
        assert_eq!(peer.code().await, code::DRAINING);
    }
    waiting.set_nonblocking(true).unwrap();
    let mut waiting = Peer::over(tokio::net::UnixStream::from_std(waiting).unwrap());
    assert_eq!(waiting.code().await, code::DRAINING);
    assert_eq!(waiting.message().await, None);
    assert_eq!(between.message().await, None);
    go_on.notify_one();
    assert_eq!(busy.message().await.unwrap()["id"], 1);
    assert_eq!(busy.message().await, None);
    assert_eq!(drain.await.unwrap(), Drained::Clean);
    match late.call::<Value>("Lifecycle.Drain", json!({})).await {
        Err(ClientError::Answered(error)) => assert_eq!(error.code, code::DRAINING),
        other => panic!("{other:?}"),
    }
    assert_eq!(served.fake.drains.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_batch_of_long_answers_is_bounded() {
    let served = Served::new(Fake { long: 512, ..Fake::default() }, Limits::default()).await;
    let mut peer = served.peer().await;
    let calls: Vec<_> = (0..64).map(|i| request(json!(i), "Lifecycle.Status")).collect();
    peer.send(format!("[{}]\n", calls.join(","))).await;
    let frame = peer.frame().await.unwrap();
    assert!(frame.len() < 6 << 20, "{}", frame.len());
    let answers: Vec<Value> = serde_json::from_str(&frame).unwrap();
    assert_eq!(answers.len(), 64);
    assert!(answers[0]["result"].is_object());
    assert_eq!(answers[63]["error"]["code"], code::TOO_MANY);
}

#[tokio::test]
async fn names_that_are_kept_are_bounded() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    let long = "x".repeat(100_000);
    for (method, params) in [
        ("Worker.Restart", json!({ "key": long })),
        ("Worker.Restart", json!({ "key": "modbus", "station": long })),
        ("Worker.Status", json!({ "key": long })),
        ("Reading.Latest", json!({ "station": long })),
        ("Reading.Subscribe", json!({ "station": long })),
        ("Reading.Subscribe", json!({ long.as_str(): 1 })),
    ] {
        peer.send(format!("{}\n", json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 }))).await;
        let frame = peer.frame().await.unwrap();
        assert!(frame.contains("-32602") && frame.len() < 500, "{method}: {} bytes", frame.len());
    }
}

#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_flood_of_connections_is_one_line_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let served = Served::new(Fake::default(), Limits { connections: 1, ..Limits::default() }).await;
    let mut first = served.peer().await;
    first.call("Lease.Status", json!({})).await;
    for _ in 0..100 {
        assert_eq!(served.peer().await.code().await, code::TOO_MANY);
    }
    let mut peer = first;
    for _ in 0..50 {
        peer.send("garbage\n").await;
        assert_eq!(peer.code().await, code::PARSE);
        let answer = peer.call("Worker.Restart", json!({ "key": "panic" })).await;
        assert_eq!(answer["error"]["code"], code::INTERNAL);
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("connection refused").count(), 1, "{text}");
    assert_eq!(text.matches("panicked").count(), 1, "{text}");
    assert!(text.lines().count() < 6, "{text}");
}

#[tokio::test]
async fn a_drain_past_its_deadline_says_what_was_cut() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    peer.send("{\"jsonrpc\":\"2.0\",\"method\":\"Worker.Restart\",\"params\":{\"key\":\"slow\"},\"id\":1}\n").await;
    until("the call is in flight", || served.fake.restarts.load(Ordering::SeqCst) == 1).await;
    assert_eq!(served.server.drain(Duration::from_millis(20)).await, Drained::Cut(1));
    assert_eq!(peer.message().await, None);
}

#[tokio::test]
async fn a_follower_refuses_what_needs_the_leader_and_names_it() {
    let served = Served::new(Fake { follows: Some("b".into()), ..Fake::default() }, Limits::default()).await;
    let mut peer = served.peer().await;
    for method in ["Reading.Latest", "Reading.Subscribe", "Event.Subscribe", "Worker.Restart"] {
        let params = if method == "Worker.Restart" { json!({ "key": "modbus" }) } else { json!({}) };
        let answer = peer.call(method, params).await;
        assert_eq!(answer["error"]["code"], code::NOT_LEADER);
        assert_eq!(answer["error"]["data"], json!({ "leader": "b" }));
    }
    assert_eq!(peer.call("Lifecycle.Status", json!({})).await["result"]["role"], "follower");
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = serve_at(&path, std::sync::Arc::default(), Limits::default()).await;
    let error = UnixTransport::bind(&path).await.unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    assert!(Peer::connect(&path).await.call("Lease.Status", json!({})).await["result"].is_object());
    assert_eq!(server.drain(PATIENCE).await, Drained::Clean);
    assert!(!path.exists());
}

#[tokio::test]
async fn two_starters_of_one_socket_make_one_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    for _ in 0..50 {
        drop(std::os::unix::net::UnixListener::bind(&path));
        let (a, b) = tokio::join!(UnixTransport::bind(&path), UnixTransport::bind(&path));
        assert!(a.is_ok() != b.is_ok());
        drop((a, b));
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn no_garbage_ends_the_server() {
    let served = Served::leader().await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..100 {
        let mut peer = served.peer().await;
        let alphabet = b"{}[]\",:\n\0\xff0aeu\\jsonrpc2.method";
        let bytes: Vec<u8> = (0..next() % 400).map(|_| alphabet[next() as usize % alphabet.len()]).collect();
        let _ = peer.stream.write_all(&bytes).await;
        if next() % 2 == 0 {
            let _ = peer.stream.shutdown().await;
            while peer.message().await.is_some() {}
        }
    }
    assert!(served.peer().await.call("Lease.Status", json!({})).await["result"].is_object());
}
