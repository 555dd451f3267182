//! Lines of styled text, cut to a width.

use serde_json::Value;

/// How a piece of text looks. Without colour all are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As the terminal has it.
    Plain,
    /// What matters.
    Bold,
    /// What explains.
    Dim,
    /// All is well.
    Good,
    /// A doubt.
    Warn,
    /// Trouble.
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
        }
    }
}

/// One line.
#[derive(Debug, Clone, Default)]
pub struct Line(Vec<(Style, String)>);

impl Line {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece. Control characters, which a device may put into a string, become dots.
    #[must_use]
    pub fn put(mut self, style: Style, text: impl AsRef<str>) -> Self {
        let clean = text.as_ref().chars().map(|c| if c.is_control() { '·' } else { c }).collect();
        self.0.push((style, clean));
        self
    }

    /// Fills with spaces up to a column; one at least when the line is not empty.
    #[must_use]
    pub fn to(self, column: usize) -> Self {
        let used = self.width();
        let fill = column.saturating_sub(used).max(usize::from(used > 0 && column > 0));
        self.put(Style::Plain, " ".repeat(fill))
    }

    /// Adds a piece that ends at a column.
    #[must_use]
    pub fn right(self, column: usize, style: Style, text: &str) -> Self {
        let start = column.saturating_sub(text.chars().count());
        self.to(start).put(style, text)
    }

    /// Characters. Each counts as one column: the demo's own texts and units have none that are wider.
    #[must_use]
    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, t)| t.chars().count()).sum()
    }

    /// The line as text, cut to `width` with a mark.
    #[must_use]
    pub fn finish(&self, width: usize, colour: bool) -> String {
        let cut = self.width() > width;
        let mut left = if cut { width.saturating_sub(1) } else { width };
        let mut out = String::new();
        for (style, text) in &self.0 {
            let piece: String = text.chars().take(left).collect();
            left -= piece.chars().count();
            if piece.is_empty() {
                continue;
            }
            match (colour, style.code()) {
                (true, code) if !code.is_empty() => {
                    out.push_str(code);
                    out.push_str(&piece);
                    out.push_str("\x1b[0m");
                }
                _ => out.push_str(&piece),
            }
        }
        if cut && width > 0 {
            out.push('…');
        }
        out.truncate(out.trim_end_matches(' ').len());
        out
    }
}

/// A reading's value for a person: fractions with two digits, text in quotes.
#[must_use]
pub fn value(value: &Value) -> String {
    match value {
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => format!("{f:.2}"),
            _ => n.to_string(),
        },
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(s) => format!("\"{s}\""),
        Value::Null | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A count with marks at the thousands.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The time of day of an RFC 3339 moment, as it stands there.
#[must_use]
pub fn time_of_day(moment: &str) -> &str {
    moment.get(11..19).unwrap_or(moment)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_cut_with_a_mark_and_never_inside_a_colour() {
        let line = Line::new().put(Style::Good, "good").to(6).put(Style::Plain, "21.50 °C");
        assert_eq!(line.finish(80, false), "good  21.50 °C");
        assert_eq!(line.finish(10, false), "good  21.…");
        assert_eq!(line.finish(3, true), "\x1b[32mgo\x1b[0m…");
        assert_eq!(line.finish(0, true), "");
    }

    #[test]
    fn what_a_device_sends_does_not_reach_the_terminal_as_control() {
        assert_eq!(Line::new().put(Style::Plain, "a\x1b[2Jb\nc").finish(80, true), "a·[2Jb·c");
    }

    #[test]
    fn values_and_counts_are_for_reading() {
        let shown = [json!(21.5), json!(-0.126), json!(1450), json!(true), json!("SP-1")].map(|v| value(&v));
        assert_eq!(shown, ["21.50", "-0.13", "1450", "on", "\"SP-1\""]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(time_of_day("2026-11-30T12:00:05.123456Z"), "12:00:05");
    }
}
