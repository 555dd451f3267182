//! `restart`: starts a worker anew, its failures forgotten.

use clap::Args;
use serde_json::{Value, json};

use super::{
    exit::Exit,
    talk::{TalkArgs, conclude, converse},
};

/// Arguments of `restart`.
#[derive(Debug, Clone, Args)]
pub struct RestartArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// The worker, as `status` names it
    #[arg(value_name = "KEY")]
    key: String,
    /// Only lift this station of it out of quarantine or cooldown
    #[arg(long, value_name = "ID")]
    station: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// When no runtime can be made; everything else has its exit code.
pub fn run(args: &RestartArgs) -> anyhow::Result<Exit> {
    converse(async {
        let mut client = args.talk.connect().await?;
        let mut params = json!({ "key": args.key });
        if let Some(station) = &args.station {
            params["station"] = station.as_str().into();
        }
        let _: Value = client.call("Worker.Restart", params).await?;
        Ok(conclude(&format!("worker {} starts anew\n", args.key)))
    })
}
