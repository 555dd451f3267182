//! The host's view of a Modbus TCP connection: stations in slots, their requests, and what went wrong.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;
use worker_contract::{
    Driver, DriverError, Next, Outcome, Reason, Sink, Slot, StationConfig,
    driver::{DriverFuture, Traffic},
};

use crate::{
    pdu,
    plan::Block,
    settings::ConnectionSettings,
    station::Station,
    tcp::{StrictTcp, TransactionError},
    transaction::Ended,
};

/// One lane of a connection.
#[derive(Debug)]
pub struct ModbusDriver {
    settings: ConnectionSettings,
    tcp: Option<StrictTcp>,
    stations: BTreeMap<Slot, Station>,
    /// Of connections that are closed.
    past: Traffic,
}

impl ModbusDriver {
    /// A driver that is not connected yet.
    #[must_use]
    pub fn new(settings: ConnectionSettings) -> Self {
        Self { settings, tcp: None, stations: BTreeMap::new(), past: Traffic::default() }
    }

    fn peer(&self) -> String {
        let ConnectionSettings { host, port } = &self.settings;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Drops the connection, and keeps its counts.
    fn hang_up(&mut self) {
        if let Some(tcp) = self.tcp.take() {
            self.past = sum(self.past, tcp.traffic());
        }
    }

    async fn do_connect(&mut self, within: Duration) -> Result<(), DriverError> {
        self.hang_up();
        match StrictTcp::connect(&self.settings.host, self.settings.port, Instant::now() + within).await {
            Ok(tcp) => {
                self.tcp = Some(tcp);
                Ok(())
            }
            Err(error) => {
                let detail = match error {
                    TransactionError::Timeout => {
                        format!("connect to {}: no answer within {} ms", self.peer(), within.as_millis())
                    }
                    error => format!("connect to {}: {}", self.peer(), chain(&error)),
                };
                Err(DriverError::reconnect(Reason::Disconnected, detail))
            }
        }
    }

    async fn do_request(
        &mut self,
        slot: Slot,
        index: usize,
        within: Duration,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, DriverError> {
        let deadline = Instant::now() + within;
        let found = self.stations.get_mut(&slot).and_then(|s| s.block(index).map(|b| (s, b)));
        let Some((station, block)) = found else {
            return Err(DriverError {
                next: Next::Fatal,
                reason: Reason::Disconnected,
                detail: format!("request {index} of slot {slot} does not exist"),
            });
        };
        if index == 0 && station.begin_poll() {
            return Ok(Outcome::Split);
        }
        let Some(tcp) = &mut self.tcp else {
            return Err(DriverError::reconnect(Reason::Disconnected, format!("{}: not connected", self.peer())));
        };
        let request = pdu::read(block.table, block.address, block.count);
        let bytes = u8::try_from(block.table.bytes(block.count)).expect("250 bytes at most in a planned request");
        match tcp.exchange(station.unit(), &request, pdu::Expected::Bytes(bytes), deadline).await {
            Ok(Ended::Answer(range)) => {
                let data = tcp.bytes(range).get(2..).unwrap_or_default();
                station.deliver(index, &block, data, sink);
                Ok(Outcome::Done)
            }
            Ok(Ended::Exception(code)) => Ok(station.refused(index, code, sink)),
            Err(error) => {
                let unit = station.unit();
                Err(self.failed(&error, unit, &block, within))
            }
        }
    }

    /// Tells the host of a failed request. A connection that cannot go on is closed here and now.
    fn failed(&mut self, error: &TransactionError, unit: u8, block: &Block, within: Duration) -> DriverError {
        let last = u32::from(block.address) + u32::from(block.count) - 1;
        let what =
            format!("read {} {} to {last} of unit {unit} at {}", block.table.words(), block.address, self.peer());
        let why = match error {
            TransactionError::Timeout => format!("no answer within {} ms", within.as_millis()),
            error => chain(error),
        };
        let detail = format!("{what}: {why}");
        if error.is_sound() {
            DriverError::retry(error.reason(), detail)
        } else {
            self.hang_up();
            DriverError::reconnect(error.reason(), detail)
        }
    }

    async fn do_close(&mut self, within: Duration) {
        if let Some(tcp) = &mut self.tcp {
            // The socket is dropped next, whatever the peer makes of it.
            let _ = tcp.shut_down(Instant::now() + within).await;
        }
        self.hang_up();
    }
}

impl Driver for ModbusDriver {
    fn connect(&mut self, within: Duration) -> DriverFuture<'_, Result<(), DriverError>> {
        Box::pin(self.do_connect(within))
    }

    fn add_station(&mut self, slot: Slot, station: &StationConfig) -> Result<(), DriverError> {
        self.stations.insert(slot, Station::new(station)?);
        Ok(())
    }

    fn remove_station(&mut self, slot: Slot) {
        self.stations.remove(&slot);
    }

    fn requests(&self, slot: Slot) -> usize {
        self.stations.get(&slot).map_or(0, |s| s.requests())
    }

    fn points_of(&self, slot: Slot, index: usize) -> &[u32] {
        self.stations.get(&slot).map_or(&[], |s| s.points_of(index))
    }

    fn request<'a>(
        &'a mut self,
        slot: Slot,
        index: usize,
        within: Duration,
        sink: &'a mut dyn Sink,
    ) -> DriverFuture<'a, Result<Outcome, DriverError>> {
        Box::pin(self.do_request(slot, index, within, sink))
    }

    fn traffic(&self) -> Traffic {
        self.tcp.as_ref().map_or(self.past, |tcp| sum(self.past, tcp.traffic()))
    }

    fn close(&mut self, within: Duration) -> DriverFuture<'_, ()> {
        Box::pin(self.do_close(within))
    }
}

fn sum(a: Traffic, b: Traffic) -> Traffic {
    Traffic {
        sent: a.sent + b.sent,
        received: a.received + b.received,
        dropped_frames: a.dropped_frames + b.dropped_frames,
    }
}

/// An error with its sources, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
