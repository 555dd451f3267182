//! From a manifest's keys to settings, with a hint for each fault.
#![deny(clippy::disallowed_methods)]

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use worker_contract::{Fields, Opaque, Resource, driver::CheckedConnection, fields::suggest};

use crate::{
    address::Address,
    settings::{ConnectionSettings, Decoder, Encoding, Layout, Number, Order, PointSettings, StationSettings},
};

/// Reads `host`, `port` and `max_connections`.
pub fn connection(fields: &mut Fields<'_>) -> Option<CheckedConnection> {
    let before = fields.fault_count();
    let host = fields.required_string("host").map(|found| (found.value.trim().to_owned(), found.span));
    let port = fields.integer("port", 1..=65535).map_or(502, |found| found.value as u16);
    let lanes = fields.integer("max_connections", 1..=16).map_or(1, |found| found.value as u16);
    let (host, span) = host?;
    if let Some(hint) = unusable_host(&host) {
        fields.fault(span, format!("`host` = \"{host}\" is neither a name nor an IP address"), hint);
    }
    if fields.fault_count() != before {
        return None;
    }
    let resource = Resource(format!("tcp:{}:{port}", endpoint(&host)));
    let settings = Opaque::pack(&ConnectionSettings { host, port });
    Some(CheckedConnection { resources: vec![resource], lanes, settings })
}

/// One name for what is one endpoint however it is written: the case of a name, the dot at its end, the forms of an
/// address. This device by its loopback is one: a server that listens on both families would be asked twice.
fn endpoint(host: &str) -> String {
    let name = host.strip_suffix('.').unwrap_or(host).to_lowercase();
    let address = match name.parse::<IpAddr>() {
        Ok(address) => address.to_canonical(),
        Err(_) if matches!(&*name, "localhost" | "localhost.localdomain" | "ip6-localhost") => {
            Ipv4Addr::LOCALHOST.into()
        }
        Err(_) => return name,
    };
    // A connection to the unspecified address goes to this device as well.
    let here = address == IpAddr::V6(Ipv6Addr::LOCALHOST) || address.is_unspecified();
    if here { Ipv4Addr::LOCALHOST.to_string() } else { address.to_string() }
}

/// True when the resolver would take a name for the numbers of an IPv4 address, which it is not in full: `10.1` would
/// be asked as 10.0.0.1, and `010.0.0.1` as 8.0.0.1.
fn is_broken_ipv4(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    let number = match last.strip_prefix("0x").or_else(|| last.strip_prefix("0X")) {
        Some(hex) => hex.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()),
    };
    number && host.parse::<Ipv4Addr>().is_err()
}

fn unusable_host(host: &str) -> Option<String> {
    if host.parse::<Ipv6Addr>().is_ok() {
        return None;
    }
    if let Some((name, port)) = host.rsplit_once(':')
        && port.parse::<u16>().is_ok()
        && !name.contains(['/', ':'])
    {
        return Some(format!("write host = \"{name}\" and port = {port}"));
    }
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    let mut labels = host.strip_suffix('.').unwrap_or(host).split('.');
    if labels.any(str::is_empty) || !host.chars().all(allowed) {
        return Some("write a name or an address alone, for example \"192.0.2.20\"".to_owned());
    }
    is_broken_ipv4(host).then(|| {
        "an IPv4 address is four numbers from 0 to 255 without leading zeros, for example \"192.0.2.20\"".to_owned()
    })
}

/// Reads a station's keys.
pub fn station(fields: &mut Fields<'_>) -> Option<StationSettings> {
    let before = fields.fault_count();
    let d = StationSettings::default();
    let settings = StationSettings {
        // On TCP a device mostly answers whatever unit it is asked for; 1 is what gateways and PLCs have in common.
        unit_id: fields.integer("unit_id", 0..=255).map_or(d.unit_id, |f| f.value as u8),
        max_registers: count(fields, "max_registers", 1, StationSettings::MAX_REGISTERS).unwrap_or(d.max_registers),
        max_coils: count(fields, "max_coils", 1, StationSettings::MAX_COILS).unwrap_or(d.max_coils),
        max_gap: count(fields, "max_gap", 0, StationSettings::MAX_COILS).unwrap_or(d.max_gap),
        one_request_per_point: fields.bool("one_request_per_point").unwrap_or(d.one_request_per_point),
        order: fields.one_of("byte_order", &ORDERS_32).unwrap_or_default(),
    };
    (fields.fault_count() == before).then_some(settings)
}

fn count(fields: &mut Fields<'_>, key: &'static str, least: u16, most: u16) -> Option<u16> {
    fields.integer(key, i64::from(least)..=i64::from(most)).map(|found| found.value as u16)
}

