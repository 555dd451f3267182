//! A view for the tests of both renderings.

use std::time::Duration;

use serde_json::{Value, json};
use worker_contract::Quality;

use super::{
    takeover::{Answered, Takeover},
    view::{InstanceView, JournalView, TakeoverView, View, Word},
};
use crate::status::{LatestReading, Role, StationState, StationStatus, Status};

fn reading(station: &str, point: &str, value: Value, unit: &str, reason: Option<&str>) -> LatestReading {
    LatestReading {
        station: station.into(),
        point: point.into(),
        ts: "2026-11-30T12:00:12.000000Z".into(),
        value: (!value.is_null()).then_some(value),
        unit: (!unit.is_empty()).then(|| unit.into()),
        quality: if reason.is_some() { Quality::Bad } else { Quality::Good },
        reason: reason.map(Into::into),
    }
}

fn station(id: &str, state: StationState, reason: Option<&str>) -> StationStatus {
    StationStatus {
        id: id.into(),
        state,
        reason: reason.map(Into::into),
        last_good: None,
        critical: true,
        points: 2,
        connection: "plant".into(),
        counters: Default::default(),
    }
}

/// Leader `b` under epoch 2.
pub fn status() -> Status {
    Status {
        instance: "b".into(),
        role: Role::Leader,
        node_id: "node".into(),
        epoch: 2,
        build: "0.1.0".into(),
        since: "2026-11-30T12:00:10.000000Z".into(),
        instances: Vec::new(),
        workers: Vec::new(),
        stations: vec![
            station("boiler", StationState::Good, None),
            station("pump", StationState::Backoff, Some("timeout")),
        ],
        journal: None,
        uplinks: Vec::new(),
        alarms: Vec::new(),
        notices: Vec::new(),
    }
}

/// Two seconds after a takeover: `a` was killed, `b` leads, the pump does not answer.
pub fn view() -> View {
    let answered = Answered { by: "b", epoch: 2, after: Duration::from_millis(9) };
    let measured = Takeover {
        killed: "a",
        epoch: 1,
        at: Duration::from_secs(10),
        answered: Some(answered),
        first_reading: Some(Duration::from_millis(104)),
    };
    let word = Word { role: Role::Leader, epoch: 2, since: status().since };
    View {
        elapsed: Duration::from_millis(12_345),
        instances: [
            InstanceView { id: "a", pid: None, word: None },
            InstanceView { id: "b", pid: Some(4711), word: Some(word) },
        ],
        status: Some(status()),
        latest: vec![
            reading("boiler", "temperature", json!(78.456), "°C", None),
            reading("boiler", "burner", json!(true), "", None),
            reading("pump", "speed", Value::Null, "rpm", Some("timeout")),
            reading("pump", "status", json!(0), "", None),
        ],
        journal: JournalView {
            path: "/tmp/sensor-poll-0a1b2c/state/journal".into(),
            last_seq: 1234,
            readings: 1200,
            rate: 38.0,
            bytes: Some(98_765),
            trouble: None,
        },
        first_reading: Some(Duration::from_millis(96)),
        takeovers: vec![TakeoverView { measured, missed: Some(0), doubled: 0 }],
        leader_http: Some("http://127.0.0.1:8600".into()),
        folder: "/tmp/sensor-poll-0a1b2c".into(),
        news: vec!["killed a (leader, epoch 1, pid 4710) with SIGKILL".into()],
    }
}
