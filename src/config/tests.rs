//! Whole manifests against a small protocol that stands for Modbus: the cases under `tests/cases/manifest`, what a good
//! one means, and what no text at all may do.

use std::{fs, path::Path};

use proptest::prelude::*;
use worker_contract::{
    ConnectionConfig, Driver, DriverError, Fields, Opaque, PlannedRequest, Protocol, Resource, StationConfig,
    conditioning::{Linear, Mark},
    driver::{CheckedConnection, CheckedPoint},
};

use super::{
    check::check,
    diff,
    lines::Lines,
    load_bytes,
    model::{Isolation, Manifest},
    syntax,
};

/// Speaks `modbus-tcp` well enough to be checked.
struct Small;

const PROTOCOLS: &[&dyn Protocol] = &[&Small];

impl Protocol for Small {
    fn name(&self) -> &'static str {
        "modbus"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["modbus-tcp"]
    }

    fn connection(&self, _: &str, fields: &mut Fields<'_>) -> Option<CheckedConnection> {
        let host = fields.required_string("host");
        let port = fields.integer("port", 1..=65_535).map_or(502, |p| p.value);
        let lanes = fields.integer("max_connections", 1..=16).map_or(1, |n| n.value);
        let host = host?.value;
        Some(CheckedConnection {
            resources: vec![Resource(format!("tcp:{host}:{port}"))],
            lanes: u16::try_from(lanes).ok()?,
            settings: Opaque::pack(&(host, port)),
        })
    }

    fn station(&self, _: &str, fields: &mut Fields<'_>) -> Option<Opaque> {
        let before = fields.fault_count();
        let unit = fields.integer("unit_id", 0..=255).map_or(1, |u| u.value);
        (fields.fault_count() == before).then(|| Opaque::pack(&unit))
    }

    fn point(&self, _: &str, _: &Opaque, fields: &mut Fields<'_>) -> Option<CheckedPoint> {
        let types = [("u16", 1), ("f32", 2), ("u32", 2), ("string", 0), ("bool", 0)];
        let registers = fields.one_of("data_type", &types).unwrap_or(1);
        let address = fields.required_string("address")?;
        let number = address.value.strip_prefix("hr:").and_then(|n| n.parse::<u32>().ok());
        let Some(number) = number.filter(|n| *n <= 65_535) else {
            fields.fault(address.span, "`address` is no register", "use hr:0 to hr:65535".to_owned());
            return None;
        };
        if number + registers > 65_536 {
            let message = format!("`address`: the value would end past register 65535 (it takes {registers})");
            fields.fault(address.span, message, format!("use hr:{} or lower", 65_536 - registers));
            return None;
        }
        let whole = [None, Some(0..=65_535), None][registers as usize].clone();
        Some(CheckedPoint { settings: Opaque::pack(&number), numeric: registers > 0, whole })
    }

    fn plan(&self, station: &StationConfig) -> Vec<PlannedRequest> {
        let one = |(i, point): (usize, &worker_contract::PointConfig)| {
            let wire_address = point.settings.unpack().expect("packed above");
            PlannedRequest {
                operation: "read holding registers".to_owned(),
                function: 3,
                wire_address,
                count: 1,
                plc_address: (wire_address + 40_001).to_string(),
                points: vec![u32::try_from(i).expect("few points")],
            }
        };
        station.points.iter().enumerate().map(one).collect()
    }

    fn open(&self, _: &ConnectionConfig) -> Result<Box<dyn Driver>, DriverError> {
        Err(DriverError::reconfigure("not for running"))
    }
}

fn good(text: &str) -> Manifest {
    load_bytes(Path::new("plant.toml"), text.as_bytes(), PROTOCOLS).unwrap_or_else(|e| panic!("{e}")).manifest
}

fn faults(text: &str) -> Vec<String> {
    let error = load_bytes(Path::new("p"), text.as_bytes(), PROTOCOLS).unwrap_err();
    error.faults.iter().map(|f| format!("{}:{} {}", f.line, f.column, f.message)).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = load_bytes(Path::new("p"), text.as_bytes(), PROTOCOLS).unwrap_or_else(|e| panic!("{e}"));
    loaded.warnings.into_iter().map(|w| format!("{}:{} {}", w.line, w.column, w.message)).collect()
}

const HEAD: &str = "format_version = \"1\"\n[facility]\nid = \"plant\"\n";
const SKID: &str = "[[connections]]\nid = \"skid\"\nkind = \"modbus-tcp\"\nhost = \"192.0.2.20\"\n";

