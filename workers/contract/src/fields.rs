//! Reading a manifest table key by key, with the place and a hint for each fault.
//!
//! A reader takes the keys that it knows; [`Fields::finish`] reports what nobody took, with the nearest known name.
//! Every fault is collected, so that one run tells all of them.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// One fault of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Bytes of the manifest that the fault is about.
    pub span: Range<usize>,
    /// What is wrong, naming the object: `station "boiler": unknown key "pol_interval_ms"`.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Collects faults. Bounded: a manifest with thousands of equal faults is told of the first ones and a count.
#[derive(Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    more: usize,
    base: usize,
    partial: bool,
}

impl Faults {
    /// So many faults are kept; the rest is counted.
    pub const MAX: usize = 1000;

    /// Hints that compare a word with many others are given while fewer faults than this were told.
    pub const MAX_NEAREST: usize = 100;

    /// Adds a fault.
    pub fn push(&mut self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        if self.list.len() < Self::MAX {
            let span = span.start + self.base..span.end + self.base;
            self.list.push(Fault { span, message: printable(message.into()), hint: hint.map(printable) });
        } else {
            self.more += 1;
        }
    }

    /// Adds a fault about something that is not there. Where the text has errors of syntax, what seems missing may
    /// only be unreadable: it is not told then.
    pub fn push_absence(&mut self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        if !self.partial {
            self.push(span, message, hint);
        }
    }

    /// Tells that parts of the text could not be read, see [`Faults::push_absence`].
    pub fn set_partial(&mut self, partial: bool) {
        self.partial = partial;
    }

    /// True when parts of the text could not be read.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// From here on spans count from this byte of the text: what is read is a piece of it.
    pub fn set_base(&mut self, base: usize) {
        self.base = base;
    }

    /// A span of the piece that is being read, as a span of the whole text.
    #[must_use]
    pub fn absolute(&self, span: &Range<usize>) -> Range<usize> {
        span.start + self.base..span.end + self.base
    }

    /// The nearest of the known words, as a hint; none once so many faults were told that the search would take long.
    #[must_use]
    pub fn nearest<'k>(&self, word: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
        (self.list.len() < Self::MAX_NEAREST).then(|| nearest(word, known)).flatten().map(did_you_mean)
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many were told so far, to see whether a step added any.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// The faults in the order of the text, and how many more there were than [`Faults::MAX`].
    #[must_use]
    pub fn into_sorted(mut self) -> (Vec<Fault>, usize) {
        self.list.sort_by_key(|f| f.span.start);
        (self.list, self.more)
    }
}

/// A table that is being read.
pub struct Fields<'a> {
    table: &'a DeTable<'a>,
    span: Range<usize>,
    what: Cow<'a, str>,
    known: Vec<&'static str>,
    all_known: bool,
    faults: &'a mut Faults,
}

/// A whole number's place and value.
#[derive(Debug, Clone, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Range<usize>,
}

impl<'a> Fields<'a> {
    /// Starts to read a table. `what` names it in messages, for example `station "boiler"`.
    pub fn new(table: &'a Spanned<DeTable<'a>>, what: impl Into<Cow<'a, str>>, faults: &'a mut Faults) -> Self {
        Self::over(table.get_ref(), table.span(), what, faults)
    }

    /// As [`Fields::new`], where table and place come apart.
    pub fn over(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        what: impl Into<Cow<'a, str>>,
        faults: &'a mut Faults,
    ) -> Self {
        Self { table, span, what: what.into(), known: Vec::new(), all_known: false, faults }
    }

    /// Names the table anew, once its id is known.
    pub fn rename(&mut self, what: impl Into<Cow<'a, str>>) {
        self.what = what.into();
    }

    /// How messages name the table.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Where the table stands.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// How many faults were told so far, in all.
    #[must_use]
    pub fn fault_count(&self) -> usize {
        self.faults.count()
    }

