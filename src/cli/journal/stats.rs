//! `journal stats`

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    ops::ControlFlow,
    path::Path,
};

use serde_json::{Value, json};

use super::{Failure, segment_bytes};
use crate::{
    cli::exit::Exit,
    journal::{
        Record,
        reader::{Start, records},
    },
};

/// A journal with more kinds or stations than this has the rest under `(other)`.
const MOST: usize = 10_000;

#[derive(Default)]
struct Stats {
    records: u64,
    kinds: BTreeMap<String, u64>,
    stations: BTreeMap<String, u64>,
    epochs: BTreeSet<u64>,
    first: Option<(Option<u64>, String)>,
    last: Option<(u64, String)>,
}

pub(super) fn run(state_dir: &Path, as_json: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
    let mut stats = Stats::default();
    records(state_dir, Start::Beginning, &mut |record| {
        stats.take(record);
        ControlFlow::Continue(())
    })?;
    let (segments, bytes) = segment_bytes(state_dir);
    let object = stats.object(segments, bytes);
    if as_json {
        writeln!(out, "{object}")?;
    } else {
        print(&object, out)?;
    }
    Ok(Exit::Done)
}

impl Stats {
    fn take(&mut self, record: &Record<'_>) {
        self.records += 1;
        count(&mut self.kinds, record.kind);
        if let Some(station) = record.station() {
            count(&mut self.stations, &station);
        }
        if self.epochs.len() < MOST {
            self.epochs.insert(record.epoch);
        }
        if self.first.is_none() {
            self.first = Some((record.seq, record.ts.to_owned()));
        }
        if let Some(seq) = record.seq {
            let (last, ts) = self.last.get_or_insert_with(|| (seq, String::new()));
            *last = seq;
            ts.clear();
            ts.push_str(record.ts);
        }
    }

    fn object(&self, segments: u64, bytes: u64) -> Value {
        json!({
            "records": self.records,
            "first_seq": self.first.as_ref().and_then(|(seq, _)| *seq),
            "last_seq": self.last.as_ref().map(|(seq, _)| *seq),
            "first_ts": self.first.as_ref().map(|(_, ts)| ts),
            "last_ts": self.last.as_ref().map(|(_, ts)| ts),
            "segments": segments,
            "bytes": bytes,
            "epochs": { "first": self.epochs.first(), "last": self.epochs.last(), "count": self.epochs.len() },
            "kinds": self.kinds,
            "stations": self.stations,
        })
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    if let Some(n) = counts.get_mut(name) {
        *n += 1;
    } else {
        let name = if counts.len() < MOST { name } else { "(other)" };
        *counts.entry(name.to_owned()).or_default() += 1;
    }
}

fn print(object: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for key in ["records", "first_seq", "last_seq", "first_ts", "last_ts", "segments", "bytes"] {
        writeln!(out, "{key:<12} {}", text(&object[key]))?;
    }
    let epochs = &object["epochs"];
    writeln!(out, "{:<12} {} to {} ({})", "epochs", text(&epochs["first"]), text(&epochs["last"]), epochs["count"])?;
    for key in ["kinds", "stations"] {
        for (name, n) in object[key].as_object().into_iter().flatten() {
            writeln!(out, "{:<12} {name}: {n}", key.trim_end_matches('s'))?;
        }
    }
    Ok(())
}
