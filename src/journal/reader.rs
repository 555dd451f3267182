//! Reads records across segments, in order, in memory of fixed size.
//!
//! Two segments can hold a record of the same number: when a disk refuses a commit *and* refuses to cut the file back, the
//! writer leaves that file and begins a new one with the same records. So the later segment counts: what an earlier one
//! holds from the later one's first number on was never committed, and is skipped.

use std::{io, ops::ControlFlow, path::Path};

use super::{
    JournalError,
    fault::{Fault, What},
    line::{LineFault, Record},
    scan::{Found, Place, Scanner},
    segment::{SegmentId, SegmentInfo, folder, list},
};

mod first;

use first::{first_seq, right_name};

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record.
    Beginning,
    /// With this record, or the first one after it.
    Seq(u64),
    /// Where an earlier walk ended.
    At(Position),
}

/// A place in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The segment.
    pub segment: SegmentId,
    /// The place in it, at the beginning of a line.
    pub place: Place,
    /// The last record before it.
    pub seq: u64,
}

/// What a walk meets.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Record {
        /// It.
        record: Record<'a>,
        /// Its segment.
        segment: SegmentId,
        /// Its place.
        place: Place,
    },
    /// A fault, at its place among the records.
    Fault(Fault),
    /// A segment's end.
    End(SegmentEnd),
}

/// How a segment ends.
#[derive(Debug)]
pub struct SegmentEnd {
    /// It.
    pub segment: SegmentId,
    /// Where the walk began in it.
    pub begin: Place,
    /// Whether it is the newest.
    pub last: bool,
    /// Whether the next one, if any, is another leader's.
    pub last_of_epoch: bool,
    /// The first record that is found behind this segment.
    pub next_first: Option<u64>,
    /// The newest record so far.
    pub seq: Option<u64>,
    /// Whether the segment has any record.
    pub any: bool,
    /// The end of its last record, its newline included.
    pub good_end: Place,
    /// That record has no newline.
    pub newline_missing: bool,
    /// Where the file ends.
    pub end: Place,
    /// What lies behind the last record: one fault or none.
    pub tail: Vec<Fault>,
    /// The tail is one piece without a newline: in the newest segment of a running gateway it is a record on its way.
    pub unfinished: bool,
}

impl SegmentEnd {
    /// The faults of a segment's end as a reader sees them, beside a running writer or without one, and whether the end is
    /// a record on its way instead: the newest segment may end in the beginning of one.
    #[must_use]
    pub fn faults(self) -> (Vec<Fault>, bool) {
        let on_its_way = if self.tail.is_empty() { self.newline_missing } else { self.unfinished };
        if self.last && (on_its_way || self.end.offset == 0) {
            return (Vec::new(), on_its_way);
        }
        if self.newline_missing && self.tail.is_empty() {
            let what =
                What::Damaged { end: self.end.offset, last_line: self.good_end.line, fault: LineFault::NotWhole };
            return (vec![Fault::at(self.segment, self.good_end, what)], false);
        }
        (self.tail, false)
    }
}

