//! The manifest: read ([`load()`]), checked against the protocols of this build, turned into a model that is always valid
//! ([`Manifest`]), and compared with the one before ([`diff()`]). `docs/manifest.md` describes every key.
//!
//! A text becomes spanned tables (`syntax`, `pieces`), these are read table by table (`settings`, `connections`,
//! `stations`, `points`, `uplinks`) into the model, and every fault on the way is told with its place (`report`).

mod check;
mod connections;
mod diff;
mod lines;
mod load;
pub mod model;
mod pieces;
mod points;
mod report;
mod settings;
mod settle;
mod stations;
mod syntax;
mod tables;
#[cfg(test)]
mod tests;
pub mod timeouts;
mod units;
mod uplinks;

pub use check::FORMAT_VERSION;
pub use diff::{Changes, Diff, diff};
pub use load::{Loaded, MAX_BYTES, load, load_bytes, load_with, reload};
pub use model::{Manifest, WorkerKey, WorkerPlan};
pub use report::{LoadError, RenderedFault, Told};
