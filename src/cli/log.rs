//! Where log lines go: standard error, one line each, coloured on a terminal.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::{EnvFilter, fmt};

use super::Cli;

/// Standard error, where a line that cannot be written (a full disk, a reader that went away) is dropped: the log must
/// never be what stops a gateway.
struct Forgiving;

impl Write for Forgiving {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tells a person something on standard error; dropped when it cannot be written.
pub fn tell(words: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{words}");
}

/// Starts logging. A filter that cannot be read is told and replaced by `info`: a typing error in a unit file must not
/// keep a gateway from running.
pub fn start(cli: &Cli) {
    let (filter, error) = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // Without word of its own errors: those go to standard error by a macro that panics when it cannot be written.
    let lines = fmt().with_env_filter(filter).with_writer(|| Forgiving).log_internal_errors(false);
    lines.with_ansi(colour).with_target(false).init();
    if let Some(error) = error {
        tracing::warn!(filter = cli.log, %error, "log filter not understood, using info");
    }
}