fn plant(stations: &str) -> String {
    format!("{HEAD}{SKID}{stations}")
}

fn point(keys: &str) -> String {
    plant(&format!(
        "[[stations]]\nid = \"b\"\nconnection_ref = \"skid\"\n[[stations.points]]\nname = \"t\"\naddress = \"hr:1\"\n{keys}\n"
    ))
}

/// Each `NAME.toml` under `tests/cases/manifest` has a `NAME.expected` beside it. `BLESS=1` writes them anew.
#[test]
fn every_broken_manifest_is_told_as_its_case_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/manifest");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        seen += 1;
        let name = Path::new(path.file_name().unwrap());
        let got = match load_bytes(name, &fs::read(&path).unwrap(), PROTOCOLS) {
            Ok(loaded) => loaded.warnings.iter().map(|w| format!("warning: {w}\n")).collect(),
            Err(error) => {
                assert!(
                    error.faults.iter().all(|f| f.hint.is_some()),
                    "{}: a fault has no hint: {error}",
                    name.display()
                );
                format!("{error}\n")
            }
        };
        let expected = path.with_extension("expected");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &got).unwrap();
        }
        assert_eq!(got, fs::read_to_string(&expected).unwrap_or_default(), "{}", name.display());
    }
    assert!(seen > 10, "the cases are there");
}

#[test]
fn defaults_are_filled_in_and_never_warned_of() {
    let text = point("");
    let manifest = good(&text);
    assert_eq!(warnings(&text), Vec::<String>::new());
    assert_eq!(manifest.facility.name, "plant");
    let station = &manifest.connections[0].config.stations[0];
    assert_eq!((station.poll_interval_ms, station.timeout_ms, station.retries), (1000, 1000, 1));
    assert!(!station.critical && !station.close_after_poll);
    assert_eq!(manifest.lease.ttl.as_millis(), 3000);
    assert_eq!(manifest.lifecycle.drain_timeout.as_secs(), 30);
    assert_eq!(manifest.journal.commit_interval.as_millis(), 200);
    assert_eq!(manifest.journal.max_bytes, 1 << 30);
    assert_eq!(manifest.journal.max_age.as_secs(), 30 * 86_400);
    assert_eq!(station.points[0].conditioning, None);
}

#[test]
fn a_point_means_what_it_says() {
    let manifest = good(&point(
        "data_type = \"f32\"\nunit = \"°C\"\nscale = { kind = \"linear\", factor = 0.1, unit = \"°C\" }\nrange = [0, 100]\n\
         dead_band = 0.5\nnot_available = [\"0x8000\", -1]\nalarm = { h = 60.0, hh = 80 }",
    ));
    let read = &manifest.connections[0].config.stations[0].points[0];
    assert_eq!(read.unit.as_deref(), Some("°C"));
    let conditioning = read.conditioning.as_ref().unwrap();
    assert_eq!(conditioning.scale, Some(Linear { factor: 0.1, offset: 0.0 }));
    assert_eq!(conditioning.range, Some((0.0, 100.0)));
    assert_eq!(conditioning.dead_band, Some(0.5));
    assert_eq!(conditioning.not_available, [Mark::Int(0x8000), Mark::Int(-32768), Mark::Int(-1)]);
    assert_eq!(manifest.alarms[0].levels.hh, Some(80.0));
    assert_eq!(&*manifest.alarms[0].station, "b");
    let ranged = good(&point("scale = { kind = \"range\", raw = [0, 27648], eng = [0.0, 100.0] }"));
    let scale = ranged.connections[0].config.stations[0].points[0].conditioning.as_ref().unwrap().scale.unwrap();
    assert!((scale.apply(13_824.0) - 50.0).abs() < 1e-9);
}

#[test]
fn names_and_units_hold_nothing_that_is_not_seen() {
    for hidden in ["\\u202E", "\u{202e}", "\u{200b}", "\\u0007", "\u{feff}", "\\n"] {
        for (text, message) in [
            (point("").replace("\"t\"", &format!("\"t{hidden}u\"")), "`name` cannot be used"),
            (point("").replace("id = \"b\"", &format!("id = \"b{hidden}\"")), "is no id"),
            (point("").replace("\"plant\"", &format!("\"plant\"\nname = \"P{hidden}\"")), "`name` cannot be used"),
            (point(&format!("unit = \"m{hidden}\"")), "`unit` cannot be used"),
            (point(&format!("scale = {{ factor = 2.0, unit = \"m{hidden}\" }}")), "`unit` cannot be used"),
        ] {
            let error = load_bytes(Path::new("p"), text.as_bytes(), PROTOCOLS).unwrap_err();
            assert_eq!(error.faults.len(), 1, "{error}");
            assert!(error.faults[0].message.contains(message), "{error}");
            assert!(
                !error.to_string().chars().any(|c| c != '\n' && worker_contract::fields::is_hidden(c)),
                "{error:?}"
            );
        }
    }
    good(&point("unit = \"m³/h\"").replace("\"t\"", "\"Température n° 1 温度\""));
}

