//! The lease's record: one block of text of a fixed size, rewritten in place, that a person can `cat`.
//!
//! ```text
//! sensor-poll lease 1
//! epoch     7
//! state     held
//! instance  a
//! pid       4711
//! pid_start 123456
//! boot_id   0123456789abcdef0123456789abcdef
//! renewed   1234.567890123
//! ttl_ms    3000
//! since     2026-11-30T12:00:00.123456Z
//! build     0.1.0
//! why       leader b (pid 4242) died
//! crc       10ec6446
//! ```
//!
//! Every value is padded with spaces to its field's width. Reading is total: torn, foreign or short input is an error
//! with a type, and says nothing about whether somebody leads. The lock alone says that.
#![deny(clippy::disallowed_methods)]

use std::{fmt::Write as _, time::Duration};

use crate::{
    clock::{Boot, Wall},
    coordination::Process,
};

/// The record's size in bytes.
pub const SIZE: usize = 512;
/// The longest instance id.
pub const INSTANCE_WIDTH: usize = 32;

/// Epochs stay whole numbers in JSON and in doubles; a greater one is no epoch of ours.
pub const EPOCH_MAX: u64 = (1 << 53) - 1;
/// The shortest time to live.
pub const TTL_MIN: Duration = Duration::from_millis(100);
/// The longest time to live.
pub const TTL_MAX: Duration = Duration::from_secs(60);

const HEAD: &str = "sensor-poll lease 1\n";
const KEY_WIDTH: usize = 10;
/// Every field before the checksum, in order, with its width.
const FIELDS: [(&str, usize); 11] = [
    ("epoch", 20),
    ("state", 8),
    ("instance", INSTANCE_WIDTH),
    ("pid", 10),
    ("pid_start", 20),
    ("boot_id", 32),
    ("renewed", 20),
    ("ttl_ms", 10),
    ("since", 27),
    ("build", 40),
    ("why", 133),
];
const CRC_WIDTH: usize = 8;
const CRC_LINE: usize = KEY_WIDTH + CRC_WIDTH + 1;

const _: () = {
    let mut size = HEAD.len() + CRC_LINE;
    let mut i = 0;
    while i < FIELDS.len() {
        size += KEY_WIDTH + FIELDS[i].1 + 1;
        i += 1;
    }
    assert!(size == SIZE, "the fields fill the record");
};

/// What a leader says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The epoch that it leads under.
    pub epoch: u64,
    /// False once it gave the lease up in order.
    pub held: bool,
    /// The instance's id.
    pub instance: String,
    /// The leader's process.
    pub process: Process,
    /// The boot that process and renewal belong to.
    pub boot_id: String,
    /// When the last renewal began.
    pub renewed: Boot,
    /// For how long a renewal holds.
    pub ttl: Duration,
    /// Since when it leads, in wall time: for people only.
    pub since: Wall,
    /// The version of its binary.
    pub build: String,
    /// Why the lease last changed hands.
    pub why: String,
}

/// Why a record could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordError {
    /// Not as long as a record.
    #[error("it is {length} bytes long, not {SIZE}")]
    Length {
        /// What it is instead.
        length: usize,
    },
    /// It does not begin as a record of this format does.
    #[error("it is no lease record of format 1")]
    Foreign,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Torn,
    /// The checksum matches, but a field holds nothing that this version understands.
    #[error("its field {0} cannot be understood")]
    Field(&'static str),
    /// The file could not be read at all.
    #[error("it cannot be read: {0}")]
    Io(String),
}

