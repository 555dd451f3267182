//! Signals belong to a whole process.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sensor_poll::lifecycle::signals::{Order, Signals};

use super::child::{self, MARK};

/// In the child: tells each order until the one to leave.
pub fn hear_and_tell() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut signals = Signals::install().unwrap();
        println!("\n{MARK}installed");
        loop {
            let order = signals.next().await;
            println!("{MARK}{order:?}");
            std::io::stdout().flush().unwrap();
            if order == Order::Leave {
                break;
            }
        }
    });
}

#[test]
fn signals_become_orders_and_none_of_them_is_fatal() {
    let mut process = child::command("signals").stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(process.id().try_into().unwrap());
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || loop {
        let line = lines.next().expect("the child lives").unwrap();
        if let Some(at) = line.find(MARK) {
            break line[at + MARK.len()..].to_owned();
        }
    };
    assert_eq!(next(), "installed");
    for (signal, order) in [
        (Signal::SIGHUP, "Reload"),
        (Signal::SIGHUP, "Reload"),
        (Signal::SIGTERM, "Drain"),
        (Signal::SIGINT, "EndWait"),
        (Signal::SIGQUIT, "Leave"),
    ] {
        kill(pid, signal).unwrap();
        assert_eq!(next(), order, "{signal}");
    }
    assert!(process.wait().unwrap().success());
}
