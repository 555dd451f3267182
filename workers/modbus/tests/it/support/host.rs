//! A host small enough for a test: it asks each request of a poll once, follows refinements, and connects again when
//! the driver says so.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use toml::de::DeTable;
use worker_contract::{
    ConnectionConfig, Driver, DriverError, Fields, Next, Outcome, PointConfig, Protocol, Reason, Sample, Sink,
    StationConfig, Value, fields::Faults,
};
use worker_modbus::Modbus;

pub struct Host {
    pub driver: Box<dyn Driver>,
    pub timeout: Duration,
}

/// What one poll brought.
#[derive(Debug, Default)]
pub struct Polled {
    pub samples: BTreeMap<u32, Sample>,
    pub errors: Vec<DriverError>,
    pub requests: usize,
}

impl Sink for Polled {
    fn push(&mut self, point: u32, sample: Sample) {
        assert!(self.samples.insert(point, sample).is_none(), "point {point} was pushed twice");
    }
}

impl Polled {
    pub fn ints(&self) -> BTreeMap<u32, i64> {
        let int = |(p, s): (&u32, &Sample)| match s {
            Ok(Value::Int(i)) => Some((*p, *i)),
            _ => None,
        };
        self.samples.iter().filter_map(int).collect()
    }

    pub fn bad(&self) -> BTreeMap<u32, Reason> {
        self.samples.iter().filter_map(|(p, s)| s.as_ref().err().map(|r| (*p, *r))).collect()
    }

    #[track_caller]
    pub fn only_error(&self) -> &DriverError {
        assert_eq!(self.errors.len(), 1, "{self:?}");
        &self.errors[0]
    }
}

impl Host {
    /// A driver that is not connected yet.
    pub fn new(address: SocketAddr, timeout_ms: u64) -> Self {
        let text = format!("host = \"{}\"\nport = {}", address.ip(), address.port());
        let table = DeTable::parse(&text).unwrap();
        let mut faults = Faults::default();
        let mut fields = Fields::new(&table, "connection", &mut faults);
        let checked = Modbus.connection("modbus-tcp", &mut fields).unwrap();
        fields.finish();
        assert!(faults.is_empty(), "{faults:?}");
        let config = ConnectionConfig {
            id: "c".into(),
            kind: "modbus-tcp".into(),
            lanes: checked.lanes,
            resources: checked.resources,
            settings: checked.settings,
            stations: Vec::new(),
        };
        Self { driver: Modbus.open(&config).unwrap(), timeout: Duration::from_millis(timeout_ms) }
    }

    pub async fn connected(address: SocketAddr, timeout_ms: u64) -> Self {
        let mut host = Self::new(address, timeout_ms);
        host.connect().await.unwrap();
        host
    }

    pub async fn connect(&mut self) -> Result<(), DriverError> {
        self.driver.connect(Duration::from_secs(5)).await
    }

    /// Adds a station whose points are u16 registers, in the given slot and with the slot as its unit.
    pub fn registers(&mut self, slot: u32, keys: &str, addresses: impl IntoIterator<Item = u16>) {
        let points: Vec<String> =
            addresses.into_iter().map(|a| format!("address = 'hr:{a}'\ndata_type = 'u16'")).collect();
        self.station(slot, &format!("unit_id = {slot}\n{keys}"), &points);
    }

    pub fn station(&mut self, slot: u32, keys: &str, points: &[String]) {
        self.driver.add_station(slot, &station(keys, points)).unwrap();
    }

    pub async fn poll(&mut self, slot: u32) -> Polled {
        let mut polled = Polled::default();
        let mut index = 0;
        while index < self.driver.requests(slot) {
            polled.requests += 1;
            assert!(polled.requests < 100_000, "the plan is refined without end");
            match self.driver.request(slot, index, self.timeout, &mut polled).await {
                Ok(Outcome::Done) => index += 1,
                Ok(Outcome::Split) => {}
                Err(error) => {
                    for point in self.driver.points_of(slot, index) {
                        polled.samples.insert(*point, Err(error.reason));
                    }
                    let next = error.next;
                    polled.errors.push(error);
                    match next {
                        Next::Retry => {}
                        Next::Reconnect => {
                            self.driver.close(Duration::from_secs(1)).await;
                            if let Err(error) = self.connect().await {
                                polled.errors.push(error);
                                return polled;
                            }
                        }
                        Next::Reconfigure | Next::Fatal => panic!("{polled:?}"),
                    }
                    index += 1;
                }
            }
        }
        polled
    }
}

/// A station as the manifest's reader would make it.
pub fn station(keys: &str, points: &[String]) -> StationConfig {
    let mut faults = Faults::default();
    let table = DeTable::parse(keys).unwrap();
    let mut fields = Fields::new(&table, "station", &mut faults);
    let settings = Modbus.station("modbus-tcp", &mut fields).unwrap();
    fields.finish();
    let points = points
        .iter()
        .enumerate()
        .map(|(i, text)| {
            let table = DeTable::parse(text).unwrap();
            let mut fields = Fields::new(&table, "point", &mut faults);
            let checked = Modbus.point("modbus-tcp", &settings, &mut fields).unwrap();
            fields.finish();
            PointConfig { name: format!("p{i}").into(), unit: None, conditioning: None, settings: checked.settings }
        })
        .collect();
    assert!(faults.is_empty(), "{faults:?}");
    StationConfig {
        id: "s".into(),
        handle: 0,
        critical: false,
        poll_interval_ms: 100,
        timeout_ms: 300,
        retries: 0,
        inter_request_ms: 0,
        close_after_poll: false,
        settings,
        points,
    }
}
