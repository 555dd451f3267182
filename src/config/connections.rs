//! `[[connections]]`: what the core owns of them; the rest is the protocol's.

use std::collections::HashMap;

use worker_contract::{
    ConnectionConfig, Faults, Fields, Opaque, Protocol, Resource, StationConfig, driver::CheckedConnection,
};

use super::{
    lines::Lines,
    model::{Connection, DisabledStation, Isolation},
    settings::ISOLATION,
    tables::{Seen, tables},
    units,
};

/// Kinds that the manifest's format names, whether this build speaks them or not.
const NAMED_KINDS: &[&str] =
    &["modbus-tcp", "modbus-rtu", "modbus-rtu-over-tcp", "s7comm", "can", "serial", "listener"];

/// A connection while its stations are read.
pub struct Draft {
    /// The protocol; `None` when this build has none for the kind.
    pub protocol: Option<&'static dyn Protocol>,
    /// What becomes of it, faults or not: with faults it is never used.
    pub connection: Connection,
}

/// The connections by id.
#[derive(Default)]
pub struct Drafts {
    list: Vec<Draft>,
    by_id: HashMap<Box<str>, usize>,
    seen: Seen,
}

impl Drafts {
    /// The place of an id's connection.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// True when some connection has this for its id, be it one that cannot be used.
    #[must_use]
    pub fn knows(&self, id: &str) -> bool {
        self.seen.contains(id)
    }

    /// What a connection speaks, and its kind. For an unknown connection what all the others speak, when that is one
    /// and the same: the station's own keys can be checked by it.
    #[must_use]
    pub fn spoken(&self, at: Option<usize>) -> Option<(&'static dyn Protocol, String)> {
        let draft = match at {
            Some(at) => self.list.get(at)?,
            None => {
                let first = self.list.first()?;
                let kind = &first.connection.config.kind;
                self.list.iter().all(|d| d.connection.config.kind == *kind).then_some(first)?
            }
        };
        Some((draft.protocol?, draft.connection.config.kind.clone()))
    }

    /// Gives a connection one of its stations.
    pub fn add(&mut self, at: usize, station: StationConfig, enabled: bool) {
        let Some(Draft { connection, .. }) = self.list.get_mut(at) else { return };
        if enabled {
            connection.config.stations.push(station);
        } else {
            connection.disabled.push(DisabledStation {
                id: station.id.into(),
                connection: connection.config.id.as_str().into(),
                critical: station.critical,
                points: u32::try_from(station.points.len()).unwrap_or(u32::MAX),
            });
        }
    }

    /// Every id, in the manifest's order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|d| d.connection.config.id.as_str())
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The finished connections.
    #[must_use]
    pub fn into_connections(self) -> Vec<Connection> {
        self.list.into_iter().map(|draft| draft.connection).collect()
    }
}

