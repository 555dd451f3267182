//! Cuts a manifest into its stations and the rest, so that a manifest of a hundred thousand points is never in memory
//! as one tree. Where it is not plain where a station ends, the text is read as one piece.

use std::ops::Range;

/// A manifest in pieces.
#[derive(Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The text with blanks where stations stand, so that places stay.
    pub rest: String,
    /// Each station, from its `[[stations]]` on.
    pub stations: Vec<Range<usize>>,
}

/// Where the scan is at the end of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// In so many open brackets of a value.
    Value { depth: u32 },
    /// In a text of several lines, within so many brackets.
    Text { quote: u8, depth: u32 },
}

/// What a line's header says.
enum Header {
    /// `[[stations]]`.
    Station,
    /// Something below a station.
    Below,
    /// Another table.
    Other,
}

/// Cuts the text. `None` when there are no stations, or where it is not plain where they end.
#[must_use]
pub fn split(text: &str) -> Option<Pieces> {
    let mut stations: Vec<Range<usize>> = Vec::new();
    let mut inside = false;
    let mut state = State::Value { depth: 0 };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let trimmed = line.trim_start_matches([' ', '\t']);
        if is_header(trimmed, state) {
            state = State::Value { depth: 0 };
            match header(trimmed) {
                Header::Station => {
                    stations.push(start..at);
                    inside = true;
                }
                Header::Below if inside => {}
                Header::Below => return None,
                Header::Other => inside = false,
            }
        } else {
            state = scan(line.as_bytes(), state);
        }
        if let Some(station) = stations.last_mut().filter(|_| inside) {
            station.end = at;
        }
    }
    (state == (State::Value { depth: 0 }) && !stations.is_empty())
        .then(|| Pieces { rest: blank(text, &stations), stations })
}

/// Whether a line is a table's header. A list that is not closed would swallow the rest of the text; a bare name of a
/// table at the start of a line can stand in no list, so that one ends there.
fn is_header(line: &str, state: State) -> bool {
    const NAMES: [&str; 10] = [
        "stations",
        "connections",
        "uplinks",
        "alarm_rules",
        "facility",
        "lease",
        "journal",
        "lifecycle",
        "workers",
        "upgrade",
    ];
    let Some(inner) = line.strip_prefix('[') else { return false };
    match state {
        State::Text { .. } => false,
        State::Value { depth: 0 } => true,
        State::Value { .. } => {
            let inner = inner.strip_prefix('[').unwrap_or(inner).trim_start();
            let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
            NAMES.contains(&&inner[..end])
        }
    }
}

fn header(line: &str) -> Header {
    let (double, inner) = match line.strip_prefix("[[") {
        Some(inner) => (true, inner),
        None => (false, &line[1..]),
    };
    let Some(after) = inner.trim_start().strip_prefix("stations") else { return Header::Other };
    let after = after.trim_start();
    if after.starts_with('.') {
        Header::Below
    } else if after.starts_with(']') {
        if double { Header::Station } else { Header::Below }
    } else {
        Header::Other
    }
}

/// Follows brackets and quotes through a line. What cannot be in form ends with the line, as it does for the parser.
fn scan(line: &[u8], mut state: State) -> State {
    let mut i = 0;
    while i < line.len() {
        match state {
            State::Text { quote, depth } => match close(&line[i..], quote) {
                Some(past) => {
                    i += past;
                    state = State::Value { depth };
                }
                None => return state,
            },
            State::Value { depth } => {
                let byte = line[i];
                i += 1;
                match byte {
                    b'#' => return state,
                    b'[' | b'{' => state = State::Value { depth: depth.saturating_add(1) },
                    b']' | b'}' => state = State::Value { depth: depth.saturating_sub(1) },
                    quote @ (b'"' | b'\'') => {
                        if line[i..].starts_with(&[quote, quote]) {
                            i += 2;
                            state = State::Text { quote, depth };
                        } else {
                            i += short_close(&line[i..], quote);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    state
}

/// Past the three quotes that close a text of several lines; up to two more belong to the text before them.
fn close(bytes: &[u8], quote: u8) -> Option<usize> {
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == b'\\' && quote == b'"' {
            i += 2;
        } else if bytes[i..].starts_with(&[quote; 3]) {
            let more = bytes[i + 3..].iter().take(2).take_while(|b| **b == quote).count();
            return Some(i + 3 + more);
        } else {
            i += 1;
        }
    }
    None
}

/// Past the quote that closes a text within its line; past the line when none does.
fn short_close(bytes: &[u8], quote: u8) -> usize {
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if quote == b'"' => i += 2,
            b if b == quote => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

fn blank(text: &str, stations: &[Range<usize>]) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut from = 0;
    for station in stations {
        rest.push_str(&text[from..station.start]);
        rest.extend(std::iter::repeat_n(' ', station.len()));
        from = station.end;
    }
    rest.push_str(&text[from..]);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_cut_out_and_the_rest_keeps_its_places() {
        let text = "a = 1\n[[stations]]\nid = \"[[stations]]\" # [\n [[stations.points]]\nx = [\n[[1]],\n]\n[lease]\nttl = 1\n[[stations]]\nb = '''\n[[stations]]\n'''''\n";
        let pieces = split(text).unwrap();
        assert_eq!(pieces.stations.len(), 2);
        assert!(text[pieces.stations[0].clone()].ends_with("]\n"));
        assert!(text[pieces.stations[1].clone()].ends_with("'''''\n"));
        assert_eq!(pieces.rest.len(), text.len());
        assert_eq!(pieces.rest.find("[lease]"), text.find("[lease]"));
        assert!(!pieces.rest.contains("stations"));
    }

    #[test]
    fn what_is_not_plain_is_left_whole() {
        for text in ["a = 1\n", "[stations.points]\n", "[[stations]]\nx = [\n", "[[stations]]\nx = '''\n[[stations]]\n"]
        {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn a_list_that_is_not_closed_ends_at_the_next_table() {
        let pieces = split("[[stations]]\nx = [1,\n[[stations]]\ny = \"\n[lease]\n").unwrap();
        assert_eq!(pieces.stations, [0..21, 21..40]);
    }
}
