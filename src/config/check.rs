//! From a text to a manifest, or to every fault in it. Pure: the same text gives the same outcome.

use std::ops::Range;

use toml::{Spanned, de::DeTable};
use worker_contract::{Fault, Faults, Fields, Protocol, fields::Located};

use super::{
    connections,
    lines::Lines,
    model::Manifest,
    pieces::{self, Pieces},
    settings,
    stations::Reader,
    syntax,
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
    if let Some(pieces) = pieces::split(text)
        && let Some(outcome) = check_pieces(text, &pieces, lines, protocols)
    {
        return outcome;
    }
    check_whole(text, lines, protocols)
}

/// `None` when a piece is not in form: the whole is looked at then, for the places of its faults.
fn check_pieces(
    text: &str,
    pieces: &Pieces,
    lines: &Lines<'_>,
    protocols: &[&'static dyn Protocol],
) -> Option<Outcome> {
    let root = DeTable::parse(&pieces.rest).ok()?;
    if root.get_ref().contains_key("stations") {
        return None;
    }
    let mut check = Check::new(lines, protocols);
    let manifest = check.read(&root, &Stations::Pieces(text, &pieces.stations))?;
    Some(check.finish(manifest.0))
}

/// Checks a text that is read as one.
pub fn check_whole(text: &str, lines: &Lines<'_>, protocols: &[&'static dyn Protocol]) -> Outcome {
    let mut told = Faults::default();
    match syntax::parse(text, lines, &mut told) {
        Ok(root) => {
            let mut check = Check::new(lines, protocols);
            let manifest = check.read(&root, &Stations::Root).and_then(|m| m.0);
            check.finish(manifest)
        }
        Err(broken) => {
            let mut check = Check::new(lines, protocols);
            check.faults.set_partial(true);
            check.read(&broken.root, &Stations::Root);
            let (read, more) = check.faults.into_sorted();
            for fault in read.into_iter().filter(|f| broken.trusts(&f.span, lines)) {
                told.push(fault.span, fault.message, fault.hint);
            }
            let (faults, others) = told.into_sorted();
            Outcome { manifest: None, faults, more: more + others, warnings: Vec::new() }
        }
    }
}

/// A check under way.
struct Check<'c> {
    lines: &'c Lines<'c>,
    protocols: &'c [&'static dyn Protocol],
    faults: Faults,
    warnings: Faults,
}

/// What came of reading: a manifest when there were no faults.
struct Read(Option<Manifest>);

impl<'c> Check<'c> {
    fn new(lines: &'c Lines<'c>, protocols: &'c [&'static dyn Protocol]) -> Self {
        Self { lines, protocols, faults: Faults::default(), warnings: Faults::default() }
    }

    fn finish(self, manifest: Option<Manifest>) -> Outcome {
        let (faults, more) = self.faults.into_sorted();
        let manifest = manifest.filter(|_| faults.is_empty());
        Outcome { manifest, faults, more, warnings: self.warnings.into_sorted().0 }
    }

    /// `None` when a piece of the text is not in form.
    fn read(&mut self, table: &Spanned<DeTable<'_>>, stations: &Stations<'_>) -> Option<Read> {
        let mut root = Fields::new(table, "manifest", &mut self.faults);
        if !format_version(&mut root) {
            return Some(Read(None));
        }
        let settings = settings::read(&mut root, &mut self.warnings);
        let mut drafts = connections::read(&mut root, self.protocols, settings.workers.isolation, self.lines);
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
        read_stations(&mut root, stations, &mut reader)?;
        let Reader { seen, alarms, first_alarm, .. } = reader;
        self.warnings.set_base(0);
        let alarm_rules = uplinks::alarm_rules(&mut root, self.lines, &seen, &mut self.warnings);
        root.finish();
        self.warn(drafts.is_empty(), seen.is_empty(), first_alarm);
        let Some(facility) = settings.facility else { return Some(Read(None)) };
        Some(Read(Some(Manifest {
            facility,
            connections: drafts.into_connections(),
            lease: settings.lease,
            journal: settings.journal,
            lifecycle: settings.lifecycle,
            workers: settings.workers,
            upgrade: settings.upgrade,
            uplinks,
            alarms,
            alarm_rules,
        })))
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

/// `None` when a piece of the text is not in form.
fn read_stations(root: &mut Fields<'_>, stations: &Stations<'_>, reader: &mut Reader<'_, '_>) -> Option<()> {
    let (text, pieces) = match stations {
        Stations::Root => {
            for (table, span) in tables(root, "stations", "stations") {
                reader.read(table, span, root.faults());
            }
            return Some(());
        }
        Stations::Pieces(text, pieces) => (text, pieces),
    };
    root.know(&["stations"]);
    for piece in *pieces {
        let parsed = DeTable::parse(text.get(piece.clone())?).ok()?;
        if parsed.get_ref().len() != 1 {
            return None;
        }
        root.faults().set_base(piece.start);
        let mut untold = Faults::default();
        let mut fields = Fields::new(&parsed, "", &mut untold);
        for (table, span) in tables(&mut fields, "stations", "stations") {
            reader.read(table, span, root.faults());
        }
        root.faults().set_base(0);
    }
    Some(())
}
