//! The commands `status`, `tail`, `drain` and `reload` against a fake supervisor, each in a process of its own.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Output, Stdio},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use clap::Parser;
use sensor_poll::{
    cli::{drain::DrainArgs, exit::Exit, reload::ReloadArgs, restart::RestartArgs, status::StatusArgs, tail::TailArgs},
    rpc::{
        api::{Hub, ManifestFault},
        server::Limits,
    },
};
use serde_json::Value;

use super::{
    child,
    fake::{Fake, PATIENCE, Served, line, publish, serve_at, until},
};

#[derive(Parser)]
enum Commands {
    Status(StatusArgs),
    Tail(TailArgs),
    Drain(DrainArgs),
    Reload(ReloadArgs),
    Restart(RestartArgs),
}

/// In the child: runs the command of `RPC_TEST_COMMAND` and ends with its exit code.
pub fn run_in_child() {
    let words = std::env::var("RPC_TEST_COMMAND").unwrap();
    println!();
    if let Ok(path) = std::env::var("RPC_TEST_STDOUT") {
        let other = std::fs::File::options().write(true).open(path).unwrap();
        nix::unistd::dup2_stdout(other).unwrap();
    }
    let exit = match Commands::parse_from(words.split('\n')) {
        Commands::Status(args) => sensor_poll::cli::status::run(&args),
        Commands::Tail(args) => sensor_poll::cli::tail::run(&args),
        Commands::Drain(args) => sensor_poll::cli::drain::run(&args),
        Commands::Reload(args) => sensor_poll::cli::reload::run(&args),
        Commands::Restart(args) => sensor_poll::cli::restart::run(&args),
    };
    std::process::exit(exit.unwrap() as i32);
}

