//! Parts of tests that need a process of their own: this test binary, started again with `RPC_TEST_CHILD` set.

use std::process::Command;

/// The variable that names the part.
const VARIABLE: &str = "RPC_TEST_CHILD";
/// Before each line of a child's word, to tell it from the test harness's own.
pub const MARK: &str = "child: ";

/// A command that starts a part.
pub fn command(part: &str) -> Command {
    let harness = ["--exact", "rpc::child::part", "--nocapture", "--test-threads=1"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(harness).env(VARIABLE, part);
    command
}

#[test]
fn part() {
    match std::env::var(VARIABLE).as_deref() {
        Ok("signals") => super::signals::hear_and_tell(),
        Ok("command") => super::commands::run_in_child(),
        Ok(other) => panic!("no part {other}"),
        Err(_) => {}
    }
}
