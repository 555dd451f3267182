//! What goes wrong on the wire, seen at the other end of the product: in the journal and in status.

use std::{
    net::SocketAddr,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    harness::{Gateway, Instance, Manifest, station, until},
    peer::{Answer, Peer, Request, addresses, frame_of},
};

/// Stations `u1` to `uN`, each a unit with the register of its own number.
fn units(addr: SocketAddr, count: u8, interval_ms: u32, more: &str) -> Manifest {
    (1..=count).fold(Manifest::new("").connection("c", addr), |manifest, unit| {
        manifest.station(&format!("u{unit}"), "c", unit, interval_ms, more).point("v", &format!("hr:{unit}"), "u16", "")
    })
}

/// No good reading of any of these points has another value than its register's address.
fn assert_no_foreign_value(gateway: &Gateway, points: &[(&str, &str, u64)]) {
    for (station, point, value) in points {
        for reading in gateway.readings(station, point) {
            match reading["quality"].as_str() {
                Some("good") => assert_eq!(reading["value"], *value, "{reading}"),
                _ => assert!(reading.get("value").is_none() && reading["reason"].is_string(), "{reading}"),
            }
        }
    }
}

fn reasons(gateway: &Gateway, station: &str, point: &str) -> Vec<String> {
    let bad = gateway.readings(station, point).into_iter().filter(|r| r["quality"] == "bad");
    bad.map(|r| r["reason"].as_str().unwrap().to_owned()).collect()
}

fn started(gateway: &Gateway) -> Instance<'_> {
    let a = gateway.start("a");
    a.wait_leader();
    a
}

