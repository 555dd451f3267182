//! `sensor-poll check`: holds a manifest against this build, starts nothing.

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use worker_contract::{PlannedRequest, Protocol, StationConfig};

use super::exit::Exit;
use crate::{
    config::{self, LoadError, Loaded, Manifest, RenderedFault, Told, model::Connection},
    registry,
};

/// Validates a manifest and prints each fault with its place and a hint.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArgs {
    /// The manifest to check.
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// Prints each request of each station, with wire and PLC addresses.
    #[arg(long)]
    pub plan: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Checks, prints, and says how it went.
///
/// # Errors
/// None: what cannot be printed is told on stderr, where that works, and is in the exit code.
pub fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = check(args, registry::protocols(), &mut out).and_then(|exit| out.flush().map(|()| exit));
    match printed {
        // Whoever reads only the first lines closes the pipe: what it would have read does not change the verdict.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(if config::load(&args.manifest).is_ok() { Exit::Done } else { Exit::Manifest })
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "sensor-poll: cannot write the outcome of the check: {error}");
            Ok(Exit::Failed)
        }
        Ok(exit) => Ok(exit),
    }
}

/// The whole command but for the process around it.
///
/// # Errors
/// When `out` takes no more.
pub fn check(args: &CheckArgs, protocols: &[&'static dyn Protocol], out: &mut dyn Write) -> io::Result<Exit> {
    let file = args.manifest.display().to_string();
    match config::load_with(&args.manifest, protocols) {
        Ok(loaded) => {
            let plans = plan(&loaded.manifest, protocols);
            if args.json {
                print_json(out, &Report::good(file, &loaded, &plans, args.plan))?;
            } else {
                print_good(out, &args.manifest, &loaded, &plans, args.plan)?;
            }
            Ok(Exit::Done)
        }
        Err(error) => {
            if args.json {
                print_json(out, &Report::bad(file, &error))?;
            } else {
                let LoadError { faults, warnings, more, .. } = &error;
                write!(out, "{}", Told { faults, more: *more, warnings })?;
                writeln!(out, "{}", error.verdict())?;
            }
            Ok(Exit::Manifest)
        }
    }
}

/// The object of `--json`.
#[derive(Serialize)]
struct Report<'r> {
    file: String,
    faults: &'r [RenderedFault],
    #[serde(skip_serializing_if = "is_zero")]
    faults_not_shown: usize,
    warnings: &'r [RenderedFault],
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Vec<PlanJson<'r>>>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl<'r> Report<'r> {
    fn good(file: String, loaded: &'r Loaded, plans: &'r [Plan<'r>], with_plan: bool) -> Self {
        let plan = with_plan.then(|| plans.iter().map(PlanJson::of).collect());
        let counts = Some(Counts::of(&loaded.manifest, plans));
        Self { file, faults: &[], faults_not_shown: 0, warnings: &loaded.warnings, counts, plan }
    }

    fn bad(file: String, error: &'r LoadError) -> Self {
        let LoadError { file: _, faults, warnings, more } = error;
        Self { file, faults, faults_not_shown: *more, warnings, counts: None, plan: None }
    }
}

/// How much the manifest holds that is switched on.
#[derive(Serialize)]
struct Counts {
    connections: usize,
    stations: usize,
    points: usize,
    requests_per_cycle: usize,
}

impl Counts {
    fn of(manifest: &Manifest, plans: &[Plan<'_>]) -> Self {
        Self {
            connections: manifest.connections.iter().filter(|c| c.enabled).count(),
            stations: plans.len(),
            points: plans.iter().map(|p| p.station.points.len()).sum(),
            requests_per_cycle: plans.iter().map(|p| p.requests.len()).sum(),
        }
    }

    fn words(&self) -> String {
        let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}, {}, {}, {} per cycle",
            count(self.connections, "connection"),
            count(self.stations, "station"),
            count(self.points, "point"),
            count(self.requests_per_cycle, "request")
        )
    }
}

/// The requests of one station's poll.
struct Plan<'m> {
    connection: &'m Connection,
    station: &'m StationConfig,
    requests: Vec<PlannedRequest>,
}

fn plan<'m>(manifest: &'m Manifest, protocols: &[&'static dyn Protocol]) -> Vec<Plan<'m>> {
    let of = |name: &str| protocols.iter().find(|p| p.name() == name);
    manifest
        .stations()
        .map(|(connection, station)| {
            let requests = of(connection.protocol).map_or_else(Vec::new, |p| p.plan(station));
            Plan { connection, station, requests }
        })
        .collect()
}

fn names<'m>(station: &'m StationConfig, request: &PlannedRequest) -> Vec<&'m str> {
    request.points.iter().filter_map(|i| station.points.get(*i as usize)).map(|p| &*p.name).collect()
}

#[derive(Serialize)]
struct PlanJson<'m> {
    station: &'m str,
    connection: &'m str,
    kind: &'m str,
    poll_interval_ms: u32,
    requests: Vec<RequestJson<'m>>,
}

#[derive(Serialize)]
struct RequestJson<'m> {
    operation: &'m str,
    function: u8,
    wire_address: u32,
    plc_address: &'m str,
    count: u32,
    points: Vec<&'m str>,
}

impl<'m> PlanJson<'m> {
    fn of(plan: &'m Plan<'m>) -> Self {
        let request = |request: &'m PlannedRequest| RequestJson {
            operation: &request.operation,
            function: request.function,
            wire_address: request.wire_address,
            plc_address: &request.plc_address,
            count: request.count,
            points: names(plan.station, request),
        };
        Self {
            station: &plan.station.id,
            connection: &plan.connection.config.id,
            kind: &plan.connection.config.kind,
            poll_interval_ms: plan.station.poll_interval_ms,
            requests: plan.requests.iter().map(request).collect(),
        }
    }
}

fn print_json(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

fn print_good(
    out: &mut dyn Write,
    path: &Path,
    loaded: &Loaded,
    plans: &[Plan<'_>],
    with_plan: bool,
) -> io::Result<()> {
    write!(out, "{}", Told { faults: &[], more: 0, warnings: &loaded.warnings })?;
    if with_plan {
        for plan in plans {
            print_plan(out, plan)?;
        }
    }
    writeln!(out, "{}: no faults; {}", path.display(), Counts::of(&loaded.manifest, plans).words())?;
    for off in loaded.manifest.disabled_stations() {
        writeln!(out, "switched off: station \"{}\" (connection \"{}\")", off.id, off.connection)?;
    }
    Ok(())
}

const HEADINGS: [&str; 6] = ["", "function", "wire", "PLC", "count", "points"];

fn print_plan(out: &mut dyn Write, plan: &Plan<'_>) -> io::Result<()> {
    let Plan { connection, station, requests } = plan;
    let (id, kind) = (&connection.config.id, &connection.config.kind);
    writeln!(out, "station \"{}\" (connection \"{id}\", {kind}), every {} ms", station.id, station.poll_interval_ms)?;
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(requests.iter().enumerate().map(|(i, request)| {
        [
            (i + 1).to_string(),
            format!("{:02} {}", request.function, request.operation),
            request.wire_address.to_string(),
            request.plc_address.clone(),
            request.count.to_string(),
            shortened(&names(station, request)),
        ]
    }));
    let widths: [usize; 6] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            write!(line, "  {cell:width$}").expect("a string takes all");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)
}

/// The first few names and how many more: a merged request may bring more than a hundred points.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let mut text = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        write!(text, ", and {} more", names.len() - SHOWN).expect("a string takes all");
    }
    text
}
