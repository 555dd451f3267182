//! The manifest: read ([`load`]), checked against the protocols of this build, and turned into a model that is always
//! valid ([`model`]).

pub mod model;

mod check;
mod connections;
mod lines;
mod pieces;
mod points;
mod settings;
mod stations;
mod syntax;
mod tables;
pub mod timeouts;
mod units;
mod uplinks;
