//! The command line: one file a command.

pub mod check;
#[cfg(feature = "device")]
pub mod demo;
pub mod drain;
pub mod exit;
pub mod folders;
#[cfg(feature = "device")]
pub mod journal;
pub mod log;
pub mod reload;
pub mod restart;
#[cfg(feature = "device")]
pub mod run;
#[cfg(feature = "device")]
pub mod sim;
pub mod status;
pub mod table;
pub mod tail;
pub mod talk;
#[cfg(feature = "device")]
pub mod worker;

use clap::{Parser, Subcommand};

use exit::Exit;

/// Polls a plant's equipment from an edge gateway pair and loses no reading.
#[derive(Debug, Parser)]
#[command(name = "sensor-poll", version, arg_required_else_help = true, infer_subcommands = false)]
#[command(after_help = "New here? `sensor-poll demo` shows everything at work on this machine; nothing to install.\n\
    Exit codes: 0 done, 1 failed, 2 bad usage, 3 bad manifest, 4 no supervisor listening, 5 refused, 6 lease not fenced.")]
pub struct Cli {
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,sensor_poll::worker=debug`.
    #[arg(long, global = true, env = "SENSOR_POLL_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A simulated plant and a gateway pair on this machine; nothing to install
    #[cfg(feature = "device")]
    Demo(demo::Args),
    /// A supervisor: leader or follower, as the lease decides
    #[cfg(feature = "device")]
    Run(run::RunArgs),
    /// Validate a manifest: each fault with file, line, column and a hint
    Check(check::CheckArgs),
    /// Leader, follower, workers, stations, journal
    Status(status::StatusArgs),
    /// Readings and events as they happen
    Tail(tail::TailArgs),
    /// Let a supervisor finish what is in flight and leave
    Drain(drain::DrainArgs),
    /// Let a supervisor read its manifest again
    Reload(reload::ReloadArgs),
    /// Start a worker anew, its failures forgotten
    Restart(restart::RestartArgs),
    /// Verify, sum up or export the journal
    #[cfg(feature = "device")]
    Journal(journal::JournalArgs),
    /// A simulator, to try a manifest without the plant
    #[cfg(feature = "device")]
    Sim(sim::Args),
    /// How the supervisor starts itself as a worker
    #[cfg(feature = "device")]
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

/// Runs a command.
///
/// # Errors
/// What failed, for a person; the exit code is then 1.
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    match &cli.command {
        #[cfg(feature = "device")]
        Command::Demo(args) => block_on(demo::run(args.clone())),
        #[cfg(feature = "device")]
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(args),
        Command::Status(args) => status::run(args),
        Command::Tail(args) => tail::run(args),
        Command::Drain(args) => drain::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Restart(args) => restart::run(args),
        #[cfg(feature = "device")]
        Command::Journal(args) => journal::run(args),
        #[cfg(feature = "device")]
        Command::Sim(args) => block_on(sim::run(args.clone())),
        #[cfg(feature = "device")]
        Command::Worker(args) => worker::run(args),
    }
}

/// Runs an asynchronous command on one thread.
#[cfg(feature = "device")]
fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    use anyhow::Context;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
    runtime.block_on(command)
}

/// True when the reader of our output went away, which is no failure of ours.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>()).any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
