//! `reload`: an instance reads its manifest again; tells what changed, or each fault.

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
                    eprintln!("{}sensor-poll: {}", list(&faults), error.message);
                }
                Ok(Exit::Manifest)
            }
            Err(other) => Err(TalkError::from(other)),
        }
    })
}

fn describe(report: &ReloadReport) -> String {
    let mut text = String::new();
    if report.stations.is_empty() && report.workers.is_empty() {
        text.push_str("nothing changed\n");
    } else {
        line(&mut text, "workers", &report.workers);
        line(&mut text, "stations", &report.stations);
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
            parts.push(format!("{word} {}", names.join(", ")));
        }
    }
    parts.push(format!("{} unchanged", changes.unchanged));
    text.push_str(&format!("{what}: {}\n", parts.join("; ")));
}

fn list(faults: &Faults) -> String {
    let mut text = String::new();
    for fault in &faults.faults {
        text.push_str(&format!("{}:{}:{}: {}\n", fault.file, fault.line, fault.column, fault.message));
        if let Some(hint) = &fault.hint {
            text.push_str(&format!("  hint: {hint}\n"));
        }
    }
    if faults.more > 0 {
        text.push_str(&format!("and {} more\n", faults.more));
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
        assert_eq!(text, "plant.toml:3:9: unknown key `prot`\n  hint: did you mean `port`?\nand 2 more\n");
    }
}
