//! `sensor-poll sim`: a simulator, to try a manifest without the plant.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

use anyhow::Context;
use clap::{ArgAction, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use super::{exit::Exit, log};
use crate::sim::{
    Faults, Plant,
    demo_plant::DemoPlant,
    faults::Of,
    manifest,
    modbus::{Options, Server},
    registers::Registers,
};

/// A simulator, to try a manifest without the plant.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Clone, Subcommand)]
enum Kind {
    /// A Modbus TCP server.
    ///
    /// Serves until SIGTERM or Ctrl-C. The bound address goes to stdout as `listening on ADDR`. Faults take [UNIT:]VALUE,
    /// without UNIT for every unit, and may be given more than once.
    Modbus(ModbusArgs),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PlantKind {
    /// A boiler, a tank, a meter, and a pump drive that goes dead now and then.
    Demo,
    /// Register n holds n, for tests and load.
    Registers,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PointKind {
    /// A point for each register.
    U16,
    /// A point for each two registers.
    F32,
}

/// Serves until SIGTERM or Ctrl-C. The bound address goes to stdout as `listening on ADDR`.
///
/// Faults take [UNIT:]VALUE, without UNIT for every unit, and may be given more than once.
#[derive(Debug, Clone, clap::Args)]
struct ModbusArgs {
    /// Where to listen; port 0 lets the kernel choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:1502")]
    listen: SocketAddr,
    /// What is simulated
    #[arg(long, value_enum, default_value = "demo")]
    plant: PlantKind,
    /// Units of the plant `registers`, from 1 on
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=247))]
    units: u8,
    /// Addresses in each table of the plant `registers`
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    registers: u32,
    /// Plants of one seed behave alike
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print a manifest that fits this simulator, and leave
    #[arg(long)]
    manifest: bool,
    /// What the points of that manifest are, for the plant `registers`
    #[arg(long, value_enum, default_value = "u16")]
    points: PointKind,
    /// Answer late
    #[arg(long, value_name = "[UNIT:]MS", action = ArgAction::Append)]
    late: Vec<Of<u32>>,
    /// Do not answer
    #[arg(long, value_name = "UNIT", num_args = 0..=1, default_missing_value = "all", action = ArgAction::Append,
          value_parser = parse_drop)]
    drop: Vec<Of<bool>>,
    /// Answer with exception N
    #[arg(long, value_name = "[UNIT:]N", action = ArgAction::Append)]
    exception: Vec<Of<u8>>,
    /// Those three hit each Nth request of a unit only
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: u64,
    /// They hit the first N requests of a unit only (0: all)
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Close the connection instead of answering each Nth request on it (0: never)
    #[arg(long, value_name = "N", default_value_t = 0)]
    close_every: u64,
    /// Close a second connection at once, while a first one is open
    #[arg(long)]
    one_connection: bool,
}

fn parse_drop(text: &str) -> Result<Of<bool>, String> {
    let unit = match text.trim_end_matches(':') {
        "all" => None,
        unit => Some(unit.parse().map_err(|_| format!("`{unit}` is no unit (0 to 255)"))?),
    };
    Ok(Of { unit, value: true })
}

/// Runs the command.
///
/// # Errors
/// When the address cannot be bound or stdout cannot be written.
pub async fn run(args: Args) -> anyhow::Result<Exit> {
    match args.kind {
        Kind::Modbus(args) => modbus(args).await,
    }
}

async fn modbus(args: ModbusArgs) -> anyhow::Result<Exit> {
    if args.manifest {
        print(&args.manifest_text()).context("cannot write the manifest to stdout")?;
        return Ok(Exit::Done);
    }
    // Taken before the address is told, so that a signal sent in answer to it ends the server in good manners.
    let mut terminate = signal(SignalKind::terminate()).context("cannot take SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot take SIGINT")?;
    let listen = args.listen;
    let server = Server::start(args.options()).await.with_context(|| {
        let hint = "is another simulator running? Choose another port with --listen, or 0 for a free one";
        format!("the Modbus simulator cannot start ({hint})")
    })?;
    if !listen.ip().is_loopback() {
        log::tell(format_args!(
            "warning: {listen} is not a loopback address: others on the network can write to this simulator"
        ));
    }
    print(&format!("listening on {}\n", server.addr())).context("cannot write the address to stdout")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let requests = server.requests();
    server.stop().await;
    log::tell(format_args!("stopped after {requests} requests"));
    Ok(Exit::Done)
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl ModbusArgs {
    fn manifest_text(&self) -> String {
        let points = match self.points {
            PointKind::U16 => manifest::Points::U16,
            PointKind::F32 => manifest::Points::F32,
        };
        match self.plant {
            PlantKind::Demo => manifest::demo(self.listen),
            PlantKind::Registers => manifest::registers(self.listen, self.units, self.registers, points),
        }
    }

    fn options(self) -> Options {
        let plant: Box<dyn Plant> = match self.plant {
            PlantKind::Demo => Box::new(DemoPlant::new(self.seed)),
            PlantKind::Registers => Box::new(Registers::new(self.units, self.registers)),
        };
        let faults = Faults {
            late: self.late,
            drop: self.drop,
            exception: self.exception,
            every: self.every,
            first: self.first,
            close_every: self.close_every,
            one_connection: self.one_connection,
        };
        Options { listen: self.listen, plant, faults }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> ModbusArgs {
        let all = ["sim", "modbus"].iter().chain(words);
        let Kind::Modbus(args) = Cli::try_parse_from(all).unwrap().args.kind;
        args
    }

    #[test]
    fn by_default_it_listens_on_loopback_without_faults() {
        let options = parse(&[]).options();
        assert!(options.listen.ip().is_loopback());
        assert_eq!(options.faults, Faults { every: 1, ..Faults::default() });
    }

    #[test]
    fn faults_are_taken_for_a_unit_and_for_all() {
        let args = parse(&["--late", "2:500", "--late", "10", "--drop", "3:", "--drop", "--exception", "4:11"]);
        assert_eq!(args.late, [Of { unit: Some(2), value: 500 }, Of { unit: None, value: 10 }]);
        assert_eq!(args.drop, [Of { unit: Some(3), value: true }, Of { unit: None, value: true }]);
        assert_eq!(args.exception, [Of { unit: Some(4), value: 11 }]);
    }
}
