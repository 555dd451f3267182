//! sensor-poll: an industrial edge gateway that polls a plant's equipment and loses no reading.
//!
//! One binary, several run modes over shared features. Imports point down only:
//!
//! ```text
//!   cli                    one file a command
//!   supervisor   worker   sim    run modes: never each other
//!   lease  journal  config  rpc  features
//!   lifecycle  coordination  metrics
//!   clock  status  memory  errors  vocabulary, with the crate worker-contract
//! ```
//!
//! `registry` alone names the protocols. `tests/architecture.rs` holds the arrows.

pub mod cli;
pub mod clock;
pub mod config;
pub mod coordination;
pub mod errors;
pub mod journal;
pub mod lease;
pub mod lifecycle;
pub mod memory;
pub mod metrics;
pub mod registry;
pub mod rpc;
pub mod sim;
pub mod status;
pub mod supervisor;
pub mod worker;
