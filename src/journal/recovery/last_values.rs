//! The newest reading of each point, from the tail.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::{journal::line::Record, status::LatestReading};

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

    pub(super) fn merge_into(self, known: &mut Vec<LatestReading>) {
        let mut newer: HashMap<(String, String), LatestReading> = self
            .lines
            .into_values()
            .filter_map(|line| serde_json::from_slice::<LatestReading>(&line).ok())
            .map(|reading| ((reading.station.clone(), reading.point.clone()), reading))
            .collect();
        for old in known.iter_mut() {
            if let Some(new) = newer.remove(&(old.station.clone(), old.point.clone())) {
                *old = new;
            }
        }
        known.extend(newer.into_values());
    }
}
