use proptest::prelude::*;

use super::*;
use crate::journal::record::seal;

const EXAMPLE: &str = "{\"seq\":41,\"epoch\":3,\"ts\":\"2026-11-30T12:00:00.123456Z\",\"kind\":\"reading\",\"station\":\"boiler\",\
                       \"point\":\"temperature\",\"value\":21.5,\"unit\":\"°C\",\"quality\":\"good\",\"crc\":\"10ec6446\"}";

fn sealed_line(content: &str) -> Vec<u8> {
    let mut line = content.as_bytes().to_vec();
    seal(&mut line, 0);
    line.pop();
    line
}

#[test]
fn the_designs_own_example_is_read() {
    let record = Record::parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!((record.seq, record.epoch, record.kind), (Some(41), 3, "reading"));
    assert_eq!(record.ts, "2026-11-30T12:00:00.123456Z");
    assert_eq!(record.point_key(), Some("\"station\":\"boiler\",\"point\":\"temperature\"".as_bytes()));
    assert_eq!(record.mark, None);
}

#[test]
fn numbers_that_leave_no_room_for_the_next_one_are_no_journals() {
    let content = |seq: u64, epoch: u64| format!("{{\"seq\":{seq},\"epoch\":{epoch},\"ts\":\"t\",\"kind\":\"event\"");
    assert!(Record::parse(&sealed_line(&content(HIGHEST, HIGHEST))).is_ok());
    for (seq, epoch) in [(HIGHEST + 1, 1), (u64::MAX, 1), (1, HIGHEST + 1), (1, u64::MAX)] {
        assert_eq!(Record::parse(&sealed_line(&content(seq, epoch))), Err(LineFault::Keys), "{seq} {epoch}");
    }
}

#[test]
fn a_good_checksum_does_not_make_a_record() {
    for content in
        ["{", "{\"seq\":01,\"epoch\":1", "{\"a\":1", "{\"seq\":1,\"epoch\":1,\"ts\":\"x\",\"kind\":\"a\\\"", "\u{0}"]
    {
        assert_eq!(Record::parse(&sealed_line(content)), Err(LineFault::Keys), "{content}");
    }
    let too_big = "{\"seq\":99999999999999999999,\"epoch\":1,\"ts\":\"\",\"kind\":\"event\"";
    assert_eq!(Record::parse(&sealed_line(too_big)), Err(LineFault::Keys));
}

#[test]
fn whole_records_are_found_between_damage() {
    let line = [&EXAMPLE.as_bytes()[..50], EXAMPLE.as_bytes(), b"\x0b", EXAMPLE.as_bytes(), &[0; 4096]].concat();
    let places = salvage(&line);
    let len = EXAMPLE.len();
    assert_eq!(places, [50..50 + len, 51 + len..51 + 2 * len]);
}

proptest! {
    #[test]
    fn no_bytes_at_all_bring_the_decoder_down(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Record::parse(&bytes);
        prop_assert!(salvage(&bytes).is_empty());
    }

    #[test]
    fn no_content_with_a_good_checksum_brings_it_down(content in "[{\"seqpochtskind:,0-9a\\\\]{0,60}") {
        if let Ok(record) = Record::parse(&sealed_line(&content)) {
            let _ = (record.point_key(), record.station(), record.bare());
        }
    }
}
