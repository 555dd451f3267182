//! From an entry to its lines. No allocation for a record; one growing buffer for a whole commit.

use serde_json::{Map, Value as Json};
use worker_contract::{Quality, Reading, Reason, Value};

use super::{
    entry::{ACK, Entry},
    escape,
    names::StationNames,
    timestamp::Stamp,
};
use crate::clock::Wall;

/// The longest line, newline included. A reader may hold it to this; an entry that would be longer is recorded without
/// what makes it so.
pub const MAX_LINE: usize = 256 * 1024;

/// The highest number and epoch: both stay whole in doubles, and there is always room for the next ones. A line or a
/// checkpoint with a greater one is not ours, whatever its checksum says.
pub const HIGHEST: u64 = (1 << 53) - 1;

/// `,"crc":"` before the eight digits and `"}` after them.
pub(super) const CRC_KEY: &[u8; 8] = b",\"crc\":\"";
/// From the comma before `crc` to the brace.
pub(super) const CRC_TAIL: usize = 18;

/// The journal's own keys: a caller's field of this name is left out.
const RESERVED: [&str; 7] = ["seq", "epoch", "ts", "kind", "event", "src", "crc"];

/// Which batch a record begins: written on the batch's first record as `"src":"SOURCE:UP_TO:RECORDS"`, so that a later
/// leader can tell, to the record, what of a worker's readings is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// See [`super::Batch::source`].
    pub source: u64,
    /// See [`super::Batch::up_to`].
    pub up_to: u64,
    /// How many numbered records the batch has, this one included.
    pub records: u64,
}

/// Writes lines. Holds what consecutive records share.
pub struct Encoder {
    epoch: u64,
    stamp: Stamp,
    /// `,"epoch":3,"ts":"…",` and for readings the station's head.
    shared: Vec<u8>,
    number: itoa::Buffer,
}

