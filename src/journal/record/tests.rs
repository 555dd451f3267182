use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::journal::{Record, line::LineFault};

const TS: Wall = Wall(1_796_040_000_123_456);

fn station() -> Arc<StationNames> {
    Arc::new(StationNames::new("boiler", [("temperature", Some("°C")), ("on", None)]))
}

fn good(point: u32, value: Value) -> Reading {
    Reading { point, value: Some(value), reason: None }
}

fn encode(epoch: u64, seq: u64, entry: &Entry, mark: Option<Mark>) -> String {
    let mut out = Vec::new();
    Encoder::new(epoch).lines(&mut out, entry, 0, seq, mark, usize::MAX);
    String::from_utf8(out).unwrap()
}

fn readings(readings: Vec<Reading>) -> Entry {
    Entry::Readings { station: station(), ts: TS, readings }
}

#[test]
fn the_designs_own_example_comes_out_byte_for_byte() {
    assert_eq!(
        encode(3, 41, &readings(vec![good(0, Value::F32(21.5))]), None),
        "{\"seq\":41,\"epoch\":3,\"ts\":\"2026-11-30T12:00:00.123456Z\",\"kind\":\"reading\",\"station\":\"boiler\",\
         \"point\":\"temperature\",\"value\":21.5,\"unit\":\"°C\",\"quality\":\"good\",\"crc\":\"10ec6446\"}\n"
    );
}

#[test]
fn values_print_as_the_shortest_text_that_names_them() {
    let cases = [
        (Value::F32(21.6), "21.6"),
        (Value::F64(0.1), "0.1"),
        (Value::Int(-5), "-5"),
        (Value::UInt(u64::MAX), "18446744073709551615"),
        (Value::Bool(true), "true"),
        (Value::Text("a\"b\u{1}\n".into()), "\"a\\\"b\\u0001\\n\""),
    ];
    for (value, text) in cases {
        let line = encode(1, 1, &readings(vec![good(1, value)]), None);
        assert!(line.contains(&format!("\"point\":\"on\",\"value\":{text},\"quality\":\"good\"")), "{line}");
    }
}

#[test]
fn a_bad_reading_has_no_value_and_an_uncertain_one_has() {
    let bad = Reading { point: 0, value: Some(Value::Int(0)), reason: Some(Reason::Exception(2)) };
    let line = encode(1, 1, &readings(vec![bad]), None);
    assert!(line.contains("\"temperature\",\"unit\":\"°C\",\"quality\":\"bad\",\"reason\":\"exception:2\",\"crc\""));
    let doubtful = Reading { point: 1, value: Some(Value::Int(7)), reason: Some(Reason::Range) };
    let line = encode(1, 1, &readings(vec![doubtful]), None);
    assert!(line.contains("\"value\":7,\"quality\":\"uncertain\",\"reason\":\"range\""));
}

#[test]
fn what_json_has_no_form_for_is_a_decoding_fault_and_never_a_value() {
    for value in [Value::F32(f32::NAN), Value::F64(f64::INFINITY)] {
        let line = encode(1, 1, &readings(vec![good(1, value)]), None);
        assert!(line.contains("\"point\":\"on\",\"quality\":\"bad\",\"reason\":\"decode\""), "{line}");
    }
    let line = encode(1, 1, &readings(vec![Reading { point: 9, value: None, reason: None }]), None);
    assert!(line.contains("\"point\":\"#9\",\"quality\":\"bad\",\"reason\":\"decode\""), "{line}");
}

#[test]
fn the_journals_own_keys_cannot_be_doubled_by_a_callers_fields() {
    let fields = json!({"seq": 1, "crc": "x", "why": {"crc": [1]}, "src": "1:2:3"});
    let entry = Entry::Event { ts: TS, event: "started".into(), fields: fields.as_object().unwrap().clone() };
    let line = encode(7, 5, &entry, None);
    assert!(line.starts_with(
        "{\"seq\":5,\"epoch\":7,\"ts\":\"2026-11-30T12:00:00.123456Z\",\"kind\":\"event\",\"event\":\"started\",\
         \"why\":{\"crc\":[1]},\"crc\":\""
    ));
    assert!(Record::parse(line.trim_end().as_bytes()).is_ok());
}

#[test]
fn an_ack_has_no_number() {
    let fields = json!({"uplink": "central", "acked": 41}).as_object().unwrap().clone();
    let line = encode(3, 42, &Entry::Other { kind: ACK, ts: TS, fields }, None);
    let record = Record::parse(line.trim_end().as_bytes()).unwrap();
    assert_eq!((record.seq, record.epoch, record.kind), (None, 3, "ack"));
}

