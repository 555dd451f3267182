//! What can be wrong with a journal, with its place.

use std::fmt;

use serde_json::{Map, Value, json};

use super::{line::LineFault, scan::Place, segment::SegmentId};

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file's name in the journal's folder.
    pub file: String,
    /// Where in it; for a fault of the whole file its beginning.
    pub place: Place,
    /// What it is.
    pub what: What,
}

/// What is wrong, or was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Bytes that are no record, up to `end`; skipped.
    Damaged {
        /// Exclusive.
        end: u64,
        /// Why they are none.
        fault: LineFault,
    },
    /// A torn tail up to `end` was cut.
    Cut {
        /// Exclusive.
        end: u64,
    },
    /// The last record had lost its newline and has one again.
    NewlineAdded,
    /// A segment without a record was removed.
    Removed,
    /// Records are missing before this place.
    Hole {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// A record's number was there before; skipped.
    Duplicate {
        /// It.
        seq: u64,
    },
    /// Records that the next segment holds again: their disk failed before they were committed. Skipped.
    Superseded {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// A record of another epoch than its segment's.
    Epoch {
        /// The record's.
        epoch: u64,
    },
    /// A file cannot be read.
    Unreadable {
        /// What the system says.
        error: String,
    },
    /// A repair was refused.
    NotRepaired {
        /// What was tried.
        operation: &'static str,
        /// What the system says.
        error: String,
    },
    /// A file that is no segment.
    Foreign,
}

impl Fault {
    pub(super) fn at(id: SegmentId, place: Place, what: What) -> Self {
        Self { file: id.to_string(), place, what }
    }

    pub(super) fn of_file(file: impl Into<String>, what: What) -> Self {
        Self { file: file.into(), place: Place { line: 1, offset: 0 }, what }
    }

    /// One JSON object: `file`, `line`, `offset`, `message`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("file".into(), self.file.clone().into());
        map.insert("line".into(), self.place.line.into());
        map.insert("offset".into(), self.place.offset.into());
        if let What::Damaged { end, .. } | What::Cut { end } = self.what {
            map.insert("end".into(), end.into());
        }
        if let What::Hole { from, to } | What::Superseded { from, to } = self.what {
            map.insert("seq".into(), json!([from, to]));
        }
        map.insert("message".into(), self.what.to_string().into());
        Value::Object(map)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, offset } = self.place;
        write!(f, "journal/{}: line {line}, byte {offset}: {}", self.file, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { end, fault } => write!(f, "{fault}; skipped up to byte {end}"),
            Self::Cut { end } => write!(f, "torn tail cut, up to byte {end}"),
            Self::NewlineAdded => f.write_str("the last record had no newline; added"),
            Self::Removed => f.write_str("segment without a record; removed"),
            Self::Hole { from, to } if from == to => write!(f, "record {from} is missing"),
            Self::Hole { from, to } => write!(f, "records {from} to {to} are missing"),
            Self::Duplicate { seq } => write!(f, "record {seq} is there twice; the second is skipped"),
            Self::Superseded { from, to } => {
                write!(f, "records {from} to {to} were not committed here and stand in the next segment; skipped")
            }
            Self::Epoch { epoch } => write!(f, "a record of epoch {epoch}, which is not the segment's"),
            Self::Unreadable { error } => write!(f, "cannot be read: {error}"),
            Self::NotRepaired { operation, error } => write!(f, "cannot {operation}: {error}"),
            Self::Foreign => f.write_str("not a segment; left alone"),
        }
    }
}
