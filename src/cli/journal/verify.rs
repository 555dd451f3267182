//! `journal verify`

use std::{io::Write, ops::ControlFlow, path::Path};

use serde_json::{Value, json};

use super::{Failure, segment_bytes};
use crate::{
    cli::exit::Exit,
    journal::{
        Fault,
        checkpoint::{Checkpoint, CheckpointError},
        fault::What,
        reader::{Item, SegmentEnd, Start, walk},
        scan::Place,
    },
};

/// JSON output holds at most this many faults; the count has them all.
const MOST: usize = 10_000;

#[derive(Default)]
struct Report {
    records: u64,
    faults: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    /// The newest line is on its way.
    in_flight: bool,
    listed: Vec<Value>,
}

pub(super) fn run(state_dir: &Path, as_json: bool, out: &mut dyn Write) -> Result<Exit, Failure> {
    let mut report = Report::default();
    let mut broken = None;
    // Before the records are: beside a running writer what the checkpoint knows is then sure to be there.
    let checkpoint = checkpoint(state_dir);
    walk(state_dir, Start::Beginning, &mut |item| {
        let ended = match item {
            Item::Record { record, .. } => {
                report.records += 1;
                report.first_seq = report.first_seq.or(record.seq);
                report.last_seq = record.seq.or(report.last_seq);
                Ok(())
            }
            Item::Fault(fault) => report.fault(&fault, as_json, out),
            Item::End(end) => report.end(end, as_json, out),
        };
        match ended {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                broken = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = broken {
        return Err(error.into());
    }
    let against = match checkpoint {
        Ok(known) => {
            let last = report.last_seq.unwrap_or_default();
            known.filter(|known| *known > last).map(|to| What::Vanished { from: last + 1, to })
        }
        Err(error) => Some(What::Checkpoint { why: error.to_string() }),
    };
    if let Some(what) = against {
        report.fault(
            &Fault { file: "checkpoint.json".to_owned(), place: Place { line: 1, offset: 0 }, what },
            as_json,
            out,
        )?;
    }
    let (segments, bytes) = segment_bytes(state_dir);
    report.print(as_json, segments, bytes, out)?;
    Ok(if report.faults == 0 { Exit::Done } else { Exit::Failed })
}

/// The newest record that the checkpoint knows of; `None` when there is no checkpoint.
fn checkpoint(state_dir: &Path) -> Result<Option<u64>, CheckpointError> {
    let Some(checkpoint) = Checkpoint::load(state_dir)? else { return Ok(None) };
    match std::fs::read_to_string(state_dir.join("journal_id")) {
        Ok(id) if !id.trim().is_empty() && id.trim() != checkpoint.journal_id => Err(CheckpointError::Foreign),
        Ok(_) | Err(_) => Ok(Some(checkpoint.seq)),
    }
}

impl Report {
    fn fault(&mut self, fault: &Fault, as_json: bool, out: &mut dyn Write) -> std::io::Result<()> {
        self.faults += 1;
        if !as_json {
            return writeln!(out, "{fault}");
        }
        if self.listed.len() < MOST {
            self.listed.push(fault.to_json());
        }
        Ok(())
    }

    fn end(&mut self, end: SegmentEnd, as_json: bool, out: &mut dyn Write) -> std::io::Result<()> {
        let (faults, on_its_way) = end.faults();
        self.in_flight |= on_its_way;
        faults.iter().try_for_each(|fault| self.fault(fault, as_json, out))
    }

    fn print(&self, as_json: bool, segments: u64, bytes: u64, out: &mut dyn Write) -> std::io::Result<()> {
        if as_json {
            let object = json!({
                "clean": self.faults == 0, "records": self.records, "fault_count": self.faults,
                "first_seq": self.first_seq, "last_seq": self.last_seq, "segments": segments, "bytes": bytes,
                "in_flight": self.in_flight, "faults": self.listed,
            });
            return writeln!(out, "{object}");
        }
        if self.in_flight {
            writeln!(
                out,
                "note: the newest segment ends in an unfinished line: a record on its way, or the last writer's torn tail, which the next leader cuts"
            )?;
        }
        let range = match (self.first_seq, self.last_seq) {
            (Some(first), Some(last)) => format!(" ({first} to {last})"),
            _ => String::new(),
        };
        let verdict = match self.faults {
            0 => "clean".to_owned(),
            1 => "1 fault".to_owned(),
            n => format!("{n} faults"),
        };
        writeln!(out, "{verdict}: {} records{range} in {segments} segments, {bytes} bytes", self.records)
    }
}