#[test]
fn an_entry_that_is_too_long_is_recorded_without_what_makes_it_so() {
    let text = "x".repeat(MAX_LINE * 2);
    let line = encode(1, 1, &readings(vec![good(1, Value::Text(text.clone()))]), None);
    assert!(line.len() < MAX_LINE && line.contains("\"reason\":\"decode\""));
    let fields = json!({ "text": text }).as_object().unwrap().clone();
    let line = encode(1, 1, &Entry::Register { ts: TS, fields }, None);
    assert!(line.len() < MAX_LINE && line.contains("\"left_out_bytes\":"));
    assert!(Record::parse(line.trim_end().as_bytes()).is_ok());
}

#[test]
fn lines_stop_at_the_limit_and_go_on_where_they_stopped() {
    let entry = readings((0..10).map(|i| good(0, Value::Int(i))).collect());
    let mut whole = Vec::new();
    let mut encoder = Encoder::new(1);
    assert_eq!(encoder.lines(&mut whole, &entry, 0, 1, None, usize::MAX), 10);
    let (mut pieces, mut done) = (Vec::new(), 0);
    while done < 10 {
        let limit = pieces.len() + 200;
        done += encoder.lines(&mut pieces, &entry, done, 1 + done as u64, None, limit);
    }
    assert_eq!(pieces, whole);
}

fn any_value() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        any::<bool>().prop_map(|v| Some(Value::Bool(v))),
        any::<i64>().prop_map(|v| Some(Value::Int(v))),
        any::<u64>().prop_map(|v| Some(Value::from(v))),
        any::<f32>().prop_map(|v| Some(Value::F32(v))),
        any::<f64>().prop_map(|v| Some(Value::F64(v))),
        any::<String>().prop_map(|v| Some(Value::Text(v))),
    ]
}

fn any_reason() -> impl Strategy<Value = Option<Reason>> {
    prop_oneof![
        Just(None),
        Just(Some(Reason::Timeout)),
        any::<u8>().prop_map(|c| Some(Reason::Exception(c))),
        Just(Some(Reason::Range)),
        Just(Some(Reason::Stale)),
    ]
}

proptest! {
    #[test]
    fn any_reading_is_read_back_as_it_was_recorded(
        id in any::<String>(), name in any::<String>(), unit in proptest::option::of(any::<String>()),
        value in any_value(), reason in any_reason(), seq in 0..=HIGHEST, epoch in 0..=HIGHEST,
        mark in proptest::option::of((1_u64.., any::<u64>(), 1_u64..)),
    ) {
        let mark = mark.map(|(source, up_to, records)| Mark { source, up_to, records });
        let station = Arc::new(StationNames::new(&id, [(name.as_str(), unit.as_deref())]));
        let reading = Reading { point: 0, value, reason };
        let line = encode(epoch, seq, &Entry::Readings { station, ts: TS, readings: vec![reading.clone()] }, mark);
        prop_assert_eq!(line.matches('\n').count(), 1);
        let record = Record::parse(line.trim_end_matches('\n').as_bytes()).unwrap();
        prop_assert_eq!((record.seq, record.epoch, record.kind, record.mark), (Some(seq), epoch, "reading", mark));
        prop_assert_eq!(record.station().unwrap(), id.as_str());
        let (bare, brace) = record.bare();
        let json: Json = serde_json::from_slice(&[bare, brace].concat()).unwrap();
        prop_assert_eq!(&json["point"], &Json::from(name.as_str()));
        prop_assert_eq!(json.get("unit").and_then(Json::as_str), unit.as_deref().filter(|u| !u.is_empty()));
        prop_assert!(json.get("src").is_none() && json.get("crc").is_none());
        let (value, reason) = told(&reading);
        prop_assert_eq!(json.get("reason").and_then(Json::as_str).map(str::to_owned), reason.map(|r| r.to_string()));
        match (value, json.get("value")) {
            (None, None) => {}
            (Some(Value::F32(f)), Some(v)) => prop_assert_eq!(v.to_string().parse::<f32>().unwrap(), *f),
            (Some(Value::F64(f)), Some(v)) => prop_assert_eq!(v.as_f64().unwrap(), *f),
            (Some(Value::Text(t)), Some(v)) => prop_assert_eq!(v.as_str(), Some(t.as_str())),
            (Some(other), Some(v)) => prop_assert_eq!(v.to_string(), other.to_string()),
            (a, b) => prop_assert!(false, "{:?} {:?}", a, b),
        }
    }

    #[test]
    fn any_one_flipped_bit_is_seen(bit in 0_usize..170 * 8) {
        let mut line = encode(3, 41, &readings(vec![good(0, Value::F32(21.5))]), None).into_bytes();
        line.pop();
        let bit = bit % (line.len() * 8);
        line[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(matches!(Record::parse(&line), Err(LineFault::Checksum | LineFault::NotWhole)));
    }
}