#[test]
fn a_commit_waits_for_no_more_than_may_wait() {
    let of = |keys: &str| faults(&format!("{}[journal]\n{keys}\n", point("")));
    assert_eq!(
        of("commit_bytes = \"64 MiB\""),
        ["16:16 [journal]: `memory_bytes` (32 MiB) must not be below `commit_bytes` (64 MiB)"]
    );
    let told = of("commit_bytes = \"4 MiB\"\nmax_bytes = \"2 MiB\"");
    assert_eq!(told, ["16:16 [journal]: `max_bytes` (2 MiB) must not be below `commit_bytes` (4 MiB)"]);
    for keys in ["commit_bytes = \"32 MiB\"", "max_bytes = \"1 MiB\"\nmemory_bytes = \"1 MiB\""] {
        good(&format!("{}[journal]\n{keys}\n", point("")));
    }
}

#[test]
fn a_mark_that_the_type_does_not_have_is_refused() {
    for mark in ["\"0x123456789\"", "0x10000", "65536", "-1", "0.5", "[0, 70000]", "\"65536\"", "1e9"] {
        let told = faults(&point(&format!("data_type = \"u16\"\nnot_available = {mark}")));
        assert_eq!(told.len(), 1, "{mark}: {told:?}");
        assert!(told[0].contains("`not_available`: no raw value of this data type is "), "{mark}: {told:?}");
    }
    for mark in ["\"0xFFFF\"", "0x0000FFFF", "65535", "0", "1e3", "[0x8000, 7.0]"] {
        good(&point(&format!("data_type = \"u16\"\nnot_available = {mark}")));
    }
    good(&point("data_type = \"f32\"\nnot_available = -9.99"));
}

#[test]
fn workers_are_told_apart_by_protocol_or_by_connection() {
    let other = "[[connections]]\nid = \"far\"\nkind = \"modbus-tcp\"\nhost = \"192.0.2.21\"\n";
    let stations =
        "[[stations]]\nid = \"b\"\nconnection_ref = \"skid\"\n[[stations]]\nid = \"c\"\nconnection_ref = \"far\"\n";
    let keys = |text: &str| good(text).workers().into_iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>();
    assert_eq!(keys(&format!("{HEAD}{SKID}{other}{stations}")), ["modbus"]);
    let apart = format!("{HEAD}[workers]\nisolation = \"connection\"\n{SKID}{other}{stations}");
    assert_eq!(keys(&apart), ["modbus.skid", "modbus.far"]);
    let mixed = format!("{HEAD}{SKID}{other}isolation = \"connection\"\n{stations}");
    assert_eq!(keys(&mixed), ["modbus", "modbus.far"]);
    assert_eq!(good(&mixed).connections[1].isolation, Isolation::Connection);
    let (key, config) = good(&mixed).workers().remove(1);
    assert_eq!((key.protocol(), config.protocol.as_str(), config.connections.len()), ("modbus", "modbus", 1));
}

#[test]
fn what_is_switched_off_reaches_no_worker_and_is_still_known() {
    let stations = "[[stations]]\nid = \"b\"\nconnection_ref = \"skid\"\nenabled = false\ncritical = true\n[[stations.points]]\n\
                    name = \"t\"\naddress = \"hr:1\"\n[[stations]]\nid = \"c\"\nconnection_ref = \"skid\"\n[[stations.points]]\n\
                    name = \"u\"\naddress = \"hr:1\"\nenabled = false\n";
    let manifest = good(&plant(stations));
    let (_, config) = manifest.workers().remove(0);
    assert_eq!(config.connections[0].stations.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["c"]);
    assert!(config.connections[0].stations[0].points.is_empty());
    let off = manifest.disabled_stations();
    assert_eq!((off.len(), &*off[0].id, off[0].critical, off[0].points), (1, "b", true, 1));
    assert!(manifest.disabled_workers().is_empty());

    let manifest = good(&format!("{HEAD}{SKID}enabled = false\n{stations}"));
    assert!(manifest.workers().is_empty());
    assert_eq!(manifest.disabled_workers()[0].as_str(), "modbus");
    assert_eq!(manifest.disabled_stations().len(), 2);
    assert_eq!(manifest.stations().count(), 0);
}

