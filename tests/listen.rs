//! The service manager's sockets. Without a harness, since taking them needs a process with one thread: `main` runs the
//! cases, and each case starts this binary again as the process that takes.

#![allow(clippy::unwrap_used)]

use std::{
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use sensor_poll::lifecycle::{
    inherited::Inherited,
    listen::{Addr, acquire_listener},
};

/// The variable that makes this process the one that takes.
const CHILD: &str = "LISTEN_TEST_CHILD";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return take_and_tell();
    }
    let cases: [(&str, fn()); 6] = [
        (
            "our_own_sockets_are_taken_by_name_and_closed_to_children",
            our_own_sockets_are_taken_by_name_and_closed_to_children,
        ),
        ("a_unix_socket_is_taken_as_one", a_unix_socket_is_taken_as_one),
        (
            "a_socket_of_another_name_is_left_and_the_address_is_bound",
            a_socket_of_another_name_is_left_and_the_address_is_bound,
        ),
        (
            "another_processs_listen_pid_takes_none_and_none_reaches_a_child",
            another_processs_listen_pid_takes_none_and_none_reaches_a_child,
        ),
        ("counts_that_lie_take_what_is_there_or_nothing", counts_that_lie_take_what_is_there_or_nothing),
        (
            "a_descriptor_that_does_not_listen_is_an_error_that_says_so",
            a_descriptor_that_does_not_listen_is_an_error_that_says_so,
        ),
    ];
    // As the harness has it: a word picks the cases that contain it.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, case) in cases {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            case();
            println!("test {name} ... ok");
        }
    }
}

/// Starts this binary with a listening socket as descriptor 3, and with what the shell text exports.
fn with_socket(socket: OwnedFd, exports: &str) -> Vec<String> {
    let script = format!("{exports}; export LISTEN_PID LISTEN_FDS LISTEN_FDNAMES; exec \"$@\" 3<&0 </dev/null");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .stdin(Stdio::from(socket))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// In the child: takes the sockets, tells what it got, what is left in the environment, and what a child of its own sees.
fn take_and_tell() {
    let inherited = Inherited::take();
    let names: Vec<_> = inherited.names().collect();
    println!("names {}", names.join(","));
    let left = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].iter().any(|v| std::env::var_os(v).is_some());
    println!("variables {}", if left { "left" } else { "cleared" });
    let test = "if [ -S /proc/$$/fd/3 ]; then echo leaked; else echo closed; fi";
    let out = Command::new("sh").args(["-c", test]).output().unwrap();
    println!("child {}", String::from_utf8_lossy(&out.stdout).trim());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let addr: Addr = "127.0.0.1:0".parse().unwrap();
        match acquire_listener(&addr, "http", &inherited).await {
            Ok(listener) => println!("listener {}", listener.describe()),
            Err(e) => println!("error {e}: {}", std::error::Error::source(&e).unwrap()),
        }
    });
}

fn tcp() -> (OwnedFd, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    (listener.into(), format!("listener {at}"))
}

fn our_own_sockets_are_taken_by_name_and_closed_to_children() {
    let (socket, listener) = tcp();
    let said = with_socket(socket, "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http");
    assert_eq!(said, ["names http", "variables cleared", "child closed", &listener]);
}

fn a_unix_socket_is_taken_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
    let said = with_socket(socket.into(), "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http");
    assert_eq!(said[3], "listener unix:(inherited)");
}

fn a_socket_of_another_name_is_left_and_the_address_is_bound() {
    let (socket, listener) = tcp();
    let said = with_socket(socket, "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=other");
    assert_eq!(said[..3], ["names other", "variables cleared", "child closed"]);
    assert_ne!(said[3], listener);
}

fn another_processs_listen_pid_takes_none_and_none_reaches_a_child() {
    for pid in ["1", "$PPID", "0", "x", "''"] {
        let (socket, listener) = tcp();
        let said = with_socket(socket, &format!("LISTEN_PID={pid} LISTEN_FDS=1 LISTEN_FDNAMES=http"));
        assert_eq!(said[..2], ["names ", "variables cleared"], "{pid}");
        assert_ne!(said[3], listener);
        assert_eq!(said[2], "child closed", "{pid}");
    }
}

fn counts_that_lie_take_what_is_there_or_nothing() {
    let (socket, _) = tcp();
    let said = with_socket(socket, "LISTEN_PID=$$ LISTEN_FDS=40 LISTEN_FDNAMES=http");
    assert!(said[0].starts_with("names http"), "{said:?}");
    let (socket, _) = tcp();
    let said = with_socket(socket, "LISTEN_PID=$$ LISTEN_FDS=4000000000 LISTEN_FDNAMES=http");
    assert_eq!(said[..2], ["names ", "variables cleared"]);
}

fn a_descriptor_that_does_not_listen_is_an_error_that_says_so() {
    let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let said = with_socket(file, "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http");
    assert_eq!(
        said[3],
        "error cannot use the socket \"http\" of the service manager: the passed descriptor is no socket"
    );
}