    /// The collector, for what nests inside this table.
    pub fn faults(&mut self) -> &mut Faults {
        self.faults
    }

    /// True when the table has the key, whatever its value. The key does not count as taken by that.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Reports a fault at a place, with the table's name before the message.
    pub fn fault(&mut self, span: Range<usize>, message: impl AsRef<str>, hint: impl Into<Option<String>>) {
        let message = format!("{}: {}", self.what, message.as_ref());
        self.faults.push(span, message, hint.into());
    }

    /// Takes a key's raw value; the key counts as known from here on.
    pub fn take(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.know(&[key]);
        self.table.get(key)
    }

    /// Marks keys as known without reading them.
    pub fn know(&mut self, keys: &[&'static str]) {
        for key in keys {
            if !self.known.contains(key) {
                self.known.push(key);
            }
        }
    }

    /// Marks every key as known: nobody can tell yet whose they are.
    pub fn know_all(&mut self) {
        self.all_known = true;
    }

    /// Where a key's value stands, or else the table.
    #[must_use]
    pub fn span_of(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// A string, if the key is there and holds one.
    pub fn string(&mut self, key: &'static str) -> Option<Located<&'a str>> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::String(s) => Some(Located { value: s.as_ref(), span: value.span() }),
            other => {
                self.wrong_type(key, value.span(), "a string", other);
                None
            }
        }
    }

    /// A string that must be there and not be empty.
    pub fn required_string(&mut self, key: &'static str) -> Option<Located<&'a str>> {
        if self.table.get(key).is_none() {
            self.know(&[key]);
            self.missing(key);
            return None;
        }
        let found = self.string(key)?;
        if found.value.trim().is_empty() {
            self.fault(
                found.span,
                format!("`{key}` is empty"),
                format!("write something between the quotes of `{key}`"),
            );
            return None;
        }
        Some(found)
    }

    /// A bool.
    pub fn bool(&mut self, key: &'static str) -> Option<bool> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Boolean(b) => Some(*b),
            other => {
                self.wrong_type(key, value.span(), "true or false", other);
                None
            }
        }
    }

    /// A whole number within bounds, both included.
    pub fn integer(&mut self, key: &'static str, bounds: std::ops::RangeInclusive<i64>) -> Option<Located<i64>> {
        let value = self.take(key)?;
        let DeValue::Integer(written) = value.get_ref() else {
            match value.get_ref() {
                DeValue::String(s) if unquoted_fits(s, "a whole number") => {
                    self.wrong_type(key, value.span(), "a whole number", value.get_ref());
                }
                other => {
                    let message = format!("`{key}` must be a whole number, not {}", type_name(other));
                    let hint = format!("use a whole number from {} to {}", bounds.start(), bounds.end());
                    self.fault(value.span(), message, hint);
                }
            }
            return None;
        };
        match whole(value.get_ref()) {
            Some(number) if bounds.contains(&number) => Some(Located { value: number, span: value.span() }),
            // Out of the bounds, or of 64 bits even.
            _ => {
                let hint = format!("use a number from {} to {}", bounds.start(), bounds.end());
                self.fault(value.span(), format!("`{key}` = {written} is out of range"), hint);
                None
            }
        }
    }

    /// A finite number, whole or not.
    pub fn number(&mut self, key: &'static str) -> Option<Located<f64>> {
        let value = self.take(key)?;
        match real(value.get_ref()) {
            Some(n) if n.is_finite() => Some(Located { value: n, span: value.span() }),
            Some(_) => {
                self.fault(value.span(), format!("`{key}` is not a finite number"), example(key, "a number"));
                None
            }
            None => {
                self.wrong_type(key, value.span(), "a number", value.get_ref());
                None
            }
        }
    }

    /// One word of a fixed set. A word that is not in it is a fault with the nearest one as the hint.
    pub fn one_of<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let found = self.string(key)?;
        if let Some((_, t)) = words.iter().find(|(w, _)| *w == found.value) {
            return Some(*t);
        }
        let names: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        let hint = suggest(found.value, &names);
        self.fault(found.span, format!("`{key}` = \"{}\" is not known", found.value), hint);
        None
    }

