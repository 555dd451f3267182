//! The one binary: parse, log, choose the mode, map an error to an exit code.

use std::process::ExitCode;

use clap::Parser;
use sensor_poll::cli::{self, Cli, exit::Exit};

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli::log::start(&cli);
    match cli::run(&cli) {
        Ok(exit) => exit.into(),
        Err(error) if cli::is_broken_pipe(&error) => Exit::Done.into(),
        Err(error) => {
            cli::log::tell(format_args!("sensor-poll: {error:#}"));
            Exit::Failed.into()
        }
    }
}
