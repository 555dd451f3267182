//! Notices that the process that started this one is gone, however it went.
//!
//! A pidfd becomes readable when its process ends, SIGKILL included, so no child of a demo outlives it. A pipe would do
//! too, but a worker that inherits its other end by mistake would keep it open.
//!
//! One thread waits for it, since registering a foreign descriptor with the runtime takes `unsafe`. It sleeps in the
//! kernel and ends with the process.

use std::{future, thread};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};
use tokio::{
    sync::oneshot,
    time::{Duration, sleep},
};

/// How often the parent is looked at where it cannot be waited for (no descriptor or thread left, a kernel before 5.3).
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Resolves when the parent `pid` of this process is gone; at once when it is not, or no longer, the parent. Never for
/// a number that is no pid.
pub async fn gone(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return future::pending().await;
    };
    if let Some(ended) = watch(pid) {
        // An error only says that the thread gave up; the loop below then decides.
        let _ = ended.await;
    }
    while getppid() == Some(pid) {
        sleep(LOOK_EVERY).await;
    }
}

fn watch(pid: Pid) -> Option<oneshot::Receiver<()>> {
    // In this order: a descriptor of whoever has the number now is only waited on if that is still the parent.
    let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    if getppid() != Some(pid) {
        return None;
    }
    let (tell, ended) = oneshot::channel();
    let wait = move || {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        // Nobody may be waiting any more.
        let _ = tell.send(());
    };
    thread::Builder::new().name("parent".to_owned()).stack_size(64 * 1024).spawn(wait).ok()?;
    Some(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_living_parent_is_waited_for() {
        let parent = getppid().expect("a test has a parent").as_raw_nonzero().get() as u32;
        let outcome = tokio::time::timeout(Duration::from_secs(60), gone(parent)).await;
        assert!(outcome.is_err());
    }

    #[tokio::test]
    async fn a_process_that_is_not_the_parent_counts_as_gone() {
        gone(std::process::id()).await;
        gone(0x7fff_fffe).await;
    }
}
