//! `reload`: an instance reads its manifest again; tells what changed, or each fault.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::{
    exit::Exit,
    talk::{TalkArgs, TalkError, conclude, converse, print},
};
use crate::rpc::{
    api::{Changes, ManifestFault, ReloadReport},
    client::ClientError,
    message::code,
};

/// Arguments of `reload`.
#[derive(Debug, Clone, Args)]
pub struct ReloadArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// Print the report, or the faults, as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Faults {
    faults: Vec<ManifestFault>,
    #[serde(default)]
    more: u64,
}

/// Runs the command.
///
/// # Errors
/// When no runtime can be made; everything else has its exit code.
pub fn run(args: &ReloadArgs) -> anyhow::Result<Exit> {
    converse(async {
        let mut client = args.talk.connect().await?;
        match client.call::<ReloadReport>("Lifecycle.Reload", json!({})).await {
            Ok(report) => {
                let text = if args.json { format!("{:#}\n", json!(report)) } else { describe(&report) };
                Ok(conclude(&text))
            }
            Err(ClientError::Answered(error)) if error.code == code::MANIFEST => {
                let data = error.data.clone().unwrap_or_default();
                if args.json {
                    let _ = print(&format!("{data:#}\n"));
                } else {
                    let faults = serde_json::from_value(data).unwrap_or(Faults { faults: vec![], more: 0 });
                    // Nobody is left to be told where that fails; the exit code says it all the same.
                    let _ = writeln!(io::stderr(), "{}sensor-poll: {}", list(&faults), error.message);
                }
                Ok(Exit::Manifest)
            }
            Err(other) => Err(TalkError::from(other)),
        }
    })
}

/// So many names of a list are told; `--json` has all.
const NAMES: usize = 10;
/// The same for faults.
const FAULTS: usize = 50;

fn describe(report: &ReloadReport) -> String {
    let mut text = String::new();
    if !report.stations.is_empty() || !report.workers.is_empty() {
        line(&mut text, "workers", &report.workers);
        line(&mut text, "stations", &report.stations);
    } else if report.notes.is_empty() {
        text.push_str("nothing changed\n");
    } else {
        // The notes may name a setting or a connection that did.
        text.push_str("no worker and no station changed\n");
    }
    for note in &report.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn line(text: &mut String, what: &str, changes: &Changes) {
    let mut parts = Vec::new();
    for (word, names) in [("added", &changes.added), ("removed", &changes.removed), ("updated", &changes.updated)] {
        if !names.is_empty() {
            parts.push(format!("{word} {}", first(names)));
        }
    }
    parts.push(format!("{} unchanged", changes.unchanged));
    text.push_str(&format!("{what}: {}\n", parts.join("; ")));
}

fn first(names: &[String]) -> String {
    let mut told = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        write!(told, ", … and {} more", names.len() - NAMES).expect("a string takes all");
    }
    told
}

fn list(faults: &Faults) -> String {
    let mut text = String::new();
    for fault in faults.faults.iter().take(FAULTS) {
        text.push_str(&format!("{}:{}:{}: {}\n", fault.file, fault.line, fault.column, fault.message));
        if let Some(hint) = &fault.hint {
            text.push_str(&format!("  hint: {hint}\n"));
        }
    }
    let more = faults.more + faults.faults.len().saturating_sub(FAULTS) as u64;
    if more > 0 {
        text.push_str(&format!("… and {more} more (see --json)\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_changed() {
        let stations = Changes { added: vec!["a".into(), "b".into()], unchanged: 7, ..Changes::default() };
        let report = ReloadReport { stations, ..ReloadReport::default() };
        assert_eq!(describe(&report), "workers: 0 unchanged\nstations: added a, b; 7 unchanged\n");
        assert_eq!(describe(&ReloadReport::default()), "nothing changed\n");
    }

    #[test]
    fn faults_are_listed_with_place_and_hint() {
        let fault = ManifestFault {
            file: "plant.toml".into(),
            line: 3,
            column: 9,
            message: "unknown key `prot`".into(),
            hint: Some("did you mean `port`?".into()),
        };
        let text = list(&Faults { faults: vec![fault], more: 2 });
        assert_eq!(
            text,
            "plant.toml:3:9: unknown key `prot`\n  hint: did you mean `port`?\n… and 2 more (see --json)\n"
        );
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let updated = (0..1000).map(|n| format!("s{n}")).collect();
        let report = ReloadReport { stations: Changes { updated, ..Changes::default() }, ..ReloadReport::default() };
        let text = describe(&report);
        assert!(text.contains("updated s0, s1, ") && text.contains("s9, … and 990 more; 0 unchanged"), "{text}");
        let fault = ManifestFault { file: "p".into(), line: 1, column: 1, message: "m".into(), hint: None };
        let text = list(&Faults { faults: vec![fault; 60], more: 2 });
        assert_eq!(text.lines().count(), 51);
        assert!(text.ends_with("… and 12 more (see --json)\n"), "{text}");
    }

    #[test]
    fn what_changed_besides_stations_is_not_called_nothing() {
        let report = ReloadReport { notes: vec!["connection changed: skid".into()], ..ReloadReport::default() };
        assert_eq!(describe(&report), "no worker and no station changed\nnote: connection changed: skid\n");
    }
}
