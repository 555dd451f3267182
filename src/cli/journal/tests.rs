use std::{fs, sync::Arc};

use clap::Parser;
use serde_json::{Value, json};
use worker_contract::{Reading, Reason};

use super::*;
use crate::{
    clock::Wall,
    journal::{
        Entry, RecoverOptions, StationNames,
        checkpoint::{Checkpoint, VERSION},
        disk::SystemDisk,
        record::Encoder,
        recover,
        segment::SegmentId,
    },
};

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    journal: JournalArgs,
}

fn journal() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("journal")).unwrap();
    fs::write(file(&dir), lines()).unwrap();
    dir
}

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("journal").join(SegmentId { first_seq: 1, epoch: 3, attempt: 0 }.to_string())
}

/// Two readings and an event.
fn lines() -> Vec<u8> {
    let ts = Wall(1_796_040_000_123_456);
    let value = |v| Some(worker_contract::Value::Text(v));
    let station = Arc::new(StationNames::new("boiler", [("note", None), ("temperature", Some("°C"))]));
    let readings = vec![
        Reading { point: 0, value: value("a, \"b\"\n".to_owned()), reason: None },
        Reading { point: 1, value: None, reason: Some(Reason::Timeout) },
    ];
    let fields = json!({ "why": "x" }).as_object().unwrap().clone();
    let mut encoder = Encoder::new(3);
    let mut out = Vec::new();
    encoder.lines(&mut out, &Entry::Readings { station, ts, readings }, 0, 1, None, usize::MAX);
    encoder.lines(&mut out, &Entry::Event { ts, event: "e".into(), fields }, 0, 3, None, usize::MAX);
    out
}

fn export(dir: &tempfile::TempDir, args: &ExportArgs) -> String {
    let mut out = Vec::new();
    export::run(dir.path(), args, &mut out, &mut io::sink()).unwrap();
    String::from_utf8(out).unwrap()
}

fn verify(dir: &tempfile::TempDir) -> (Exit, String, Value) {
    let (mut text, mut object) = (Vec::new(), Vec::new());
    let exit = verify::run(dir.path(), false, &mut text).unwrap();
    assert_eq!(verify::run(dir.path(), true, &mut object).unwrap(), exit);
    (exit, String::from_utf8(text).unwrap(), serde_json::from_slice(&object).unwrap())
}

#[test]
fn the_state_folder_may_stand_before_or_after_the_subcommand() {
    for args in [["x", "--state-dir", "/s", "verify"], ["x", "verify", "--state-dir", "/s"]] {
        assert_eq!(Cli::try_parse_from(args).unwrap().journal.state_dir, Path::new("/s"));
    }
}

#[test]
fn export_leaves_the_checksum_out_and_nothing_else() {
    let out = export(&journal(), &ExportArgs::default());
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].ends_with("\"unit\":\"°C\",\"quality\":\"bad\",\"reason\":\"timeout\"}"), "{}", lines[1]);
    assert!(lines[2].ends_with("\"kind\":\"event\",\"event\":\"e\",\"why\":\"x\"}"));
}

#[test]
fn csv_quotes_as_rfc_4180_says() {
    let out = export(&journal(), &ExportArgs { csv: true, ..ExportArgs::default() });
    assert_eq!(
        out,
        "seq,epoch,ts,kind,station,point,value,unit,quality,reason,details\r\n\
         1,3,2026-11-30T12:00:00.123456Z,reading,boiler,note,\"a, \"\"b\"\"\n\",,good,,\r\n\
         2,3,2026-11-30T12:00:00.123456Z,reading,boiler,temperature,,°C,bad,timeout,\r\n\
         3,3,2026-11-30T12:00:00.123456Z,event,,,,,,,\"{\"\"event\"\":\"\"e\"\",\"\"why\"\":\"\"x\"\"}\"\r\n"
    );
}

#[test]
fn export_takes_filters() {
    let dir = journal();
    let count = |args: ExportArgs| export(&dir, &args).lines().count();
    assert_eq!(count(ExportArgs { from: Some(2), ..ExportArgs::default() }), 2);
    assert_eq!(count(ExportArgs { to: Some(2), ..ExportArgs::default() }), 2);
    assert_eq!(count(ExportArgs { kind: Some("event".into()), ..ExportArgs::default() }), 1);
    assert_eq!(count(ExportArgs { station: Some("boiler".into()), ..ExportArgs::default() }), 2);
    assert_eq!(count(ExportArgs { station: Some("boil".into()), ..ExportArgs::default() }), 0);
}