#[test]
fn two_connections_may_share_a_resource_when_one_is_switched_off() {
    let twin = SKID.replace("skid", "spare");
    let told = faults(&format!("{HEAD}{SKID}{twin}"));
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("`tcp:192.0.2.20:502`, which connection \"skid\" in line 7 owns alone"), "{told:?}");
    good(&format!("{HEAD}{SKID}{twin}enabled = false\n"));
}

#[test]
fn what_is_accepted_and_not_done_yet_is_warned_of() {
    let text = plant(
        "[[stations]]\nid = \"b\"\nconnection_ref = \"skid\"\n[[stations.points]]\nname = \"t\"\naddress = \"hr:1\"\n\
         alarm = { h = 1.0 }\n[lease]\nstandby = \"hot\"\n[upgrade]\nsource = \"https://x.example\"\n[[uplinks]]\n\
         id = \"central\"\nkind = \"jsonrpc\"\nurl = \"wss://server.example/gateway\"\n[[alarm_rules]]\nid = \"b.t.hh\"\n\
         station_ref = \"b\"\nregister_name = \"t\"\nlevel = \"HighHigh\"\nthreshold = 80.0\nunit = \"°C\"\n",
    );
    let told = warnings(&text).join("\n");
    for part in [
        "alarm levels",
        "standby",
        "no upgrade",
        "uplink \"central\": this version keeps readings",
        "alarm rules: this",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[test]
fn what_has_faults_is_not_said_to_be_missing() {
    let told = |text: &str| {
        let error = load_bytes(Path::new("p"), text.as_bytes(), PROTOCOLS).unwrap_err();
        let all = error.faults.iter().chain(&error.warnings);
        all.map(|f| f.message.clone()).collect::<Vec<_>>().join("\n")
    };
    let station = "[[stations]]\nid = \"b b\"\nconnection_ref = \"skid\"\n";
    let rule =
        "[[alarm_rules]]\nid = \"r\"\nstation_ref = \"b b\"\nregister_name = \"t\"\nlevel = \"h\"\nthreshold = 1\n";
    for text in [
        plant(station),
        plant(&format!("{station}{rule}")),
        plant(&station.replace("id = \"b b\"\n", "")),
        plant("[stations]\nid = \"b\"\n"),
        format!("{HEAD}{}", SKID.replace("skid", "a skid")),
        format!("{HEAD}{}{}", SKID.replace("skid", "a skid"), station.replace("skid", "a skid").replace("b b", "b")),
        format!("{HEAD}{}", SKID.replace("[[connections]]", "[connections]")),
    ] {
        let told = told(&text);
        assert!(!told.contains("there are no") && !told.contains("there is no"), "{text}\n{told}");
    }
    assert!(told(&format!("{HEAD}nope = 1\n")).contains("there are no connections"));
    assert!(told(&plant("nope = 1\n")).contains("there are no stations"));
}

#[test]
fn adoption_is_warned_of_where_it_is_written() {
    let of = |word: &str| warnings(&format!("{}[workers]\non_failover = \"{word}\"\n", point("")));
    let told = of("adopt");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("16:15 [workers]: `on_failover = \"adopt\"`: in this version workers leave"), "{told:?}");
    assert_eq!(of("respawn"), Vec::<String>::new());
}

#[test]
fn the_complete_example_of_the_reference_has_every_key_of_the_core() {
    let reference = include_str!("../../docs/manifest.md");
    let example = reference.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // The small protocol knows few of Modbus's keys: it is the only one that may complain.
    let modbus = ["max_registers", "max_coils", "max_gap", "one_request_per_point", "byte_order"];
    let plain: String = example
        .lines()
        .filter(|l| !modbus.iter().any(|k| l.starts_with(k)))
        .fold(String::new(), |text, line| text + line + "\n");
    let manifest = good(&plain);
    assert_eq!(manifest.alarms.len(), 1);
    assert_eq!(manifest.alarm_rules.len(), 1);
    for key in
        ["dead_band", "not_available", "hysteresis", "segment_bytes", "token_file", "close_after_poll", "isolation"]
    {
        assert!(plain.contains(key), "{key}");
    }
}

#[test]
fn an_order_of_timeouts_that_is_broken_is_told_at_the_setting() {
    let told = faults(&format!("{HEAD}[lifecycle]\ndrain_timeout_ms = 100000\n"));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("5:20 [lifecycle]: `drain_timeout_ms`: the service manager's stop (90 s) must be above")
    );
    let told = faults(&format!("{HEAD}[lifecycle]\ndrain_timeout_ms = 1000\n[journal]\ncommit_interval_ms = 5000\n"));
    assert!(
        told[0].starts_with("7:22 [journal]: `commit_interval_ms`: the worker's drain (800 ms) must be above"),
        "{told:?}"
    );
}

