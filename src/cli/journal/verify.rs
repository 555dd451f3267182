//! `journal verify`

use std::{io::Write, ops::ControlFlow, path::Path};

use serde_json::{Value, json};

use super::{Failure, segment_bytes};
use crate::{
    cli::exit::Exit,
    journal::{
        Fault,
        fault::What,
        reader::{Item, SegmentEnd, Start, walk},
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
    let (segments, bytes) = segment_bytes(state_dir);
    report.print(as_json, segments, bytes, out)?;
    Ok(if report.faults == 0 { Exit::Done } else { Exit::Failed })
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
        if end.last && ((end.unfinished && end.tail.len() == 1) || end.newline_missing || end.end.offset == 0) {
            self.in_flight = end.end.offset > 0;
            return Ok(());
        }
        if end.newline_missing && end.tail.is_empty() {
            let (fault, last_line) = (crate::journal::line::LineFault::NotWhole, end.good_end.line);
            let what = What::Damaged { end: end.end.offset, last_line, fault };
            return self.fault(&Fault { file: end.segment.to_string(), place: end.good_end, what }, as_json, out);
        }
        end.tail.iter().try_for_each(|fault| self.fault(fault, as_json, out))
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
