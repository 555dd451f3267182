//! `status`: leader, follower, workers, stations, journal.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    exit::Exit,
    table,
    talk::{Reached, TalkArgs, TalkError, conclude, converse, print, tell, unwritten},
};
use crate::{rpc::client::ClientError, status::Status};

/// How often `--watch` asks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// Show it again each second; goes on when the supervisor goes away and comes back
    #[arg(long)]
    watch: bool,
    /// Print one JSON object (with --watch: one a line)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When no runtime can be made; everything else has its exit code.
pub fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    converse(async {
        if args.watch {
            return Ok(watch(args).await);
        }
        let Reached { value: status, note } = ask(args).await?;
        if let Some(note) = note {
            tell(&note);
        }
        let text = if args.json { format!("{status:#}\n") } else { draw(status)? };
        Ok(conclude(&text))
    })
}

async fn ask(args: &StatusArgs) -> Result<Reached<Value>, TalkError> {
    // As it came: a newer supervisor's additions are in the JSON as well.
    args.talk.ask(async |mut client| client.call("Lifecycle.Status", json!({})).await).await
}

fn draw(status: Value) -> Result<String, TalkError> {
    let status: Status = serde_json::from_value(status).map_err(|e| ClientError::Protocol {
        peer: "the supervisor".into(),
        why: format!("its status has another form ({e}); is it of another build?"),
    })?;
    let (width, colour) = terminal();
    Ok(table::render_status(&status, &[], width, colour))
}

/// The width of stdout and whether to colour it; unbounded and plain when it is no terminal.
fn terminal() -> (usize, bool) {
    if !io::stdout().is_terminal() {
        return (usize::MAX, false);
    }
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col));
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    (if columns == 0 { 80 } else { columns }, colour)
}

/// Goes on until it is interrupted or its output cannot be written any more.
async fn watch(args: &StatusArgs) -> Exit {
    let in_place = io::stdout().is_terminal() && !args.json;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let block = match ask(args).await {
            Ok(reached) if args.json => format!("{}\n", reached.value),
            Ok(reached) => {
                let note = reached.note.map(|n| format!("{n}\n")).unwrap_or_default();
                note + &draw(reached.value).unwrap_or_else(|e| format!("{e}\n"))
            }
            Err(e) if args.json => format!("{}\n", json!({ "error": e.to_string() })),
            Err(e) => format!("{e}\n"),
        };
        let text = if in_place {
            redraw(&block)
        } else if args.json {
            block
        } else {
            format!("{block}\n")
        };
        if let Err(e) = print(&text) {
            return unwritten(&e);
        }
    }
}

/// From the top left, each line cleared to its end, then the rest of the screen: no flicker, nothing old left over.
fn redraw(block: &str) -> String {
    let lines: String = block.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}
