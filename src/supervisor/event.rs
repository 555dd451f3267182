//! Event records of the supervisor: state changes, ends of workers, promotions, configuration.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    clock::Wall,
    journal::{Batch, Entry, WriterHandle},
};

/// Records an event, at once: it comes at a change, which a reader of the journal should not wait for. One that the
/// journal does not take is in the log and in status all the same.
pub fn record(journal: &WriterHandle, event: &'static str, fields: impl IntoIterator<Item = (&'static str, Value)>) {
    let fields = fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let _ = journal.append(Batch::own(Entry::Event { ts: Wall::now(), event: Cow::Borrowed(event), fields }));
}
