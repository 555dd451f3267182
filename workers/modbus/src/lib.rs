//! Modbus for sensor-poll.
//!
//! | module | holds |
//! | --- | --- |
//! | [`table`] | the four tables of a Modbus device, their function codes and names |
//! | [`address`] | addresses as people write them (pure) |
//! | [`settings`] | what connection, station and point look like once they are checked |
//! | [`manifest`] | from a manifest's keys to settings, with a hint for each fault (pure) |
//! | [`plan`] | points merged into requests (pure) |
//! | [`map`] | from registers to values (pure) |
//! | [`station`] | a station's points, its plan and what refusals made of it (pure) |
//! | [`adu`] | frames on the wire: MBAP, and the buffer that they are cut from (pure) |
//! | [`pdu`] | what is asked and what counts as its answer, whatever the framing (pure) |
//! | [`transaction`] | which frame answers a request; which is late, foreign or broken (pure) |
//! | [`tcp`] | the connection: [`tcp::StrictTcp`] does what the modules above decide |
//! | [`client`] | `StrictTcp` as a `tokio-modbus` client |
//! | [`driver`] | the host's view of it: stations in slots, requests, errors |

pub mod address;
pub mod adu;
pub mod client;
pub mod driver;
pub mod manifest;
pub mod map;
pub mod pdu;
pub mod plan;
pub mod settings;
pub mod station;
pub mod table;
pub mod tcp;
pub mod transaction;

use worker_contract::{
    ConnectionConfig, Driver, DriverError, Fields, Opaque, PlannedRequest, Protocol, StationConfig,
    driver::{CheckedConnection, CheckedPoint},
};

use settings::{ConnectionSettings, StationSettings};

/// The protocol, as the core registers it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Modbus;

impl Protocol for Modbus {
    fn name(&self) -> &'static str {
        "modbus"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["modbus-tcp"]
    }

    fn connection(&self, _kind: &str, fields: &mut Fields<'_>) -> Option<CheckedConnection> {
        manifest::connection(fields)
    }

    fn station(&self, _kind: &str, fields: &mut Fields<'_>) -> Option<Opaque> {
        manifest::station(fields).map(|settings| Opaque::pack(&settings))
    }

    fn point(&self, _kind: &str, station: &Opaque, fields: &mut Fields<'_>) -> Option<CheckedPoint> {
        // A station with faults has no settings; its points are still checked, under the defaults.
        let station: StationSettings = station.unpack().unwrap_or_default();
        let point = manifest::point(&station, fields)?;
        let decoder = point.decoder;
        Some(CheckedPoint { settings: Opaque::pack(&point), numeric: decoder.is_numeric(), whole: decoder.whole() })
    }

    fn plan(&self, station: &StationConfig) -> Vec<PlannedRequest> {
        station::Station::new(station).map(|station| station.describe()).unwrap_or_default()
    }

    fn open(&self, connection: &ConnectionConfig) -> Result<Box<dyn Driver>, DriverError> {
        let settings: ConnectionSettings = connection.settings.unpack().map_err(|e| {
            DriverError::reconfigure(format!("connection \"{}\": its settings cannot be read: {e}", connection.id))
        })?;
        Ok(Box::new(driver::ModbusDriver::new(settings)))
    }
}