#[test]
fn m1_a_late_answer_is_never_another_points_value_and_the_station_recovers() {
    let peer = Peer::start();
    peer.behave(|_| Answer::Late(Duration::from_millis(250)));
    let mut manifest = Manifest::new("").connection("c", peer.addr).station(
        "slow",
        "c",
        1,
        200,
        "timeout_ms = 100\nretries = 0\none_request_per_point = true",
    );
    for n in 1..=5 {
        manifest = manifest.point(&format!("r{n}"), &format!("hr:{n}"), "u16", "");
    }
    let gateway = Gateway::new(&manifest);
    let a = started(&gateway);
    until("it has failed twice", || (reasons(&gateway, "slow", "r1").len() >= 2).then_some(()));
    a.station_when("slow", "backoff");
    peer.behave(|_| Answer::Addresses);
    a.station_when("slow", "good");
    // And slow now and then among quick ones.
    peer.behave(|r| {
        if r.transaction.is_multiple_of(7) { Answer::Late(Duration::from_millis(250)) } else { Answer::Addresses }
    });
    gateway.more_good("slow", "r3", 5);
    let points: Vec<_> = (1..=5).map(|n| format!("r{n}")).collect();
    let points: Vec<_> = points.iter().zip(1..).map(|(p, n)| ("slow", p.as_str(), n)).collect();
    assert_no_foreign_value(&gateway, &points);
    assert!(reasons(&gateway, "slow", "r1").iter().all(|r| r == "timeout"));
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn m7_a_dead_unit_costs_the_others_on_its_bus_no_more_than_a_tenth() {
    let peer = Peer::start();
    peer.behave(|r| if r.unit == 2 { Answer::Silence } else { Answer::Addresses });
    let gateway = Gateway::new(&units(peer.addr, 4, 100, "timeout_ms = 100\nretries = 0"));
    let a = started(&gateway);
    a.station_when("u2", "backoff");
    let count = |unit: u8| gateway.readings(&format!("u{unit}"), "v").iter().filter(|r| r["quality"] == "good").count();
    let (before, begun) = ([1, 3, 4].map(count), Instant::now());
    let asked = peer.asked(2);
    sleep(Duration::from_secs(3));
    let (after, ticks) = ([1, 3, 4].map(count), begun.elapsed().as_millis() / 100);
    for (before, after) in before.into_iter().zip(after) {
        let readings = (after - before) as u128;
        // Two for those that are on their way at either end.
        assert!((readings + 2) * 10 >= ticks * 9, "{readings} of {ticks}");
    }
    let probes = peer.asked(2) - asked;
    assert!((1..=3).contains(&probes), "{probes} requests to the dead unit in 3 s");
    assert_eq!(peer.accepted(), 1, "a silent unit does not cost the bus its connection");
    let status = a.status().unwrap();
    for id in ["u1", "u3", "u4"] {
        assert_eq!(station(&status, id)["state"], "good", "{id}");
    }
    peer.behave(|_| Answer::Addresses);
    a.station_when("u2", "good");
    assert_no_foreign_value(&gateway, &[("u1", "v", 1), ("u2", "v", 2), ("u3", "v", 3), ("u4", "v", 4)]);
}

#[test]
fn m8_m9_an_exception_is_a_bad_reading_with_its_code_until_the_first_good_poll() {
    let peer = Peer::start();
    peer.behave(|r| match r.unit {
        1 => Answer::Exception(11),
        2 => Answer::Exception(6),
        _ => Answer::Addresses,
    });
    let gateway = Gateway::new(&units(peer.addr, 3, 50, "retries = 0"));
    let a = started(&gateway);
    let enough = |unit: &str| until(unit, || (reasons(&gateway, unit, "v").len() >= 5).then_some(()));
    enough("u1");
    enough("u2");
    let status = a.status_when("it says which code", |s| {
        station(s, "u1")["reason"].as_str().is_some_and(|r| r.starts_with("exception:11"))
    });
    assert!(station(&status, "u2")["reason"].as_str().unwrap().starts_with("exception:6"), "{status}");
    peer.behave(|_| Answer::Addresses);
    for id in ["u1", "u2"] {
        assert_eq!(a.station_when(id, "good")["reason"], Value::Null);
    }
    assert!(reasons(&gateway, "u1", "v").iter().all(|r| r == "exception:11"));
    assert!(reasons(&gateway, "u2", "v").iter().all(|r| r == "exception:6"));
    assert_eq!(peer.accepted(), 1, "a refusal does not cost the connection");
    assert_no_foreign_value(&gateway, &[("u1", "v", 1), ("u2", "v", 2), ("u3", "v", 3)]);
}

#[test]
fn m10_a_foreign_answer_before_the_right_one_is_ignored() {
    let peer = Peer::start();
    peer.behave(|r| {
        let foreign = Request { transaction: r.transaction.wrapping_sub(1), unit: 2, address: 77, ..*r };
        Answer::Raw([addresses(&foreign), addresses(r)].concat())
    });
    let gateway = Gateway::new(&units(peer.addr, 1, 50, "retries = 0"));
    let a = started(&gateway);
    gateway.more_good("u1", "v", 5);
    assert!(reasons(&gateway, "u1", "v").is_empty());
    assert_eq!(peer.accepted(), 1);
    assert_no_foreign_value(&gateway, &[("u1", "v", 1)]);
    assert_eq!(a.drain(), Some(0));
}

#[test]
fn m12_a_device_that_refuses_more_than_fifty_registers_is_asked_for_no_more() {
    let peer = Peer::start();
    peer.behave(|r| if r.count > 50 { Answer::Exception(3) } else { Answer::Addresses });
    let mut manifest = Manifest::new("").connection("c", peer.addr).station("wide", "c", 1, 200, "max_registers = 50");
    // 498 registers, in values of one, two and three words' worth of types, so that the bound falls into a value.
    for n in (0..498).step_by(3) {
        manifest = manifest.point(&format!("a{n}"), &format!("hr:{n}"), "u16", "");
        manifest = manifest.point(&format!("b{n}"), &format!("hr:{}", n + 1), "u32", "");
    }
    let gateway = Gateway::new(&manifest);
    let a = started(&gateway);
    a.station_when("wide", "good");
    let wide = |n: u64| ((n + 1) << 16) | (n + 2);
    for n in (0..498).step_by(3) {
        let (a, b) = (gateway.readings("wide", &format!("a{n}")), gateway.readings("wide", &format!("b{n}")));
        assert_eq!((&a[0]["value"], &b[0]["value"]), (&Value::from(n), &Value::from(wide(n))));
        if n > 60 {
            break;
        }
    }
    assert!(gateway.records().iter().all(|r| r["kind"] != "reading" || r["quality"] == "good"));
    assert!(peer.requests().iter().all(|r| r.count <= 50));
}

#[test]
fn m15_one_of_three_is_unreachable_at_start_and_another_restarts_under_an_open_connection() {
    let (one, two) = (Peer::start(), Peer::start());
    let away = Peer::start().stop();
    let manifest = Manifest::new("")
        .connection("one", one.addr)
        .connection("two", two.addr)
        .connection("three", away)
        .simple("s1", "one", 1, 50)
        .simple("s2", "two", 2, 50)
        .simple("s3", "three", 3, 50);
    let gateway = Gateway::new(&manifest);
    let a = started(&gateway);
    let dead = a.station_when("s3", "disconnected");
    assert!(dead["reason"].is_string());
    a.station_when("s1", "good");
    a.station_when("s2", "good");
    assert!(reasons(&gateway, "s3", "v").iter().all(|r| r == "disconnected"));

    let addr = two.stop();
    a.station_when("s2", "disconnected");
    let _two = Peer::start_at(addr);
    let _three = Peer::start_at(away);
    a.station_when("s2", "good");
    a.station_when("s3", "good");
    assert!(gateway.readings("s1", "v").iter().all(|r| r["quality"] == "good"));
    assert_eq!(one.accepted(), 1);
    assert_no_foreign_value(&gateway, &[("s1", "v", 1), ("s2", "v", 2), ("s3", "v", 3)]);
}

#[test]
fn a_critical_station_that_was_never_reached_keeps_the_gateway_from_being_ready() {
    let away = Peer::start().stop();
    let gateway = Gateway::new(&units(away, 1, 50, "critical = true"));
    let a = started(&gateway);
    a.station_when("u1", "disconnected");
    let (code, body) = a.probe("/readyz").unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &body["ready"]), (503, &Value::from(false)));
    assert!(body["reasons"].to_string().contains("u1"), "{body}");
    let _back = Peer::start_at(away);
    until("it is ready", || a.probe("/readyz").filter(|(code, _)| *code == 200));
}