/// Reads a point's keys.
pub fn point(station: &StationSettings, fields: &mut Fields<'_>) -> Option<PointSettings> {
    let before = fields.fault_count();
    let address = address(fields);
    let written = Written::read(fields);
    let writable = fields.bool("writable").unwrap_or(false);
    let address = address?;
    let decoder = decoder(fields, station, address, &written);
    if writable && !address.table.is_writable() {
        let span = fields.span_of("writable");
        let message = format!("`writable`: {} can only be read", address.table.words());
        fields.fault(span, message, "remove the line, or name a coil (co:) or a holding register (hr:)".to_owned());
    }
    let point = PointSettings { table: address.table, address: address.wire, decoder: decoder?, writable };
    check_extent(fields, station, &point);
    (fields.fault_count() == before).then_some(point)
}

fn address(fields: &mut Fields<'_>) -> Option<Address> {
    let found = fields.required_string("address")?;
    match Address::parse(found.value) {
        Ok(address) => Some(address),
        Err(error) => {
            fields.fault(found.span, format!("`address` = {}", error.message), error.hint);
            None
        }
    }
}

/// The value's keys as they were written, each checked by itself only.
struct Written {
    kind: Option<Kind>,
    order: Option<(String, Range<usize>)>,
    length: Option<u16>,
    layout: Option<Layout>,
    encoding: Option<Encoding>,
    /// `data_type` is there, though it may be wrong.
    has_kind: bool,
    faults: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Number(Number),
    Text,
}

impl Written {
    fn read(fields: &mut Fields<'_>) -> Self {
        let before = fields.fault_count();
        let has_kind = fields.take("data_type").is_some();
        let mut written = Self {
            kind: fields.one_of("data_type", &KINDS),
            order: fields.string("byte_order").map(|found| (found.value.to_owned(), found.span)),
            length: count(fields, "length", 1, 2 * StationSettings::MAX_REGISTERS),
            layout: fields.one_of("string_layout", &LAYOUTS),
            encoding: fields.one_of("encoding", &ENCODINGS),
            has_kind,
            faults: false,
        };
        written.faults = fields.fault_count() != before;
        written
    }
}

fn decoder(fields: &mut Fields<'_>, station: &StationSettings, at: Address, written: &Written) -> Option<Decoder> {
    let single_bit = at.table.is_bits() || at.bit.is_some();
    let kind = match written.kind {
        Some(kind) => kind,
        None if written.has_kind => return None,
        None if single_bit => Kind::Bool,
        None => {
            let span = fields.span();
            let hint = "registers do not say what they hold: add for example data_type = \"u16\"".to_owned();
            fields.fault(span, "`data_type` is missing", hint);
            return None;
        }
    };
    if !kind_fits(fields, kind, at) {
        return None;
    }
    refuse_foreign_keys(fields, kind, written);
    match kind {
        Kind::Bool => Some(at.bit.map_or(Decoder::Coil, Decoder::Bit)),
        Kind::Number(number) => number_order(fields, station, number, written).map(|o| Decoder::Number(number, o)),
        Kind::Text => text(fields, written),
    }
}

fn kind_fits(fields: &mut Fields<'_>, kind: Kind, at: Address) -> bool {
    let words = at.table.words();
    let (message, hint) = match (kind, at.bit) {
        (Kind::Bool, None) if !at.table.is_bits() => (
            format!("a bool needs one bit, and {words} have sixteen"),
            format!("name the bit, for example address = \"{}:{}.0\"", at.table.prefix(), at.wire),
        ),
        (Kind::Number(_) | Kind::Text, _) if at.table.is_bits() => (
            format!("{words} are single bits"),
            "write data_type = \"bool\", or name a register (ir: or hr:)".to_owned(),
        ),
        (Kind::Number(_) | Kind::Text, Some(bit)) => {
            ("one bit of a register is a bool".to_owned(), format!("write data_type = \"bool\", or drop the .{bit}"))
        }
        _ => return true,
    };
    let span = fields.span_of("data_type");
    fields.fault(span, message, hint);
    false
}

fn refuse_foreign_keys(fields: &mut Fields<'_>, kind: Kind, written: &Written) {
    if kind != Kind::Text {
        let keys = [
            ("length", written.length.is_some()),
            ("string_layout", written.layout.is_some()),
            ("encoding", written.encoding.is_some()),
        ];
        for (key, _) in keys.into_iter().filter(|(_, there)| *there) {
            let span = fields.span_of(key);
            fields.fault(span, format!("`{key}` is for strings only"), "remove the line".to_owned());
        }
    }
    if let Some((_, span)) = &written.order {
        match kind {
            Kind::Number(_) => {}
            Kind::Bool => fields.fault(
                span.clone(),
                "`byte_order` has no meaning for a single bit",
                "remove the line; bit 0 is the least significant of the register as it is sent".to_owned(),
            ),
            Kind::Text => fields.fault(
                span.clone(),
                "`byte_order` does not reorder a string",
                "use string_layout = \"low-high\" when the first character is in the low byte".to_owned(),
            ),
        }
    }
}