#[test]
fn filters_that_nothing_can_pass_are_bad_usage() {
    let refused = Cli::try_parse_from(["x", "export", "--kind", "foo"]).unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("possible values: reading, alarm, event, register, ack, write"), "{refused}");
    assert!(Cli::try_parse_from(["x", "export", "--kind", "ack"]).is_ok());
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let args = ExportArgs { csv: true, from: Some(10), to: Some(5), ..ExportArgs::default() };
    assert_eq!(export::run(journal().path(), &args, &mut out, &mut errors).unwrap(), Exit::Usage);
    assert!(out.is_empty() && String::from_utf8(errors).unwrap().contains("--from 10 is behind --to 5"));
}

#[test]
fn a_station_without_a_record_is_noted() {
    let dir = journal();
    let of = |station: &str| ExportArgs { station: Some(station.to_owned()), ..ExportArgs::default() };
    assert_eq!(told(&dir, &of("nope")), "note: the journal has no record of station \"nope\"\n");
    assert_eq!(told(&dir, &of("boiler")), "");
    assert_eq!(told(&dir, &ExportArgs { kind: Some("alarm".into()), ..of("boiler") }), "");
    assert!(told(&dir, &ExportArgs { from: Some(3), ..of("boiler") }).contains("between these numbers"));
}

#[test]
fn verify_of_a_clean_journal_says_so() {
    let (exit, text, object) = verify(&journal());
    assert_eq!(exit, Exit::Done);
    assert!(text.starts_with("clean: 3 records (1 to 3) in 1 segments, "), "{text}");
    assert_eq!((&object["clean"], &object["records"], &object["last_seq"]), (&json!(true), &json!(3), &json!(3)));
}

#[test]
fn verify_names_file_line_and_byte_of_each_fault() {
    let dir = journal();
    let mut content = lines();
    let second = memchr::memchr(b'\n', &content).unwrap() + 1;
    content[second + 40] ^= 1;
    fs::write(file(&dir), &content).unwrap();
    let (exit, text, object) = verify(&dir);
    assert_eq!(exit, Exit::Failed);
    let place = format!("journal/{}: line 2, byte {second}: ", file(&dir).file_name().unwrap().to_str().unwrap());
    assert!(text.starts_with(&place) && text.contains("2 faults: 2 records"), "{text}");
    assert_eq!(object["faults"][0]["line"], 2);
    assert_eq!(object["faults"][0]["offset"], second);
}

#[test]
fn a_record_on_its_way_is_no_fault() {
    let dir = journal();
    let content = lines();
    for cut in [1, 2, 40] {
        fs::write(file(&dir), &content[..content.len() - cut]).unwrap();
        let (exit, text, object) = verify(&dir);
        assert_eq!((exit, &object["in_flight"]), (Exit::Done, &json!(true)), "{cut}");
        assert!(text.contains("on its way"), "{text}");
    }
    for damage in [&[0; 4096][..], b"\n", b"x"] {
        // With the last record's newline, and without it.
        for content in [&content[..], &content[..content.len() - 1]] {
            fs::write(file(&dir), [content, damage].concat()).unwrap();
            // A newline alone after a record without one is that record's end.
            let whole = damage == b"\n" && !content.ends_with(b"\n");
            assert_eq!(verify(&dir).0, if whole { Exit::Done } else { Exit::Failed }, "{damage:?}");
        }
    }
}

/// What an export says beside the records.
fn told(dir: &tempfile::TempDir, args: &ExportArgs) -> String {
    let mut errors = Vec::new();
    export::run(dir.path(), args, &mut io::sink(), &mut errors).unwrap();
    String::from_utf8(errors).unwrap()
}

