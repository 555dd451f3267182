//! `drain`: an instance finishes what is in flight and leaves.

use std::time::Duration;

use clap::Args;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde_json::{Value, json};

use super::{
    exit::Exit,
    talk::{TalkArgs, conclude, converse, tell},
};
use crate::status::Status;

/// Arguments of `drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// Wait until the process has left, at most this many seconds (its own drain is bounded by `drain_timeout_ms`)
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
}

/// Runs the command.
///
/// # Errors
/// When no runtime can be made; everything else has its exit code.
pub fn run(args: &DrainArgs) -> anyhow::Result<Exit> {
    converse(async {
        let mut client = args.talk.connect().await.map_err(|e| e.doing("draining"))?;
        let lost = |error| args.talk.lost(error, "draining");
        let status: Status = client.call("Lifecycle.Status", json!({})).await.map_err(lost)?;
        // Opened before the drain, so that it stands for this process and no later one of its number.
        let process = status.instances.iter().find(|i| i.id == status.instance).and_then(|i| open(i.pid));
        let _: Value = client.call("Lifecycle.Drain", json!({})).await.map_err(lost)?;
        let told = conclude(&format!("instance {} is draining\n", status.instance));
        let Some(seconds) = args.wait else { return Ok(told) };
        let waited = wait(process, &status.instance, Duration::from_secs(seconds.into()));
        Ok(if waited == Exit::Done { told } else { waited })
    })
}

fn open(pid: u32) -> Option<std::os::fd::OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn wait(process: Option<std::os::fd::OwnedFd>, id: &str, within: Duration) -> Exit {
    let Some(process) = process else {
        tell(&format!("cannot watch the process of instance {id}; see sensor-poll status"));
        return Exit::Failed;
    };
    let timeout = Timespec { tv_sec: within.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)) {
        Ok(1..) => conclude(&format!("instance {id} has left\n")),
        Ok(0) => {
            let seconds = within.as_secs();
            tell(&format!("instance {id} still runs after {seconds} s; see its log for what it holds"));
            Exit::Failed
        }
        Err(e) => {
            tell(&format!("cannot wait for instance {id}: {e}"));
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_process_or_with_its_deadline() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        assert_eq!(wait(open(child.id()), "a", Duration::ZERO), Exit::Failed);
        let process = open(child.id());
        child.kill().unwrap();
        assert_eq!(wait(process, "a", Duration::from_secs(10)), Exit::Done);
        child.wait().unwrap();
        assert_eq!(wait(None, "a", Duration::ZERO), Exit::Failed);
    }
}
