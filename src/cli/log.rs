//! Where log lines go: standard error, one line each, coloured on a terminal.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

use super::Cli;

/// Starts logging. A filter that cannot be read is told and replaced by `info`: a typing error in a unit file must not
/// keep a gateway from running.
pub fn start(cli: &Cli) {
    let (filter, error) = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour).with_target(false).init();
    if let Some(error) = error {
        tracing::warn!(filter = cli.log, %error, "log filter not understood, using info");
    }
}
