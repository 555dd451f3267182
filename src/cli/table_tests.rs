use super::*;
use crate::status::{InstanceStatus, JournalStatus, StationCounters};

const NOW: Wall = Wall(1_796_040_000_000_000);

fn station(id: &str, state: StationState, reason: Option<&str>, last_good: Option<&str>) -> StationStatus {
    StationStatus {
        id: id.into(),
        state,
        reason: reason.map(Into::into),
        last_good: last_good.map(Into::into),
        critical: id == "boiler",
        points: 3,
        connection: "skid".into(),
        counters: StationCounters::default(),
    }
}

fn status() -> Status {
    Status {
        instance: "a".into(),
        role: Role::Leader,
        node_id: "plant-7".into(),
        epoch: 3,
        build: "0.1.0".into(),
        since: "2026-11-30T11:00:00.000000Z".into(),
        instances: vec![InstanceStatus {
            id: "a".into(),
            role: Role::Leader,
            pid: 42,
            build: "0.1.0".into(),
            started_at: "2026-11-27T12:00:00Z".into(),
            generation: 1,
        }],
        workers: vec![WorkerStatus {
            key: "modbus".into(),
            protocol: "modbus".into(),
            state: WorkerState::Running,
            pid: Some(43),
            restarts: 1,
            last_exit: Some("killed by signal 9".into()),
            adopted: true,
            last_success: None,
            uncommitted: 0,
        }],
        stations: vec![
            station("boiler", StationState::Good, None, Some("2026-11-30T11:59:58Z")),
            station("pump-station-2", StationState::Backoff, Some("timeout"), None),
        ],
        journal: Some(JournalStatus { first_seq: 1, last_seq: 2000, bytes: 3 << 20, ..JournalStatus::default() }),
        uplinks: vec![],
        alarms: vec![],
        notices: vec![],
    }
}

#[test]
fn the_table_is_plain_text_without_colour() {
    let text = render_status_at(&status(), &[], usize::MAX, false, NOW);
    assert_eq!(
        text,
        "\
a: leader of plant-7, epoch 3, build 0.1.0, since 60 min ago

INSTANCE  ROLE    PID  BUILD  STARTED
a         leader  42   0.1.0  3 days ago

WORKER  STATE    PID  RESTARTS  ADOPTED  LAST EXIT
modbus  running  43   1         yes      killed by signal 9

STATION         STATE    LAST GOOD  POINTS  CRITICAL  REASON
boiler          good     2 s ago    3       yes       -
pump-station-2  backoff  never      3       no        timeout

journal: records 1 to 2000, 3.0 MiB
"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [1, 10, 40, 79] {
        let text = render_status_at(&status(), &[], width, false, NOW);
        assert!(text.lines().all(|l| l.chars().count() <= width), "{width}:\n{text}");
    }
}

#[test]
fn text_from_outside_does_not_steer_the_terminal() {
    let mut status = status();
    status.stations[0].id = "\x1b[2Jboiler\r\n".into();
    status.notices = vec!["\x07".into()];
    let text = render_status_at(&status, &[], usize::MAX, false, NOW);
    assert!(!text.contains(['\x1b', '\r', '\x07']));
}

#[test]
fn readings_show_value_unit_and_why_there_is_none() {
    let reading = |point: &str, value, reason: Option<&str>, quality| LatestReading {
        station: "boiler".into(),
        point: point.into(),
        ts: "2026-11-30T12:00:00Z".into(),
        value,
        unit: Some("°C".into()),
        quality,
        reason: reason.map(Into::into),
    };
    let latest = [
        reading("temperature", Some(21.5.into()), None, Quality::Good),
        reading("flow", None, Some("exception:2"), Quality::Bad),
    ];
    let text = render_status_at(&status(), &latest, usize::MAX, true, NOW);
    assert!(text.contains("boiler.temperature  21.5 °C  now   \x1b[32mgood\x1b[0m"), "{text}");
    assert!(text.contains("\x1b[31mbad (exception:2)\x1b[0m"), "{text}");
}

#[test]
fn ages_and_sizes_say_enough_in_one_unit() {
    assert_eq!(age(Some("2026-11-30T12:00:05Z"), NOW), "now", "a stepped clock");
    assert_eq!(age(Some("2026-11-30T11:50:00Z"), NOW), "10 min ago");
    assert_eq!(age(Some("2026-11-29T12:00:00Z"), NOW), "24 h ago");
    assert_eq!(age(Some("not a time"), NOW), "not a time");
    assert_eq!(bytes(1023), "1023 B");
    assert_eq!(bytes(1536), "1.5 KiB");
    assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
}
