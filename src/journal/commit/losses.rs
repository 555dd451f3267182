//! What was lost and is to be told by a record.

use serde_json::{Map, Value, json};

use crate::{
    clock::Wall,
    journal::{entry::Entry, queue::Loss},
};

/// What the numbered events of the journal itself tell of.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) memory: Loss,
    disk: Range,
    removed: Range,
}

/// How many records, the first and the last.
type Range = Option<(u64, u64, u64)>;

fn extend(range: &mut Range, from: u64, to: u64) {
    let (records, first, last) = range.unwrap_or((0, from, to));
    let more = (to - from).saturating_add(1);
    *range = Some((records.saturating_add(more), first.min(from), last.max(to)));
}

impl Losses {
    /// Notes unsent records that were removed.
    pub(super) fn unsent(&mut self, from: u64, to: u64) {
        extend(&mut self.disk, from, to);
    }

    /// Notes committed records whose segment someone else removed.
    pub(super) fn removed(&mut self, from: u64, to: u64) {
        extend(&mut self.removed, from, to);
    }

    pub(super) fn events(&self, now: Wall) -> Vec<Entry> {
        let mut events = Vec::new();
        let mut event = |fields: Value| {
            let fields = if let Value::Object(map) = fields { map } else { Map::new() };
            events.push(Entry::Event { ts: now, event: "records_lost".into(), fields });
        };
        let Loss { records, from, to } = self.memory;
        if records > 0 {
            event(json!({ "where": "memory", "records": records, "from": from.to_string(), "to": to.to_string() }));
        }
        for (place, range) in [("disk", self.disk), ("removed_file", self.removed)] {
            if let Some((records, from, to)) = range {
                event(json!({ "where": place, "records": records, "from_seq": from, "to_seq": to }));
            }
        }
        events
    }
}
