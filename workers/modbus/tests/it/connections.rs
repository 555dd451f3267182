//! Connections that end, and devices that serve few of them.

use std::time::Duration;

use tokio::time::Instant;
use worker_contract::{DriverError, Next, Protocol, Reason};
use worker_modbus::Modbus;

use crate::support::{Host, Server, Step, host::station};

#[tokio::test]
async fn m15_an_unreachable_station_is_told_within_the_deadline_and_is_no_panic() {
    let server = Server::start(|asked| asked.honest()).await;
    let free = server.stop().await;
    let mut host = Host::new(free, 1000);
    host.registers(1, "", [1]);
    let error = host.connect().await.unwrap_err();
    assert_eq!((error.next, error.reason), (Next::Reconnect, Reason::Disconnected));
    assert!(error.detail.contains(&free.to_string()), "{}", error.detail);
    // Asked all the same, it says that it is not connected.
    assert_eq!(host.poll(1).await.bad(), [(0, Reason::Disconnected)].into());
    // It comes up, and the same driver connects.
    let _server = Server::start_at(free, usize::MAX, |asked| asked.honest()).await;
    host.connect().await.unwrap();
    assert_eq!(host.poll(1).await.ints(), [(0, 1)].into());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_within_the_deadline() {
    let server = Server::start(|asked| asked.honest()).await;
    let table = toml::de::DeTable::parse("host = 'no-such-host.invalid'").unwrap();
    let mut faults = worker_contract::Faults::default();
    let checked = Modbus.connection("modbus-tcp", &mut worker_contract::Fields::new(&table, "c", &mut faults)).unwrap();
    let config = worker_contract::ConnectionConfig {
        id: "c".into(),
        kind: "modbus-tcp".into(),
        lanes: 1,
        resources: checked.resources,
        settings: checked.settings,
        stations: Vec::new(),
    };
    let mut driver = Modbus.open(&config).unwrap();
    let start = Instant::now();
    let error: DriverError = driver.connect(Duration::from_millis(500)).await.unwrap_err();
    assert_eq!(error.reason, Reason::Disconnected);
    assert!(start.elapsed() < Duration::from_secs(2));
    // A name that does resolve is a host like any other.
    let text = format!("host = 'localhost'\nport = {}", server.address.port());
    let table = toml::de::DeTable::parse(&text).unwrap();
    let checked = Modbus.connection("modbus-tcp", &mut worker_contract::Fields::new(&table, "c", &mut faults)).unwrap();
    let config = worker_contract::ConnectionConfig { settings: checked.settings, ..config };
    Modbus.open(&config).unwrap().connect(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn m15_a_server_restarted_under_an_open_connection_gives_data_again_after_one_reconnect() {
    let server = Server::start(|asked| asked.honest()).await;
    let mut host = Host::connected(server.address, 1000).await;
    host.registers(1, "", [7]);
    assert_eq!(host.poll(1).await.ints(), [(0, 7)].into());
    let address = server.stop().await;
    let _server = Server::start_at(address, usize::MAX, |asked| asked.honest()).await;
    let start = Instant::now();
    let polled = host.poll(1).await;
    assert_eq!((polled.only_error().next, polled.only_error().reason), (Next::Reconnect, Reason::Disconnected));
    assert!(start.elapsed() < Duration::from_millis(900), "a closed connection is not waited for");
    assert_eq!(host.poll(1).await.ints(), [(0, 7)].into());
}

#[tokio::test]
async fn m15_a_server_that_closes_instead_of_answering_is_disconnected_at_once() {
    let server = Server::start(|asked| match asked.number {
        0 => vec![Step::Send(asked.answer()[..5].to_vec()), Step::Close],
        _ => asked.honest(),
    })
    .await;
    let mut host = Host::connected(server.address, 5000).await;
    host.registers(1, "", [7]);
    let start = Instant::now();
    assert_eq!(host.poll(1).await.bad(), [(0, Reason::Disconnected)].into());
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(host.poll(1).await.ints(), [(0, 7)].into());
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn m16_four_stations_behind_a_server_of_one_connection_share_it_in_turn() {
    let server = Server::start_at(([127, 0, 0, 1], 0).into(), 1, |asked| asked.honest()).await;
    let mut host = Host::connected(server.address, 5000).await;
    for unit in 1..=4 {
        host.registers(unit, "", [unit as u16 * 10]);
    }
    for _ in 0..10 {
        for unit in 1..=4 {
            assert_eq!(host.poll(unit).await.ints(), [(0, i64::from(unit) * 10)].into());
        }
    }
    assert_eq!((server.connections(), server.most_in_flight()), (1, 1));
    assert_eq!(server.requests(), 40);
}

#[tokio::test]
async fn m16_a_closed_connection_leaves_the_server_to_another_master() {
    let server = Server::start_at(([127, 0, 0, 1], 0).into(), 1, |asked| asked.honest()).await;
    let mut masters = [Host::new(server.address, 1000), Host::new(server.address, 1000)];
    let mut good = 0;
    for _ in 0..5 {
        for master in &mut masters {
            master.registers(1, "", [9]);
            master.connect().await.unwrap();
            good += master.poll(1).await.ints().len();
            master.driver.close(Duration::from_secs(1)).await;
            master.driver.close(Duration::from_secs(1)).await;
            server.all_closed().await;
        }
    }
    assert_eq!(good, 10);
}

#[tokio::test]
async fn a_request_that_does_not_exist_is_a_defect_of_the_host_and_no_panic() {
    let server = Server::start(|asked| asked.honest()).await;
    let mut host = Host::connected(server.address, 1000).await;
    host.registers(1, "", [1]);
    let mut sink = crate::support::Polled::default();
    let within = Duration::from_millis(100);
    assert_eq!(host.driver.request(1, 5, within, &mut sink).await.unwrap_err().next, Next::Fatal);
    assert_eq!(host.driver.request(9, 0, within, &mut sink).await.unwrap_err().next, Next::Fatal);
    assert_eq!((host.driver.requests(9), host.driver.points_of(9, 0)), (0, &[][..]));
    host.driver.remove_station(1);
    assert_eq!(host.driver.requests(1), 0);
}

#[test]
fn the_plan_names_wire_and_plc_addresses() {
    let points = [
        "address = 'hr:100'\ndata_type = 'f32'".to_owned(),
        "address = '40103'\ndata_type = 'u16'".to_owned(),
        "address = 'co:0'".to_owned(),
        "address = 'hr:20000'\ndata_type = 'u16'".to_owned(),
    ];
    let plan = Modbus.plan(&station("", &points));
    let told: Vec<_> = plan
        .iter()
        .map(|r| (r.operation.as_str(), r.function, r.wire_address, r.count, r.plc_address.as_str(), &r.points[..]))
        .collect();
    assert_eq!(
        told,
        [
            ("read coils", 1, 0, 1, "00001", &[2][..]),
            ("read holding registers", 3, 100, 3, "40101", &[0, 1]),
            ("read holding registers", 3, 20000, 1, "420001", &[3]),
        ]
    );
}