impl Record {
    /// The record as it stands in the file. Text that does not fit is cut, line breaks become spaces.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let mut out = Block { bytes: [b' '; SIZE], at: 0, end: 0, cut: false };
        out.raw(HEAD);
        for (key, width) in FIELDS {
            out.begin(key, width);
            self.write(key, &mut out);
            out.finish();
        }
        let crc = crc32c::crc32c(&out.bytes[..out.at]);
        out.begin("crc", CRC_WIDTH);
        // Writing into a block cannot fail: what does not fit is cut.
        let _ = write!(out, "{crc:08x}");
        out.finish();
        out.bytes
    }

    fn write(&self, key: &str, out: &mut Block) {
        let _ = match key {
            "epoch" => write!(out, "{}", self.epoch),
            "state" => out.write_str(if self.held { "held" } else { "released" }),
            "instance" => out.write_str(&self.instance),
            "pid" => write!(out, "{}", self.process.pid),
            "pid_start" => write!(out, "{}", self.process.start),
            "boot_id" => out.write_str(&self.boot_id),
            "renewed" => write!(out, "{}.{:09}", self.renewed.0.as_secs(), self.renewed.0.subsec_nanos()),
            "ttl_ms" => write!(out, "{}", self.ttl.as_millis()),
            "since" => write!(out, "{}", self.since),
            "build" => out.write_str(&self.build),
            "why" => out.write_str(&self.why),
            _ => Ok(()),
        };
    }

    /// Reads a record.
    ///
    /// # Errors
    /// For whatever is not exactly one whole record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() != SIZE {
            return Err(RecordError::Length { length: bytes.len() });
        }
        if !bytes.starts_with(HEAD.as_bytes()) {
            return Err(RecordError::Foreign);
        }
        let (body, crc) = bytes.split_at(SIZE - CRC_LINE);
        if value(crc, "crc") != Some(format!("{:08x}", crc32c::crc32c(body)).as_str()) {
            return Err(RecordError::Torn);
        }
        let mut values = Values { rest: &body[HEAD.len()..], next: 0 };
        let record = Self {
            epoch: values.next(|v| v.parse().ok().filter(|e| *e <= EPOCH_MAX))?,
            held: values.next(|v| match v {
                "held" => Some(true),
                "released" => Some(false),
                _ => None,
            })?,
            instance: values.next(text)?,
            process: Process { pid: values.next(|v| v.parse().ok())?, start: values.next(|v| v.parse().ok())? },
            boot_id: values.next(text)?,
            renewed: values.next(seconds)?,
            ttl: values
                .next(|v| v.parse().ok().map(Duration::from_millis).filter(|ttl| (TTL_MIN..=TTL_MAX).contains(ttl)))?,
            since: values.next(wall)?,
            build: values.next(text)?,
            why: values.next(text)?,
        };
        Ok(record)
    }
}

/// Values in the order of [`FIELDS`].
struct Values<'a> {
    rest: &'a [u8],
    next: usize,
}

impl<'a> Values<'a> {
    fn next<T>(&mut self, parse: impl FnOnce(&'a str) -> Option<T>) -> Result<T, RecordError> {
        let (key, width) = FIELDS.get(self.next).copied().ok_or(RecordError::Foreign)?;
        let (line, rest) =
            self.rest.split_at_checked(KEY_WIDTH + width + 1).ok_or(RecordError::Length { length: self.rest.len() })?;
        (self.rest, self.next) = (rest, self.next + 1);
        value(line, key).and_then(parse).ok_or(RecordError::Field(key))
    }
}

/// A line's value when the line has this key.
fn value<'a>(line: &'a [u8], key: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(line).ok()?;
    let (name, value) = text.strip_suffix('\n')?.split_at_checked(KEY_WIDTH)?;
    (name.trim_end_matches(' ') == key).then(|| value.trim_end_matches(' '))
}

#[expect(clippy::unnecessary_wraps, reason = "the shape that Values::next takes")]
fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn seconds(value: &str) -> Option<Boot> {
    let (whole, nanos) = value.split_once('.')?;
    if nanos.len() != 9 || !nanos.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Boot(Duration::new(whole.parse().ok()?, nanos.parse().ok()?)))
}

/// A time that the field has room for: years before 0 have a longer form.
fn wall(value: &str) -> Option<Wall> {
    let time = value.parse::<jiff::Timestamp>().ok()?;
    (time.as_second() >= -62_167_219_200).then(|| Wall(time.as_microsecond()))
}

/// The record while it is written: fields of fixed width over spaces, nothing on the heap.
struct Block {
    bytes: [u8; SIZE],
    at: usize,
    end: usize,
    cut: bool,
}

impl Block {
    fn raw(&mut self, s: &str) {
        self.bytes[self.at..self.at + s.len()].copy_from_slice(s.as_bytes());
        self.at += s.len();
    }

    fn begin(&mut self, key: &str, width: usize) {
        self.raw(key);
        self.at += KEY_WIDTH - key.len();
        self.end = self.at + width;
        self.cut = false;
    }

    fn finish(&mut self) {
        self.at = self.end;
        self.raw("\n");
    }
}

