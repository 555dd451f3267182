//! Manifests that fit a simulator. Pure: text out.

use std::{fmt::Write, net::SocketAddr};

/// Stations of the demo plant whose poll interval the demo knows, in milliseconds.
pub const DEMO_INTERVALS: [(&str, u32); 4] = [("boiler", 500), ("tank", 500), ("meter", 1000), ("pump", 500)];

/// For [`crate::sim::demo_plant::DemoPlant`].
#[must_use]
pub fn demo(server: SocketAddr) -> String {
    let mut text = head("demo-plant", server);
    text.push_str(DEMO_STATIONS);
    text
}

/// What the points of a manifest for [`crate::sim::registers::Registers`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Points {
    /// A point for each register.
    U16,
    /// A point for each two registers.
    F32,
}

/// For [`crate::sim::registers::Registers`]: each unit is a station, and its first `registers` holding registers are its
/// points. In the short form, a line a point: plants of 100,000 points must fit what is read of a manifest.
#[must_use]
pub fn registers(server: SocketAddr, units: u8, registers: u32, points: Points) -> String {
    let (width, data_type) = match points {
        Points::U16 => (1, "u16"),
        Points::F32 => (2, "f32"),
    };
    let mut text = head("register-plant", server);
    for unit in 1..=units {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[stations]]\nid = \"unit-{unit}\"\nconnection_ref = \"plant\"\nunit_id = {unit}\npoll_interval_ms = 1000\npoints = [\n"
        );
        for register in (0..registers / width).map(|n| n * width) {
            let _ = writeln!(text, "{{name=\"r{register}\",address=\"hr:{register}\",data_type=\"{data_type}\"}},");
        }
        text.push_str("]\n");
    }
    text
}

fn head(facility: &str, server: SocketAddr) -> String {
    let (host, port) = (server.ip(), server.port());
    format!(
        "format_version = \"1\"\n\n[facility]\nid = \"{facility}\"\n\n[[connections]]\nid = \"plant\"\n\
         kind = \"modbus-tcp\"\nhost = \"{host}\"\nport = {port}\n"
    )
}

const DEMO_STATIONS: &str = r#"
[[stations]]
id = "boiler"
connection_ref = "plant"
unit_id = 1
poll_interval_ms = 500
timeout_ms = 400
critical = true

[[stations.points]]
name = "temperature"
address = "hr:0"
data_type = "f32"
unit = "°C"
range = [0.0, 150.0]

[[stations.points]]
name = "setpoint"
address = "hr:2"
data_type = "f32"
unit = "°C"

[[stations.points]]
name = "pressure"
address = "hr:4"
data_type = "f32"
unit = "bar"

[[stations.points]]
name = "faults"
address = "hr:6"
data_type = "u16"

[[stations.points]]
name = "burner"
address = "co:0"
data_type = "bool"

[[stations]]
id = "tank"
connection_ref = "plant"
unit_id = 2
poll_interval_ms = 500
timeout_ms = 400
critical = true

[[stations.points]]
name = "level"
address = "ir:0"
data_type = "f32"
unit = "%"
range = [0.0, 100.0]

[[stations.points]]
name = "inflow"
address = "ir:2"
data_type = "f32"
unit = "m³/h"

[[stations.points]]
name = "outflow"
address = "ir:4"
data_type = "f32"
unit = "m³/h"

[[stations.points]]
name = "volume"
address = "ir:6"
data_type = "u32"
unit = "l"

[[stations.points]]
name = "high_level"
address = "di:0"
data_type = "bool"

[[stations]]
id = "meter"
connection_ref = "plant"
unit_id = 3
poll_interval_ms = 1000
timeout_ms = 400

[[stations.points]]
name = "power"
address = "ir:0"
data_type = "f32"
unit = "kW"

[[stations.points]]
name = "energy"
address = "ir:2"
data_type = "u64"
unit = "Wh"

[[stations.points]]
name = "voltage_l1"
address = "ir:6"
data_type = "u16"
scale = { kind = "linear", factor = 0.1, offset = 0.0, unit = "V" }

[[stations.points]]
name = "voltage_l2"
address = "ir:7"
data_type = "u16"
scale = { kind = "linear", factor = 0.1, offset = 0.0, unit = "V" }

[[stations.points]]
name = "voltage_l3"
address = "ir:8"
data_type = "u16"
scale = { kind = "linear", factor = 0.1, offset = 0.0, unit = "V" }

[[stations.points]]
name = "frequency"
address = "ir:9"
data_type = "u16"
scale = { kind = "linear", factor = 0.01, offset = 0.0, unit = "Hz" }

# A sensor that is not fitted: the meter marks it with 0x8000, so it is bad and never 32,768.
[[stations.points]]
name = "ambient"
address = "ir:10"
data_type = "u16"
unit = "°C"
not_available = [0x8000]

[[stations.points]]
name = "serial"
address = "hr:0"
data_type = "string"
length = 16

# This drive goes dead for a few seconds about every 20 seconds.
[[stations]]
id = "pump"
connection_ref = "plant"
unit_id = 4
poll_interval_ms = 500
timeout_ms = 200

[[stations.points]]
name = "speed"
address = "hr:0"
data_type = "u16"
unit = "rpm"

[[stations.points]]
name = "current"
address = "hr:1"
data_type = "f32"
unit = "A"

[[stations.points]]
name = "status"
address = "hr:3"
data_type = "u16"
"#;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use toml::de::{DeTable, DeValue};
    use worker_contract::fields::whole;

    use super::*;

    fn server() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 1502))
    }

    /// Each station's id, the number under a key of it, and how many points it has.
    fn stations(text: &str, key: &str) -> Vec<(String, i64, usize)> {
        let table = DeTable::parse(text).unwrap();
        let stations = table.get_ref()["stations"].get_ref().as_array().unwrap();
        let station = |s: &toml::Spanned<DeValue<'_>>| {
            let s = s.get_ref().as_table().unwrap();
            let id = s["id"].get_ref().as_str().unwrap().to_owned();
            (id, whole(s[key].get_ref()).unwrap(), s["points"].get_ref().as_array().unwrap().len())
        };
        stations.iter().map(station).collect()
    }

    #[test]
    fn the_demo_manifest_names_the_server_and_every_station_that_the_demo_expects() {
        let text = demo(server());
        assert!(text.contains("host = \"127.0.0.1\"\nport = 1502\n"));
        let found: Vec<(String, i64)> =
            stations(&text, "poll_interval_ms").into_iter().map(|(id, ms, _)| (id, ms)).collect();
        assert_eq!(found, DEMO_INTERVALS.map(|(id, ms)| (id.to_owned(), i64::from(ms))));
    }

    #[test]
    fn a_register_manifest_has_a_station_for_each_unit() {
        let found = stations(&registers(server(), 3, 5, Points::U16), "unit_id");
        assert_eq!(found, [1, 2, 3].map(|unit| (format!("unit-{unit}"), unit, 5)));
    }

    #[test]
    fn a_load_of_a_hundred_thousand_floats_fits_what_is_read_of_a_manifest() {
        let text = registers(server(), 20, 10_000, Points::F32);
        assert!(text.len() < 8 << 20, "{} bytes", text.len());
        assert!(text.contains("{name=\"r9998\",address=\"hr:9998\",data_type=\"f32\"},\n]\n"));
        assert_eq!(text.matches("data_type").count(), 100_000);
    }
}
