//! What can be wrong with a journal, with its place.

use std::fmt;

use serde_json::{Map, Value, json};

use super::{line::LineFault, scan::Place, segment::SegmentId};

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file's name: a segment's, or a path from the state folder on.
    pub file: String,
    /// Where in it; for a fault of the whole file its beginning.
    pub place: Place,
    /// What it is.
    pub what: What,
}

/// What is wrong, or was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Bytes between two records that are none, up to `end`; skipped. One fault, however many lines they are.
    Damaged {
        /// Exclusive.
        end: u64,
        /// The line that the last of them stands in.
        last_line: u64,
        /// Why the first of them is none.
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
    /// Records at the journal's end are missing: a checkpoint was written behind them.
    Vanished {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Records one after the other whose numbers were there before; skipped.
    Duplicate {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Records that the next segment holds again: their disk failed before they were committed. Skipped.
    Superseded {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// From here on records of another epoch than their segment's.
    Epoch {
        /// The records'.
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
    /// The checkpoint is of no use.
    Checkpoint {
        /// Why.
        why: String,
    },
    /// A segment's first record is not the one that its name says; the segment is passed over.
    Misnamed {
        /// The name that its content has.
        right: SegmentId,
    },
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
        if let What::Damaged { last_line, .. } = self.what {
            map.insert("last_line".into(), last_line.into());
        }
        if let What::Hole { from, to }
        | What::Vanished { from, to }
        | What::Superseded { from, to }
        | What::Duplicate { from, to } = self.what
        {
            map.insert("seq".into(), json!([from, to]));
        }
        map.insert("message".into(), self.what.to_string().into());
        Value::Object(map)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.what == What::Foreign {
            return write!(f, "journal/{}: {}", self.file, self.what);
        }
        if SegmentId::parse(&self.file).is_none() {
            return write!(f, "{}: {}", self.file, self.what);
        }
        let Place { line, offset } = self.place;
        match self.what {
            What::Damaged { last_line, .. } if last_line > line => {
                let count = last_line - line + 1;
                write!(
                    f,
                    "journal/{}: lines {line} to {last_line}, byte {offset}: {count} lines: {}",
                    self.file, self.what
                )
            }
            _ => write!(f, "journal/{}: line {line}, byte {offset}: {}", self.file, self.what),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { end, fault, .. } => write!(f, "{fault}; skipped up to byte {end}"),
            Self::Cut { end } => write!(f, "torn tail cut, up to byte {end}"),
            Self::NewlineAdded => f.write_str("the last record had no newline; added"),
            Self::Removed => f.write_str("segment without a record; removed"),
            Self::Hole { from, to } if from == to => write!(f, "record {from} is missing"),
            Self::Hole { from, to } => write!(f, "records {from} to {to} are missing"),
            Self::Vanished { from, to } if from == to => {
                write!(f, "record {from} is missing: the checkpoint knows it")
            }
            Self::Vanished { from, to } => write!(f, "records {from} to {to} are missing: the checkpoint knows them"),
            Self::Duplicate { from, to } if from == to => {
                write!(f, "record {from} is there twice; the second is skipped")
            }
            Self::Duplicate { from, to } => {
                write!(f, "records {from} to {to} are there twice; the second ones are skipped")
            }
            Self::Superseded { from, to } => {
                write!(f, "records {from} to {to} were not committed here and stand in the next segment; skipped")
            }
            Self::Epoch { epoch } => write!(f, "records of epoch {epoch}, which is not the segment's"),
            Self::Unreadable { error } => write!(f, "cannot be read: {error}"),
            Self::NotRepaired { operation, error } => write!(f, "cannot {operation}: {error}"),
            Self::Foreign => f.write_str("not a segment; left alone"),
            Self::Checkpoint { why } => write!(f, "of no use: {why}; the whole journal is read without it"),
            Self::Misnamed { right } => write!(
                f,
                "the name does not fit the first record; passed over. A copy may be removed; a segment that is nowhere \
                 else is {right}"
            ),
        }
    }
}
