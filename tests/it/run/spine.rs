//! From the plant to the journal; probes, status and exit codes.

use std::{fs, net::SocketAddr};

use sensor_poll::sim::{
    faults::Faults,
    modbus::{Options, Server},
    registers::Registers,
};
use serde_json::{Value, json};

use super::{
    harness::{Gateway, Manifest, until},
    peer::Peer,
};

/// The product's simulator, with a runtime of its own.
fn simulator() -> (tokio::runtime::Runtime, Server, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = Options { listen, plant: Box::new(Registers::new(4, 65_536)), faults: Faults::default() };
    let server = runtime.block_on(Server::start(options)).unwrap();
    let addr = server.addr();
    (runtime, server, addr)
}

#[test]
fn readings_of_every_type_arrive_in_the_journal_with_their_values() {
    let (_runtime, _server, addr) = simulator();
    let points = [
        ("bool", "co:1", "bool", "", json!(true)),
        ("discrete", "di:4", "bool", "", json!(false)),
        ("bit", "hr:5.2", "bool", "", json!(true)),
        ("i16", "hr:65535", "i16", "", json!(-1)),
        ("u16", "hr:65534", "u16", "", json!(65_534)),
        ("input", "ir:7", "u16", "", json!(1_007)),
        ("i32", "hr:65532", "i32", "", json!(((65_532_u32 << 16) | 65_533).cast_signed())),
        ("u32", "hr:1", "u32", "", json!(0x0001_0002)),
        ("swapped", "hr:3", "u32", "byte_order = \"CDAB\"", json!(0x0004_0003)),
        ("i64", "hr:65528", "i64", "", json!((0xfff8_fff9_fffa_fffb_u64).cast_signed())),
        ("u64", "hr:8", "u64", "", json!(0x0008_0009_000a_000b_u64)),
        (
            "f32",
            "hr:16456",
            "f32",
            "unit = \"bar\"",
            json!(f32::from_bits(0x4048_4049).to_string().parse::<f64>().unwrap()),
        ),
        ("f64", "hr:16400", "f64", "", json!(f64::from_bits(0x4010_4011_4012_4013))),
        ("bcd16", "hr:4660", "bcd16", "", json!(1234)),
        (
            "scaled",
            "hr:215",
            "u16",
            "scale = { kind = \"linear\", factor = 0.1, offset = 0.0, unit = \"°C\" }",
            json!(21.5),
        ),
        ("string", "hr:16706", "string", "length = 4", json!("ABAC")),
    ];
    let mut manifest = Manifest::new("").connection("c", addr).station("all", "c", 1, 100, "critical = true");
    for (name, address, kind, more, _) in &points {
        manifest = manifest.point(name, address, kind, more);
    }
    let gateway = Gateway::new(&manifest);
    let a = gateway.start("a");
    for (name, .., value) in &points {
        let reading = gateway.more_good("all", name, 2);
        assert_eq!(reading["value"], *value, "{name}: {reading}");
    }
    assert_eq!(gateway.readings("all", "f32")[0]["unit"], "bar");
    assert_eq!(gateway.readings("all", "scaled")[0]["unit"], "°C");
    assert_eq!(a.station_when("all", "good")["points"], points.len());
    let latest = a.call("Reading.Latest").unwrap()["result"].clone();
    assert!(latest.to_string().contains("21.5"), "{latest}");
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
    assert_eq!(gateway.records()[0]["seq"], 1);
}

