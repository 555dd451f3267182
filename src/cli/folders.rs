//! The folders of a gateway where no flag names them: the service manager's variables, then the defaults.

use std::{env, path::PathBuf};

/// Where lease, locks and sockets are: `$RUNTIME_DIRECTORY`, else `/run/sensor-poll`.
#[must_use]
pub fn run_dir() -> PathBuf {
    first_of("RUNTIME_DIRECTORY", "/run/sensor-poll")
}

/// Where journal, checkpoint and ids are: `$STATE_DIRECTORY`, else `/var/lib/sensor-poll`.
#[must_use]
pub fn state_dir() -> PathBuf {
    first_of("STATE_DIRECTORY", "/var/lib/sensor-poll")
}

/// The variable is a list where a unit has more than one folder; the first is ours.
fn first_of(variable: &str, default: &str) -> PathBuf {
    let list = env::var(variable).unwrap_or_default();
    match list.split(':').next() {
        Some(first) if !first.is_empty() => first.into(),
        _ => default.into(),
    }
}
