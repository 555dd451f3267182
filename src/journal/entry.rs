//! What callers hand to the journal: entries, grouped into batches that are acknowledged as one.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value};
use worker_contract::Reading;

use super::names::StationNames;
use crate::clock::Wall;

/// Something to record. `Readings` becomes one record for each reading; every other entry is one record.
#[derive(Debug, Clone)]
pub enum Entry {
    /// What one poll of a station brought.
    Readings {
        /// The names that the readings' places stand for.
        station: Arc<StationNames>,
        /// When the poll took place.
        ts: Wall,
        /// The readings, in the order in which they are recorded.
        readings: Vec<Reading>,
    },
    /// Something that happened: `"kind":"event","event":NAME` and the fields.
    Event {
        /// When.
        ts: Wall,
        /// Its name, for example `recovered`.
        event: Cow<'static, str>,
        /// What is known of it. The journal's own keys are left out.
        fields: Map<String, Value>,
    },
    /// A registration with a server: `"kind":"register"` and the fields.
    Register {
        /// When.
        ts: Wall,
        /// See [`Entry::Event`].
        fields: Map<String, Value>,
    },
    /// A record of any other kind (`alarm`, `write`, `ack`). An `ack` stands outside the numbering: it has no `seq`.
    Other {
        /// The kind: lower-case letters and `_`.
        kind: &'static str,
        /// When.
        ts: Wall,
        /// See [`Entry::Event`].
        fields: Map<String, Value>,
    },
}

/// The one kind that has no number.
pub const ACK: &str = "ack";

impl Entry {
    /// How many numbered records it becomes.
    #[must_use]
    pub fn numbered(&self) -> u64 {
        match self {
            Self::Readings { readings, .. } => readings.len() as u64,
            Self::Other { kind, .. } if *kind == ACK => 0,
            Self::Event { .. } | Self::Register { .. } | Self::Other { .. } => 1,
        }
    }

    /// How many lines it becomes.
    #[must_use]
    pub fn lines(&self) -> usize {
        match self {
            Self::Readings { readings, .. } => readings.len(),
            Self::Event { .. } | Self::Register { .. } | Self::Other { .. } => 1,
        }
    }

    /// When it happened.
    #[must_use]
    pub fn ts(&self) -> Wall {
        match self {
            Self::Readings { ts, .. } | Self::Event { ts, .. } | Self::Register { ts, .. } | Self::Other { ts, .. } => {
                *ts
            }
        }
    }

    /// True for readings, which a full memory may drop; everything else is kept as long as there are any.
    #[must_use]
    pub fn is_readings(&self) -> bool {
        matches!(self, Self::Readings { .. })
    }

    /// An estimate of the memory that it takes while it waits.
    #[must_use]
    pub fn memory(&self) -> usize {
        let own = size_of::<Self>();
        match self {
            Self::Readings { readings, .. } => {
                let text: usize = readings
                    .iter()
                    .map(|r| match &r.value {
                        Some(worker_contract::Value::Text(t)) => t.capacity(),
                        _ => 0,
                    })
                    .sum();
                own + readings.capacity() * size_of::<Reading>() + text
            }
            Self::Event { fields, .. } | Self::Register { fields, .. } | Self::Other { fields, .. } => {
                own + fields.iter().map(|(k, v)| k.len() + 64 + value_memory(v)).sum::<usize>()
            }
        }
    }
}

fn value_memory(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(s) => s.len(),
        Value::Array(items) => items.iter().map(|v| size_of::<Value>() + value_memory(v)).sum(),
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + 64 + value_memory(v)).sum(),
    }
}

/// Entries of one source, committed in their order and acknowledged as one.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Who sends it: a number that the caller gives to each worker process and that a later leader can work out again.
    /// 0 is the supervisor itself: nothing is remembered of it.
    pub source: u64,
    /// The source's own number of what this batch ends with. When the batch is committed, so is all up to here.
    pub up_to: u64,
    /// What to record.
    pub entries: Vec<Entry>,
    /// Commits at once instead of with the next group.
    pub urgent: bool,
}

impl Batch {
    /// A batch of the supervisor's own with one entry.
    #[must_use]
    pub fn own(entry: Entry) -> Self {
        Self { source: 0, up_to: 0, entries: vec![entry], urgent: false }
    }
}