#[test]
fn export_counts_what_verify_finds_at_a_segments_end() {
    let dir = journal();
    let content = lines();
    assert_eq!(told(&dir, &ExportArgs::default()), "");
    fs::write(file(&dir), &content[..content.len() - 40]).unwrap();
    assert_eq!(told(&dir, &ExportArgs::default()), "", "a record on its way is none");
    fs::write(file(&dir), [&content[..], &[0; 4096]].concat()).unwrap();
    assert!(told(&dir, &ExportArgs::default()).starts_with("1 fault "), "a tail of NUL bytes");
    fs::write(file(&dir), &content).unwrap();
    let newest = SegmentId { first_seq: 4, epoch: 4, attempt: 0 };
    fs::write(dir.path().join("journal").join(newest.to_string()), [0; 4096]).unwrap();
    assert!(told(&dir, &ExportArgs::default()).starts_with("1 fault "), "a segment of NUL bytes");
    assert_eq!(verify(&dir).2["fault_count"], 1);
}

#[test]
fn verify_holds_the_journal_against_the_checkpoint() {
    let dir = journal();
    recover(dir.path(), RecoverOptions::default()).unwrap();
    let journal_id = fs::read_to_string(dir.path().join("journal_id")).unwrap().trim().to_owned();
    let segment = file(&dir).file_name().unwrap().to_str().unwrap().to_owned();
    let store = |seq, journal_id: &str| {
        let checkpoint = Checkpoint {
            version: VERSION,
            journal_id: journal_id.to_owned(),
            seq,
            epoch: 3,
            segment: segment.clone(),
            line: 1,
            ..Checkpoint::default()
        };
        checkpoint.store(&mut SystemDisk, dir.path()).unwrap();
    };
    store(3, &journal_id);
    assert_eq!(verify(&dir).0, Exit::Done);
    store(7, &journal_id);
    let (exit, text, object) = verify(&dir);
    assert_eq!((exit, &object["fault_count"], &object["faults"][0]["seq"]), (Exit::Failed, &json!(1), &json!([4, 7])));
    assert!(text.starts_with("checkpoint.json: records 4 to 7 are missing: the checkpoint knows them\n"), "{text}");
    fs::remove_file(file(&dir)).unwrap();
    assert_eq!(verify(&dir).2["faults"][0]["seq"], json!([1, 7]), "all segments gone");
    fs::write(file(&dir), lines()).unwrap();
    store(7, "another");
    assert!(verify(&dir).1.contains("another journal"));
    fs::write(dir.path().join("checkpoint.json"), "{}").unwrap();
    assert!(verify(&dir).1.contains("checkpoint.json: of no use: it is damaged"));
}

#[test]
fn a_stray_segment_does_not_hide_the_records_of_the_others() {
    let dir = journal();
    let stray = SegmentId { first_seq: 9999, epoch: 9, attempt: 0 };
    fs::copy(file(&dir), dir.path().join("journal").join(stray.to_string())).unwrap();
    let (exit, text, object) = verify(&dir);
    assert_eq!((exit, &object["records"], &object["fault_count"]), (Exit::Failed, &json!(3), &json!(1)), "{text}");
    assert!(text.contains(&format!("is {}", file(&dir).file_name().unwrap().to_str().unwrap())), "{text}");
    assert_eq!(export(&dir, &ExportArgs::default()).lines().count(), 3);
}

#[test]
fn no_journal_is_an_error_and_an_empty_one_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        verify::run(dir.path(), false, &mut io::sink()),
        Err(Failure::Journal(JournalError::Missing { .. }))
    ));
    fs::create_dir(dir.path().join("journal")).unwrap();
    assert_eq!(verify(&dir).0, Exit::Done);
}

#[test]
fn stats_count_by_kind_and_station() {
    let mut out = Vec::new();
    stats::run(journal().path(), true, &mut out).unwrap();
    let object: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(object["kinds"], json!({ "event": 1, "reading": 2 }));
    assert_eq!(object["stations"], json!({ "boiler": 2 }));
    assert_eq!((&object["first_seq"], &object["last_seq"]), (&json!(1), &json!(3)));
    let mut out = Vec::new();
    stats::run(journal().path(), false, &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("station      boiler: 2\n"));
}

/// Takes nothing, as a pipe whose reader left.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn an_output_that_went_away_stops_the_export() {
    let stopped = export::run(journal().path(), &ExportArgs::default(), &mut Gone, &mut io::sink());
    assert!(matches!(stopped, Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe));
}
