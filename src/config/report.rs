//! Faults as people and scripts read them.

use std::{fmt, path::Path};

use serde::Serialize;
use worker_contract::{Fault, fields::is_hidden};

use super::lines::Lines;

/// A fault, or a warning, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RenderedFault {
    /// The file, as it was named.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to do about it; `None` where the message says it.
    pub hint: Option<String>,
    /// For people: the part of the line around the place, and how many characters of it stand before the place. `None`
    /// when there is nothing to show.
    #[serde(skip)]
    pub excerpt: Option<(String, usize)>,
}

impl RenderedFault {
    /// Places faults in a text.
    #[must_use]
    pub fn render(path: &Path, lines: &Lines<'_>, faults: Vec<Fault>) -> Vec<Self> {
        let file = path.display().to_string();
        let mut last = (0, lines.place(0));
        let render = |fault: Fault| {
            let place = lines.place_after(last, fault.span.start);
            last = (fault.span.start, place);
            Self {
                file: file.clone(),
                line: place.line,
                column: place.column,
                message: fault.message,
                hint: fault.hint,
                excerpt: excerpt(lines.text_of(place.line), lines.offset_in_line(fault.span.start)),
            }
        };
        faults.into_iter().map(render).collect()
    }

    /// A fault of the file as a whole.
    #[must_use]
    pub fn of_file(path: &Path, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let file = path.display().to_string();
        Self { file, line: 1, column: 1, message: message.into(), hint: Some(hint.into()), excerpt: None }
    }
}

impl RenderedFault {
    fn write(&self, f: &mut fmt::Formatter<'_>, mark: &str) -> fmt::Result {
        write!(f, "{}:{}:{}: {mark}{}", self.file, self.line, self.column, self.message)?;
        if let Some((shown, before)) = &self.excerpt {
            write!(f, "\n    {shown}\n    {:before$}^", "", before = *before)?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n    hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// `FILE:LINE:COLUMN: message`, the line with a caret below the place, and the hint.
impl fmt::Display for RenderedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

/// A line without the user and the password of a URL: what is told of a manifest may end in a log. Each hidden character
/// leaves one in its place, so that columns stay.
fn redacted(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let authority = after.find(['/', '"', '\'', ' ']).map_or(after, |end| &after[..end]);
        let secret = authority.rfind('@').map_or("", |end| &authority[..end]);
        shown.extend(secret.chars().map(|_| '*'));
        rest = &after[secret.len()..];
    }
    shown + rest
}

/// The part of a line around a byte of it that fits a terminal, and how many characters stand before that byte. Every
/// character of it is one cell of a plain terminal, so that a caret stands below the place.
fn excerpt(line: &str, at: usize) -> Option<(String, usize)> {
    /// Characters before the place and in all.
    const BEFORE: usize = 66;
    const WIDTH: usize = 100;
    /// Bytes around the place that are looked at: a line may be as long as the file.
    const NEAR: usize = 1024;
    let at = boundary(line, at);
    let near = boundary(line, at.saturating_sub(NEAR))..boundary(line, at + NEAR);
    let line_start = near.start == 0;
    let (before, after) = (&line[near.start..at], &line[at..near.end]);
    let shown = redacted(&format!("{before}{after}"));
    let before = before.chars().count();
    let indent = if line_start { shown.chars().take_while(|c| c.is_whitespace()).count().min(before) } else { 0 };
    let from = indent.max(before.saturating_sub(BEFORE));
    let plain = |c: char| if is_hidden(c) { ' ' } else { c };
    let shown: String = shown.chars().skip(from).take(WIDTH).map(plain).collect();
    let shown = shown.trim_end();
    (!shown.is_empty()).then(|| (shown.to_owned(), before - from))
}

/// The last start of a character that is not after a byte.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// A manifest that was refused: everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoadError {
    /// The file, as it was named.
    pub file: String,
    /// At least one.
    pub faults: Vec<RenderedFault>,
    /// What else a person should know.
    pub warnings: Vec<RenderedFault>,
    /// How many more faults there are than are told.
    #[serde(rename = "faults_not_shown")]
    pub more: usize,
}

impl LoadError {
    /// A file that could not even be read.
    #[must_use]
    pub fn of_file(path: &Path, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let fault = RenderedFault::of_file(path, message, hint);
        Self { file: path.display().to_string(), faults: vec![fault], warnings: Vec::new(), more: 0 }
    }

    /// One line: how many faults there are.
    #[must_use]
    pub fn verdict(&self) -> String {
        let count = self.faults.len() + self.more;
        format!("{count} {}; nothing was started", if count == 1 { "fault" } else { "faults" })
    }

