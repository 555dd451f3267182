//! From bytes back to records. Pure and total: any bytes at all give a record or a fault, never a panic.

use std::ops::Range;

use memchr::memmem;

use super::record::{CRC_KEY, CRC_TAIL, HIGHEST, Mark};

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It does not end in a checksum.
    #[error("not a whole record")]
    NotWhole,
    /// Its checksum is another's.
    #[error("the checksum is wrong")]
    Checksum,
    /// Its checksum is right and yet it has no `seq`, `epoch`, `ts` and `kind`, or numbers that no journal reaches.
    #[error("a record without the journal's keys")]
    Keys,
}

/// A record as a line holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number; `None` for an `ack`.
    pub seq: Option<u64>,
    /// The epoch that it was written under.
    pub epoch: u64,
    /// RFC 3339.
    pub ts: &'a str,
    /// What it is.
    pub kind: &'a str,
    /// The batch that it begins.
    pub mark: Option<Mark>,
    /// The whole line without its newline.
    pub line: &'a [u8],
    /// Where in the line the kind's own keys begin: at the comma after `kind`.
    body: usize,
}

impl<'a> Record<'a> {
    /// Reads a line (without its newline).
    ///
    /// # Errors
    /// When the line is no whole record.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineFault> {
        checked(line)?;
        Self::parse_again(line)
    }

    /// Reads a line whose checksum was compared before.
    pub(super) fn parse_again(line: &'a [u8]) -> Result<Self, LineFault> {
        let end = line.len().checked_sub(CRC_TAIL).ok_or(LineFault::NotWhole)?;
        let content = &line[..end];
        let (seq, epoch, ts, kind, body) = head(content).ok_or(LineFault::Keys)?;
        Ok(Self { seq, epoch, ts, kind, mark: mark(content), line, body })
    }

    /// The record as JSON text without checksum and mark, for export: two pieces to be written one after the other.
    #[must_use]
    pub fn bare(&self) -> (&'a [u8], &'static [u8]) {
        let end = self.line.len() - CRC_TAIL;
        let content = &self.line[..end];
        let cut = if self.mark.is_some() { memmem::rfind(content, MARK_KEY).unwrap_or(end) } else { end };
        (&content[..cut], b"}")
    }

    /// For a reading: what names its point (`"station":"…","point":"…"`), as it is written.
    #[must_use]
    pub fn point_key(&self) -> Option<&'a [u8]> {
        let rest = self.line.get(self.body..self.line.len() - CRC_TAIL)?;
        if self.kind != "reading" || !rest.starts_with(b",\"station\":\"") {
            return None;
        }
        let station = 12 + string_end(&rest[12..])?;
        let point = rest.get(station + 1..)?.strip_prefix(b",\"point\":\"")?;
        let end = station + 1 + 10 + string_end(point)? + 1;
        rest.get(1..end)
    }

    /// The station's id, for records that name one first.
    #[must_use]
    pub fn station(&self) -> Option<std::borrow::Cow<'a, str>> {
        let rest = self.line.get(self.body..)?.strip_prefix(b",\"station\":\"")?;
        let text = std::str::from_utf8(&rest[..string_end(rest)?]).ok()?;
        Some(super::escape::undo(text))
    }
}

const MARK_KEY: &[u8] = b",\"src\":\"";

/// The length of the content that the checksum covers.
fn checked(line: &[u8]) -> Result<usize, LineFault> {
    let end = line.len().checked_sub(CRC_TAIL).filter(|end| *end > 0).ok_or(LineFault::NotWhole)?;
    let (content, tail) = line.split_at(end);
    let digits = tail.strip_prefix(CRC_KEY).and_then(|t| t.strip_suffix(b"\"}")).ok_or(LineFault::NotWhole)?;
    let mut crc = 0_u32;
    for digit in digits {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(LineFault::NotWhole),
        };
        crc = crc << 4 | u32::from(nibble);
    }
    if crc32c::crc32c(content) == crc { Ok(end) } else { Err(LineFault::Checksum) }
}

/// The content of a sealed line that is no record (the checkpoint).
pub(super) fn sealed(line: &[u8]) -> Result<&[u8], LineFault> {
    checked(line).map(|end| &line[..end])
}

type Head<'a> = (Option<u64>, u64, &'a str, &'a str, usize);

/// The common keys, which stand first and in one order.
fn head(content: &[u8]) -> Option<Head<'_>> {
    let mut at = Cursor { bytes: content, at: 0 };
    at.expect(b"{\"")?;
    let seq = if at.expect(b"seq\":").is_some() {
        let seq = at.number()?;
        at.expect(b",\"")?;
        Some(seq)
    } else {
        None
    };
    at.expect(b"epoch\":")?;
    let epoch = at.number()?;
    at.expect(b",\"ts\":\"")?;
    let ts = at.string()?;
    at.expect(b",\"kind\":\"")?;
    let kind = at.string()?;
    if (seq.is_none() && kind != super::entry::ACK) || seq.is_some_and(|seq| seq > HIGHEST) || epoch > HIGHEST {
        return None;
    }
    Some((seq, epoch, ts, kind, at.at))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn expect(&mut self, piece: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(piece).then(|| self.at += piece.len())
    }

    fn number(&mut self) -> Option<u64> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if len == 0 || (len > 1 && rest[0] == b'0') {
            return None;
        }
        self.at += len;
        rest[..len].iter().try_fold(0_u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b - b'0')))
    }

    /// A string without escapes, up to and over its closing quote.
    fn string(&mut self) -> Option<&'a str> {
        let rest = &self.bytes[self.at..];
        let len = memchr::memchr2(b'"', b'\\', rest)?;
        if rest[len] == b'\\' {
            return None;
        }
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).ok()
    }
}

/// Where a string ends whose opening quote stands before `text`.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let next = at + memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[next] == b'"' {
            return Some(next);
        }
        at = next + 2;
    }
}

/// The mark at the content's end. Costs two comparisons on a line that has none.
fn mark(content: &[u8]) -> Option<Mark> {
    let text = content.strip_suffix(b"\"")?;
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit() || **b == b':').take(64).count();
    if digits < 5 || !text[..text.len() - digits].ends_with(MARK_KEY) {
        return None;
    }
    let text = std::str::from_utf8(&text[text.len() - digits..]).ok()?;
    let mut numbers = text.split(':').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let mark = Mark { source: next()?, up_to: next()?, records: next()? };
    numbers.next().is_none().then_some(mark)
}

/// Finds whole records inside a line that is none: after a torn write, after NUL bytes, where a newline was damaged.
/// Gives their places, in order.
pub(super) fn salvage(line: &[u8]) -> Vec<Range<usize>> {
    let starts = || memmem::find_iter(line, b"{\"seq\":");
    let mut found = Vec::new();
    for (start, next) in starts().zip(starts().skip(1).chain([line.len()])) {
        let piece = &line[start..next];
        // The last checksum of the piece ends its record; what is behind it is damage.
        let Some(crc) = memmem::rfind(piece, CRC_KEY) else { continue };
        let Some(whole) = piece.get(..crc + CRC_TAIL) else { continue };
        if Record::parse(whole).is_ok() {
            found.push(start..start + whole.len());
        }
    }
    found
}

#[cfg(test)]
mod tests;
