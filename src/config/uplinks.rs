//! `[[uplinks]]` and `[[alarm_rules]]`: checked in shape; this version acts on neither yet and says so.

use std::path::PathBuf;

use worker_contract::{Faults, Fields, fields::Located};

use super::{
    lines::Lines,
    model::{AlarmLevel, AlarmRule, Uplink, UplinkKind},
    tables::{Seen, tables},
    units,
};

const KINDS: &[(&str, UplinkKind)] =
    &[("jsonrpc", UplinkKind::JsonRpc), ("mqtt", UplinkKind::Mqtt), ("sparkplug", UplinkKind::Sparkplug)];

const LEVELS: &[(&str, AlarmLevel)] = &[
    ("ll", AlarmLevel::LowLow),
    ("l", AlarmLevel::Low),
    ("h", AlarmLevel::High),
    ("hh", AlarmLevel::HighHigh),
    ("roc", AlarmLevel::RateOfChange),
    ("LowLow", AlarmLevel::LowLow),
    ("Low", AlarmLevel::Low),
    ("High", AlarmLevel::High),
    ("HighHigh", AlarmLevel::HighHigh),
    ("RateOfChange", AlarmLevel::RateOfChange),
];

/// Takes the uplinks.
pub fn uplinks(root: &mut Fields<'_>, lines: &Lines<'_>, warnings: &mut Faults) -> Vec<Uplink> {
    let mut seen = Seen::default();
    let mut found = Vec::new();
    for (table, span) in tables(root, "uplinks", "uplinks") {
        let mut fields = Fields::over(table, span, "uplink", root.faults());
        let uplink = uplink(&mut fields, &mut seen, lines);
        let span = fields.span();
        fields.finish();
        let Some(uplink) = uplink else { continue };
        if uplink.enabled {
            let message = format!(
                "uplink \"{}\": this version keeps readings in the journal and does not send them yet",
                uplink.id
            );
            warnings.push(span, message, None);
        }
        found.push(uplink);
    }
    found
}

fn uplink(fields: &mut Fields<'_>, seen: &mut Seen, lines: &Lines<'_>) -> Option<Uplink> {
    let id = units::id(fields, "id");
    if let Some(id) = &id {
        seen.first(id, "uplink", lines, fields.faults());
        fields.rename(format!("uplink \"{}\"", id.value));
    }
    let enabled = fields.bool("enabled").unwrap_or(true);
    if !fields.has("kind") {
        fields.missing("kind");
    }
    let kind = fields.one_of("kind", KINDS);
    let url = fields.required_string("url");
    if let (Some(kind), Some(url)) = (kind, &url) {
        check_url(fields, kind, url);
    }
    let token_file = if fields.has("token_file") { fields.required_string("token_file") } else { None };
    fields.know(&["token_file"]);
    let token_file = token_file.map(|t| PathBuf::from(t.value));
    Some(Uplink { id: id?.value.to_owned(), enabled, kind: kind?, url: url?.value.to_owned(), token_file })
}

fn check_url(fields: &mut Fields<'_>, kind: UplinkKind, url: &Located<&str>) {
    let (schemes, example): (&[&str], _) = match kind {
        UplinkKind::JsonRpc => (&["wss", "ws", "unix", "tcp"], "wss://server.example/gateway"),
        UplinkKind::Mqtt | UplinkKind::Sparkplug => (&["mqtts", "mqtt"], "mqtts://broker.example:8883"),
    };
    let hint = || format!("use one of {}: — for example {example}", schemes.join(":, "));
    let Some((scheme, rest)) = url.value.split_once(':') else {
        return fields.fault(url.span.clone(), "`url` has no scheme", hint());
    };
    if !schemes.contains(&scheme) {
        return fields.fault(url.span.clone(), format!("`url` has the scheme `{scheme}:`, which does not fit"), hint());
    }
    let host = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    if rest.trim_start_matches('/').is_empty() {
        fields.fault(url.span.clone(), "`url` names no place after its scheme", hint());
    } else if scheme != "unix" && host.contains('@') {
        let hint = "write it into a file that only the service reads, and name that as `token_file`";
        fields.fault(url.span.clone(), "`url` holds a user or a password", hint.to_owned());
    }
}

/// Takes the alarm rules. `stations` are those of the manifest.
pub fn alarm_rules(root: &mut Fields<'_>, lines: &Lines<'_>, stations: &Seen, warnings: &mut Faults) -> Vec<AlarmRule> {
    let mut seen = Seen::default();
    let mut found = Vec::new();
    let tables = tables(root, "alarm_rules", "alarm_rules");
    if let Some((_, span)) = tables.first() {
        let message = "alarm rules: this version records readings and does not raise alarms yet";
        warnings.push(span.clone(), message, None);
    }
    for (table, span) in tables {
        let mut fields = Fields::over(table, span, "alarm rule", root.faults());
        found.extend(alarm_rule(&mut fields, &mut seen, lines, stations));
        fields.finish();
    }
    found
}

fn alarm_rule(fields: &mut Fields<'_>, seen: &mut Seen, lines: &Lines<'_>, stations: &Seen) -> Option<AlarmRule> {
    let id = units::id(fields, "id");
    if let Some(id) = &id {
        seen.first(id, "alarm rule", lines, fields.faults());
        fields.rename(format!("alarm rule \"{}\"", id.value));
    }
    let station = fields.required_string("station_ref");
    if let Some(station) = station.as_ref().filter(|s| !stations.contains(s.value)) {
        let hint = fields.faults().nearest(station.value, stations.ids());
        let message = format!("{}: there is no station \"{}\"", fields.what(), station.value);
        fields.faults().push_absence(station.span.clone(), message, hint);
    }
    let point = fields.required_string("register_name");
    if !fields.has("level") {
        fields.missing("level");
    }
    let level = fields.one_of("level", LEVELS);
    if !fields.has("threshold") {
        fields.missing("threshold");
    }
    let threshold = fields.number("threshold");
    fields.string("unit");
    Some(AlarmRule {
        id: id?.value.into(),
        station: station?.value.into(),
        point: point?.value.into(),
        level: level?,
        threshold: threshold?.value,
    })
}
