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
}

impl Faults {
    /// So many faults are kept; the rest is counted.
    pub const MAX: usize = 1000;

    /// Adds a fault.
    pub fn push(&mut self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        if self.list.len() < Self::MAX {
            self.list.push(Fault { span, message: message.into(), hint });
        } else {
            self.more += 1;
        }
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
        Self { table, span, what: what.into(), known: Vec::new(), faults }
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

    /// Reports a fault at a place, with the table's name before the message.
    pub fn fault(&mut self, span: Range<usize>, message: impl AsRef<str>, hint: impl Into<Option<String>>) {
        let message = format!("{}: {}", self.what, message.as_ref());
        self.faults.push(span, message, hint.into());
    }

    /// Takes a key's raw value; the key counts as known from here on.
    pub fn take(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.get(key)
    }

    /// Marks keys as known without reading them.
    pub fn know(&mut self, keys: &[&'static str]) {
        self.known.extend_from_slice(keys);
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
            self.known.push(key);
            self.missing(key);
            return None;
        }
        let found = self.string(key)?;
        if found.value.trim().is_empty() {
            self.fault(found.span, format!("`{key}` is empty"), None);
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
        let Some(number) = whole(value.get_ref()) else {
            self.wrong_type(key, value.span(), "a whole number", value.get_ref());
            return None;
        };
        if !bounds.contains(&number) {
            let hint = format!("use a number from {} to {}", bounds.start(), bounds.end());
            self.fault(value.span(), format!("`{key}` = {number} is out of range"), hint);
            return None;
        }
        Some(Located { value: number, span: value.span() })
    }

    /// A finite number, whole or not.
    pub fn number(&mut self, key: &'static str) -> Option<Located<f64>> {
        let value = self.take(key)?;
        match real(value.get_ref()) {
            Some(n) if n.is_finite() => Some(Located { value: n, span: value.span() }),
            Some(_) => {
                self.fault(value.span(), format!("`{key}` is not a finite number"), None);
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
        self.fault(self.span.clone(), format!("`{key}` is missing"), format!("add a line `{key} = …`"));
    }

    /// Reports a value of the wrong type.
    pub fn wrong_type(&mut self, key: &str, span: Range<usize>, wanted: &str, got: &DeValue<'_>) {
        let hint = match got {
            DeValue::String(s) if wanted != "a string" => Some(format!("write it without quotes: {key} = {s}")),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) if wanted == "a string" => {
                Some("put it in double quotes".to_owned())
            }
            _ => None,
        };
        self.fault(span, format!("`{key}` must be {wanted}, not {}", type_name(got)), hint);
    }

    /// Ends the reading: each key that nobody took is a fault.
    pub fn finish(mut self) {
        for (key, _) in self.table {
            let name = key.get_ref();
            if self.known.iter().any(|k| k == name) {
                continue;
            }
            let hint = suggest(name, &self.known);
            self.fault(key.span(), format!("unknown key `{name}`"), hint);
        }
    }
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
    let near = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(&word.to_lowercase(), &k.to_lowercase()), *k))
        .filter(|(d, k)| *d <= 1 + k.len().min(word.len()) / 4)
        .min_by_key(|(d, _)| *d);
    match near {
        Some((_, k)) => Some(format!("did you mean `{k}`?")),
        None if !known.is_empty() && known.len() <= 24 => Some(format!("known here: {}", known.join(", "))),
        None => None,
    }
}
