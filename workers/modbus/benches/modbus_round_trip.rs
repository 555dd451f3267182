//! One connection, one register: polls a second of the driver, of `tokio-modbus`'s own client, and of a plain C loop
//! over libmodbus (when `cc` finds it), against one server, in turn, in one run.
//!
//! `cargo bench -p worker-modbus --bench modbus_round_trip [-- POLLS [ROUNDS]]`

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use tokio_modbus::{Slave, client::Reader};
use toml::de::DeTable;
use worker_contract::{
    ConnectionConfig, Driver, Faults, Fields, Outcome, PointConfig, Protocol, Sample, Sink, StationConfig, Value,
};
use worker_modbus::Modbus;

fn main() {
    let numbers: Vec<u32> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let polls = numbers.first().copied().unwrap_or(2000);
    let rounds = numbers.get(1).copied().unwrap_or(61);
    let server = serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = std::env::temp_dir().join(format!("modbus-round-trip-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let c_loop = compile(&folder);
    if c_loop.is_none() {
        println!("no C loop: install a C compiler and libmodbus-dev");
    }
    let (mut ours, mut theirs, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let a = rate(polls, runtime.block_on(driver(server, polls)));
        let b = rate(polls, runtime.block_on(tokio_modbus_client(server, polls)));
        let l = c_loop.as_deref().map(|path| rate(polls, run(path, server, polls)));
        // The first round warms up.
        if round > 0 {
            ours.push(a);
            theirs.push(b);
            c.extend(l);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    println!("{rounds} rounds of {polls} polls each, in turn; polls/s");
    println!("               median      best   driver's ratio to it: median round, best rounds");
    for (name, rates) in [("driver", &ours), ("tokio-modbus", &theirs), ("libmodbus, C", &c)] {
        if !rates.is_empty() {
            let (paired, bests) = (ratio(&ours, rates), best(&ours) / best(rates));
            println!("{name:<12} {:>8.0}  {:>8.0}   {paired:.2}  {bests:.2}", median(rates), best(rates));
        }
    }
}

fn rate(polls: u32, time: Duration) -> f64 {
    f64::from(polls) / time.as_secs_f64()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The median of the rounds' ratios: what slows the machine down for a while slows both sides of a round.
fn ratio(a: &[f64], b: &[f64]) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
}

/// A server on a thread for each connection; a register's value is its address.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut request = [0; 12];
                while stream.read_exact(&mut request).is_ok() {
                    let [t0, t1, _, _, _, _, unit, function, a0, a1, _, _] = request;
                    stream.write_all(&[t0, t1, 0, 0, 0, 5, unit, function, 2, a0, a1]).unwrap();
                }
            });
        }
    });
    address
}

#[derive(Default)]
struct Sum(i64);

impl Sink for Sum {
    fn push(&mut self, _point: u32, sample: Sample) {
        match sample {
            Ok(Value::Int(i)) => self.0 += i,
            other => panic!("{other:?}"),
        }
    }
}

async fn driver(server: SocketAddr, polls: u32) -> Duration {
    let mut driver = open(server);
    driver.connect(Duration::from_secs(5)).await.unwrap();
    let mut sum = Sum::default();
    let start = Instant::now();
    for _ in 0..polls {
        assert_eq!(driver.request(0, 0, Duration::from_secs(1), &mut sum).await, Ok(Outcome::Done));
    }
    let time = start.elapsed();
    assert_eq!(sum.0, 7 * i64::from(polls));
    time
}

fn open(server: SocketAddr) -> Box<dyn Driver> {
    let mut faults = Faults::default();
    let text = format!("host = '{}'\nport = {}", server.ip(), server.port());
    let table = DeTable::parse(&text).unwrap();
    let connection = Modbus.connection("modbus-tcp", &mut Fields::new(&table, "c", &mut faults)).unwrap();
    let table = DeTable::parse("unit_id = 1").unwrap();
    let settings = Modbus.station("modbus-tcp", &mut Fields::new(&table, "s", &mut faults)).unwrap();
    let table = DeTable::parse("address = 'hr:7'\ndata_type = 'u16'").unwrap();
    let point = Modbus.point("modbus-tcp", &settings, &mut Fields::new(&table, "p", &mut faults)).unwrap();
    let station = StationConfig {
        id: "s".into(),
        handle: 0,
        critical: false,
        poll_interval_ms: 0,
        timeout_ms: 1000,
        retries: 0,
        inter_request_ms: 0,
        close_after_poll: false,
        settings,
        points: vec![PointConfig { name: "p".into(), unit: None, conditioning: None, settings: point.settings }],
    };
    let config = ConnectionConfig {
        id: "c".into(),
        kind: "modbus-tcp".into(),
        lanes: 1,
        resources: connection.resources,
        settings: connection.settings,
        stations: Vec::new(),
    };
    let mut driver = Modbus.open(&config).unwrap();
    driver.add_station(0, &station).unwrap();
    driver
}

async fn tokio_modbus_client(server: SocketAddr, polls: u32) -> Duration {
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut context = tokio_modbus::client::tcp::attach_slave(stream, Slave(1));
    let mut sum = 0;
    let start = Instant::now();
    for _ in 0..polls {
        let wait = tokio::time::timeout(Duration::from_secs(1), context.read_holding_registers(7, 1));
        sum += u32::from(wait.await.unwrap().unwrap().unwrap()[0]);
    }
    let time = start.elapsed();
    assert_eq!(sum, 7 * polls);
    time
}

/// Compiles the C loop, if there is a compiler and the library.
fn compile(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/modbus_loop.c");
    let program = folder.join("modbus_loop");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-I/usr/include/modbus", "-o"]).arg(&program).arg(source).arg("-lmodbus");
    cc.output().ok()?.status.success().then_some(program)
}

fn run(program: &Path, server: SocketAddr, polls: u32) -> Duration {
    let arguments = [server.ip().to_string(), server.port().to_string(), polls.to_string()];
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "the C loop failed: {output:?}");
    Duration::from_secs_f64(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}