/// Walks the journal of a state folder. `visit` sees records, faults and ends in order and may stop the walk.
///
/// # Errors
/// When there is no journal, or its folder cannot be listed. A file that cannot be read is a fault, not an error.
pub fn walk(
    state_dir: &Path,
    start: Start,
    visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<Option<Position>, JournalError> {
    let folder = folder(state_dir);
    let listing = list(&folder)
        .map_err(|source| JournalError::List { path: folder.clone(), source })?
        .ok_or_else(|| JournalError::Missing { path: folder.clone() })?;
    for name in listing.foreign {
        if visit(Item::Fault(Fault::of_file(name, What::Foreign))).is_break() {
            return Ok(None);
        }
    }
    let mut segments = listing.segments;
    if let Start::At(position) = start {
        segments.retain(|s| s.id >= position.segment);
    }
    // Before anything is read: a segment that is not what it says must neither hide the records of others nor be taken
    // for the newest.
    let mut misnamed = Vec::new();
    segments.retain(|s| match right_name(&folder, s.id) {
        Some(right) => {
            misnamed.push(Fault::of_file(s.id.to_string(), What::Misnamed { right }));
            false
        }
        None => true,
    });
    for fault in misnamed {
        if visit(Item::Fault(fault)).is_break() {
            return Ok(None);
        }
    }
    let mut walk = Walk::new(&folder, &segments, start);
    walk.run(visit);
    Ok(walk.position)
}

/// Walks the records alone, from `start` on.
///
/// Beside a running writer it may see lines of a commit that is not durable yet and that the writer still takes back:
/// whoever passes records on stops at the last committed number ([`super::Commit::last_seq`]).
///
/// # Errors
/// As [`walk`].
pub fn records(
    state_dir: &Path,
    start: Start,
    visit: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<Option<Position>, JournalError> {
    let from = if let Start::Seq(from) = start { from } else { 0 };
    let mut begun = from == 0;
    walk(state_dir, start, &mut |item| match item {
        Item::Record { record, .. } => {
            begun |= record.seq.is_some_and(|seq| seq >= from);
            if begun { visit(&record) } else { ControlFlow::Continue(()) }
        }
        Item::Fault(_) | Item::End(_) => ControlFlow::Continue(()),
    })
}

const TOP: Place = Place { line: 1, offset: 0 };

struct Walk<'a> {
    folder: &'a Path,
    segments: &'a [SegmentInfo],
    place: Place,
    seq: Option<u64>,
    position: Option<Position>,
}

/// What is known within one segment.
struct Segment {
    id: SegmentId,
    limit: Option<u64>,
    end: SegmentEnd,
    superseded: Option<Run>,
    /// Records that were there before, as long as no other came in between.
    doubled: Option<Run>,
    /// The last epoch that was told as not the segment's.
    epoch: u64,
}

/// Records one after the other that have the same fault: the first's place, the first and the last.
#[derive(Clone, Copy)]
struct Run {
    place: Place,
    from: u64,
    to: u64,
}

impl Run {
    fn extend(run: &mut Option<Self>, place: Place, seq: u64) {
        match run {
            Some(run) => run.to = seq,
            None => *run = Some(Self { place, from: seq, to: seq }),
        }
    }
}

impl Segment {
    /// The run of doubled records, at its end.
    fn doubled(&mut self) -> Option<Fault> {
        let Run { place, from, to } = self.doubled.take()?;
        Some(Fault::at(self.id, place, What::Duplicate { from, to }))
    }
}

impl<'a> Walk<'a> {
    fn new(folder: &'a Path, all: &'a [SegmentInfo], start: Start) -> Self {
        let (first, place, seq) = match start {
            Start::Beginning => (0, TOP, None),
            Start::Seq(from) => (all.partition_point(|s| s.id.first_seq <= from).saturating_sub(1), TOP, None),
            Start::At(p) => {
                let first = all.partition_point(|s| s.id < p.segment);
                let there = all.get(first).is_some_and(|s| s.id == p.segment);
                (first, if there { p.place } else { TOP }, Some(p.seq))
            }
        };
        let position = if let Start::At(p) = start { Some(p) } else { None };
        Self { folder, segments: &all[first..], place, seq, position }
    }

    fn run(&mut self, visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>) {
        while let Some((info, later)) = self.segments.split_first() {
            self.segments = later;
            let start = std::mem::replace(&mut self.place, TOP);
            if self.segment(info.id, start, visit).is_break() {
                return;
            }
        }
    }

    fn segment(
        &mut self,
        id: SegmentId,
        start: Place,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let path = self.folder.join(id.to_string());
        let mut scanner = match Scanner::open(&path, start) {
            Ok(scanner) => scanner,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A running leader made space since the folder was listed: what is gone is no hole.
                self.seq = None;
                return ControlFlow::Continue(());
            }
            Err(error) => return visit(Item::Fault(unreadable(id, start, &error))),
        };
        let limit = self.segments.iter().find_map(|next| first_seq(&self.folder.join(next.id.to_string())));
        let mut segment = Segment {
            id,
            limit,
            end: self.blank_end(id, start, limit),
            superseded: None,
            doubled: None,
            epoch: id.epoch,
        };
        loop {
            match scanner.find() {
                Ok(Some(found)) => self.found(&mut segment, found, visit)?,
                Ok(None) => break,
                Err(error) => {
                    visit(Item::Fault(unreadable(id, scanner.place(), &error)))?;
                    break;
                }
            }
        }
        if let Some(fault) = segment.doubled() {
            visit(Item::Fault(fault))?;
        }
        if let Some(Run { place, from, to }) = segment.superseded {
            visit(Item::Fault(Fault::at(id, place, What::Superseded { from, to })))?;
        }
        segment.end.end = scanner.place();
        segment.end.seq = self.seq;
        visit(Item::End(segment.end))
    }

    fn blank_end(&self, id: SegmentId, start: Place, next_first: Option<u64>) -> SegmentEnd {
        SegmentEnd {
            segment: id,
            begin: start,
            last: self.segments.is_empty(),
            last_of_epoch: self.segments.first().is_none_or(|next| next.id.epoch != id.epoch),
            next_first,
            seq: None,
            any: start != TOP,
            good_end: start,
            newline_missing: false,
            end: start,
            tail: Vec::new(),
            unfinished: false,
        }
    }

    fn found(
        &mut self,
        segment: &mut Segment,
        found: Found<'_>,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let id = segment.id;
        let (record, place, newline) = match found {
            Found::Record { record, place, newline } => (record, place, newline),
            Found::Damage { place, end, fault, unfinished } => {
                let tail = &mut segment.end.tail;
                segment.end.unfinished = unfinished && tail.is_empty();
                match tail.last_mut() {
                    // Nothing stands between two finds of damage that no record parts.
                    Some(Fault { what: What::Damaged { end: last_end, last_line, .. }, .. }) => {
                        (*last_end, *last_line) = (end, place.line);
                    }
                    _ => tail.push(Fault::at(id, place, What::Damaged { end, last_line: place.line, fault })),
                }
                return ControlFlow::Continue(());
            }
        };
        let doubled = record.seq.is_some_and(|seq| self.seq.is_some_and(|last| seq <= last));
        if let Some(fault) = (!doubled || !segment.end.tail.is_empty()).then(|| segment.doubled()).flatten() {
            visit(Item::Fault(fault))?;
        }
        let end = &mut segment.end;
        for fault in end.tail.drain(..) {
            visit(Item::Fault(fault))?;
        }
        let after = place.offset + record.line.len() as u64 + u64::from(newline);
        end.good_end = Place { line: place.line + u64::from(newline), offset: after };
        end.newline_missing = !newline;
        end.unfinished = false;
        end.any = true;
        if let Some(seq) = record.seq {
            if segment.limit.is_some_and(|limit| seq >= limit) {
                Run::extend(&mut segment.superseded, place, seq);
                return ControlFlow::Continue(());
            }
            if doubled {
                Run::extend(&mut segment.doubled, place, seq);
                return ControlFlow::Continue(());
            }
            if let Some(last) = self.seq.filter(|last| last + 1 != seq) {
                visit(Item::Fault(Fault::at(id, place, What::Hole { from: last + 1, to: seq - 1 })))?;
            }
            self.seq = Some(seq);
        }
        if record.epoch != std::mem::replace(&mut segment.epoch, record.epoch) && record.epoch != id.epoch {
            visit(Item::Fault(Fault::at(id, place, What::Epoch { epoch: record.epoch })))?;
        }
        self.position = Some(Position { segment: id, place: end.good_end, seq: self.seq.unwrap_or_default() });
        visit(Item::Record { record, segment: id, place })
    }
}

fn unreadable(id: SegmentId, place: Place, error: &io::Error) -> Fault {
    Fault::at(id, place, What::Unreadable { error: error.to_string() })
}