#[test]
fn m15_a_connection_that_the_peer_closed_between_polls_costs_no_reading() {
    let peer = Peer::start();
    let gateway = Gateway::new(&units(peer.addr, 1, 400, ""));
    let a = started(&gateway);
    gateway.more_good("u1", "v", 1);
    let addr = peer.stop();
    let peer = Peer::start_at(addr);
    gateway.more_good("u1", "v", 2);
    assert_eq!(peer.accepted(), 1);
    assert!(reasons(&gateway, "u1", "v").len() <= 1);
    assert_eq!(a.drain(), Some(0));
}

#[test]
fn m16_four_stations_share_the_one_connection_that_a_device_accepts() {
    let peer = Peer::start();
    peer.only_one_connection();
    let gateway = Gateway::new(&units(peer.addr, 4, 50, ""));
    let a = started(&gateway);
    for unit in 1..=4 {
        gateway.more_good(&format!("u{unit}"), "v", 3);
        a.station_when(&format!("u{unit}"), "good");
    }
    assert_eq!((peer.accepted(), peer.refused()), (1, 0));
    // In turn: the next request comes when the last one was answered.
    assert!(peer.requests().iter().all(|r| r.connection == 1));
}

#[test]
fn m16_a_connection_that_is_closed_after_the_poll_lets_another_master_in() {
    let peer = Peer::start();
    peer.only_one_connection();
    let gateway = Gateway::new(&units(peer.addr, 1, 300, "close_after_poll = true"));
    let a = started(&gateway);
    gateway.more_good("u1", "v", 2);
    until("another master gets an answer", || {
        let mut other = std::net::TcpStream::connect(peer.addr).ok()?;
        other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        std::io::Write::write_all(&mut other, &[0, 9, 0, 0, 0, 6, 7, 3, 0, 1, 0, 1]).ok()?;
        let mut answer = [0; 11];
        std::io::Read::read_exact(&mut other, &mut answer).ok()?;
        Some(())
    });
    a.station_when("u1", "good");
    assert!(peer.accepted() >= 3, "a connection for each poll, and the other master's");
}

