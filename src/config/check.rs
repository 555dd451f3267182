//! From a text to a manifest, or to every fault in it. Pure: the same text gives the same outcome.

use std::ops::Range;

use toml::{Spanned, de::DeTable};
use worker_contract::{Fault, Faults, Fields, Protocol, fields::Located};

use super::{
    connections,
    lines::Lines,
    model::Manifest,
    pieces, settings,
    stations::Reader,
    syntax::{self, Broken},
    tables::{Seen, tables},
    timeouts::DrainTimes,
    uplinks,
};

/// The only version of the format so far.
pub const FORMAT_VERSION: &str = "1";

/// What a check found.
#[derive(Debug)]
pub struct Outcome {
    /// The manifest; `None` exactly when there are faults.
    pub manifest: Option<Manifest>,
    /// In the order of the text.
    pub faults: Vec<Fault>,
    /// How many more there are.
    pub more: usize,
    /// In the order of the text.
    pub warnings: Vec<Fault>,
}

/// Where the stations of a manifest come from.
enum Stations<'t> {
    /// From the root's own table.
    Root,
    /// From pieces of the text, each read and dropped in turn.
    Pieces(&'t str, &'t [Range<usize>]),
}

/// Checks a text against the protocols of the build.
#[must_use]
pub fn check(text: &str, lines: &Lines<'_>, protocols: &[&'static dyn Protocol]) -> Outcome {
    if let Some(pieces) = pieces::split(text) {
        let stations = Stations::Pieces(text, &pieces.stations);
        if let Some(outcome) = check_root(&pieces.rest, &stations, lines, protocols) {
            return outcome;
        }
    }
    check_whole(text, lines, protocols)
}

/// Checks a text that is read as one.
pub fn check_whole(text: &str, lines: &Lines<'_>, protocols: &[&'static dyn Protocol]) -> Outcome {
    check_root(text, &Stations::Root, lines, protocols).expect("a text without pieces holds its stations itself")
}

/// `None` when there are pieces and the rest names stations too: they must be read as one then.
fn check_root(
    root: &str,
    stations: &Stations<'_>,
    lines: &Lines<'_>,
    protocols: &[&'static dyn Protocol],
) -> Option<Outcome> {
    let mut told = Faults::default();
    let (root, broken) = syntax::parse(root, 0, lines, &mut told);
    if matches!(stations, Stations::Pieces(..)) && root.get_ref().contains_key("stations") {
        return None;
    }
    let mut check = Check::new(lines, protocols);
    check.faults.set_partial(broken.is_some());
    check.station_faults.set_partial(broken.is_some());
    let manifest = check.read(&root, stations);
    // With half the text unread most warnings would be of what could not be seen.
    let unread = check.faults.is_partial() || check.station_faults.is_partial();
    let warnings = if unread { Vec::new() } else { check.warnings.into_sorted().0 };
    let mut more = 0;
    let mut take = |faults: Faults, broken: Option<&Broken>| {
        let (list, rest) = faults.into_sorted();
        more += rest;
        for fault in list.into_iter().filter(|f| broken.is_none_or(|b| b.trusts(&f.span, lines))) {
            told.push(fault.span, fault.message, fault.hint);
        }
    };
    take(check.faults, broken.as_ref());
    take(check.station_faults, None);
    let (faults, rest) = told.into_sorted();
    let manifest = manifest.filter(|_| faults.is_empty());
    Some(Outcome { manifest, faults, more: more + rest, warnings })
}

/// A check under way.
struct Check<'c> {
    lines: &'c Lines<'c>,
    protocols: &'c [&'static dyn Protocol],
    faults: Faults,
    /// Those of stations that are read in pieces: what is broken elsewhere swallows none of them.
    station_faults: Faults,
    warnings: Faults,
}

