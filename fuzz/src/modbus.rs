//! Modbus: whatever a peer sends, no panic, no growth, and no value but from an exact answer.

use worker_contract::{Reason, Value};
use worker_modbus::{
    adu::{Inbox, mbap},
    map,
    pdu::{self, Expected},
    settings::PointSettings,
    table::Table,
    transaction::{Transaction, Verdict},
};

/// Bytes 0 to 4 choose the request (transaction, unit, table, count), byte 5 the chunks; the rest is what is received.
pub fn frames(data: &[u8]) {
    let [high, low, unit, table, count, chunk, stream @ ..] = data else { return };
    let id = u16::from_be_bytes([*high, *low]);
    let table = Table::ALL[usize::from(table % 4)];
    let count = u16::from(count % 125) + 1;
    let request = pdu::read(table, 0, count);
    let bytes = u8::try_from(table.bytes(count)).expect("at most 250");
    let transaction = Transaction { id, unit: *unit, request: &request, expected: Expected::Bytes(bytes) };
    let in_chunks = received(&transaction, stream, usize::from(*chunk).max(1), count);
    let at_once = received(&transaction, stream, usize::MAX, count);
    assert_eq!(in_chunks, at_once, "the same frames, however they are cut");
}

/// The verdicts over the stream, and whether it ended in a bad header.
fn received(transaction: &Transaction<'_>, mut stream: &[u8], chunk: usize, count: u16) -> (Vec<Verdict>, bool) {
    let mut inbox = Inbox::default();
    let mut verdicts = Vec::new();
    loop {
        loop {
            let frame = match inbox.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return (verdicts, true),
            };
            let pdu = inbox.bytes(frame.pdu.clone());
            assert!((2..=mbap::MAX_PDU).contains(&pdu.len()));
            let verdict = transaction.judge(&frame, pdu);
            if verdict == Verdict::Answer {
                assert_eq!((frame.transaction, frame.unit), (transaction.id, transaction.unit));
                assert_eq!(pdu[0], transaction.request[0]);
                let table = Table::ALL.into_iter().find(|t| t.read_function().value() == pdu[0]).expect("a read");
                assert_eq!(pdu.len(), 2 + table.bytes(count));
            }
            verdicts.push(verdict);
        }
        let room = inbox.room();
        let n = stream.len().min(chunk).min(room.len());
        if n == 0 {
            assert!(stream.is_empty(), "there is always room for the rest of a frame");
            return (verdicts, false);
        }
        room[..n].copy_from_slice(&stream[..n]);
        stream = &stream[n..];
        inbox.filled(n);
    }
}

/// Bytes 0 to 5 are a point's packed settings, bytes 6 and 7 its place in the answer; the rest is the answer.
pub fn registers(data: &[u8]) {
    let [table, high, low, kind, a, b, offset_high, offset_low, answer @ ..] = data else { return };
    let packed = (*table, u16::from_be_bytes([*high, *low]), *kind, *a, *b);
    let Ok(point) = PointSettings::try_from(packed) else { return };
    let offset = u16::from_be_bytes([*offset_high, *offset_low]);
    match map::decode(point.decoder, answer, offset) {
        Ok(Value::Text(text)) => assert!(text.chars().count() <= 250 && !text.contains('\0')),
        Ok(_) => {}
        Err(reason) => assert_eq!(reason, Reason::Decode),
    }
}
