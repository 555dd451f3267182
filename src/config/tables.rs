//! Lists of tables, and ids that must be unique among them.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::Range,
};

use toml::de::{DeTable, DeValue};
use worker_contract::{Faults, Fields, fields::Located};

use super::lines::Lines;

/// The tables of a list, each with its place; what is no table is a fault. `header` is how the list is written.
pub fn tables<'a>(fields: &mut Fields<'a>, key: &'static str, header: &str) -> Vec<(&'a DeTable<'a>, Range<usize>)> {
    // Written once, with single brackets, it is a table: the most common slip, so the hint names it.
    if let Some(value) = fields.take(key)
        && let DeValue::Table(_) = value.get_ref()
    {
        let hint = format!("write [[{header}]] with two brackets: there may be several");
        fields.fault(value.span(), format!("`{key}` must be a list of tables"), hint);
        return Vec::new();
    }
    let items = fields.array(key).unwrap_or_default();
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        match item.get_ref() {
            DeValue::Table(table) => found.push((table, item.span())),
            _ => fields.fault(
                item.span(),
                format!("`{key}` holds something that is no table"),
                format!("write [[{header}]]"),
            ),
        }
    }
    found
}

/// Remembers ids and where each stood first.
#[derive(Default)]
pub struct Seen {
    first: BTreeMap<Box<str>, usize>,
    /// Texts that cannot be ids and stand where one belongs.
    misnamed: BTreeSet<Box<str>>,
}

impl Seen {
    /// Tells a fault, naming the line of the first, when the id was there before. False then.
    pub fn first(&mut self, id: &Located<&str>, what: &str, lines: &Lines<'_>, faults: &mut Faults) -> bool {
        match self.first.entry(id.value.into()) {
            Entry::Vacant(slot) => {
                slot.insert(faults.absolute(&id.span).start);
                true
            }
            Entry::Occupied(first) => {
                let line = lines.line_of(*first.get());
                let message = format!("{what} \"{}\" is there twice: the first is in line {line}", id.value);
                faults.push(id.span.clone(), message, Some("give each a name of its own".to_owned()));
                false
            }
        }
    }

    /// Remembers what a table has for its id when that cannot be one: what refers to it is not at fault as well.
    pub fn misnamed(&mut self, fields: &mut Fields<'_>) {
        if let Some(DeValue::String(text)) = fields.take("id").map(|value| value.get_ref()) {
            self.misnamed.insert(text.as_ref().into());
        }
    }

    /// True when the id was there, be it one that cannot be used.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.first.contains_key(id) || self.misnamed.contains(id)
    }

    /// True when there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Every id.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.first.keys().map(|id| &**id)
    }
}