impl<'c> Check<'c> {
    fn new(lines: &'c Lines<'c>, protocols: &'c [&'static dyn Protocol]) -> Self {
        let [faults, station_faults, warnings] = std::array::from_fn(|_| Faults::default());
        Self { lines, protocols, faults, station_faults, warnings }
    }

    /// Reads everything. What comes back is a manifest only if there were no faults.
    fn read(&mut self, table: &Spanned<DeTable<'_>>, stations: &Stations<'_>) -> Option<Manifest> {
        let mut root = Fields::new(table, "manifest", &mut self.faults);
        if !format_version(&mut root) {
            return None;
        }
        let settings = settings::read(&mut root, &mut self.warnings);
        let before = root.fault_count();
        let mut drafts = connections::read(&mut root, self.protocols, settings.workers.isolation, self.lines);
        // Of tables with faults it cannot be said that they are not there.
        let no_connections = drafts.is_empty() && root.fault_count() == before;
        let uplinks = uplinks::uplinks(&mut root, self.lines, &mut self.warnings);
        let mut reader = Reader {
            drafts: &mut drafts,
            lines: self.lines,
            seen: Seen::default(),
            alarms: Vec::new(),
            first_alarm: None,
            drain: DrainTimes::within(settings.lifecycle.drain_timeout),
            warnings: &mut self.warnings,
        };
        let before = root.fault_count();
        read_stations(&mut root, stations, &mut reader, &mut self.station_faults);
        let Reader { seen, alarms, first_alarm, .. } = reader;
        let clean = root.fault_count() == before && self.station_faults.is_empty();
        let no_stations = seen.is_empty() && clean && !drafts.is_empty();
        self.warnings.set_base(0);
        let alarm_rules = uplinks::alarm_rules(&mut root, self.lines, &seen, &mut self.warnings);
        root.finish();
        self.warn(no_connections, no_stations, first_alarm);
        Some(Manifest {
            facility: settings.facility?,
            connections: drafts.into_connections(),
            lease: settings.lease,
            journal: settings.journal,
            lifecycle: settings.lifecycle,
            workers: settings.workers,
            upgrade: settings.upgrade,
            uplinks,
            alarms,
            alarm_rules,
        })
    }

    fn warn(&mut self, no_connections: bool, no_stations: bool, alarms: Option<(Range<usize>, usize)>) {
        if no_connections {
            let hint = "add a [[connections]] table".to_owned();
            self.warnings.push(0..0, "manifest: there are no connections: nothing is polled", Some(hint));
        } else if no_stations {
            let hint = "add a [[stations]] table".to_owned();
            self.warnings.push(0..0, "manifest: there are no stations: nothing is polled", Some(hint));
        }
        if let Some((span, count)) = alarms {
            let what = if count == 1 { "1 point has".to_owned() } else { format!("{count} points have") };
            let message = format!("{what} alarm levels: this version records readings and does not raise alarms yet");
            self.warnings.push(span, message, None);
        }
    }
}

/// False when the text is of another version, of which nothing else can be said.
fn format_version(root: &mut Fields<'_>) -> bool {
    if !root.has("format_version") {
        root.know(&["format_version"]);
        let span = root.span();
        let hint = format!("begin the file with the line: format_version = \"{FORMAT_VERSION}\"");
        root.faults().push_absence(span, "manifest: `format_version` is missing", Some(hint));
        return true;
    }
    match root.string("format_version") {
        Some(Located { value, span }) if value != FORMAT_VERSION => {
            let hint = format!("this build reads format_version = \"{FORMAT_VERSION}\"");
            root.fault(span, format!("`format_version` = \"{value}\" cannot be read by this build"), hint);
            false
        }
        _ => true,
    }
}

fn read_stations(root: &mut Fields<'_>, stations: &Stations<'_>, reader: &mut Reader<'_, '_>, faults: &mut Faults) {
    match stations {
        Stations::Root => {
            for (table, span) in tables(root, "stations", "stations") {
                reader.read(table, span, root.faults());
            }
        }
        Stations::Pieces(text, pieces) => {
            root.know(&["stations"]);
            for piece in *pieces {
                read_piece(&text[piece.clone()], piece.start, reader, faults);
            }
            // A station that could not be read may be the one that an alarm rule names.
            let partial = root.faults().is_partial() || faults.is_partial();
            root.faults().set_partial(partial);
        }
    }
}

/// Reads one station's piece of the text, which starts at byte `base`.
fn read_piece(piece: &str, base: usize, reader: &mut Reader<'_, '_>, faults: &mut Faults) {
    faults.set_base(base);
    let (root, broken) = syntax::parse(piece, base, reader.lines, faults);
    if let Some(broken) = broken {
        let mut found = Faults::default();
        found.set_base(base);
        found.set_partial(true);
        read_tables(&root, reader, &mut found);
        faults.set_base(0);
        // From here on what seems missing may stand in this piece.
        faults.set_partial(true);
        for fault in found.into_sorted().0.into_iter().filter(|f| broken.trusts(&f.span, reader.lines)) {
            faults.push(fault.span, fault.message, fault.hint);
        }
    } else {
        read_tables(&root, reader, faults);
    }
    faults.set_base(0);
}

fn read_tables(piece: &Spanned<DeTable<'_>>, reader: &mut Reader<'_, '_>, faults: &mut Faults) {
    let mut untold = Faults::default();
    let mut fields = Fields::new(piece, "", &mut untold);
    for (table, span) in tables(&mut fields, "stations", "stations") {
        reader.read(table, span, faults);
    }
}
