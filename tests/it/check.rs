//! `sensor-poll check` over real files and, where this build speaks Modbus, the real binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use sensor_poll::{
    cli::{
        check::{CheckArgs, check},
        exit::Exit,
    },
    registry,
};
use serde_json::Value;

/// The example of the design.
const DESIGN: &str = r#"format_version = "1"
[facility]
id = "hydrogen-plant"

[[connections]]
id = "skid"
kind = "modbus-tcp"          # modbus-tcp, modbus-rtu, modbus-rtu-over-tcp, s7comm, can, serial, listener
host = "192.0.2.20"
port = 502

[[stations]]
id = "boiler"
connection_ref = "skid"
unit_id = 1
poll_interval_ms = 1000
critical = true

[[stations.points]]
name = "temperature"
address = "hr:100"           # co: di: ir: hr:, zero-based; 40101-style accepted
data_type = "f32"
byte_order = "CDAB"
scale = { kind = "linear", factor = 0.1, offset = 0.0, unit = "°C" }
alarm = { h = 60.0, hh = 80.0, hysteresis = 2.0, debounce = 2 }

[[uplinks]]
id = "central"
kind = "jsonrpc"             # jsonrpc, mqtt, sparkplug
url = "wss://server.example/gateway"   # ws:, wss:, unix:, tcp:; mqtt:, mqtts:
token_file = "/etc/sensor-poll/token"
"#;

struct Case {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn manifest(text: &str) -> Case {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plant.toml");
    fs::write(&path, text).unwrap();
    Case { _folder: folder, path }
}

fn checked(path: &Path, plan: bool, json: bool) -> (Exit, String) {
    let mut out = Vec::new();
    let args = CheckArgs { manifest: path.to_owned(), plan, json };
    let exit = check(&args, registry::protocols(), &mut out).unwrap();
    (exit, String::from_utf8(out).unwrap())
}

fn json(path: &Path, plan: bool) -> (Exit, Value) {
    let (exit, out) = checked(path, plan, true);
    (exit, serde_json::from_str(&out).unwrap())
}

/// False, and said, where this build has no Modbus.
fn speaks_modbus() -> bool {
    let speaks = registry::for_kind("modbus-tcp").is_some();
    if !speaks {
        eprintln!("skipped: this build does not speak modbus-tcp");
    }
    speaks
}

fn binary(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sensor-poll")).args(arguments).output().unwrap()
}

#[test]
fn faults_are_one_json_object_with_place_and_hint() {
    let case = manifest("format_version = \"1\"\n[facility]\nid = \"p\"\nnmae = 1\n");
    let (exit, out) = json(&case.path, false);
    assert_eq!(exit, Exit::Manifest);
    let fault = &out["faults"][0];
    assert_eq!(fault["file"], case.path.display().to_string());
    assert_eq!((&fault["line"], &fault["column"]), (&Value::from(4), &Value::from(1)));
    assert_eq!(fault["message"], "[facility]: unknown key `nmae`");
    assert_eq!(fault["hint"], "did you mean `name`?");
    assert_eq!(out["warnings"].as_array().map(Vec::len), Some(1));
}

#[test]
fn faults_are_text_with_a_caret_and_a_count() {
    let case = manifest("format_version = \"1\"\n[facility]\nid = \"a b\"\nnmae = 1\n");
    let (exit, out) = checked(&case.path, true, false);
    assert_eq!(exit, Exit::Manifest);
    let path = case.path.display();
    assert!(out.contains(&format!(
        "{path}:3:6: [facility]: `id` = \"a b\" is no id\n    id = \"a b\"\n         ^\n    hint: "
    )));
    assert!(out.ends_with("2 faults; nothing was started\n"), "{out}");
}

#[test]
fn faults_and_warnings_come_in_the_order_of_the_file_and_the_text_is_cut() {
    let case = manifest(
        "format_version = \"1\"\n[facility]\nid = \"p\"\n[lease]\nstandby = \"hot\"\nttl = 1\n[workers]\non_failover = \"adopt\"\n",
    );
    let (_, out) = checked(&case.path, false, false);
    let path = case.path.display().to_string();
    let places: Vec<_> =
        out.lines().filter_map(|l| l.strip_prefix(&path)?.split(": ").nth(1).map(str::to_owned)).collect();
    assert_eq!(places, ["warning", "warning", "[lease]", "warning"], "{out}");
    assert!(out.contains(":5:11: warning: [lease]") && out.contains(":6:1: [lease]: unknown key `ttl`"), "{out}");

    let keys: String = (0..70).map(|n| format!("nope{n} = 1\n")).collect();
    let case = manifest(&format!("format_version = \"1\"\n[facility]\nid = \"p\"\n{keys}"));
    let (_, out) = checked(&case.path, false, false);
    assert_eq!(out.matches("unknown key").count(), 50);
    assert!(out.ends_with("… and 20 more (see --json)\n70 faults; nothing was started\n"), "{out}");
    assert_eq!(json(&case.path, false).1["faults"].as_array().map(Vec::len), Some(70));
}

#[test]
fn a_full_disk_behind_the_output_is_told_and_no_panic() {
    let case = manifest("format_version = \"1\"\n[facility]\nid = \"p\"\n");
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for flags in [&[][..], &["--json"], &["--plan"]] {
        let check = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sensor-poll"));
            command.args(["check", "--manifest"]).arg(&case.path).args(flags).stdout(full());
            command
        };
        let output = check().output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.starts_with("sensor-poll: cannot write the outcome of the check: No space left"), "{told}");
        assert_eq!(check().stderr(full()).status().unwrap().code(), Some(1), "and nowhere to say so");
    }
}