impl Encoder {
    /// An encoder of one leader's records.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self { epoch, stamp: Stamp::new(), shared: Vec::with_capacity(256), number: itoa::Buffer::new() }
    }

    /// Appends the lines of `entry` from the one at `skip` on, until `out` holds `limit` bytes or more. Numbers them
    /// from `seq`. Returns how many lines it wrote: at least one when there is one left.
    pub fn lines(
        &mut self,
        out: &mut Vec<u8>,
        entry: &Entry,
        skip: usize,
        seq: u64,
        mark: Option<Mark>,
        limit: usize,
    ) -> usize {
        match entry {
            Entry::Readings { station, ts, readings } => {
                self.share(*ts, station.head());
                let mut written = 0;
                for reading in readings.iter().skip(skip) {
                    let mark = mark.filter(|_| written == 0);
                    self.reading(out, seq + written as u64, station, reading, mark);
                    written += 1;
                    if out.len() >= limit {
                        break;
                    }
                }
                written
            }
            _ if skip > 0 => 0,
            Entry::Event { ts, event, fields } => self.record(out, Some(seq), *ts, "event", Some(event), fields, mark),
            Entry::Register { ts, fields } => self.record(out, Some(seq), *ts, "register", None, fields, mark),
            Entry::Other { kind, ts, fields } => {
                let seq = Some(seq).filter(|_| *kind != ACK);
                self.record(out, seq, *ts, kind, None, fields, mark)
            }
        }
    }

    fn share(&mut self, ts: Wall, head: &str) {
        self.shared.clear();
        self.shared.extend_from_slice(b"\"epoch\":");
        self.shared.extend_from_slice(self.number.format(self.epoch).as_bytes());
        self.shared.extend_from_slice(b",\"ts\":\"");
        self.shared.extend_from_slice(self.stamp.format(ts));
        self.shared.extend_from_slice(b"\",");
        self.shared.extend_from_slice(head.as_bytes());
    }

    fn start(&mut self, out: &mut Vec<u8>, seq: Option<u64>) {
        match seq {
            Some(seq) => {
                out.extend_from_slice(b"{\"seq\":");
                out.extend_from_slice(self.number.format(seq).as_bytes());
                out.push(b',');
            }
            None => out.push(b'{'),
        }
        out.extend_from_slice(&self.shared);
    }

    fn reading(&mut self, out: &mut Vec<u8>, seq: u64, station: &StationNames, reading: &Reading, mark: Option<Mark>) {
        let from = out.len();
        let (value, reason) = told(reading);
        self.reading_body(out, seq, station, reading.point, value, reason);
        if out.len() - from > MAX_LINE - 256 {
            // Only a text can be so long. A value that is cut would be another value, so there is none.
            out.truncate(from);
            self.reading_body(out, seq, station, reading.point, None, Some(Reason::Decode));
        }
        self.finish(out, from, mark);
    }

    fn reading_body(
        &mut self,
        out: &mut Vec<u8>,
        seq: u64,
        station: &StationNames,
        point: u32,
        value: Option<&Value>,
        reason: Option<Reason>,
    ) {
        self.start(out, Some(seq));
        match station.escaped_name(point) {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => {
                // A reading without a name is still a reading: its place is all that is known.
                out.push(b'#');
                out.extend_from_slice(self.number.format(point).as_bytes());
            }
        }
        out.push(b'"');
        if let Some(value) = value {
            out.extend_from_slice(b",\"value\":");
            self.value(out, value);
        }
        if let Some(unit) = station.escaped_unit(point) {
            out.extend_from_slice(b",\"unit\":\"");
            out.extend_from_slice(unit.as_bytes());
            out.push(b'"');
        }
        match reason {
            None => out.extend_from_slice(b",\"quality\":\"good\""),
            Some(reason) => {
                out.extend_from_slice(b",\"quality\":\"");
                out.extend_from_slice(reason.quality().as_str().as_bytes());
                out.extend_from_slice(b"\",\"reason\":\"");
                // Writing to memory has no way to fail.
                let _ = std::io::Write::write_fmt(out, format_args!("{reason}"));
                out.push(b'"');
            }
        }
    }

    fn value(&mut self, out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(i) => out.extend_from_slice(self.number.format(*i).as_bytes()),
            Value::UInt(u) => out.extend_from_slice(self.number.format(*u).as_bytes()),
            // `told` lets finite numbers through only.
            Value::F32(f) => out.extend_from_slice(zmij::Buffer::new().format_finite(*f).as_bytes()),
            Value::F64(f) => out.extend_from_slice(zmij::Buffer::new().format_finite(*f).as_bytes()),
            Value::Text(text) => {
                out.push(b'"');
                escape::push(out, text);
                out.push(b'"');
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "they are the record's own parts, in the line's order")]
    fn record(
        &mut self,
        out: &mut Vec<u8>,
        seq: Option<u64>,
        ts: Wall,
        kind: &str,
        event: Option<&str>,
        fields: &Map<String, Json>,
        mark: Option<Mark>,
    ) -> usize {
        let from = out.len();
        self.share(ts, "\"kind\":\"");
        self.start(out, seq);
        escape::push(out, kind);
        out.push(b'"');
        if let Some(event) = event {
            out.extend_from_slice(b",\"event\":\"");
            escape::push(out, event);
            out.push(b'"');
        }
        let body = out.len();
        for (key, value) in fields.iter().filter(|(key, _)| !RESERVED.contains(&key.as_str())) {
            out.extend_from_slice(b",\"");
            escape::push(out, key);
            out.extend_from_slice(b"\":");
            // A `Value` always has a JSON form, and memory cannot refuse it.
            let _ = serde_json::to_writer(&mut *out, value);
        }
        if out.len() - from > MAX_LINE - 256 {
            let long = out.len() - from;
            out.truncate(body.min(from + MAX_LINE / 2));
            out.extend_from_slice(b",\"left_out_bytes\":");
            out.extend_from_slice(self.number.format(long).as_bytes());
        }
        self.finish(out, from, mark.filter(|_| seq.is_some()));
        1
    }

    fn finish(&mut self, out: &mut Vec<u8>, from: usize, mark: Option<Mark>) {
        if let Some(mark) = mark {
            out.extend_from_slice(b",\"src\":\"");
            for (number, end) in [(mark.source, b':'), (mark.up_to, b':'), (mark.records, b'"')] {
                out.extend_from_slice(self.number.format(number).as_bytes());
                out.push(end);
            }
        }
        seal(out, from);
    }
}

/// Appends the checksum of what stands in `out` from `from` on, and ends the line.
pub(super) fn seal(out: &mut Vec<u8>, from: usize) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let crc = crc32c::crc32c(&out[from..]);
    out.extend_from_slice(CRC_KEY);
    for shift in (0..8).rev() {
        out.push(HEX[(crc >> (shift * 4)) as usize & 0xf]);
    }
    out.extend_from_slice(b"\"}\n");
}

/// What a record says of a reading. A bad one has no value whatever came with it; a good one without a value, or with one
/// that JSON has no form for, breaks the contract of the workers and is a decoding fault.
fn told(reading: &Reading) -> (Option<&Value>, Option<Reason>) {
    let value = reading.value.as_ref().filter(|v| match v {
        Value::F32(f) => f.is_finite(),
        Value::F64(f) => f.is_finite(),
        Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Text(_) => true,
    });
    match (value, reading.reason) {
        (_, Some(reason)) if reason.quality() == Quality::Bad => (None, Some(reason)),
        (Some(value), reason) => (Some(value), reason),
        (None, None) => (None, Some(Reason::Decode)),
        // An uncertain reading without a value: stale from the start.
        (None, reason) => (None, reason),
    }
}

#[cfg(test)]
mod tests;