/// Takes the connections.
pub fn read(
    root: &mut Fields<'_>,
    protocols: &[&'static dyn Protocol],
    isolation: Isolation,
    lines: &Lines<'_>,
) -> Drafts {
    let mut drafts = Drafts::default();
    let mut owners = HashMap::new();
    for (table, span) in tables(root, "connections", "connections") {
        let mut fields = Fields::over(table, span, "connection", root.faults());
        let (draft, spoken) = connection(&mut fields, protocols, isolation, &mut drafts.seen, lines);
        if let Some(Connection { enabled: true, config, .. }) = draft.as_ref().map(|d| &d.connection) {
            let span = fields.span_of("host");
            own(config, span, &mut owners, lines, fields.faults());
        }
        if spoken {
            fields.finish();
        }
        let Some(draft) = draft else { continue };
        drafts.by_id.entry(draft.connection.config.id.as_str().into()).or_insert(drafts.list.len());
        drafts.list.push(draft);
    }
    drafts
}

/// The connection, and whether a protocol has seen its keys: without, nobody can tell which of them are unknown.
fn connection(
    fields: &mut Fields<'_>,
    protocols: &[&'static dyn Protocol],
    isolation: Isolation,
    seen: &mut Seen,
    lines: &Lines<'_>,
) -> (Option<Draft>, bool) {
    let id = units::id(fields, "id");
    if let Some(id) = &id {
        seen.first(id, "connection", lines, fields.faults());
        fields.rename(format!("connection \"{}\"", id.value));
    } else {
        seen.misnamed(fields);
    }
    let enabled = fields.bool("enabled").unwrap_or(true);
    let isolation = fields.one_of("isolation", ISOLATION).unwrap_or(isolation);
    let kind = fields.required_string("kind");
    let (protocol, kind) = match kind.as_ref().map(|k| k.value) {
        None => (None, ""),
        Some(kind) => match protocols.iter().copied().find(|p| p.kinds().contains(&kind)) {
            Some(protocol) => (Some(protocol), kind),
            None => {
                unknown_kind(fields, kind, protocols);
                // A slip of the pen: the rest is checked as what was meant, so that all is told at once.
                meant(kind, protocols).map_or((None, kind), |(protocol, kind)| (Some(protocol), kind))
            }
        },
    };
    let checked = protocol.and_then(|p| p.connection(kind, fields));
    let CheckedConnection { resources, lanes, settings } =
        checked.unwrap_or(CheckedConnection { resources: Vec::new(), lanes: 1, settings: Opaque::default() });
    let Some(id) = id.map(|id| id.value.to_owned()) else { return (None, protocol.is_some()) };
    let config = ConnectionConfig { id, kind: kind.to_owned(), lanes, resources, settings, stations: Vec::new() };
    let name = protocol.map_or("", |p| p.name());
    let connection = Connection { enabled, protocol: name, isolation, config, disabled: Vec::new() };
    (Some(Draft { protocol, connection }), protocol.is_some())
}

/// The spoken kind that a misspelt one is near to.
fn meant(kind: &str, protocols: &[&'static dyn Protocol]) -> Option<(&'static dyn Protocol, &'static str)> {
    if NAMED_KINDS.contains(&kind) {
        return None;
    }
    let spoken = protocols.iter().copied().flat_map(|p| p.kinds().iter().map(move |k| (p, *k)));
    let near = spoken.map(|(p, k)| (strsim::damerau_levenshtein(kind, k), p, k));
    let (distance, protocol, spoken) = near.min_by_key(|(distance, ..)| *distance)?;
    (distance <= 1 + spoken.len() / 4).then_some((protocol, spoken))
}

fn unknown_kind(fields: &mut Fields<'_>, kind: &str, protocols: &[&'static dyn Protocol]) {
    let spoken: Vec<&str> = protocols.iter().flat_map(|p| p.kinds()).copied().collect();
    let speaks = if spoken.is_empty() {
        "it speaks no protocol".to_owned()
    } else {
        format!("it speaks: {}", spoken.join(", "))
    };
    let span = fields.span_of("kind");
    if NAMED_KINDS.contains(&kind) {
        let hint = "take this connection and its stations out until a build speaks it".to_owned();
        return fields.fault(span, format!("this build does not speak `{kind}` yet; {speaks}"), hint);
    }
    let near = fields.faults().nearest(kind, spoken.iter().copied().chain(NAMED_KINDS.iter().copied()));
    let hint = near.unwrap_or_else(|| format!("this build: {speaks}"));
    fields.fault(span, format!("`kind` = \"{kind}\" is not known"), hint);
}

/// Tells a fault when another connection owns one of this one's resources.
fn own(
    config: &ConnectionConfig,
    span: std::ops::Range<usize>,
    owners: &mut HashMap<Resource, (String, usize)>,
    lines: &Lines<'_>,
    faults: &mut Faults,
) {
    for resource in &config.resources {
        let place = faults.absolute(&span).start;
        let (owner, first) = owners.entry(resource.clone()).or_insert_with(|| (config.id.clone(), place)).clone();
        if first == place {
            continue;
        }
        let message = format!(
            "connection \"{}\" would own `{}`, which connection \"{owner}\" in line {} owns alone",
            config.id,
            resource.0,
            lines.line_of(first)
        );
        let hint = format!("keep one of the two and let its stations name it: connection_ref = \"{owner}\"");
        faults.push(span.clone(), message, Some(hint));
    }
}
