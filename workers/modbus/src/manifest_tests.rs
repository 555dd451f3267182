use super::*;
use crate::{Modbus, table::Table};
use toml::{Spanned, de::DeTable};
use worker_contract::{Faults, Protocol};

/// What a reader made of a table, and the faults as `message | hint`.
fn read<T>(text: &str, reader: impl FnOnce(&mut Fields<'_>) -> T) -> (T, Vec<String>) {
    let table: Spanned<DeTable<'_>> = DeTable::parse(text).expect("TOML");
    let mut faults = Faults::default();
    let mut fields = Fields::new(&table, "point \"p\"", &mut faults);
    let found = reader(&mut fields);
    fields.finish();
    let told = faults.into_sorted().0.into_iter();
    (found, told.map(|f| format!("{} | {}", f.message, f.hint.unwrap_or_default())).collect())
}

fn point_of(station: StationSettings, text: &str) -> PointSettings {
    let (found, faults) = read(text, |fields| point(&station, fields));
    assert_eq!(faults, Vec::<String>::new(), "{text}");
    found.expect("no fault")
}

fn good(text: &str) -> PointSettings {
    point_of(StationSettings::default(), text)
}

#[track_caller]
fn fault(text: &str, message: &str, hint: &str) {
    let (found, faults) = read(text, |fields| point(&StationSettings::default(), fields));
    assert_eq!(found, None, "{text}");
    assert_eq!(faults.len(), 1, "{text}: {faults:?}");
    let (told, hinted) = faults[0].split_once(" | ").expect("both parts");
    assert!(told.contains(message) && hinted.contains(hint), "{text}: {}", faults[0]);
}

#[test]
fn a_bit_needs_no_data_type_and_a_register_does() {
    assert_eq!(good("address = 'co:3'").decoder, Decoder::Coil);
    assert_eq!(good("address = 'di:3'\ndata_type = 'bool'").decoder, Decoder::Coil);
    assert_eq!(good("address = 'hr:3.4'").decoder, Decoder::Bit(4));
    fault("address = 'hr:3'", "`data_type` is missing", "u16");
    fault("address = 'hr:3'\ndata_type = 'bool'", "needs one bit", "hr:3.0");
    fault("address = 'co:3'\ndata_type = 'u16'", "single bits", "bool");
    fault("address = 'hr:3.1'\ndata_type = 'u16'", "is a bool", "drop the .1");
    fault("address = 'hr:3'\ndata_type = 'u61'", "not known", "u16");
}

#[test]
fn a_byte_order_must_be_as_wide_as_the_value() {
    let decoder = |text: &str| good(text).decoder;
    let number = |n, words_reversed, bytes_swapped| Decoder::Number(n, Order { words_reversed, bytes_swapped });
    for (letters, words, bytes) in
        [("ABCD", false, false), ("CDAB", true, false), ("BADC", false, true), ("DCBA", true, true)]
    {
        let text = format!("address = 'hr:3'\ndata_type = 'f32'\nbyte_order = '{letters}'");
        assert_eq!(decoder(&text), number(Number::F32, words, bytes));
    }
    for (letters, words, bytes) in
        [("ABCDEFGH", false, false), ("GHEFCDAB", true, false), ("BADCFEHG", false, true), ("HGFEDCBA", true, true)]
    {
        let text = format!("address = 'hr:3'\ndata_type = 'f64'\nbyte_order = '{letters}'");
        assert_eq!(decoder(&text), number(Number::F64, words, bytes));
    }
    let text = "address = 'hr:3'\ndata_type = 'u16'\nbyte_order = 'BA'";
    assert_eq!(decoder(text), number(Number::U16, false, true));
    fault("address = 'hr:3'\ndata_type = 'u16'\nbyte_order = 'CDAB'", "does not fit", "2 bytes: use AB, BA");
    fault("address = 'hr:3'\ndata_type = 'f64'\nbyte_order = 'CDAB'", "does not fit", "GHEFCDAB");
    fault("address = 'hr:3'\ndata_type = 'f32'\nbyte_order = 'cdab'", "does not fit", "did you mean `CDAB`?");
    fault("address = 'hr:3'\ndata_type = 'f32'\nbyte_order = 'little'", "does not fit", "CDAB");
    fault("address = 'hr:3.1'\nbyte_order = 'AB'", "no meaning", "remove");
    fault("address = 'hr:3'\ndata_type = 'string'\nlength = 4\nbyte_order = 'CDAB'", "reorder", "low-high");
}

#[test]
fn the_stations_byte_order_holds_where_a_point_has_none() {
    let (station, faults) = read("unit_id = 3\nbyte_order = 'DCBA'", station);
    assert_eq!(faults, Vec::<String>::new());
    let station = station.expect("no fault");
    let order = |text: &str| match point_of(station, text).decoder {
        Decoder::Number(_, order) => (order.words_reversed, order.bytes_swapped),
        other => panic!("{other:?}"),
    };
    assert_eq!(order("address = 'hr:3'\ndata_type = 'f64'"), (true, true));
    assert_eq!(order("address = 'hr:3'\ndata_type = 'u16'"), (false, true));
    assert_eq!(order("address = 'hr:3'\ndata_type = 'f32'\nbyte_order = 'ABCD'"), (false, false));
    let text = point_of(station, "address = 'hr:3'\ndata_type = 'string'\nlength = 4");
    assert_eq!(text.decoder, Decoder::Text(4, Layout::HighLow, Encoding::Utf8), "it never reorders a string");
}

#[test]
fn m13_the_last_registers_are_usable_and_nothing_straddles_them() {
    assert_eq!(good("address = 'hr:65535'\ndata_type = 'u16'").address, 65535);
    assert_eq!(good("address = 'hr:65534'\ndata_type = 'u32'").address, 65534);
    assert_eq!(good("address = '465535'\ndata_type = 'u32'").address, 65534);
    fault("address = 'hr:65535'\ndata_type = 'u32'", "straddle 65535", "hr:65534");
    fault("address = 'hr:65533'\ndata_type = 'f64'", "straddle 65535", "hr:65532");
}

#[test]
fn strings_need_a_length_and_fit_one_request() {
    let text = "address = 'hr:0'\ndata_type = 'string'\nlength = 16\nstring_layout = 'low'\nencoding = 'latin1'";
    assert_eq!(good(text).decoder, Decoder::Text(16, Layout::Low, Encoding::Latin1));
    assert_eq!(good("address = 'hr:0'\ndata_type = 'string'\nlength = 250").count(), 125);
    fault("address = 'hr:0'\ndata_type = 'string'", "`length` is missing", "characters");
    fault("address = 'hr:0'\ndata_type = 'string'\nlength = 0", "out of range", "1 to 250");
    fault(
        "address = 'hr:0'\ndata_type = 'string'\nlength = 126\nstring_layout = 'high'",
        "126 registers",
        "never split",
    );
    fault("address = 'hr:0'\ndata_type = 'u16'\nlength = 4", "for strings only", "remove");
    let narrow = StationSettings { max_registers: 50, ..StationSettings::default() };
    let (found, faults) = read("address = 'hr:0'\ndata_type = 'string'\nlength = 120", |fields| point(&narrow, fields));
    assert_eq!(found, None);
    assert!(faults[0].contains("60 registers") && faults[0].contains("max_registers is 50"), "{faults:?}");
}

#[test]
fn an_address_must_be_a_string_of_a_known_form() {
    fault("address = 40101\ndata_type = 'u16'", "must be a string", "quotes");
    fault("address = '100'\ndata_type = 'u16'", "which table", "hr:100");
    fault("data_type = 'u16'", "`address` is missing", "add a line");
    let text = "address = 'hr:1'\ndata_type = 'u16'\nbite_order = 'AB'";
    let (_, faults) = read(text, |fields| point(&StationSettings::default(), fields));
    assert_eq!(faults, ["point \"p\": unknown key `bite_order` | did you mean `byte_order`?"]);
}

#[test]
fn only_what_can_be_written_may_be_writable() {
    let point = good("address = 'hr:1'\ndata_type = 'u16'\nwritable = true");
    assert!(point.writable && point.table == Table::HoldingRegisters);
    assert!(good("address = 'co:1'\nwritable = true").writable);
    fault("address = 'ir:1'\ndata_type = 'u16'\nwritable = true", "can only be read", "hr:");
    fault("address = 'di:1'\nwritable = true", "can only be read", "co:");
}

#[test]
fn a_connection_owns_its_endpoint() {
    let (found, faults) = read("host = 'PLC.example'", connection);
    assert_eq!(faults, Vec::<String>::new());
    let found = found.expect("no fault");
    assert_eq!((found.lanes, found.resources), (1, vec![Resource("tcp:plc.example:502".into())]));
    let (found, _) = read("host = '::1'\nport = 1502\nmax_connections = 4", connection);
    assert_eq!(found.expect("no fault").lanes, 4);
    for (text, want) in [
        ("port = 502", "`host` is missing"),
        ("host = '192.0.2.1:503'", "port = 503"),
        ("host = 'tcp://192.0.2.1'", "alone"),
        ("host = 'a b'", "alone"),
        ("host = 'a..b'", "alone"),
        ("host = '.'", "alone"),
        ("host = '256.1.1.1'", "from 0 to 255"),
        ("host = '10.1'", "from 0 to 255"),
        ("host = '1.2.3.4.5'", "from 0 to 255"),
        ("host = '192.168.01.1'", "leading zeros"),
        ("host = '3232235777'", "from 0 to 255"),
        ("host = '0x7f.1'", "from 0 to 255"),
        ("host = '0x7f000001'", "from 0 to 255"),
        ("host = 'a'\nport = 0", "from 1 to 65535"),
        ("host = 'a'\nmax_connections = 17", "from 1 to 16"),
        ("host = 'a'\nhots = 'b'", "did you mean `host`?"),
    ] {
        let (_, faults) = read(text, connection);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].contains(want), "{text}: {faults:?}");
    }
}

