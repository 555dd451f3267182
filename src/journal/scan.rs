//! Walks a segment in memory of fixed size and tells whole records from damage.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use super::{
    line::{LineFault, Record, salvage},
    record::MAX_LINE,
};

/// Held at once: several of the longest lines.
const BUFFER: usize = 4 * MAX_LINE;

/// What a scan finds, in the order of the file.
#[derive(Debug, PartialEq)]
pub enum Found<'a> {
    /// A whole record.
    Record {
        /// It.
        record: Record<'a>,
        /// Where it is.
        place: Place,
        /// Whether a newline follows at once.
        newline: bool,
    },
    /// Bytes that are no record.
    Damage {
        /// Where they begin.
        place: Place,
        /// Where they end, exclusive; a newline at the end belongs to them.
        end: u64,
        /// What is wrong.
        fault: LineFault,
        /// They are the file's end and the beginning of a record: it may be on its way.
        unfinished: bool,
    },
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: u64,
    /// From 0.
    pub offset: u64,
}

/// Reads a segment from a place on.
pub struct Scanner {
    file: File,
    buffer: Vec<u8>,
    /// What of the buffer is read and not yet given out.
    start: usize,
    end: usize,
    /// The place of `start` in the file.
    place: Place,
    at_end: bool,
    /// Places that the line before gave and that were not yet given out, relative to `start`.
    pieces: std::collections::VecDeque<Piece>,
    /// Leaves this much of the buffer behind when the pieces are given out.
    advance: usize,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    from: usize,
    to: usize,
    fault: Option<LineFault>,
    newline: bool,
    unfinished: bool,
}

impl Scanner {
    /// Opens a segment at a place.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, place: Place) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(place.offset))?;
        Ok(Self {
            file,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            place,
            at_end: false,
            pieces: std::collections::VecDeque::new(),
            advance: 0,
        })
    }

    /// The place behind all that was given out.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The next find; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find(&mut self) -> io::Result<Option<Found<'_>>> {
        let piece = loop {
            if let Some(piece) = self.pieces.pop_front() {
                break piece;
            }
            self.leave();
            if !self.take_line()? {
                return Ok(None);
            }
        };
        let bytes = &self.buffer[self.start + piece.from..self.start + piece.to];
        let place = Place { line: self.place.line, offset: self.place.offset + piece.from as u64 };
        let fault = match piece.fault {
            Some(fault) => fault,
            // Its checksum was compared when the line was split.
            None => match Record::parse_again(bytes) {
                Ok(record) => return Ok(Some(Found::Record { record, place, newline: piece.newline })),
                Err(fault) => fault,
            },
        };
        let end = self.place.offset + piece.to as u64;
        Ok(Some(Found::Damage { place, end, fault, unfinished: piece.unfinished }))
    }

    /// Goes past the line that was given out.
    fn leave(&mut self) {
        let newline = self.advance > 0 && self.buffer[self.start + self.advance - 1] == b'\n';
        self.place.offset += self.advance as u64;
        self.place.line += u64::from(newline);
        self.start += self.advance;
        self.advance = 0;
    }

    /// Finds the next line and splits it into pieces. False at the end of the file.
    fn take_line(&mut self) -> io::Result<bool> {
        let mut seen = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start + seen..self.end]) {
                self.split(seen + at, true);
                return Ok(true);
            }
            seen = self.end - self.start;
            if self.at_end {
                if seen > 0 {
                    self.split(seen, false);
                }
                return Ok(seen > 0);
            }
            if seen >= 2 * MAX_LINE {
                // No line is so long. What cannot be the beginning of one is damage; the rest may hold a record.
                let cut = seen - MAX_LINE;
                self.advance = cut;
                self.pieces.extend(pieces(&self.buffer[self.start..self.start + cut], false, false));
                return Ok(true);
            }
            self.fill()?;
        }
    }

    fn split(&mut self, len: usize, newline: bool) {
        self.advance = len + usize::from(newline);
        let line = &self.buffer[self.start..self.start + len];
        if Record::parse(line).is_ok() {
            self.pieces.push_back(Piece { from: 0, to: len, fault: None, newline, unfinished: false });
        } else {
            self.pieces.extend(pieces(line, newline, self.at_end && !newline));
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 && (self.end == self.buffer.len() || self.start == self.end) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let read = loop {
            match self.file.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.at_end = read == 0;
        self.end += read;
        Ok(())
    }
}

/// Splits a line that is no record into the records inside it and the damage between them.
fn pieces(line: &[u8], newline: bool, unfinished: bool) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut at = 0;
    for place in salvage(line) {
        if place.start > at {
            out.push(damage(&line[at..place.start], at, 0));
        }
        let whole = place.end == line.len();
        out.push(Piece { from: place.start, to: place.end, fault: None, newline: newline && whole, unfinished: false });
        at = place.end;
    }
    if at < line.len() || out.is_empty() {
        let unfinished = unfinished && begins_a_line(&line[at..]);
        out.push(Piece { unfinished, ..damage(&line[at..], at, usize::from(newline)) });
    }
    out
}