fn command(dir: &Path, words: &[&str]) -> std::process::Command {
    let mut command = child::command("command");
    let dir = dir.to_str().unwrap();
    let words = [&["sensor-poll", words[0], "--run-dir", dir], &words[1..]].concat();
    command.env("RPC_TEST_COMMAND", words.join("\n"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    command
}

/// Runs a command to its end; its output without the harness's own lines.
async fn run(dir: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = command(dir, words);
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let out = String::from_utf8(stdout).unwrap();
    let out = out
        .lines()
        .filter(|l| !l.is_empty() && *l != "running 1 test" && !l.starts_with("test rpc::"))
        .fold(String::new(), |all, l| all + l + "\n");
    (status.code().unwrap(), out, String::from_utf8(stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_prints_a_table_or_one_object() {
    let served = Served::leader().await;
    let (code, out, err) = run(served.dir.path(), &["status"]).await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("a: leader of plant-7, epoch 3") && out.contains("exception:2"), "{out}");
    assert!(!out.contains('\x1b'), "plain when piped");
    let (code, out, _) = run(served.dir.path(), &["status", "--json"]).await;
    assert_eq!(code, 0);
    super::schema::check_as("Status", &serde_json::from_str::<Value>(&out).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listening_is_exit_4_with_what_was_tried_and_how_to_start() {
    let dir = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("b.sock")).unwrap());
    for command in ["status", "tail", "drain", "reload"] {
        let (code, _, err) = run(dir.path(), &[command]).await;
        assert_eq!(code, Exit::NoSupervisor as i32, "{err}");
        assert!(err.contains("tried control.sock, b.sock") && err.contains("sensor-poll run"), "{err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followers_refusal_is_exit_5_and_names_the_leader() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Arc::new(Fake { follows: Some("b".into()), ..Fake::default() });
    let _server = serve_at(&dir.path().join("a.sock"), fake, Limits::default()).await;
    let (code, out, err) = run(dir.path(), &["tail", "--instance", "a"]).await;
    assert_eq!(code, Exit::Refused as i32, "{out}{err}");
    assert!(err.contains("not the leader; ask instance b"), "{err}");
    assert_eq!(run(dir.path(), &["status"]).await.0, 0, "any instance tells its status");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_tells_what_changed_or_each_fault() {
    let served = Served::leader().await;
    let (code, out, _) = run(served.dir.path(), &["reload"]).await;
    assert_eq!((code, out.as_str()), (0, "workers: 0 unchanged\nstations: added pump; 1 unchanged\n"));
    let fault = ManifestFault {
        file: "plant.toml".into(),
        line: 4,
        column: 1,
        message: "unknown key `hots`".into(),
        hint: Some("did you mean `host`?".into()),
    };
    *served.fake.faults.lock().unwrap() = Some(vec![fault]);
    let (code, _, err) = run(served.dir.path(), &["reload"]).await;
    assert_eq!(code, Exit::Manifest as i32);
    assert_eq!(
        err,
        "plant.toml:4:1: unknown key `hots`\n  hint: did you mean `host`?\n\
         sensor-poll: the manifest has 1 fault; the old one stays in force\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_asked_for_once() {
    let served = Served::leader().await;
    let (code, out, err) = run(served.dir.path(), &["drain"]).await;
    assert_eq!((code, out.as_str()), (0, "instance a is draining\n"), "{err}");
    assert_eq!(served.fake.drains.load(Ordering::SeqCst), 1);
}

/// Runs a command with stdout on a full disk.
async fn run_on_full_disk(dir: &Path, words: &[&str]) -> (i32, String) {
    let mut command = command(dir, words);
    // The harness writes to stdout before the command does, and it would be the one to fail: the part gets the disk.
    command.env("RPC_TEST_STDOUT", "/dev/full");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_a_failure_and_no_closed_pipe() {
    let served = Served::leader().await;
    let publishing = served.fake.hub.clone();
    let publisher = tokio::spawn(async move {
        loop {
            publish(&publishing, &[line("event", "pump", 1)]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    for words in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--watch"],
        &["status", "--watch", "--json"],
        &["drain"],
        &["reload"],
        &["restart", "modbus"],
        &["tail"],
        &["tail", "--json"],
    ] {
        let (code, err) = run_on_full_disk(served.dir.path(), words).await;
        assert_eq!(code, 1, "{words:?}: {err}");
        assert!(err.contains("cannot write the result: No space left"), "{words:?}: {err}");
    }
    publisher.abort();
}

/// A leader that is stopped: its sockets take connections and nobody answers.
fn silent(dir: &Path, names: &[&str]) -> Vec<std::os::unix::net::UnixListener> {
    names.iter().map(|name| std::os::unix::net::UnixListener::bind(dir.join(name)).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_silent_hides_no_other_instance() {
    let dir = tempfile::tempdir().unwrap();
    let _stopped = silent(dir.path(), &["control.sock", "a.sock"]);
    let follower = Arc::new(Fake { follows: Some("a".into()), ..Fake::default() });
    let _server = serve_at(&dir.path().join("b.sock"), Arc::clone(&follower), Limits::default()).await;
    let began = tokio::time::Instant::now();
    let (code, out, err) = run(dir.path(), &["status", "--json"]).await;
    assert_eq!(code, 0, "{err}");
    super::schema::check_as("Status", &serde_json::from_str::<Value>(&out).unwrap());
    assert!(err.contains("leader's socket does not answer") && err.contains("what instance b says"), "{err}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());

    for words in [&["drain"][..], &["reload"], &["restart", "modbus"]] {
        let (code, _, err) = run(dir.path(), &[words, &["--timeout", "0.5"]].concat()).await;
        assert_eq!(code, Exit::Failed as i32, "{err}");
        assert!(err.contains("does not answer") && err.contains("instance b answers: say --instance b"), "{err}");
    }
    assert_eq!(follower.drains.load(Ordering::SeqCst), 0);
    let (code, _, err) = run(dir.path(), &["tail", "--timeout", "0.5"]).await;
    assert_eq!(code, Exit::Failed as i32, "{err}");
    assert_eq!(run(dir.path(), &["drain", "--instance", "b"]).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_nobody_else_is_drained_unless_named() {
    let dir = tempfile::tempdir().unwrap();
    let follower = Arc::new(Fake { follows: Some("a".into()), ..Fake::default() });
    let _server = serve_at(&dir.path().join("b.sock"), Arc::clone(&follower), Limits::default()).await;
    let (code, _, err) = run(dir.path(), &["drain"]).await;
    assert_eq!(code, Exit::Refused as i32, "{err}");
    assert!(err.contains("nobody leads; instance b answers"), "{err}");
    assert_eq!(follower.drains.load(Ordering::SeqCst), 0);
    let (code, _, err) = run(dir.path(), &["status"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_goes_away_during_a_call_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let listener = tokio::net::UnixListener::bind(dir.path().join("control.sock")).unwrap();
    // Answers the first call of each connection and is gone at the second.
    let dying = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = tokio::io::BufReader::new(stream);
            let mut call = String::new();
            tokio::io::AsyncBufReadExt::read_line(&mut stream, &mut call).await.unwrap();
            if call.contains("Lease.Status") {
                let answer = b"{\"jsonrpc\":\"2.0\",\"result\":{},\"id\":1}\n";
                tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
                tokio::io::AsyncBufReadExt::read_line(&mut stream, &mut call).await.unwrap();
            }
        }
    });
    let _server = serve_at(&dir.path().join("b.sock"), Arc::default(), Limits::default()).await;
    let (code, _, err) = run(dir.path(), &["drain"]).await;
    assert_eq!(code, Exit::Failed as i32, "{err}");
    let word = "the leader is leaving or has left; see sensor-poll status before draining again";
    assert!(err.contains(word), "{err}");
    let (code, _, err) = run(dir.path(), &["status"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("the leader went away") && err.contains("what instance b says"), "{err}");
    dying.abort();
}

/// Waits until `tail` has both of its subscriptions; told at once when it has ended instead.
async fn both_subscribed(hub: &Hub, process: &mut Child) {
    until("tail subscribed", || {
        if let Some(status) = process.try_wait().unwrap() {
            let mut err = String::new();
            process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("tail ended with {status}: {err}");
        }
        hub.subscribers() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_prints_records_byte_for_byte_through_a_change_of_leader() {
    let served = Served::leader().await;
    let mut process = command(served.dir.path(), &["tail", "--json", "--station", "pump"]).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || lines.by_ref().map(Result::unwrap).find(|l| l.starts_with('{')).unwrap();
    both_subscribed(&served.fake.hub, &mut process).await;
    let of_pump = line("reading", "pump", 2);
    publish(&served.fake.hub, &[line("reading", "boiler", 1), of_pump.clone()]);
    assert_eq!(tokio::task::block_in_place(&mut next), of_pump);

    served.server.drain(PATIENCE).await;
    let second = Arc::new(Fake::default());
    let server = serve_at(&served.path, Arc::clone(&second), Limits::default()).await;
    both_subscribed(&second.hub, &mut process).await;
    let event = line("event", "pump", 3);
    publish(&second.hub, &[line("event", "boiler", 4), event.clone()]);
    assert_eq!(tokio::task::block_in_place(&mut next), event);

    // Nobody reads it any more: it ends by itself at the next record, and says nothing about it.
    drop(lines);
    let end = tokio::time::Instant::now() + PATIENCE;
    let status = loop {
        publish(&second.hub, &[line("event", "pump", 5)]);
        tokio::time::sleep(Duration::from_millis(20)).await;
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        assert!(tokio::time::Instant::now() < end, "tail goes on without a reader");
    };
    assert_eq!(status.code(), Some(0));
    let mut err = String::new();
    process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.contains("this instance is draining; looking for the leader"), "{err}");
    server.drain(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_repeats_when_piped_and_ends_with_its_reader() {
    let served = Served::leader().await;
    let mut process = command(served.dir.path(), &["status", "--watch", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    tokio::task::block_in_place(|| {
        for _ in 0..2 {
            let line = lines.by_ref().map(Result::unwrap).find(|l| l.starts_with('{')).unwrap();
            super::schema::check_as("Status", &serde_json::from_str::<Value>(&line).unwrap());
        }
    });
    drop(lines);
    until("it ends", || process.try_wait().unwrap().is_some()).await;
    assert_eq!(process.wait().unwrap().code(), Some(0));
}