#[test]
fn faults_of_syntax_and_of_meaning_are_told_in_one_run() {
    let text = plant("[[stations]]\nid = \"b\nconnection_ref = \"skid\"\npol_interval_ms = 5\n");
    let told = faults(&text);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], "9:8 a text is not closed");
    assert!(told[1].contains("unknown key `pol_interval_ms`"));
}

#[test]
fn lines_end_in_crlf_as_well() {
    let unix = plant("[[stations]]\nid = \"b\"\nconnection_ref = \"skid\"\nfoo = 1\n");
    assert_eq!(faults(&unix.replace('\n', "\r\n")), faults(&unix));
    good(&point("").replace('\n', "\r\n"));
}

#[test]
fn ten_thousand_equal_faults_are_told_shortly_and_soon() {
    let mut text = format!("{HEAD}{SKID}");
    for i in 0..10_000 {
        text.push_str(&format!("[[stations]]\nid = \"s{i}\"\nconnection_ref = \"skit\"\nnope = 1\n"));
    }
    let error = load_bytes(Path::new("p"), text.as_bytes(), PROTOCOLS).unwrap_err();
    assert_eq!(error.faults.len() + error.more, 20_000);
    assert!(error.to_string().len() < 1 << 20);
}

#[test]
fn nesting_without_end_is_a_fault_and_no_overflow() {
    for text in [
        format!("{} = 1\n", ["a"; 20_000].join(".")),
        format!("[{}]\n", ["a"; 20_000].join(".")),
        format!("[[stations]]\n{} = 1\n", ["a"; 20_000].join(".")),
        format!("a = {}\n", "[".repeat(20_000)),
        format!("a = {}\n", "{ a = ".repeat(20_000)),
        format!("a = {}", "{ a.a.a.a = ".repeat(20_000)),
    ] {
        assert!(!faults(&text).is_empty());
    }
}

#[test]
fn one_line_as_long_as_the_file_is_told_shortly() {
    let text = format!(
        "format_version = \"1\"\nfacility = {{ id = \"p\", {} }}\n",
        (0..20_000).map(|i| format!("k{i} = 1")).collect::<Vec<_>>().join(", ")
    );
    let error = load_bytes(Path::new("p"), text.as_bytes(), PROTOCOLS).unwrap_err();
    assert_eq!(error.faults.len() + error.more, 20_000);
    assert!(error.to_string().len() < 1 << 20);
}

#[test]
fn a_diff_names_what_changes() {
    let old = good(&point(""));
    assert!(diff(&old, &old).is_empty());
    assert_eq!(diff(&old, &old).summary(), "nothing changes");
    let more = good(&format!(
        "{}[[stations]]\nid = \"c\"\nconnection_ref = \"skid\"\n[lease]\nttl_ms = 1000\n[journal]\nmax_bytes = \"2 GiB\"\n",
        point("unit = \"K\"")
    ));
    let told = diff(&old, &more);
    assert_eq!(told.stations.added, ["c"]);
    assert_eq!(told.stations.changed, ["b"]);
    assert_eq!(told.restart_needed, ["lease.ttl_ms"]);
    assert!(told.settings.contains(&"journal.max_bytes".to_owned()));
    assert!(told.connections.is_empty());
    assert!(told.summary().starts_with("stations: 1 added, 1 changed; settings: "), "{}", told.summary());
    assert_eq!(diff(&more, &old).stations.removed, ["c"]);
    let port = good(&point("").replace("\"192.0.2.20\"", "\"192.0.2.20\"\nport = 503"));
    assert_eq!(diff(&old, &port).connections.changed, ["skid"]);
    // What is behind it is polled elsewhere now.
    assert_eq!(diff(&old, &port).stations.changed, ["b"]);
    assert_eq!(diff(&old, &port).summary(), "station: 1 changed; connection: 1 changed (skid)");
    let apart = good(&point("").replace("\"192.0.2.20\"", "\"192.0.2.20\"\nisolation = \"connection\""));
    assert_eq!(diff(&old, &apart).stations.changed, ["b"], "in a process of its own");
    let other = SKID.replace("skid", "far").replace("2.20", "2.21");
    let both = good(&format!("{}{other}", point("")));
    let moved = good(&format!("{}{other}", point("").replace("_ref = \"skid\"", "_ref = \"far\"")));
    assert!(diff(&old, &both).stations.is_empty());
    assert_eq!(diff(&both, &moved).stations.changed, ["b"]);
    assert!(diff(&both, &moved).connections.is_empty());
}

