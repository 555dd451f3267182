//! What the commands share that talk to a supervisor: which socket, with what patience, and what an error means to a
//! script.

mod reach;

use std::{
    future::Future,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

pub use self::reach::Reached;
use super::{exit::Exit, folders};
use crate::rpc::{api::Refusal, client::ClientError, message::code};

/// Which supervisor to talk to.
#[derive(Debug, Clone, Args)]
pub struct TalkArgs {
    /// The folder of the supervisors' sockets [default: $RUNTIME_DIRECTORY, else /run/sensor-poll]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Talk to this instance [default: the leader; what only looks asks the others when it does not answer]
    #[arg(long, value_name = "ID")]
    pub instance: Option<String>,
    /// Seconds to wait for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 86_400.0 => Ok(s),
        _ => Err("use a number of seconds above 0 and at most 86400".to_owned()),
    }
}

/// The name of the leader's socket.
pub const CONTROL: &str = "control.sock";

/// Why no supervisor was reached, or what it said instead of a result.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// Nobody listens at any path that was tried.
    #[error("no supervisor is listening in {} (tried {})\nstart one: sensor-poll run --manifest FILE --run-dir {}, or: systemctl start sensor-poll@a\nif it runs elsewhere, say where with --run-dir", dir.display(), tried.join(", "), dir.display())]
    NoSupervisor {
        /// The folder.
        dir: PathBuf,
        /// File names in it.
        tried: Vec<String>,
    },
    /// No leader answers, and nobody else is told to do something in its place.
    #[error("{why}; {}", reach::instead(answering))]
    NoLeader {
        /// Why not.
        why: String,
        /// Whether somebody is there to be the leader and is silent.
        silent: bool,
        /// The ids of instances that do answer.
        answering: Vec<String>,
    },
    /// The leader went away before it answered, so what it did is not known.
    #[error("{0}: the leader is leaving or has left; see sensor-poll status before {1} again")]
    Left(String, &'static str),
    /// See there.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl TalkError {
    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::NoSupervisor { .. } | Self::Client(ClientError::Nobody { .. }) => Exit::NoSupervisor,
            Self::NoLeader { silent: false, .. } => Exit::Refused,
            Self::NoLeader { silent: true, .. } | Self::Left(..) => Exit::Failed,
            Self::Client(ClientError::Answered(error)) => match error.code {
                code::NOT_LEADER | code::DRAINING | code::BUSY | code::UNKNOWN | code::TOO_MANY | code::FORBIDDEN => {
                    Exit::Refused
                }
                code::MANIFEST => Exit::Manifest,
                _ => Exit::Failed,
            },
            Self::Client(
                ClientError::Io { .. }
                | ClientError::Timeout { .. }
                | ClientError::Closed { .. }
                | ClientError::Protocol { .. },
            ) => Exit::Failed,
        }
    }

    /// With another word for what was to be done.
    #[must_use]
    pub fn doing(self, doing: &'static str) -> Self {
        match self {
            Self::Left(why, _) => Self::Left(why, doing),
            other => other,
        }
    }

    /// True when another moment or another leader may give a better answer.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoSupervisor { .. } | Self::NoLeader { .. } | Self::Left(..) => true,
            Self::Client(ClientError::Answered(error)) => {
                matches!(error.as_refusal(), Some(Refusal::NotLeader { .. } | Refusal::Draining))
            }
            Self::Client(ClientError::Nobody { .. } | ClientError::Closed { .. } | ClientError::Timeout { .. }) => true,
            // A process that dies takes the connections that waited to be accepted with it.
            Self::Client(ClientError::Io { source, .. }) => {
                matches!(
                    source.kind(),
                    // A stopped process takes no more connections than its queue holds.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::WouldBlock
                )
            }
            Self::Client(ClientError::Protocol { .. }) => false,
        }
    }
}

impl TalkArgs {
    /// The folder: the flag, `$RUNTIME_DIRECTORY` (the first of its list), the default.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.run_dir.clone().unwrap_or_else(folders::run_dir)
    }

    /// The deadline of each call.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }
}

/// The sockets to try, in order.
fn candidates(dir: &Path, instance: Option<&str>) -> Vec<String> {
    if let Some(id) = instance {
        return vec![format!("{id}.sock")];
    }
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|n| n.ends_with(".sock") && !n.ends_with(".http.sock") && !n.starts_with('.') && n != CONTROL)
        .collect();
    names.sort();
    names.insert(0, CONTROL.to_owned());
    names
}

/// Runs a command's conversation, prints what went wrong, and gives the exit code.
///
/// # Errors
/// When no runtime can be made.
pub fn converse<F>(talk: F) -> anyhow::Result<Exit>
where
    F: Future<Output = Result<Exit, TalkError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(talk).unwrap_or_else(|e| {
        complain(&e);
        e.exit()
    }))
}

/// Prints an error and its causes on stderr, in one line where it has one.
pub fn complain(error: &TalkError) {
    tell(&whole(error));
}

/// Prints a word of our own on stderr. Whether anybody hears it is no matter.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "sensor-poll: {text}");
}

/// An error with its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text.push_str(&format!(": {e}"));
        cause = e.source();
    }
    text
}

/// Prints on stdout.
///
/// # Errors
/// When nobody reads it any more ([`io::ErrorKind::BrokenPipe`]), or it is a file on a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Prints a command's result, and gives the exit code.
#[must_use]
pub fn conclude(text: &str) -> Exit {
    print(text).map_or_else(|e| unwritten(&e), |()| Exit::Done)
}

/// What becomes of a command whose output could not be written. A reader that went away has what it wanted; a full disk
/// is a failure.
#[must_use]
pub fn unwritten(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Exit::Done;
    }
    tell(&format!("cannot write the result: {error}"));
    Exit::Failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::message::RpcError;

    #[test]
    fn the_leader_is_tried_first_and_probes_are_no_control_sockets() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.sock", "a.sock", "a.http.sock", "control.sock", "lease", ".12.0"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(candidates(dir.path(), None), ["control.sock", "a.sock", "b.sock"]);
        assert_eq!(candidates(dir.path(), Some("b")), ["b.sock"]);
        assert_eq!(candidates(Path::new("/nonexistent"), None), ["control.sock"]);
    }

    #[test]
    fn errors_have_the_exit_codes_that_scripts_rely_on() {
        let answered = |error: RpcError| TalkError::Client(ClientError::Answered(error));
        assert_eq!(TalkError::NoSupervisor { dir: "/x".into(), tried: vec![] }.exit(), Exit::NoSupervisor);
        assert_eq!(answered(Refusal::NotLeader { leader: None }.into()).exit(), Exit::Refused);
        assert_eq!(answered(Refusal::Busy { what: String::new() }.into()).exit(), Exit::Refused);
        assert_eq!(answered(Refusal::Failed { why: String::new() }.into()).exit(), Exit::Failed);
        assert_eq!(answered(RpcError::new(code::MANIFEST, "")).exit(), Exit::Manifest);
        let no_leader = |silent| TalkError::NoLeader { why: String::new(), silent, answering: vec![] };
        assert_eq!((no_leader(false).exit(), no_leader(true).exit()), (Exit::Refused, Exit::Failed));
        assert_eq!(TalkError::Client(ClientError::Closed { peer: String::new() }).exit(), Exit::Failed);
    }
}