fn number_order(
    fields: &mut Fields<'_>,
    station: &StationSettings,
    number: Number,
    written: &Written,
) -> Option<Order> {
    let registers = number.registers();
    let Some((word, span)) = &written.order else {
        // A single register has no words to reverse.
        return Some(Order { words_reversed: station.order.words_reversed && registers > 1, ..station.order });
    };
    let orders = orders_of(registers);
    if let Some((_, order)) = orders.iter().find(|(w, _)| w == word) {
        return Some(*order);
    }
    let names: Vec<&str> = orders.iter().map(|(w, _)| *w).collect();
    let all = names.join(", ");
    let of_other_width = [1, 2, 4].into_iter().flat_map(orders_of).any(|(w, _)| w.eq_ignore_ascii_case(word));
    let hint = if of_other_width && word.len() != names[0].len() {
        Some(format!("the value has {} bytes: use {all}", registers * 2))
    } else {
        suggest(word, &names).or_else(|| Some(format!("use {all}")))
    };
    fields.fault(span.clone(), format!("`byte_order` = \"{word}\" does not fit the data type"), hint);
    None
}

fn text(fields: &mut Fields<'_>, written: &Written) -> Option<Decoder> {
    let layout = written.layout.unwrap_or(Layout::HighLow);
    let encoding = written.encoding.unwrap_or(Encoding::Utf8);
    let Some(length) = written.length else {
        if !written.faults {
            let span = fields.span();
            let hint = "add the string's length in characters, for example length = 16".to_owned();
            fields.fault(span, "`length` is missing", hint);
        }
        return None;
    };
    let characters = u8::try_from(length).expect("at most 250, as it was read");
    Some(Decoder::Text(characters, layout, encoding))
}

/// A value must lie within the table and within one request: it is never split, since its halves could be of
/// different moments.
fn check_extent(fields: &mut Fields<'_>, station: &StationSettings, point: &PointSettings) {
    let count = point.count();
    let last = u32::from(point.address) + u32::from(count) - 1;
    if last > 65535 {
        let span = fields.span_of("address");
        let message = format!("a value of {count} registers at {} would straddle 65535, the last one", point.address);
        let hint = format!("the last place for it is {}:{}", point.table.prefix(), 65536 - u32::from(count));
        fields.fault(span, message, hint);
    }
    if !point.table.is_bits() && count > station.max_registers {
        let key = if matches!(point.decoder, Decoder::Text(..)) { "length" } else { "data_type" };
        let span = fields.span_of(key);
        let message = format!("the value takes {count} registers, and max_registers is {}", station.max_registers);
        fields.fault(span, message, "a value is never split: raise max_registers or shorten the value".to_owned());
    }
}

const fn order(words_reversed: bool, bytes_swapped: bool) -> Order {
    Order { words_reversed, bytes_swapped }
}

const ORDERS_16: [(&str, Order); 2] = [("AB", order(false, false)), ("BA", order(false, true))];
const ORDERS_32: [(&str, Order); 4] = [
    ("ABCD", order(false, false)),
    ("CDAB", order(true, false)),
    ("BADC", order(false, true)),
    ("DCBA", order(true, true)),
];
const ORDERS_64: [(&str, Order); 4] = [
    ("ABCDEFGH", order(false, false)),
    ("GHEFCDAB", order(true, false)),
    ("BADCFEHG", order(false, true)),
    ("HGFEDCBA", order(true, true)),
];

fn orders_of(registers: u16) -> &'static [(&'static str, Order)] {
    match registers {
        1 => &ORDERS_16,
        2 => &ORDERS_32,
        _ => &ORDERS_64,
    }
}

const KINDS: [(&str, Kind); 13] = [
    ("bool", Kind::Bool),
    ("i16", Kind::Number(Number::I16)),
    ("u16", Kind::Number(Number::U16)),
    ("i32", Kind::Number(Number::I32)),
    ("u32", Kind::Number(Number::U32)),
    ("i64", Kind::Number(Number::I64)),
    ("u64", Kind::Number(Number::U64)),
    ("f32", Kind::Number(Number::F32)),
    ("f64", Kind::Number(Number::F64)),
    ("bcd16", Kind::Number(Number::Bcd16)),
    ("bcd32", Kind::Number(Number::Bcd32)),
    ("bcd64", Kind::Number(Number::Bcd64)),
    ("string", Kind::Text),
];

const LAYOUTS: [(&str, Layout); 4] =
    [("high-low", Layout::HighLow), ("low-high", Layout::LowHigh), ("high", Layout::High), ("low", Layout::Low)];

const ENCODINGS: [(&str, Encoding); 3] =
    [("ascii", Encoding::Ascii), ("latin1", Encoding::Latin1), ("utf-8", Encoding::Utf8)];

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