    /// A table inside this one.
    pub fn table(&mut self, key: &'static str) -> Option<(&'a DeTable<'a>, Range<usize>)> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Table(t) => Some((t, value.span())),
            other => {
                self.wrong_type(key, value.span(), "a table", other);
                None
            }
        }
    }

    /// The items of an array.
    pub fn array(&mut self, key: &'static str) -> Option<&'a [Spanned<DeValue<'a>>]> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Array(items) => Some(items),
            other => {
                self.wrong_type(key, value.span(), "a list", other);
                None
            }
        }
    }

    /// Reports a key that must be there.
    pub fn missing(&mut self, key: &str) {
        let message = format!("{}: `{key}` is missing", self.what);
        self.faults.push_absence(self.span.clone(), message, Some(format!("add a line `{key} = …`")));
    }

    /// Reports a value of the wrong type.
    pub fn wrong_type(&mut self, key: &str, span: Range<usize>, wanted: &str, got: &DeValue<'_>) {
        let hint = match got {
            DeValue::String(s) if unquoted_fits(s, wanted) => Some(format!("write it without quotes: {key} = {s}")),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) if wanted == "a string" => {
                Some("put it in double quotes".to_owned())
            }
            _ => example(key, wanted),
        };
        self.fault(span, format!("`{key}` must be {wanted}, not {}", type_name(got)), hint);
    }

    /// Ends the reading: each key that nobody took is a fault.
    pub fn finish(mut self) {
        if self.all_known {
            return;
        }
        for (key, _) in self.table {
            let name = key.get_ref();
            if self.known.iter().any(|k| k == name) {
                continue;
            }
            let hint = (self.faults.list.len() < Faults::MAX).then(|| suggest(name, &self.known)).flatten();
            self.fault(key.span(), format!("unknown key `{name}`"), hint);
        }
    }
}

/// How a value of the wanted type looks.
fn example(key: &str, wanted: &str) -> Option<String> {
    let value = match wanted {
        "a string" => "\"…\"",
        "a whole number" => "1000",
        "a number" => "0.5",
        "true or false" => return Some(format!("write {key} = true, or {key} = false")),
        "a table" => "{ … }",
        "a list" => "[ … ]",
        _ => return None,
    };
    Some(format!("write it in the form {key} = {value}"))
}

/// True when a string would be what was wanted if it had no quotes.
fn unquoted_fits(s: &str, wanted: &str) -> bool {
    match wanted {
        "a whole number" => s.parse::<i64>().is_ok(),
        "a number" => s.parse::<f64>().is_ok_and(f64::is_finite),
        "true or false" => matches!(s, "true" | "false"),
        _ => false,
    }
}

