//! From a byte of the manifest to its line and column.

use std::ops::Range;

/// Where a text's lines start.
#[derive(Debug)]
pub struct Lines<'t> {
    text: &'t str,
    starts: Vec<u32>,
}

/// A place for a person: both count from 1, and a column is a character, not a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl<'t> Lines<'t> {
    /// Finds the lines of a text. Texts are bounded far below the 4 GiB that offsets can name.
    #[must_use]
    pub fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let starts = std::iter::once(0).chain(ends.filter_map(|(at, _)| u32::try_from(at + 1).ok())).collect();
        Self { text, starts }
    }

    fn index_of(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start as usize <= at).saturating_sub(1)
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = self.starts.get(index).map_or(self.text.len(), |s| *s as usize);
        let end = self.starts.get(index + 1).map_or(self.text.len(), |s| *s as usize);
        start..end
    }

    /// The line of a byte; the last one for a byte past the end.
    #[must_use]
    pub fn line_of(&self, at: usize) -> u32 {
        u32::try_from(self.index_of(at.min(self.text.len())) + 1).unwrap_or(u32::MAX)
    }

    /// The place of a byte.
    #[must_use]
    pub fn place(&self, at: usize) -> Place {
        let at = at.min(self.text.len());
        let start = at - self.offset_in_line(at);
        Place { line: self.line_of(at), column: self.characters(start, at).saturating_add(1) }
    }

    /// The place of a byte, given a byte before it and the place of that: a line may be as long as the file, and a
    /// thousand faults may stand on it.
    #[must_use]
    pub fn place_after(&self, (before, place): (usize, Place), at: usize) -> Place {
        let at = at.min(self.text.len());
        if before > at || self.line_of(at) != place.line {
            return self.place(at);
        }
        Place { line: place.line, column: self.characters(before, at).saturating_add(place.column) }
    }

    /// Counted by first bytes, so that a byte inside a character needs no care.
    fn characters(&self, from: usize, to: usize) -> u32 {
        let bytes = self.text.as_bytes().get(from..to).unwrap_or_default();
        u32::try_from(bytes.iter().filter(|b| !(0x80..0xc0).contains(*b)).count()).unwrap_or(u32::MAX)
    }

    /// How many bytes stand before a byte in its line.
    #[must_use]
    pub fn offset_in_line(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        at - self.range(self.index_of(at)).start.min(at)
    }

    /// A line's text, without its end.
    #[must_use]
    pub fn text_of(&self, line: u32) -> &'t str {
        let range = self.range((line as usize).saturating_sub(1));
        self.text.get(range).unwrap_or_default().trim_end_matches(['\n', '\r'])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one_and_columns_count_characters() {
        let text = "a = 1\r\nÄ = \"°C\" x\n\nlast";
        let lines = Lines::new(text);
        assert_eq!(lines.place(0), Place { line: 1, column: 1 });
        assert_eq!(lines.place(text.find('x').unwrap()), Place { line: 2, column: 10 });
        assert_eq!(lines.place(text.len()), Place { line: 4, column: 5 });
        assert_eq!(lines.place(text.len() + 9), Place { line: 4, column: 5 });
        for before in 0..text.len() {
            for at in before..text.len() {
                assert_eq!(lines.place_after((before, lines.place(before)), at), lines.place(at), "{before} {at}");
            }
        }
        assert_eq!(lines.text_of(1), "a = 1");
        assert_eq!(lines.text_of(3), "");
        assert_eq!(lines.text_of(9), "");
    }
}
