//! `[[stations]]`: what the core owns of them; the rest is the protocol's.

use std::ops::Range;

use toml::de::DeTable;
use worker_contract::{Faults, Fields, Opaque, PointConfig, Protocol, StationConfig, fields::Located};

use super::{
    connections::Drafts,
    lines::Lines,
    model::PointAlarm,
    points,
    tables::{Seen, tables},
    timeouts::DrainTimes,
    units,
};

/// What reading stations adds to.
pub struct Reader<'r, 't> {
    /// The connections, each of which takes its stations.
    pub drafts: &'r mut Drafts,
    /// The text.
    pub lines: &'r Lines<'t>,
    /// Ids so far.
    pub seen: Seen,
    /// Alarm levels so far.
    pub alarms: Vec<PointAlarm>,
    /// Where the first of them stands, and how many there are.
    pub first_alarm: Option<(Range<usize>, usize)>,
    /// The times of a drain: a request that may outlast it is warned of.
    pub drain: DrainTimes,
    /// Takes the warnings.
    pub warnings: &'r mut Faults,
}

/// What the core takes of a station's table.
struct Core<'a> {
    id: Located<&'a str>,
    enabled: bool,
    config: StationConfig,
}

impl Reader<'_, '_> {
    /// Reads one station. Its place is one of the piece that `faults` has for its base.
    pub fn read(&mut self, table: &DeTable<'_>, span: Range<usize>, faults: &mut Faults) {
        self.warnings.set_base(faults.absolute(&(0..0)).start);
        let mut fields = Fields::over(table, span, "station", faults);
        let before = fields.fault_count();
        let core = self.core(&mut fields);
        let reference = fields.required_string("connection_ref");
        let at = reference.as_ref().and_then(|r| self.drafts.position(r.value));
        if let Some(reference) = reference.filter(|r| at.is_none() && !self.drafts.knows(r.value)) {
            self.unknown_connection(&mut fields, &reference);
        }
        // Without a protocol nothing else can be said of the station.
        let Some((protocol, kind)) = self.drafts.spoken(at) else { return };
        let settings = station_settings(protocol, &kind, &mut fields);
        let of = points::Of { protocol, kind: &kind, station: settings.as_ref() };
        let points = self.points(&mut fields, core.as_ref().map(|c| c.id.value), &of);
        let clean = fields.fault_count() == before;
        fields.finish();
        if let (Some(core), Some(settings), Some(at), true) = (core, settings, at, clean) {
            let config = StationConfig { settings, points, ..core.config };
            self.drafts.add(at, config, core.enabled);
        }
    }

    fn core<'a>(&mut self, fields: &mut Fields<'a>) -> Option<Core<'a>> {
        let id = units::id(fields, "id");
        if let Some(id) = &id {
            self.seen.first(id, "station", self.lines, fields.faults());
            fields.rename(format!("station \"{}\"", id.value));
        } else {
            self.seen.misnamed(fields);
        }
        let enabled = fields.bool("enabled").unwrap_or(true);
        let timeout_ms = units::millis(fields, "timeout_ms", 10..=60_000, 1_000);
        let config = StationConfig {
            id: id.as_ref().map_or_else(String::new, |id| id.value.to_owned()),
            handle: 0,
            critical: fields.bool("critical").unwrap_or(false),
            poll_interval_ms: units::millis(fields, "poll_interval_ms", 1..=86_400_000, 1_000),
            timeout_ms,
            retries: fields.integer("retries", 0..=10).and_then(|r| u8::try_from(r.value).ok()).unwrap_or(1),
            inter_request_ms: units::millis(fields, "inter_request_ms", 0..=60_000, 0),
            close_after_poll: fields.bool("close_after_poll").unwrap_or(false),
            settings: Opaque::default(),
            points: Vec::new(),
        };
        let drain = self.drain.worker_drain;
        if u128::from(timeout_ms) >= drain.as_millis() {
            let message = format!(
                "{}: a request may take {timeout_ms} ms, and a worker has {} ms to drain: a poll in flight is cut off then",
                fields.what(),
                drain.as_millis()
            );
            let hint = "lower `timeout_ms`, or raise `[lifecycle] drain_timeout_ms`".to_owned();
            self.warnings.push(fields.span_of("timeout_ms"), message, Some(hint));
        }
        Some(Core { id: id?, enabled, config })
    }

    fn unknown_connection(&self, fields: &mut Fields<'_>, reference: &Located<&str>) {
        let hint = fields.faults().nearest(reference.value, self.drafts.ids()).or_else(|| {
            let first: Vec<_> = self.drafts.ids().take(12).collect();
            (!first.is_empty()).then(|| format!("connections here: {}", first.join(", ")))
        });
        let hint = hint.or_else(|| Some("add a [[connections]] table with this id".to_owned()));
        let message = format!("{}: there is no connection \"{}\"", fields.what(), reference.value);
        fields.faults().push_absence(reference.span.clone(), message, hint);
    }

    /// The points that are switched on, checked under the protocol's settings of the station.
    fn points(&mut self, fields: &mut Fields<'_>, station: Option<&str>, of: &points::Of<'_>) -> Vec<PointConfig> {
        let tables = tables(fields, "points", "stations.points");
        if !fields.has("points") {
            let message = format!("{}: it has no points, so nothing is read from it", fields.what());
            self.warnings.push(fields.span(), message, Some("add [[stations.points]] tables below it".to_owned()));
        }
        let mut on = Vec::with_capacity(tables.len());
        let mut names = Seen::default();
        let station_name = fields.what().to_owned();
        for (table, span) in tables {
            let mut fields = Fields::over(table, span, format!("{station_name}, point"), fields.faults());
            let checked = points::read(&mut fields, &station_name, of, &mut names, self.lines);
            if let Some((levels, span)) = checked.alarm {
                self.alarm(fields.faults().absolute(&span));
                if let (Some(station), Some(point)) = (station, &checked.config) {
                    self.alarms.push(PointAlarm { station: station.into(), point: point.name.clone(), levels });
                }
            }
            fields.finish();
            on.extend(checked.config.filter(|_| checked.enabled));
        }
        on
    }

    fn alarm(&mut self, span: Range<usize>) {
        self.first_alarm.get_or_insert((span, 0)).1 += 1;
    }
}

/// The protocol's settings of a station. Where they have faults, those of a station that says nothing, so that its
/// points can be checked all the same; `None` when there is no such thing.
fn station_settings(protocol: &dyn Protocol, kind: &str, fields: &mut Fields<'_>) -> Option<Opaque> {
    protocol.station(kind, fields).or_else(|| {
        let (empty, mut untold) = (DeTable::new(), Faults::default());
        protocol.station(kind, &mut Fields::over(&empty, 0..0, "", &mut untold))
    })
}