#[test]
fn one_endpoint_has_one_name_however_it_is_written() {
    let name = |host: &str| {
        let (found, faults) = read(&format!("host = '{host}'"), connection);
        assert_eq!(faults, Vec::<String>::new(), "{host}");
        found.expect("no fault").resources.remove(0).0
    };
    for host in ["localhost", "LocalHost.", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "0.0.0.0", "::"]
    {
        assert_eq!(name(host), "tcp:127.0.0.1:502", "{host}");
    }
    assert_eq!(name("127.0.0.2"), "tcp:127.0.0.2:502");
    assert_eq!(name("2001:DB8:0::1"), "tcp:2001:db8::1:502");
    assert_eq!(name("Plc-1.example."), "tcp:plc-1.example:502");
    assert_eq!(name("4plc"), "tcp:4plc:502");
    assert_eq!(name("plc.4x"), "tcp:plc.4x:502");
}

#[test]
fn a_stations_limits_stay_within_the_protocols() {
    let (found, faults) = read("", station);
    assert_eq!((found, faults), (Some(StationSettings::default()), Vec::new()));
    let text = "unit_id = 256\nmax_registers = 126\nmax_coils = 2001\nmax_gap = -1\nbyte_order = 'AB'";
    let (found, faults) = read(text, station);
    assert_eq!(found, None);
    assert_eq!(faults.len(), 5, "{faults:?}");
}