/// True for what a writer may have under way: a record's beginning, and not NUL bytes or garbage.
fn begins_a_line(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(2)];
    b"{\"".starts_with(head) && bytes.len() < MAX_LINE && memchr::memchr(0, bytes).is_none()
}

fn damage(bytes: &[u8], at: usize, newline: usize) -> Piece {
    let fault = Record::parse(bytes).err().unwrap_or(LineFault::NotWhole);
    Piece { from: at, to: at + bytes.len() + newline, fault: Some(fault), newline: newline > 0, unfinished: false }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::journal::record::seal;

    fn line(seq: u64, pad: usize) -> Vec<u8> {
        let mut out =
            format!("{{\"seq\":{seq},\"epoch\":1,\"ts\":\"t\",\"kind\":\"event\",\"pad\":\"{}\"", "x".repeat(pad))
                .into_bytes();
        seal(&mut out, 0);
        out
    }

    /// Records by number, damage by its range.
    fn scan(bytes: &[u8]) -> Vec<String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut scanner = Scanner::open(file.path(), Place { line: 1, offset: 0 }).unwrap();
        let mut out = Vec::new();
        while let Some(found) = scanner.find().unwrap() {
            out.push(match found {
                Found::Record { record, place, .. } => format!("{}@{}", record.seq.unwrap(), place.line),
                Found::Damage { place, end, unfinished, .. } => {
                    format!("{}..{end}{}@{}", place.offset, if unfinished { "?" } else { "" }, place.line)
                }
            });
        }
        assert_eq!(scanner.place().offset, bytes.len() as u64);
        out
    }

    #[test]
    fn whole_records_and_damage_come_in_the_files_order() {
        let (a, b, c) = (line(1, 0), line(2, 9), line(3, 0));
        let n = a.len();
        assert_eq!(scan(&[&a[..], &b, &c].concat()), ["1@1", "2@2", "3@3"]);
        let mut flipped = b.clone();
        flipped[20] ^= 1;
        assert_eq!(scan(&[&a[..], &flipped, &c].concat()), ["1@1", &format!("{n}..{}@2", n + b.len()), "3@3"]);
        assert_eq!(scan(&[&a[..], &b[..30]].concat()), ["1@1", &format!("{n}..{}?@2", n + 30)]);
        assert_eq!(scan(&[&a[..], &b[..b.len() - 1]].concat()), ["1@1", "2@2"]);
        assert_eq!(scan(&[&a[..], &[0; 4096]].concat()), ["1@1", &format!("{n}..{}@2", n + 4096)]);
        assert_eq!(scan(b""), Vec::<String>::new());
        assert_eq!(scan(b"\n"), ["0..1@1"]);
    }

    #[test]
    fn a_record_that_damage_is_joined_to_is_not_lost() {
        let (a, b) = (line(1, 0), line(2, 0));
        assert_eq!(scan(&[&a[..30], &b[..]].concat()), ["0..30@1", "2@1"]);
        assert_eq!(scan(&[&[0; 4096], &b[..]].concat()), ["0..4096@1", "2@1"]);
        let far = 3 * BUFFER;
        let found = scan(&[&vec![0; far], &b[..], &a[..]].concat());
        assert_eq!(found[found.len() - 2..], ["2@1", "1@2"]);
    }

    #[test]
    fn a_file_of_the_longest_lines_is_read_whole() {
        let lines: Vec<Vec<u8>> = (1..=20).map(|seq| line(seq, MAX_LINE - 200)).collect();
        let wanted: Vec<String> = (1..=20).map(|seq| format!("{seq}@{seq}")).collect();
        assert_eq!(scan(&lines.concat()), wanted);
    }
}