#[test]
fn status_has_what_scripts_rely_on_and_probes_answer_on_their_socket() {
    let peer = Peer::start();
    let manifest = Manifest::pair()
        .connection("c", peer.addr)
        .station("s", "c", 1, 50, "critical = true")
        .point("v", "hr:1", "u16", "");
    let gateway = Gateway::new(&manifest);
    let a = gateway.start("a");
    a.station_when("s", "good");
    let output = gateway.ask(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let has = |of: &Value, keys: &[&str]| {
        for key in keys {
            assert!(of.get(key).is_some(), "no {key} in {of:#}");
        }
    };
    has(
        &status,
        &[
            "instance",
            "role",
            "node_id",
            "epoch",
            "build",
            "since",
            "instances",
            "workers",
            "stations",
            "journal",
            "uplinks",
            "alarms",
            "notices",
        ],
    );
    has(&status["instances"][0], &["id", "role", "pid", "build", "started_at", "generation"]);
    has(&status["workers"][0], &["key", "protocol", "state", "pid", "restarts", "last_exit", "adopted"]);
    has(&status["stations"][0], &["id", "state", "reason", "last_good", "critical", "points"]);
    has(&status["journal"], &["first_seq", "last_seq", "bytes"]);
    assert_eq!((&status["role"], &status["workers"][0]["state"]), (&json!("leader"), &json!("running")));
    assert_eq!(status["instances"][0]["role"], "leader");

    until("it is ready", || a.probe("/readyz").filter(|(code, _)| *code == 200));
    let ready: Value = serde_json::from_str(&a.probe("/readyz").unwrap().1).unwrap();
    assert_eq!((&ready["ready"], &ready["role"]), (&json!(true), &json!("leader")));
    assert_eq!((a.probe("/healthz").unwrap().0, a.probe("/leader").unwrap().0), (200, 200));
    let metrics = a.probe("/metrics").unwrap().1;
    for name in ["sensor_poll_", "worker_last_success_timestamp_seconds{worker=", "station=\"s\""] {
        assert!(metrics.contains(name), "no {name} in {metrics}");
    }

    let b = gateway.start("b");
    b.wait_follower();
    assert_eq!((b.probe("/leader").unwrap().0, b.probe("/readyz").unwrap().0), (503, 200));
    assert_eq!(b.call("Reading.Latest").unwrap()["error"]["data"]["leader"], "a");
}

#[test]
fn a_bad_manifest_starts_nothing() {
    let gateway = Gateway::new(&Manifest::new("[nonsense]\nx = 1"));
    let mut a = gateway.start("a");
    assert_eq!(a.wait().code(), Some(3));
    assert!(gateway.log("a").contains("nonsense"), "{}", gateway.log("a"));
    assert!(!gateway.run_dir().exists() && !gateway.state_dir().exists());
}

#[test]
fn without_a_supervisor_commands_say_so_with_their_code() {
    let gateway = Gateway::new(&Manifest::new(""));
    for command in ["status", "drain", "reload"] {
        let output = gateway.ask(&[command]);
        assert_eq!(output.status.code(), Some(4), "{command}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("no supervisor is listening"));
    }
}

#[test]
fn a_second_process_of_an_instance_is_refused_and_the_first_goes_on() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 1);
    let mut second = gateway.start("a");
    assert_eq!(second.wait().code(), Some(1));
    assert!(gateway.log("a").contains("instance a runs already"), "{}", gateway.log("a"));
    gateway.more_good("s", "v", 2);
    assert_eq!(a.status().unwrap()["role"], "leader");
}

#[test]
fn a_drain_by_command_ends_everything_and_leaves_no_process() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 50));
    let mut a = gateway.start("a");
    gateway.more_good("s", "v", 2);
    assert_eq!(gateway.ask(&["drain"]).status.code(), Some(0));
    assert_eq!(a.wait().code(), Some(0));
    until("the worker is gone", || gateway.processes().is_empty().then_some(()));
    gateway.assert_journal_sound();
    let left: Vec<_> = fs::read_dir(gateway.run_dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|n| !n.to_string_lossy().ends_with(".sock")), "sockets stay: {left:?}");
}

#[test]
fn a_reading_is_lost_neither_in_the_worker_nor_on_the_way_when_the_gateway_drains() {
    let peer = Peer::start();
    let gateway = Gateway::new(&Manifest::new("").connection("c", peer.addr).simple("s", "c", 1, 10));
    let a = gateway.start("a");
    gateway.more_good("s", "v", 5);
    assert_eq!(a.drain(), Some(0));
    let (asked, recorded) = (peer.asked(1), gateway.readings("s", "v").len());
    // One request may have been in flight when polling stopped, and been cut off before its answer.
    assert!(recorded == asked || recorded + 1 == asked, "{asked} asked, {recorded} recorded");
}
