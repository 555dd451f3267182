//! The manifest: read ([`load`]), checked against the protocols of this build, and turned into a model that is always
//! valid ([`model`]).

pub mod model;