#[test]
fn a_file_that_is_not_there_is_a_fault_like_any_other() {
    let (exit, out) = json(Path::new("/nonexistent/plant.toml"), false);
    assert_eq!(exit, Exit::Manifest);
    assert!(out["faults"][0]["message"].as_str().unwrap().contains("No such file"));
    assert_eq!(out["faults"][0]["line"], 1);
    assert!(out["faults"][0]["hint"].is_string());
}

#[test]
fn a_manifest_that_polls_nothing_is_right() {
    let case = manifest("format_version = \"1\"\n[facility]\nid = \"p\"\n");
    let (exit, out) = checked(&case.path, false, false);
    assert_eq!(exit, Exit::Done);
    assert!(out.contains("no faults; 0 connections, 0 stations, 0 points, 0 requests per cycle"), "{out}");
    let (_, out) = json(&case.path, true);
    assert_eq!((&out["faults"], &out["plan"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}

#[test]
fn the_example_of_the_design_has_no_faults() {
    if !speaks_modbus() {
        return;
    }
    let case = manifest(DESIGN);
    let (exit, out) = checked(&case.path, true, false);
    assert_eq!(exit, Exit::Done, "{out}");
    assert!(out.contains("1 connection, 1 station, 1 point, 1 request per cycle"), "{out}");
    assert!(out.contains("uplink \"central\": this version keeps readings in the journal"), "{out}");
    let (_, out) = json(&case.path, true);
    let request = &out["plan"][0]["requests"][0];
    assert_eq!((&request["wire_address"], &request["count"]), (&Value::from(100), &Value::from(2)));
    assert!(
        request["plc_address"].as_str().unwrap().contains("40101") || request["plc_address"] == "400101",
        "{request}"
    );
    assert_eq!(request["points"], Value::from(vec!["temperature"]));
}

#[test]
fn the_complete_example_of_the_reference_has_no_faults() {
    if !speaks_modbus() {
        return;
    }
    let reference = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/manifest.md")).unwrap();
    let example = reference.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let case = manifest(example);
    let (exit, out) = checked(&case.path, true, false);
    assert_eq!(exit, Exit::Done, "{out}");
}

#[test]
fn faults_of_addresses_are_told_with_their_place() {
    if !speaks_modbus() {
        return;
    }
    let text = DESIGN.replace("hr:100", "hr:65535").replace("port = 502", "port = 0");
    let case = manifest(&text);
    let (exit, out) = json(&case.path, false);
    assert_eq!(exit, Exit::Manifest);
    let lines: Vec<_> = out["faults"].as_array().unwrap().iter().map(|f| f["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [9, 20], "{out}");
    assert!(out["faults"].as_array().unwrap().iter().all(|f| f["hint"].is_string()), "{out}");
}

#[test]
fn the_command_ends_with_the_code_of_its_outcome() {
    if !speaks_modbus() {
        return;
    }
    let case = manifest(DESIGN);
    let path = case.path.to_str().unwrap();
    assert_eq!(binary(&["check", "--manifest", path]).status.code(), Some(0));
    fs::write(&case.path, "format_version = \"1\"\n").unwrap();
    let refused = binary(&["check", "--manifest", path, "--json"]);
    assert_eq!(refused.status.code(), Some(3));
    let out: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert!(out["faults"][0]["hint"].is_string());
    assert_eq!(binary(&["check"]).status.code(), Some(2));
}
