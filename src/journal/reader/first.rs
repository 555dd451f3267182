//! What a segment begins with, and whether its name says so.

use std::{io::Read, path::Path};

use super::TOP;
use crate::journal::{
    line::Record,
    scan::{Found, Scanner},
    segment::SegmentId,
};

/// The name that fits a segment's content, when its own does not: the writer names a segment after its first record.
pub(super) fn right_name(folder: &Path, id: SegmentId) -> Option<SegmentId> {
    let First { seq, epoch, damage } = first(&folder.join(id.to_string()))?;
    // With damage before it, it is not the first that there was.
    let fits = epoch == id.epoch && (seq == id.first_seq || (damage && seq > id.first_seq));
    (!fits).then_some(SegmentId { first_seq: seq, epoch, attempt: 0 })
}

/// The number of a segment's first whole record.
pub(super) fn first_seq(path: &Path) -> Option<u64> {
    first(path).map(|first| first.seq)
}

/// A segment's first whole numbered record.
struct First {
    seq: u64,
    epoch: u64,
    /// Something that is no record stands before it.
    damage: bool,
}

fn first(path: &Path) -> Option<First> {
    let mut head = [0; 4096];
    let len = std::fs::File::open(path).ok()?.read(&mut head).ok()?;
    if let Some(end) = memchr::memchr(b'\n', &head[..len])
        && let Ok(Record { seq: Some(seq), epoch, .. }) = Record::parse(&head[..end])
    {
        return Some(First { seq, epoch, damage: false });
    }
    // The usual way found none: an `ack` first, damage, or a long line.
    let mut scanner = Scanner::open(path, TOP).ok()?;
    let mut damage = false;
    loop {
        match scanner.find().ok()?? {
            Found::Record { record: Record { seq: Some(seq), epoch, .. }, .. } => {
                return Some(First { seq, epoch, damage });
            }
            Found::Record { .. } => {}
            Found::Damage { .. } => damage = true,
        }
    }
}
