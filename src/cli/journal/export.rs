//! `journal export`

use std::{
    io::{self, Write},
    ops::ControlFlow,
    path::Path,
};

use serde_json::{Map, Value};

use super::{ExportArgs, Failure};
use crate::{
    cli::exit::Exit,
    journal::{
        Record,
        reader::{Item, Start, walk},
    },
};

/// The columns of `--csv`; `details` follows them.
const COLUMNS: [&str; 10] = ["seq", "epoch", "ts", "kind", "station", "point", "value", "unit", "quality", "reason"];

pub(super) fn run(
    state_dir: &Path,
    args: &ExportArgs,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> Result<Exit, Failure> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        let _ = writeln!(errors, "sensor-poll: --from {from} is behind --to {to}: there is no record between them");
        return Ok(Exit::Usage);
    }
    if args.csv {
        write!(out, "{},details\r\n", COLUMNS.join(","))?;
    }
    let (mut broken, mut damaged, mut met) = (None, 0_u64, false);
    let start = args.from.map_or(Start::Beginning, Start::Seq);
    // A record without a number goes with the one before it.
    let mut within = args.from.is_none();
    walk(state_dir, start, &mut |item| {
        let record = match item {
            Item::Record { record, .. } => record,
            Item::Fault(_) => {
                damaged += 1;
                return ControlFlow::Continue(());
            }
            Item::End(end) => {
                damaged += end.faults().0.len() as u64;
                return ControlFlow::Continue(());
            }
        };
        if let Some(seq) = record.seq {
            if args.to.is_some_and(|to| seq > to) {
                return ControlFlow::Break(());
            }
            within = args.from.is_none_or(|from| seq >= from);
        }
        let station = args.of_station(&record);
        met |= station && within;
        if !within || !station || !args.of_kind(&record) {
            return ControlFlow::Continue(());
        }
        match print(&record, args.csv, out) {
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
    if let Some(station) = args.station.as_deref().filter(|_| !met) {
        let range = if args.from.is_some() || args.to.is_some() { " between these numbers" } else { "" };
        let _ = writeln!(errors, "note: the journal has no record of station {station:?}{range}");
    }
    if damaged > 0 {
        // Whoever reads the records does not read this: when it cannot be told, the export is as good.
        let _ = writeln!(
            errors,
            "{damaged} fault{} in the journal {} passed over; `sensor-poll journal verify` tells more",
            if damaged == 1 { "" } else { "s" },
            if damaged == 1 { "was" } else { "were" },
        );
    }
    Ok(Exit::Done)
}

impl ExportArgs {
    fn of_kind(&self, record: &Record<'_>) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == record.kind)
    }

    fn of_station(&self, record: &Record<'_>) -> bool {
        self.station.as_deref().is_none_or(|station| record.station().is_some_and(|s| s == station))
    }
}

fn print(record: &Record<'_>, csv: bool, out: &mut dyn Write) -> io::Result<()> {
    let (content, end) = record.bare();
    if !csv {
        out.write_all(content)?;
        out.write_all(end)?;
        return out.write_all(b"\n");
    }
    let mut object: Map<String, Value> = serde_json::from_slice(&[content, end].concat()).unwrap_or_default();
    for column in COLUMNS {
        if let Some(value) = object.shift_remove(column) {
            field(&value, out)?;
        }
        out.write_all(b",")?;
    }
    if !object.is_empty() {
        quoted(&Value::Object(object).to_string(), out)?;
    }
    out.write_all(b"\r\n")
}

/// One field: text as it is, everything else as JSON has it.
fn field(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    match value {
        Value::Null => Ok(()),
        Value::String(text) => quoted(text, out),
        other => quoted(&other.to_string(), out),
    }
}

/// RFC 4180: in double quotes when it holds a comma, a quote or a line's end; quotes doubled.
fn quoted(text: &str, out: &mut dyn Write) -> io::Result<()> {
    if text.contains([',', '"', '\n', '\r']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}
