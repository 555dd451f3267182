//! `sensor-poll run`: a supervisor.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::{exit::Exit, folders, log};
use crate::{
    config,
    lifecycle::{listen::Addr, signals::Signals},
    supervisor::{
        listeners::Http,
        reload::Stamp,
        run::{self, Ended, RunOptions},
    },
};

/// A supervisor's settings of the process; what it polls stands in the manifest.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The manifest: what to poll
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// This instance's id; two instances of one device have different ones
    #[arg(long, env = "SENSOR_POLL_INSTANCE", default_value = "a", value_name = "ID", value_parser = instance_id)]
    pub instance: String,
    /// Where journal, checkpoint and ids are kept [default: $STATE_DIRECTORY, else /var/lib/sensor-poll]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where lease, locks and sockets are, shared by the instances of one device [default: $RUNTIME_DIRECTORY, else
    /// /run/sensor-poll]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Where this instance answers probes: IP:PORT, unix:PATH, or off [default: unix:RUN_DIR/ID.http.sock, and the
    /// leader alone also at 127.0.0.1:8600]
    #[arg(long, value_name = "ADDR", value_parser = http)]
    pub http: Option<Http>,
    /// Leave when this process is gone
    #[arg(long, hide = true, value_name = "PID")]
    pub exit_with_pid: Option<u32>,
}

fn http(text: &str) -> Result<Http, String> {
    match text {
        "off" => Ok(Http::Off),
        _ => text.parse::<Addr>().map(Http::At).map_err(|e| e.to_string()),
    }
}

/// Ids are parts of file names.
fn instance_id(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() > 32 || !text.chars().all(fine) {
        return Err("use 1 to 32 letters, digits, - or _".to_owned());
    }
    if text == "control" || text == "lease" || text == "registry" {
        return Err("this name is taken by a file of the device".to_owned());
    }
    Ok(text.to_owned())
}

/// Runs a supervisor to its end.
///
/// # Errors
/// Why it could not start, or failed.
pub fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
    let ended = runtime.block_on(supervise(args));
    // Threads that wait for a lock cannot be told to end; the process's end ends them.
    runtime.shutdown_background();
    ended
}

async fn supervise(args: &RunArgs) -> anyhow::Result<Exit> {
    // First of all: a SIGHUP before its handler is set would end the process.
    let signals = Signals::install().context("cannot handle signals")?;
    let stamp = Stamp::of(&args.manifest);
    let loaded = match config::load(&args.manifest) {
        Ok(loaded) => loaded,
        Err(error) => {
            log::tell(error);
            return Ok(Exit::Manifest);
        }
    };
    let options = RunOptions {
        manifest_path: args.manifest.clone(),
        manifest_stamp: stamp,
        instance: args.instance.clone(),
        state_dir: args.state_dir.clone().unwrap_or_else(folders::state_dir),
        run_dir: args.run_dir.clone().unwrap_or_else(folders::run_dir),
        http: args.http.clone().unwrap_or(Http::Default),
        exit_with_pid: args.exit_with_pid,
        build: env!("CARGO_PKG_VERSION").to_owned(),
    };
    match run::run(options, loaded, signals).await.context("cannot start")? {
        Ended::Drained | Ended::Left => Ok(Exit::Done),
        Ended::Fenced(why) => {
            log::tell(format_args!("sensor-poll: the lease is lost: {why}"));
            Ok(Exit::Fenced)
        }
        Ended::Failed(why) => anyhow::bail!("{why}"),
    }
}