    /// One line: the first fault and how many there are, for a log or a status.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = self.faults.len() + self.more;
        let first = self.faults.first();
        let first = first.map_or_else(String::new, |f| format!("{}:{}:{}: {}", f.file, f.line, f.column, f.message));
        if count > 1 { format!("{first} (and {} more)", count - 1) } else { first }
    }
}

impl std::error::Error for LoadError {}

/// The first faults, then the count.
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Told { faults: &self.faults, more: self.more, warnings: &[] })?;
        f.write_str(&self.verdict())
    }
}

/// Faults and warnings as text, in the order of the file, each warning marked as one. Bounded: the first of each kind,
/// and how many there are besides.
#[derive(Debug, Clone, Copy)]
pub struct Told<'t> {
    /// In the order of the file.
    pub faults: &'t [RenderedFault],
    /// How many more faults there are.
    pub more: usize,
    /// In the order of the file.
    pub warnings: &'t [RenderedFault],
}

impl Told<'_> {
    /// So many faults are told as text, and so many warnings: nobody reads on.
    pub const MOST: usize = 50;
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults = self.faults.iter().take(Self::MOST).peekable();
        let mut warnings = self.warnings.iter().take(Self::MOST).peekable();
        let place = |fault: &RenderedFault| (fault.line, fault.column);
        loop {
            let warning = match (faults.peek(), warnings.peek()) {
                (Some(fault), Some(warning)) => place(warning) < place(fault),
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            let next = if warning { warnings.next() } else { faults.next() };
            next.map_or(Ok(()), |told| {
                told.write(f, if warning { "warning: " } else { "" }).and_then(|()| writeln!(f))
            })?;
        }
        let faults = self.faults.len().saturating_sub(Self::MOST) + self.more;
        let warnings = self.warnings.len().saturating_sub(Self::MOST);
        match (faults, warnings) {
            (0, 0) => Ok(()),
            (faults, 0) => writeln!(f, "… and {faults} more (see --json)"),
            (0, warnings) => writeln!(f, "… and {warnings} more warnings (see --json)"),
            (faults, warnings) => writeln!(f, "… and {faults} more, and {warnings} more warnings (see --json)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let line = "url = \"mqtts://u:pä@broker.example\" # see https://x.example/a@b";
        assert_eq!(redacted(line), "url = \"mqtts://****@broker.example\" # see https://x.example/a@b");
    }

    fn many(count: usize, first_line: usize, message: &str) -> Vec<RenderedFault> {
        let one = |n: usize| RenderedFault {
            line: u32::try_from(first_line + 2 * n).unwrap(),
            ..RenderedFault::of_file(Path::new("p"), message, "h")
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn faults_and_warnings_are_told_in_the_order_of_the_file() {
        let (faults, warnings) = (many(2, 2, "f"), many(2, 1, "w"));
        let told = Told { faults: &faults, more: 0, warnings: &warnings }.to_string();
        let lines: Vec<_> = told.lines().filter(|l| l.starts_with('p')).collect();
        assert_eq!(lines, ["p:1:1: warning: w", "p:2:1: f", "p:3:1: warning: w", "p:4:1: f"]);
    }

    #[test]
    fn long_lists_are_cut_and_neither_kind_hides_the_other() {
        let (faults, warnings) = (many(60, 2000, "f"), many(70, 1, "w"));
        let told = Told { faults: &faults, more: 5, warnings: &warnings }.to_string();
        assert_eq!(told.lines().filter(|l| l.ends_with(": f")).count(), 50);
        assert_eq!(told.lines().filter(|l| l.ends_with("warning: w")).count(), 50);
        assert!(told.ends_with("… and 15 more, and 20 more warnings (see --json)\n"), "{told}");
        let told = LoadError { file: "p".into(), faults, warnings, more: 5 }.to_string();
        assert!(told.ends_with("… and 15 more (see --json)\n65 faults; nothing was started"), "{told}");
    }

    #[test]
    fn a_caret_stands_below_the_place_in_long_and_indented_lines() {
        assert_eq!(excerpt("  a = 1", 4), Some(("a = 1".to_owned(), 2)));
        let long = format!("{}X{}", "é".repeat(5000), "é".repeat(5000));
        let (shown, before) = excerpt(&long, 10_000).unwrap();
        assert_eq!(shown.chars().nth(before), Some('X'));
        assert_eq!(shown.chars().count(), 100);
        assert_eq!(excerpt("", 0), None);
        assert_eq!(excerpt("a\tb", 9), Some(("a b".to_owned(), 3)));
    }
}
