use std::collections::{BTreeMap, BTreeSet, HashSet};

use worker_contract::Reason;

use super::*;
use crate::status::StationCounters;

/// One sample: its family, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads the text format by its own rules, and panics on whatever breaks them.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'));
    let (mut helped, mut typed, mut closed) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut present = String::new();
    let mut samples = Vec::new();
    let mut series = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap();
            assert!(helped.insert(name.to_owned()), "HELP twice: {name}");
            closed.insert(std::mem::replace(&mut present, name.to_owned()));
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, present, "TYPE follows HELP");
            assert!(typed.insert(name.to_owned()), "TYPE twice: {name}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            continue;
        }
        let (name, labels, value) = sample(line);
        assert!(typed.contains(&name) && !closed.contains(&name), "{name} stands apart from its TYPE");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        assert!(series.insert((name.clone(), labels.clone())), "twice: {line}");
        samples.push((name, labels, value));
    }
    samples
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let name = line[..end].to_owned();
    let mut labels = BTreeMap::new();
    let mut rest = line[end..].chars().peekable();
    if rest.next_if_eq(&'{').is_some() {
        loop {
            let label: String = std::iter::from_fn(|| rest.next_if(|c| *c != '=')).collect();
            assert_eq!((rest.next(), rest.next()), (Some('='), Some('"')));
            let mut value = String::new();
            loop {
                match rest.next().expect("a label's value ends") {
                    '"' => break,
                    '\\' => value.push(match rest.next() {
                        Some('n') => '\n',
                        Some(c @ ('\\' | '"')) => c,
                        other => panic!("bad escape {other:?} in {line}"),
                    }),
                    c => value.push(c),
                }
            }
            assert!(labels.insert(label, value).is_none(), "label twice: {line}");
            match rest.next() {
                Some(',') => {}
                Some('}') => break,
                other => panic!("{other:?} in {line}"),
            }
        }
    }
    assert_eq!(rest.next(), Some(' '));
    (name, labels, rest.collect::<String>().parse().expect("a number"))
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let of = |l: &BTreeMap<String, String>| labels.iter().all(|(k, v)| l.get(*k).is_some_and(|got| got == v));
    samples.iter().find(|(n, l, _)| n == name && of(l)).map(|(_, _, v)| *v)
}

fn a_station(id: &str) -> StationStatus {
    StationStatus {
        id: id.into(),
        state: StationState::Backoff,
        reason: Some("timeout".into()),
        last_good: None,
        critical: true,
        points: 3,
        connection: "skid".into(),
        counters: StationCounters {
            errors: vec![(Reason::Timeout, 4), (Reason::Exception(2), 1)],
            round_trip_us: 1500,
            backoff_ms: 2000,
            last_good_us: 5_000_000,
            ..StationCounters::default()
        },
    }
}

fn snapshot() -> Snapshot {
    let worker = WorkerStatus {
        key: "modbus".into(),
        protocol: "modbus".into(),
        state: WorkerState::Running,
        pid: Some(1),
        restarts: 2,
        last_exit: Some("killed by signal 9".into()),
        adopted: false,
        last_success: Some(1_796_040_000.25),
        uncommitted: 0,
    };
    Snapshot {
        status: Status {
            instance: "a".into(),
            role: Role::Leader,
            node_id: "n".into(),
            epoch: 7,
            build: "0.1.0".into(),
            since: String::new(),
            instances: vec![],
            workers: vec![worker],
            stations: vec![a_station("boiler"), a_station("odd \"\\\n name")],
            journal: Some(JournalStatus { trouble: Some("no space".into()), dropped: 9, ..JournalStatus::default() }),
            uplinks: vec![],
            alarms: vec![],
            notices: vec![],
        },
        lease: LeaseCounters {
            state: "leading".into(),
            states: vec!["leading".into(), "standby".into()],
            renewals: 5,
            ..LeaseCounters::default()
        },
        journal: Some(JournalCounters { commit_time: Duration::from_millis(1500), ..JournalCounters::default() }),
        uplinks: vec![UplinkCounters { id: "central".into(), lag_records: 12, ..UplinkCounters::default() }],
        events_dropped: vec![("primary".into(), 3)],
        now: Wall(8_500_000),
    }
}

#[test]
fn the_text_is_well_formed_and_says_what_the_snapshot_says() {
    let samples = parse(&render(&snapshot()));
    let is = |name: &str, labels: &[(&str, &str)], wanted: f64| {
        assert_eq!(value(&samples, name, labels), Some(wanted), "{name} {labels:?}");
    };
    is("sensor_poll_build_info", &[("version", "0.1.0")], 1.0);
    is("sensor_poll_lease_state", &[("state", "leading")], 1.0);
    is("sensor_poll_lease_state", &[("state", "standby")], 0.0);
    is("sensor_poll_lease_epoch", &[], 7.0);
    is("worker_last_success_timestamp_seconds", &[("worker", "modbus")], 1_796_040_000.25);
    is("sensor_poll_worker_state", &[("worker", "modbus"), ("state", "running")], 1.0);
    is("sensor_poll_station_read_errors_total", &[("station", "boiler"), ("reason", "exception:2")], 1.0);
    is("sensor_poll_station_round_trip_seconds", &[("station", "boiler")], 0.0015);
    is("sensor_poll_station_backoff_seconds", &[("station", "boiler")], 2.0);
    is("sensor_poll_station_last_good_age_seconds", &[("station", "boiler")], 3.5);
    is("sensor_poll_station_polls_total", &[("station", "odd \"\\\n name")], 0.0);
    is("sensor_poll_journal_writable", &[], 0.0);
    is("sensor_poll_journal_commit_seconds_total", &[], 1.5);
    is("sensor_poll_uplink_lag_records", &[("uplink", "central")], 12.0);
    is("sensor_poll_events_dropped_total", &[("stream", "primary")], 3.0);
}

#[test]
fn a_station_is_in_one_state() {
    let samples = parse(&render(&snapshot()));
    let states: Vec<_> = samples
        .iter()
        .filter(|(n, l, _)| n == "sensor_poll_station_state" && l["station"] == "boiler")
        .map(|(_, l, v)| (l["state"].clone(), *v))
        .collect();
    assert_eq!(states.len(), StationState::ALL.len());
    assert_eq!(states.iter().filter(|(_, v)| *v == 1.0).collect::<Vec<_>>(), [&("backoff".to_owned(), 1.0)]);
}

#[test]
fn a_removed_station_takes_its_series_with_it() {
    let mut snapshot = snapshot();
    snapshot.status.stations.retain(|s| s.id != "boiler");
    assert!(!render(&snapshot).contains("boiler"));
    snapshot.status.stations.clear();
    assert!(!render(&snapshot).contains("sensor_poll_station"));
}

#[test]
fn a_station_that_was_never_good_has_no_age_and_a_stepped_clock_makes_none_negative() {
    let mut snapshot = snapshot();
    snapshot.status.stations.truncate(1);
    snapshot.now = Wall(0);
    assert_eq!(value(&parse(&render(&snapshot)), names::STATION_AGE.name, &[]), Some(0.0));
    snapshot.status.stations[0].counters.last_good_us = 0;
    assert_eq!(value(&parse(&render(&snapshot)), names::STATION_AGE.name, &[]), None);
}

#[test]
fn every_family_has_its_prefix_and_a_help_on_one_line() {
    for family in names::ALL {
        let plain = family.name == "worker_last_success_timestamp_seconds";
        assert!(plain || family.name.starts_with("sensor_poll_"), "{}", family.name);
        assert!(!family.help.contains(['\n', '\\']));
    }
}