#[test]
fn the_example_is_complete_and_has_no_fault() {
    let text = include_str!("../example.toml");
    let table = DeTable::parse(text).expect("TOML");
    let mut faults = Faults::default();
    let list = |key: &str| match table.get_ref().get(key).map(Spanned::get_ref) {
        Some(toml::de::DeValue::Array(items)) => items,
        other => panic!("{key}: {other:?}"),
    };
    let mut words = std::collections::BTreeSet::new();
    let tables =
        |items: &'static str| list(items).iter().map(|item| (item.get_ref().as_table().expect("a table"), item.span()));
    for (connection, span) in tables("connections") {
        let mut fields = Fields::over(connection, span, "connection", &mut faults);
        fields.know(&["id", "kind"]);
        assert!(Modbus.connection("modbus-tcp", &mut fields).is_some());
        fields.finish();
        words.extend(connection.keys().map(|k| k.get_ref().to_string()));
    }
    for (station, span) in tables("stations") {
        let mut fields = Fields::over(station, span, "station", &mut faults);
        fields.know(&["id", "connection_ref", "poll_interval_ms", "timeout_ms", "points"]);
        let settings = Modbus.station("modbus-tcp", &mut fields).expect("no fault");
        fields.finish();
        words.extend(station.keys().map(|k| k.get_ref().to_string()));
        for point in station.get("points").and_then(|p| p.get_ref().as_array()).expect("points") {
            let span = point.span();
            let point = point.get_ref().as_table().expect("a table");
            let mut fields = Fields::over(point, span, "point", &mut faults);
            fields.know(&["name", "unit", "scale", "not_available"]);
            assert!(Modbus.point("modbus-tcp", &settings, &mut fields).is_some(), "{point:?}");
            fields.finish();
            words.extend(point.keys().map(|k| k.get_ref().to_string()));
        }
    }
    assert_eq!(faults.into_sorted().0, Vec::new());
    for key in [
        "host",
        "port",
        "max_connections",
        "unit_id",
        "max_registers",
        "max_coils",
        "max_gap",
        "one_request_per_point",
        "byte_order",
        "address",
        "data_type",
        "length",
        "string_layout",
        "encoding",
        "writable",
    ] {
        assert!(words.contains(key), "the example does not show `{key}`");
    }
}
