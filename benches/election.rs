//! The lease alone: 1,000 elections of two processes, and the time from a leader's death to the follower's lead.
//!
//! `cargo bench --bench election`. Prints, and never fails by time; two leaders are a failure.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    time::Duration,
};

use sensor_poll::{
    clock::Boot,
    lease::{Lease, LeaseEvent, LeaseOptions},
    status::Role,
};

const INSTANCE: &str = "SENSOR_POLL_BENCH_INSTANCE";
const ELECTIONS: usize = 1_000;
const FAILOVERS: usize = 100;
const TTL: Duration = Duration::from_secs(1);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Failure> {
    if let Ok(instance) = std::env::var(INSTANCE) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(child(&instance))?;
        return Ok(ExitCode::SUCCESS);
    }
    // `cargo test --benches` runs this too, and wants no measurement.
    if !std::env::args().any(|a| a == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let dir = tempfile::tempdir()?;
    let one = elections(dir.path())?;
    println!("elections of two, exactly one leader: {one} of {ELECTIONS}");
    let mut times = failovers(dir.path())?;
    times.sort_unstable();
    println!(
        "leader killed, follower leads, {FAILOVERS} times, TTL {TTL:?}: median {:?}, worst {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    Ok(if one == ELECTIONS { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes a folder a line, takes part in the lease there, says what became of it, and leaves at the next line.
async fn child(instance: &str) -> Result<(), Failure> {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    while let Some(dir) = lines.next() {
        let dir = PathBuf::from(dir);
        let (lease, mut events) = Lease::start(LeaseOptions {
            run_dir: dir.join("run"),
            state_dir: dir.join("state"),
            instance: instance.to_owned(),
            ttl: TTL,
            build: "0.1.0".to_owned(),
            epoch_floor: Box::new(|| 0),
        })?;
        loop {
            match events.recv().await {
                Some(LeaseEvent::Promoted { .. }) => println!("leads {}", Boot::now().0.as_nanos()),
                Some(LeaseEvent::Following { leader: Some(_) }) => {
                    println!("follows");
                    if instance == "waits" {
                        continue;
                    }
                }
                Some(_) => continue,
                None => return Err("the lease is gone".into()),
            }
            break;
        }
        if lines.next().is_none() {
            return Ok(());
        }
        println!("{}", lease.view().role.as_str());
        lease.shutdown().await?;
    }
    Ok(())
}

struct Instance {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Instance {
    fn start(id: &str) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.env(INSTANCE, id).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("no stdout")?);
        Ok(Self { process, lines })
    }

    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.process.stdin.as_mut().ok_or("no stdin")?, "{line}")?)
    }

    fn said(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Err("an instance ended".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn elections(dir: &Path) -> Result<usize, Failure> {
    let mut pair = [Instance::start("a")?, Instance::start("b")?];
    let mut one = 0;
    for round in 0..ELECTIONS {
        let folder = dir.join(format!("election-{round}")).display().to_string();
        for instance in &mut pair {
            instance.tell(&folder)?;
        }
        let said = [pair[0].said()?, pair[1].said()?];
        let leads = said.each_ref().map(|s| s.starts_with("leads"));
        // The follower leaves first, or it would lead.
        let follower = usize::from(leads[0]);
        let mut roles = 0;
        for i in [follower, 1 - follower] {
            pair[i].tell("leave")?;
            roles += usize::from(pair[i].said()? == Role::Leader.as_str());
        }
        one += usize::from(leads[0] != leads[1] && roles == 1);
    }
    Ok(one)
}

fn failovers(dir: &Path) -> Result<Vec<Duration>, Failure> {
    let folder = dir.join("failover").display().to_string();
    let mut leader = Instance::start("leads")?;
    leader.tell(&folder)?;
    leader.said()?;
    let mut times = Vec::with_capacity(FAILOVERS);
    for round in 0..FAILOVERS {
        let mut follower = Instance::start("waits")?;
        follower.tell(&folder)?;
        if follower.said()? != "follows" {
            return Err(format!("two leaders in round {round}").into());
        }
        let killed = Boot::now();
        leader.process.kill()?;
        let said = follower.said()?;
        let at = said.strip_prefix("leads ").ok_or("the follower does not lead")?.parse()?;
        times.push(Boot(Duration::from_nanos(at)).since(killed));
        // One id cannot run twice at once: both go, and a new pair comes.
        drop(follower);
        leader = Instance::start("leads")?;
        leader.tell(&folder)?;
        leader.said()?;
    }
    Ok(times)
}