#[test]
fn m17_one_register_that_does_not_exist_makes_one_point_bad_and_no_other() {
    let peer = Peer::start();
    let covers = |r: &Request, at: u16| (r.address..r.address + r.count).contains(&at);
    peer.behave(move |r| if covers(r, 13) { Answer::Exception(2) } else { Answer::Addresses });
    let mut manifest = Manifest::new("").connection("c", peer.addr).station("block", "c", 1, 100, "");
    for n in 10..20 {
        manifest = manifest.point(&format!("r{n}"), &format!("hr:{n}"), "u16", "");
    }
    let gateway = Gateway::new(&manifest);
    let a = started(&gateway);
    gateway.more_good("block", "r19", 3);
    let found = a.station_when("block", "degraded");
    assert!(found["reason"].as_str().unwrap().contains("exception:2 (1 of 10 points)"), "{found}");
    for n in (10..20).filter(|n| *n != 13) {
        assert!(reasons(&gateway, "block", &format!("r{n}")).is_empty(), "r{n}");
    }
    assert!(reasons(&gateway, "block", "r13").iter().all(|r| r == "exception:2"));
    // The plan remembers: a later cycle takes three requests, not a search.
    let (before, polls) = (peer.requests().len(), gateway.readings("block", "r13").len());
    until("it is polled on", || (gateway.readings("block", "r13").len() >= polls + 4).then_some(()));
    let each = (peer.requests().len() - before) as f64 / (gateway.readings("block", "r13").len() - polls) as f64;
    assert!(each <= 5.0, "{each} requests a cycle");
}

/// Every second answer of unit 1 is spoiled; unit 2 on a connection of its own must not notice.
fn garbage(spoil: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) {
    let (bad, good) = (Peer::start(), Peer::start());
    bad.behave(move |r| if r.transaction.is_multiple_of(2) { Answer::Raw(spoil(r)) } else { Answer::Addresses });
    let manifest = Manifest::new("")
        .connection("bad", bad.addr)
        .connection("good", good.addr)
        .station("spoiled", "bad", 1, 50, "timeout_ms = 200\nretries = 0")
        .point("v", "hr:1", "u64", "")
        .simple("well", "good", 2, 50);
    let gateway = Gateway::new(&manifest);
    let a = started(&gateway);
    let worker = gateway.workers();
    until("a spoiled answer is a bad reading", || (reasons(&gateway, "spoiled", "v").len() >= 2).then_some(()));
    gateway.more_good("spoiled", "v", 2);
    assert_no_foreign_value(&gateway, &[("spoiled", "v", 0x0001_0002_0003_0004), ("well", "v", 2)]);
    assert!(gateway.readings("well", "v").iter().all(|r| r["quality"] == "good"));
    assert_eq!(good.accepted(), 1);
    until("the worker is up", || (gateway.workers() == worker || worker.is_empty()).then_some(()));
    assert_eq!(a.status().unwrap()["workers"][0]["restarts"], 0);
    assert_eq!(a.drain(), Some(0));
    gateway.assert_journal_sound();
}

#[test]
fn m2_an_answer_of_another_length_than_asked_is_no_value() {
    garbage(|r| frame_of(r, &[3, 6, 0, 1, 0, 2, 0, 3]));
    garbage(|r| frame_of(r, &[3, 10, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5]));
}

#[test]
fn m4_an_answer_of_another_function_is_no_value() {
    garbage(|r| {
        let mut frame = addresses(r);
        frame[7] = 4;
        frame
    });
}

#[test]
fn m5_a_frame_whose_length_cannot_be_is_no_value() {
    for length in [0_u16, 1, 255, 65_535] {
        garbage(move |r| {
            let mut frame = addresses(r);
            frame[4..6].copy_from_slice(&length.to_be_bytes());
            frame
        });
    }
}
