//! Metrics in Prometheus' text format, rendered from a snapshot: what is gone from the snapshot is gone from the text.

pub mod names;
pub mod render;

pub use render::{JournalCounters, LeaseCounters, Snapshot, UplinkCounters, render};
