//! The newest reading of each point, from the tail.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::{
    journal::{escape, line::Record},
    status::LatestReading,
};

/// Each point's newest line. Lines are kept as they are and read once, at the end.
#[derive(Default)]
pub(super) struct LastValues {
    most: usize,
    lines: HashMap<Box<[u8]>, Vec<u8>, BuildHasherDefault<PointHasher>>,
}

/// A quick hash: one look-up for each record of the tail. The keys are the manifest's own names, no stranger's.
#[derive(Default)]
struct PointHasher(u32);

impl Hasher for PointHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    fn finish(&self) -> u64 {
        // The map looks at the highest bits as well as at the lowest.
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl LastValues {
    pub(super) fn new(most: usize) -> Self {
        Self { most, lines: HashMap::default() }
    }

    pub(super) fn take(&mut self, record: &Record<'_>) {
        if self.most == 0 {
            return;
        }
        let Some(key) = record.point_key() else { return };
        if let Some(line) = self.lines.get_mut(key) {
            line.clear();
            line.extend_from_slice(record.line);
        } else if self.lines.len() < self.most {
            self.lines.insert(key.into(), record.line.to_vec());
        }
    }

    /// Brings `known` up to date. Looks each of its points up by the text that a record names it with, so that no second
    /// map of a large plant's points is made.
    pub(super) fn merge_into(mut self, known: &mut Vec<LatestReading>) {
        let parse = |line: Vec<u8>| serde_json::from_slice::<LatestReading>(&line).ok();
        let mut key = Vec::new();
        for old in known.iter_mut() {
            key.clear();
            key.extend_from_slice(b"\"station\":\"");
            escape::push(&mut key, &old.station);
            key.extend_from_slice(b"\",\"point\":\"");
            escape::push(&mut key, &old.point);
            key.push(b'"');
            if let Some(new) = self.lines.remove(key.as_slice()).and_then(parse) {
                *old = new;
            }
        }
        known.reserve(self.lines.len());
        known.extend(self.lines.into_values().filter_map(parse));
    }
}
