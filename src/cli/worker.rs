//! `sensor-poll worker`: how the supervisor starts itself.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::exit::Exit;
use crate::{
    registry,
    worker::host::{self, HostOptions},
};

/// What the supervisor passes.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The protocol
    pub protocol: String,
    /// The worker's key
    #[arg(long)]
    pub key: String,
    /// The device's run folder
    #[arg(long)]
    pub run_dir: PathBuf,
}

/// Runs a worker to its end.
///
/// # Errors
/// Why it failed.
pub fn run(args: &WorkerArgs) -> anyhow::Result<Exit> {
    let protocol = registry::by_name(&args.protocol)
        .with_context(|| format!("this build has no protocol \"{}\"", args.protocol))?;
    let options = HostOptions {
        key: args.key.clone(),
        run_dir: args.run_dir.clone(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
    };
    super::block_on(async {
        host::run(protocol, options).await.with_context(|| format!("worker {}", args.key))?;
        Ok(Exit::Done)
    })
}
