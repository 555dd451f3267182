//! What a protocol crate sees of sensor-poll, and nothing more.
//!
//! A protocol crate is a driver only: it checks its own settings ([`Protocol`]), and it connects, reads and closes
//! ([`Driver`]). The host that runs it (the worker process) owns scheduling, time limits, retries, back-off, logging
//! and drain, so that every protocol behaves alike in the field.
//!
//! | module | holds |
//! | --- | --- |
//! | [`value`] | [`Value`], [`Quality`], [`Reason`]: what a reading can say |
//! | [`conditioning`] | marks, scale, range and dead band: from a decoded value to a reading |
//! | [`fields`] | reading a manifest table with the place and a hint for each fault |
//! | [`config`] | the checked configuration of connections, stations and points |
//! | [`driver`] | the traits that a protocol implements |

pub mod conditioning;
pub mod config;
pub mod driver;
pub mod fields;
pub mod value;

pub use conditioning::{Conditioner, Conditioning};
pub use config::{ConnectionConfig, Opaque, PointConfig, Resource, StationConfig, WorkerConfig};
pub use driver::{Driver, DriverError, Next, Outcome, PlannedRequest, Protocol, Sample, Sink, Slot};
pub use fields::{Fault, Faults, Fields};
pub use value::{NoReason, Quality, Reading, Reason, Value};