impl std::fmt::Write for Block {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        for c in s.chars() {
            let c = if c.is_control() { ' ' } else { c };
            // Nothing after a cut either, or the text would go on with a hole.
            self.cut |= self.at + c.len_utf8() > self.end;
            if self.cut {
                break;
            }
            c.encode_utf8(&mut self.bytes[self.at..self.end]);
            self.at += c.len_utf8();
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn sample() -> Record {
        Record {
            epoch: 7,
            held: true,
            instance: "a".to_owned(),
            process: Process { pid: 4711, start: 123_456 },
            boot_id: "0123456789abcdef0123456789abcdef".to_owned(),
            renewed: Boot(Duration::new(1234, 567_890_123)),
            ttl: Duration::from_secs(3),
            since: Wall(1_796_040_000_123_456),
            build: "0.1.0".to_owned(),
            why: "leader b (pid 4242) died".to_owned(),
        }
    }

    #[test]
    fn a_record_is_text_that_a_person_can_read() {
        let bytes = sample().encode();
        let text = std::str::from_utf8(&bytes).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines[..6],
            [
                "sensor-poll lease 1",
                "epoch     7",
                "state     held",
                "instance  a",
                "pid       4711",
                "pid_start 123456"
            ]
        );
        assert_eq!(lines[7], "renewed   1234.567890123");
        assert_eq!(lines[11], "why       leader b (pid 4242) died");
        assert_eq!(Record::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn each_fault_has_its_type() {
        let bytes = sample().encode();
        assert_eq!(Record::decode(&bytes[..511]), Err(RecordError::Length { length: 511 }));
        assert_eq!(Record::decode(&[]), Err(RecordError::Length { length: 0 }));
        assert_eq!(Record::decode(&[0; SIZE]), Err(RecordError::Foreign));
        let mut torn = bytes;
        torn[40] ^= 1;
        assert_eq!(Record::decode(&torn), Err(RecordError::Torn));
        for (record, field) in [
            (Record { epoch: u64::MAX, ..sample() }, "epoch"),
            (Record { ttl: Duration::ZERO, ..sample() }, "ttl_ms"),
            (Record { ttl: Duration::from_secs(3600), ..sample() }, "ttl_ms"),
        ] {
            assert_eq!(Record::decode(&record.encode()), Err(RecordError::Field(field)));
        }
    }

    #[test]
    fn text_that_does_not_fit_is_cut_at_a_character() {
        let long = Record { build: "é".repeat(60), why: "a\nb\u{7f}c".to_owned(), ..sample() };
        let read = Record::decode(&long.encode()).unwrap();
        assert_eq!(read.build, "é".repeat(20));
        assert_eq!(read.why, "a b c");
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let numbers = (0..=EPOCH_MAX, any::<bool>(), any::<u32>(), any::<u64>());
        let times = (0..1u64 << 33, 0..1_000_000_000u32, 100..=60_000u64, 0..=253_402_207_200_000_000i64);
        let texts = ("[a-zA-Z0-9._-]{0,32}", "[0-9a-f]{32}", "\\PC{0,80}", "\\PC{0,200}");
        (numbers, times, texts).prop_map(
            |((epoch, held, pid, start), (secs, nanos, ttl, since), (instance, boot_id, build, why))| Record {
                epoch,
                held,
                instance,
                process: Process { pid, start },
                boot_id,
                renewed: Boot(Duration::new(secs, nanos)),
                ttl: Duration::from_millis(ttl),
                since: Wall(since),
                build,
                why,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(record in any_record()) {
            let read = Record::decode(&record.encode()).unwrap();
            prop_assert!(record.build.starts_with(&read.build));
            prop_assert!(record.why.starts_with(&read.why));
            prop_assert_eq!(read.encode(), record.encode());
            prop_assert_eq!(Record { build: record.build.clone(), why: record.why.clone(), ..read }, record);
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Record::decode(&bytes);
        }

        #[test]
        fn a_mix_of_two_records_is_torn(a in any_record(), b in any_record(), cut in 0..SIZE) {
            let (a, b) = (a.encode(), b.encode());
            let mixed: Vec<u8> = a[..cut].iter().chain(&b[cut..]).copied().collect();
            if mixed != a && mixed != b {
                prop_assert_eq!(Record::decode(&mixed), Err(RecordError::Torn));
            }
        }

        #[test]
        fn a_flipped_bit_is_found(record in any_record(), at in 0..SIZE, bit in 0..8u8) {
            let mut bytes = record.encode();
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::decode(&bytes).is_err());
        }
    }
}
