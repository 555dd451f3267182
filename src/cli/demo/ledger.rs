//! What the journal's lines say, counted. Pure: lines in, numbers out.
//!
//! The demo reads the journal's own files rather than asking the instances, so that its counts are a witness from
//! outside.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

/// So many points are followed; a demo has about twenty.
const MAX_POINTS: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Poll intervals by station, in microseconds.
    intervals: HashMap<String, i64>,
    points: HashMap<(String, String), Last>,
    epochs: BTreeMap<u64, Epoch>,
    /// Records of every kind.
    pub records: u64,
    /// Readings among them.
    pub readings: u64,
    /// The highest number.
    pub last_seq: u64,
    /// Lines that are no record.
    pub unreadable: u64,
}

/// The last reading of a point.
#[derive(Debug, Clone, Copy)]
struct Last {
    epoch: u64,
    ts: i64,
    good: bool,
}

/// What was journalled under one epoch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Readings.
    pub readings: u64,
    /// Readings that were there already.
    pub doubled: u64,
    /// By station: polls that are missing between the last reading of the epoch before and the first one of this.
    missed: BTreeMap<String, u64>,
}

impl Epoch {
    /// Polls that the change of leaders cost, over all stations that were good.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.values().sum()
    }

    /// How many of the stations that were good have been heard of since.
    #[must_use]
    pub fn heard(&self) -> usize {
        self.missed.len()
    }
}

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    epoch: u64,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    ts: String,
    #[serde(default)]
    station: String,
    #[serde(default)]
    point: String,
    #[serde(default)]
    quality: String,
}

impl Ledger {
    /// A ledger that knows how often stations are polled, in milliseconds.
    #[must_use]
    pub fn new(intervals: &[(&str, u32)]) -> Self {
        let intervals = intervals.iter().map(|(id, ms)| ((*id).to_owned(), i64::from(*ms) * 1000)).collect();
        Self { intervals, ..Self::default() }
    }

    /// What was journalled under an epoch.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Option<&Epoch> {
        self.epochs.get(&epoch)
    }

    /// The first epoch after `epoch` with a reading.
    #[must_use]
    pub fn read_after(&self, epoch: u64) -> Option<u64> {
        self.epochs.range(epoch + 1..).find(|(_, e)| e.readings > 0).map(|(n, _)| *n)
    }

    /// Takes one line.
    pub fn feed(&mut self, line: &[u8]) {
        let Ok(record) = serde_json::from_slice::<Record<'_>>(line) else {
            self.unreadable += 1;
            return;
        };
        self.records += 1;
        self.last_seq = self.last_seq.max(record.seq);
        if record.kind == "reading" {
            self.readings += 1;
            self.reading(record);
        }
    }

    fn reading(&mut self, record: Record<'_>) {
        let epoch = self.epochs.entry(record.epoch).or_default();
        epoch.readings += 1;
        let Ok(ts) = record.ts.parse::<jiff::Timestamp>() else { return };
        let now = Last { epoch: record.epoch, ts: ts.as_microsecond(), good: record.quality == "good" };
        let key = (record.station, record.point);
        if let Some(last) = self.points.get_mut(&key) {
            if now.ts <= last.ts {
                epoch.doubled += 1;
                return;
            }
            // A station that was silent by itself says nothing about the change of leaders.
            if now.epoch > last.epoch && now.good && last.good {
                let interval = self.intervals.get(&key.0).copied().unwrap_or(i64::MAX);
                let polls = (now.ts - last.ts).saturating_add(interval / 2) / interval;
                let missed = epoch.missed.entry(key.0).or_default();
                *missed = (*missed).max(u64::try_from(polls - 1).unwrap_or(0));
            }
            *last = now;
        } else if self.points.len() < MAX_POINTS {
            self.points.insert(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(seq: u64, epoch: u64, ms: u32, point: &str, quality: &str) -> String {
        format!(
            "{{\"seq\":{seq},\"epoch\":{epoch},\"ts\":\"2026-11-30T12:00:{:02}.{:03}000Z\",\"kind\":\"reading\",\
             \"station\":\"boiler\",\"point\":\"{point}\",\"quality\":\"{quality}\",\"crc\":\"10ec6446\"}}",
            ms / 1000,
            ms % 1000
        )
    }

    fn ledger(lines: &[String]) -> Ledger {
        let mut ledger = Ledger::new(&[("boiler", 500)]);
        lines.iter().for_each(|l| ledger.feed(l.as_bytes()));
        ledger
    }

    #[test]
    fn a_change_of_leaders_without_a_gap_misses_nothing() {
        let l =
            ledger(&[reading(1, 1, 0, "t", "good"), reading(2, 1, 500, "t", "good"), reading(3, 2, 1040, "t", "good")]);
        assert_eq!((l.readings, l.last_seq, l.read_after(1)), (3, 3, Some(2)));
        let epoch = l.epoch(2).unwrap();
        assert_eq!((epoch.missed(), epoch.doubled, epoch.heard()), (0, 0, 1));
    }

    #[test]
    fn polls_that_are_missing_at_the_change_are_counted_once_a_station() {
        let l = ledger(&[
            reading(1, 1, 0, "t", "good"),
            reading(2, 1, 0, "p", "good"),
            reading(3, 2, 2000, "t", "good"),
            reading(4, 2, 2000, "p", "good"),
            reading(5, 2, 5000, "p", "good"),
        ]);
        assert_eq!(l.epoch(2).unwrap().missed(), 3);
    }

    #[test]
    fn a_station_that_was_bad_by_itself_is_no_loss_and_a_repeat_is_told() {
        let l =
            ledger(&[reading(1, 1, 0, "t", "bad"), reading(2, 2, 9000, "t", "good"), reading(3, 2, 9000, "t", "good")]);
        assert_eq!((l.epoch(2).unwrap().missed(), l.epoch(2).unwrap().doubled), (0, 1));
    }

    #[test]
    fn other_records_count_and_nonsense_is_told() {
        let register = "{\"seq\":9,\"epoch\":1,\"ts\":\"x\",\"kind\":\"register\"}".to_owned();
        let l = ledger(&[register, "half a li".to_owned(), "{\"kind\":\"ack\"}".to_owned()]);
        assert_eq!((l.records, l.readings, l.last_seq, l.unreadable), (2, 0, 9, 1));
        assert_eq!(l.read_after(0), None);
    }
}
