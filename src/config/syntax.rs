//! Faults of syntax, in words for people who do not know TOML.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, Error},
};
use worker_contract::Faults;

use super::lines::Lines;

/// The parser keeps an error of its own for each fault; past this size only the first is sought, so that a file of
/// rubbish does not take its size many times over in memory.
const MOST_FOR_ALL: usize = 512 << 10;

/// Where a broken text is broken, in places of the whole.
pub struct Broken {
    /// Lines with a fault of syntax, first and last; what is read from them means nothing. A table whose name is broken
    /// is broken up to the next one.
    lines: Vec<(u32, u32)>,
    /// From here on everything is swallowed by something that is not closed.
    swallowed: usize,
}

impl Broken {
    /// True when what stands at a place was read as it was meant.
    #[must_use]
    pub fn trusts(&self, span: &Range<usize>, lines: &Lines<'_>) -> bool {
        let line = lines.line_of(span.start);
        let broken = self.lines.iter().any(|(first, last)| (*first..=*last).contains(&line));
        span.end <= self.swallowed && span.start < self.swallowed && !broken
    }
}

/// Reads a text, which starts at byte `base` of the whole that `lines` are of. Faults of syntax go to `faults`, whose
/// base is the same; what could be read comes back all the same, with places of the piece.
pub fn parse<'t>(
    text: &'t str,
    base: usize,
    lines: &Lines<'_>,
    faults: &mut Faults,
) -> (Spanned<DeTable<'t>>, Option<Broken>) {
    let first = match DeTable::parse(text) {
        Ok(root) => return (root, None),
        Err(error) => error,
    };
    if text.bytes().filter(|b| *b != b' ').count() > MOST_FOR_ALL {
        tell(&first, text, faults);
        let root = Spanned::new(0..0, DeTable::new());
        return (root, Some(Broken { lines: Vec::new(), swallowed: 0 }));
    }
    let (root, mut errors) = DeTable::parse_recoverable(text);
    errors.sort_by_key(|e| start(e, text));
    let swallowed = swallowed(&errors, text);
    let last = lines.line_of(base + text.len());
    let mut broken = Vec::new();
    for error in errors {
        let at = start(&error, text);
        let line = lines.line_of(base + at);
        // One a line: what follows on it comes from the first.
        if at <= swallowed && broken.last().is_none_or(|(first, _)| *first != line) {
            tell(&error, text, faults);
            broken.push((line, if is_header(lines.text_of(line)) { last_of_table(line, lines, last) } else { line }));
        }
    }
    (root, Some(Broken { lines: broken, swallowed: swallowed.saturating_add(base) }))
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// The last line before the next table's header.
fn last_of_table(header: u32, lines: &Lines<'_>, end: u32) -> u32 {
    (header + 1..=end).find(|line| is_header(lines.text_of(*line))).map_or(end, |next| next - 1)
}

fn start(error: &Error, text: &str) -> usize {
    error.span().map_or(text.len(), |span| span.start.min(text.len()))
}

/// Where an array that is never closed first shows: what follows is read as its items.
fn swallowed(errors: &[Error], text: &str) -> usize {
    let endless = |e: &Error| ["unclosed array,", "unclosed inline table"].iter().any(|m| e.message().starts_with(m));
    if !errors.iter().any(endless) {
        return usize::MAX;
    }
    let cascade = errors.iter().find(|e| e.message().contains("array") || e.message().contains("inline table"));
    cascade.map_or(usize::MAX, |e| start(e, text))
}

fn tell(error: &Error, text: &str, faults: &mut Faults) {
    let at = start(error, text);
    let span = at..error.span().map_or(at, |span| span.end);
    let (message, hint) = words(error.message(), text.get(span.clone()).unwrap_or_default());
    faults.push(span, message, Some(hint));
}

/// The parser's message in words, and a hint.
fn words(message: &str, found: &str) -> (String, String) {
    let said = |message: &str, hint: &str| (message.to_owned(), hint.to_owned());
    match message {
        m if m.starts_with("duplicate key") => (
            format!("`{}` is written a second time", found.trim()),
            "keep one of the two; of what there may be several, write each as [[name]]".to_owned(),
        ),
        m if m.starts_with("string values must be quoted") && found.trim().is_empty() => {
            said("a value is missing after `=`", "write the value, or leave the line out")
        }
        m if m.starts_with("string values must be quoted") => match found.trim().to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" => (format!("`{found}` is no value"), "write true".to_owned()),
            "no" | "off" | "false" => (format!("`{found}` is no value"), "write false".to_owned()),
            _ => (format!("`{found}` is no value"), format!("text stands in double quotes: \"{}\"", found.trim())),
        },
        m if m.starts_with("invalid basic string, expected `\"`") => {
            said("a text is not closed", "write `\"` at its end, in the same line")
        }
        m if m.starts_with("invalid literal string, expected `'`") => {
            said("a text is not closed", "write `'` at its end, in the same line")
        }
        m if m.starts_with("unclosed array table") || m.starts_with("unclosed table") => {
            said("a table's name is not closed", "a table is written [name], one of several [[name]]")
        }
        m if m.starts_with("invalid boolean") => said("this is no value", "write true or false, in lower case"),
        m if m.starts_with("unexpected leading zero") => {
            said("a number starts with 0", "leave the zero out; other bases are 0x, 0o and 0b")
        }
        m if m.starts_with("unclosed array") => said("a list is not closed", "write `]` at its end"),
        m if m.starts_with("missing comma between array") => {
            said("a list is not closed, or a comma is missing in it", "separate its items by `,` and end it with `]`")
        }
        m if m.starts_with("unclosed") || m.contains("table header") || m.contains("array of tables") => {
            (format!("not valid TOML: {m}"), "a table is written [name], one of several [[name]]".to_owned())
        }
        m => (
            format!("not valid TOML: {m}"),
            "a line is `key = value`, `[table]` or `[[table]]`; text stands in double quotes".to_owned(),
        ),
    }
}
