//! Manifests for the figures.

use std::fmt::Write;

/// Stations of contiguous single-precision floats.
#[derive(Debug, Clone, Copy)]
pub struct Floats {
    pub port: u16,
    pub stations: u32,
    pub points: u32,
    pub interval_ms: u32,
    /// `None`: a connection for each station, each to an address of its own. Otherwise one, with so many lanes.
    pub lanes: Option<u32>,
    pub ttl_ms: u32,
}

impl Floats {
    pub fn text(self) -> String {
        let mut text = head(self.ttl_ms);
        if let Some(lanes) = self.lanes {
            connection(&mut text, "plant", "127.0.0.1", self.port, lanes);
        }
        for n in 1..=self.stations {
            let of = if self.lanes.is_some() { "plant".to_owned() } else { format!("plant-{n}") };
            if self.lanes.is_none() {
                connection(&mut text, &of, &format!("127.0.0.{n}"), self.port, 1);
            }
            let _ = write!(
                text,
                "[[stations]]\nid = \"unit-{n}\"\nconnection_ref = \"{of}\"\nunit_id = {n}\npoll_interval_ms = {}\n\
                 timeout_ms = 1000\npoints = [\n",
                self.interval_ms
            );
            for point in 0..self.points {
                let _ =
                    writeln!(text, "{{ name = \"p{point}\", address = \"hr:{}\", data_type = \"f32\" }},", point * 2);
            }
            text.push_str("]\n\n");
        }
        text
    }
}

/// A device with nothing to poll.
pub fn idle() -> String {
    head(3000)
}

fn head(ttl_ms: u32) -> String {
    format!(
        "format_version = \"1\"\n[facility]\nid = \"bench\"\n\n[lease]\nttl_ms = {ttl_ms}\n\n[journal]\nmax_bytes = \"16 GiB\"\n\n"
    )
}

fn connection(text: &mut String, id: &str, host: &str, port: u16, lanes: u32) {
    let _ = write!(
        text,
        "[[connections]]\nid = \"{id}\"\nkind = \"modbus-tcp\"\nhost = \"{host}\"\nport = {port}\n\
         max_connections = {lanes}\n\n"
    );
}