/// Pieces of manifests, good and broken, that a random text is made of.
fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop_oneof![
        4 => proptest::sample::select(vec![
            "format_version = \"1\"\n", "[facility]\n", "id = \"a\"\n", "id = \"b\"\n", "[[connections]]\n", "kind = \"modbus-tcp\"\n",
            "host = \"h\"\n", "[[stations]]\n", "connection_ref = \"a\"\n", "[[stations.points]]\n", "name = \"t\"\n",
            "address = \"hr:1\"\n", "[stations.x]\n", "[ stations ]\n", "stations = 1\n", "x = '''\n", "x = \"\"\"\n", "'''\n",
            "x = [\n", "]\n", "x = { a = 1 }\n", "[lease]\n", "ttl_ms = 1000\n", "scale = { factor = 0 }\n", "# ' \" [\n",
            "[journal]\n", "max_bytes = \"1 GiB\"\n", "\"stations\" = 2\n", "[[\"stations\"]]\n", "enabled = false\n",
            "not_available = [0x8000, \"0xF\"]\n", "range = [1, nan]\n", "alarm = { h = 1 }\n", "[[stations]] # c\n",
        ]).prop_map(str::to_owned),
        1 => "[ -~\n\r\t°]{0,12}",
    ];
    proptest::collection::vec(scrap, 0..24).prop_map(|parts| parts.concat())
}

fn outcome(result: Result<super::Loaded, super::LoadError>) -> String {
    format!("{result:?}")
}

proptest! {
    #[test]
    fn no_bytes_at_all_bring_the_check_down(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = outcome(load_bytes(Path::new("p"), &bytes, PROTOCOLS));
    }

    #[test]
    fn no_text_brings_the_check_down_and_pieces_find_what_the_whole_finds(text in scraps()) {
        let lines = Lines::new(&text);
        let outcome = check(&text, &lines, PROTOCOLS);
        prop_assert_eq!(outcome.manifest.is_none(), !outcome.faults.is_empty(), "{:?}", outcome.faults);
        let mut told = worker_contract::Faults::default();
        let broken = syntax::parse(&text, 0, &lines, &mut told).1.is_some();
        prop_assert_eq!(broken, !told.is_empty());
        let whole = super::check::check_whole(&text, &lines, PROTOCOLS);
        // Of a broken text the pieces tell more, but neither takes what the other refuses.
        prop_assert_eq!(outcome.manifest.is_none(), whole.manifest.is_none());
        if !broken {
            prop_assert_eq!(format!("{:?}", outcome), format!("{:?}", whole));
        }
        if let Some(manifest) = outcome.manifest {
            prop_assert!(diff(&manifest, &manifest).is_empty());
        }
    }
}

/// A plant of a hundred thousand points: seconds in a debug build, so it is run on demand.
#[test]
#[ignore = "measures: run it in a release build"]
fn a_hundred_thousand_points_are_read_within_two_seconds() {
    let mut text = format!("{HEAD}{SKID}");
    for station in 0..1000 {
        text.push_str(&format!("[[stations]]\nid = \"s{station}\"\nconnection_ref = \"skid\"\n"));
        for point in 0..100 {
            text.push_str(&format!(
                "[[stations.points]]\nname = \"p{point}\"\naddress = \"hr:{}\"\ndata_type = \"f32\"\n",
                point * 2
            ));
        }
    }
    let memory = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let lines = status.lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS"));
        lines.collect::<Vec<_>>().join(", ")
    };
    let before = memory();
    let start = std::time::Instant::now();
    let manifest = good(&text);
    let took = start.elapsed();
    eprintln!("{} bytes in {took:?}; before {before}; after {}", text.len(), memory());
    assert_eq!(manifest.stations().map(|(_, s)| s.points.len()).sum::<usize>(), 100_000);
    assert!(took.as_secs() < 2);
}