/// True for characters that are not seen, or that change how what is around them is seen: control characters, what sets
/// the direction of writing, joiners and other format characters, breaks of lines and paragraphs. In a name they make
/// two that look alike, and on a terminal another text than was written.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A message that is safe on a terminal: what it quotes from the manifest is cut, and hidden characters are escaped.
fn printable(message: String) -> String {
    const LONGEST: usize = 400;
    let plain = message.len() <= LONGEST && !message.chars().any(is_hidden);
    if plain {
        return message;
    }
    let mut out = String::with_capacity(LONGEST + 8);
    for c in message.chars() {
        if out.len() >= LONGEST {
            out.push('…');
            break;
        }
        if is_hidden(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "a bool",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A TOML integer, in any of its bases, when it fits 64 bits.
#[must_use]
pub fn whole(value: &DeValue<'_>) -> Option<i64> {
    let DeValue::Integer(i) = value else { return None };
    i64::from_str_radix(i.as_str(), i.radix()).ok()
}

/// A TOML integer or float as a double.
#[must_use]
pub fn real(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(f) => f.as_str().parse().ok(),
        other => whole(other).map(|i| i as f64),
    }
}

/// A hint for a word that is not in a set: the nearest one when it is near, else the whole set when it is small.
#[must_use]
pub fn suggest(word: &str, known: &[&str]) -> Option<String> {
    match nearest(word, known.iter().copied()) {
        Some(near) => Some(did_you_mean(near)),
        None if !known.is_empty() && known.len() <= 24 => Some(format!("known here: {}", known.join(", "))),
        None => None,
    }
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

/// The nearest word of a set, when one is near enough to be meant.
fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // The distance takes time by the product of the lengths, and nobody mistypes a word into one so long.
    const LONGEST: usize = 80;
    if word.len() > LONGEST {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .filter_map(|k| {
            let allowed = 1 + k.len().min(word.len()) / 4;
            if k.len() > LONGEST || k.len().abs_diff(word.len()) > 2 * allowed {
                return None;
            }
            let distance = strsim::damerau_levenshtein(&lower, &k.to_lowercase());
            (distance <= allowed).then_some((distance, k))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, reader: impl FnOnce(&mut Fields<'_>)) -> Vec<Fault> {
        let table = DeTable::parse(text).unwrap();
        let mut faults = Faults::default();
        let mut fields = Fields::new(&table, "thing", &mut faults);
        reader(&mut fields);
        fields.finish();
        faults.into_sorted().0
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let faults = read("prot = 1", |f| {
            f.integer("port", 1..=65535);
        });
        assert_eq!(faults[0].message, "thing: unknown key `prot`");
        assert_eq!(faults[0].hint.as_deref(), Some("did you mean `port`?"));
        assert_eq!(faults[0].span, 0..4);
    }

    #[test]
    fn a_number_past_64_bits_is_out_of_range_and_not_of_a_wrong_type() {
        let faults = read("port = 99999999999999999999", |f| {
            f.integer("port", 1..=65535);
        });
        assert_eq!(faults[0].message, "thing: `port` = 99999999999999999999 is out of range");
    }

    #[test]
    fn a_quoted_number_is_told_to_lose_its_quotes_and_other_text_is_not() {
        let port = |text: &str| {
            read(text, |f| {
                f.integer("port", 1..=65535);
            })
            .remove(0)
        };
        assert_eq!(port("port = \"502\"").hint.as_deref(), Some("write it without quotes: port = 502"));
        assert_eq!(port("port = \"high\"").hint.as_deref(), Some("use a whole number from 1 to 65535"));
    }

    #[test]
    fn what_is_quoted_is_bounded_and_safe_on_a_terminal() {
        let long = "x".repeat(5000);
        let faults = read(&format!("\"a\\u001b[2J\" = 1\n{long} = 2"), |_| {});
        assert_eq!(faults[0].message, "thing: unknown key `a\\u{1b}[2J`");
        assert!(faults[1].message.len() < 500);
    }

    #[test]
    fn characters_that_are_not_seen_are_told_apart_from_those_that_are() {
        for c in ['\0', '\n', '\u{7f}', '\u{85}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}']
        {
            assert!(is_hidden(c), "{c:?}");
        }
        for c in ['a', ' ', '°', '²', 'µ', 'é', '温', '√', '\u{a0}', '😀'] {
            assert!(!is_hidden(c), "{c:?}");
        }
        let faults = read("\"a\\u202eb\" = 1", |_| {});
        assert_eq!(faults[0].message, "thing: unknown key `a\\u{202e}b`");
    }

    #[test]
    fn faults_are_bounded_and_the_rest_is_counted() {
        let mut faults = Faults::default();
        for i in 0..Faults::MAX + 5 {
            faults.push(i..i, "f", None);
        }
        let (list, more) = faults.into_sorted();
        assert_eq!((list.len(), more), (Faults::MAX, 5));
    }
}
