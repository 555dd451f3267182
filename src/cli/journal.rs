//! `sensor-poll journal verify|stats|export`: reads the journal of a state folder, beside a running gateway or without
//! one. Writes nothing.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{exit::Exit, folders};
use crate::journal::{self, JournalError};

mod export;
mod stats;
mod verify;

/// `sensor-poll journal`
#[derive(Debug, Args)]
pub struct JournalArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub command: JournalCommand,
    /// The folder that holds the journal
    #[arg(long, global = true, value_name = "DIR", default_value_os_t = folders::state_dir())]
    pub state_dir: PathBuf,
}

/// See [`JournalArgs`].
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Check every record; print each fault with file, line and byte. Exit code 1 when there is one
    Verify {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Count records by kind and station; show numbers, times, size and epochs
    Stats {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print records, one JSON object a line without the checksum; damaged ones are left out and counted on stderr
    Export(ExportArgs),
}

/// `sensor-poll journal export`
#[derive(Debug, Args, Default)]
pub struct ExportArgs {
    /// Print comma-separated values with a header (RFC 4180); what a record has besides a reading's columns stands as
    /// JSON in the last one, `details`
    #[arg(long)]
    pub csv: bool,
    /// Only this station's records
    #[arg(long, value_name = "ID")]
    pub station: Option<String>,
    /// Only records of this kind
    #[arg(long, value_name = "KIND", value_parser = ["reading", "alarm", "event", "register", "ack", "write"])]
    pub kind: Option<String>,
    /// From this record on
    #[arg(long, value_name = "SEQ")]
    pub from: Option<u64>,
    /// Up to this record, which is included
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
}

/// Runs the command. When the journal or the output cannot be used it says why on stderr and fails; a reader of the output
/// that left early is no failure.
///
/// # Errors
/// None: a disk that takes no output may be stderr's as well, so that what cannot be told there is left untold here.
pub fn run(args: &JournalArgs) -> anyhow::Result<Exit> {
    Ok(try_run(args).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "sensor-poll: {error:#}");
        Exit::Failed
    }))
}

fn try_run(args: &JournalArgs) -> anyhow::Result<Exit> {
    let mut out = io::BufWriter::with_capacity(256 * 1024, io::stdout().lock());
    let ran = match &args.command {
        JournalCommand::Verify { json } => verify::run(&args.state_dir, *json, &mut out),
        JournalCommand::Stats { json } => stats::run(&args.state_dir, *json, &mut out),
        JournalCommand::Export(export) => export::run(&args.state_dir, export, &mut out, &mut io::stderr().lock()),
    };
    match ran.and_then(|exit| out.flush().map(|()| exit).map_err(Failure::Output)) {
        Ok(exit) => Ok(exit),
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            // Nothing more can be flushed: the buffer must not try again when it is dropped.
            let _ = out.into_parts();
            Ok(Exit::Done)
        }
        Err(Failure::Output(error)) => Err(error).context("cannot write the output"),
        Err(Failure::Journal(error)) => Err(error.into()),
    }
}

/// Why a command stopped.
#[derive(Debug)]
enum Failure {
    Output(io::Error),
    Journal(JournalError),
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Bytes of all segments.
fn segment_bytes(state_dir: &Path) -> (u64, u64) {
    let listing = journal::segment::list(&journal::segment::folder(state_dir)).ok().flatten().unwrap_or_default();
    (listing.segments.len() as u64, listing.segments.iter().map(|s| s.bytes).sum())
}

#[cfg(test)]
mod tests;
