//! The traits that a protocol implements.

use std::{future::Future, ops::RangeInclusive, pin::Pin, time::Duration};

use crate::{
    config::{ConnectionConfig, Opaque, Resource, StationConfig},
    fields::Fields,
    value::{Reason, Value},
};

/// A future that a driver returns; boxed, since drivers are chosen at run time.
pub type DriverFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A station's place in a driver, given out by the host and used until the station is removed.
pub type Slot = u32;

/// What one decoded point says, before conditioning.
pub type Sample = Result<Value, Reason>;

/// A protocol: stateless, one for each crate under `workers/`.
pub trait Protocol: Send + Sync {
    /// The worker's name, for example `modbus`.
    fn name(&self) -> &'static str;

    /// The connection kinds that it serves, for example `modbus-tcp`.
    fn kinds(&self) -> &'static [&'static str];

    /// Checks a connection's own keys. `None` after at least one fault was reported through `fields`.
    fn connection(&self, kind: &str, fields: &mut Fields<'_>) -> Option<CheckedConnection>;

    /// Checks a station's own keys (the core has taken `id`, `connection_ref`, `poll_interval_ms`, `timeout_ms`,
    /// `retries`, `inter_request_ms`, `close_after_poll`, `critical`, `enabled` and `points`).
    fn station(&self, kind: &str, fields: &mut Fields<'_>) -> Option<Opaque>;

    /// Checks a point's own keys (the core has taken `name`, `unit`, `enabled`, `scale`, `range`, `dead_band`,
    /// `not_available` and `alarm`).
    fn point(&self, kind: &str, station: &Opaque, fields: &mut Fields<'_>) -> Option<CheckedPoint>;

    /// The requests of one poll of the station, in order, for `check --plan`.
    fn plan(&self, station: &StationConfig) -> Vec<PlannedRequest>;

    /// A driver for one lane of the connection. Opens nothing yet.
    ///
    /// # Errors
    /// [`Next::Reconfigure`] when the settings cannot be used.
    fn open(&self, connection: &ConnectionConfig) -> Result<Box<dyn Driver>, DriverError>;
}

/// What [`Protocol::connection`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedConnection {
    /// What the connection owns alone.
    pub resources: Vec<Resource>,
    /// See [`ConnectionConfig::lanes`]; 1 unless the manifest says otherwise.
    pub lanes: u16,
    /// The protocol's settings.
    pub settings: Opaque,
}

/// What [`Protocol::point`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPoint {
    /// The protocol's settings.
    pub settings: Opaque,
    /// Whether scale, range and dead band make sense for its type (false for strings and bools).
    pub numeric: bool,
    /// Every raw value that its type has, where these are whole numbers: a "not available" mark that is none of them
    /// never matches. `None` for other types, and for those whose values 64 bits with a sign do not hold.
    pub whole: Option<RangeInclusive<i64>>,
}

/// One request of a poll, told to a person by `check --plan`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRequest {
    /// What goes over the wire, for example `read holding registers`.
    pub operation: String,
    /// The function code or its like.
    pub function: u8,
    /// The address on the wire, zero-based.
    pub wire_address: u32,
    /// How many registers, bits or bytes.
    pub count: u32,
    /// The same place as the PLC's documentation names it, for example `40101`.
    pub plc_address: String,
    /// The points that it brings, as indices into [`StationConfig::points`].
    pub points: Vec<u32>,
}

/// Takes what a request brought. The host conditions it, stamps it and sends it on.
pub trait Sink: Send {
    /// One point's sample; `point` is its place in [`StationConfig::points`].
    fn push(&mut self, point: u32, sample: Sample);
}

/// How one request ended when it ended without an error of the transport. A device's refusal is a sample, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Each point of the request was pushed.
    Done,
    /// The driver changed its plan and pushed nothing: read [`Driver::requests`] anew and ask for the same index again.
    /// Refinements make requests smaller, and a plan is made anew at index 0 alone and at most once in a poll, so this
    /// ends.
    Split,
}

/// One lane of a connection. The host calls one method at a time and drops the future of a call only to end the lane.
pub trait Driver: Send {
    /// Opens the transport, within the given time.
    fn connect(&mut self, within: Duration) -> DriverFuture<'_, Result<(), DriverError>>;

    /// Makes a station known under a slot. Plans its requests; no I/O.
    ///
    /// # Errors
    /// [`Next::Reconfigure`] when its settings cannot be used.
    fn add_station(&mut self, slot: Slot, station: &StationConfig) -> Result<(), DriverError>;

    /// Forgets a station.
    fn remove_station(&mut self, slot: Slot);

    /// How many requests one poll of the station takes at present.
    fn requests(&self, slot: Slot) -> usize;

    /// The points that request `index` brings, so that the host can mark them bad when it fails.
    fn points_of(&self, slot: Slot, index: usize) -> &[u32];

    /// Does request `index` of a station, within the given time.
    fn request<'a>(
        &'a mut self,
        slot: Slot,
        index: usize,
        within: Duration,
        sink: &'a mut dyn Sink,
    ) -> DriverFuture<'a, Result<Outcome, DriverError>>;

    /// Bytes sent and received since the driver was made.
    fn traffic(&self) -> Traffic;

    /// Closes the transport in good manners, within the given time. Idempotent.
    fn close(&mut self, within: Duration) -> DriverFuture<'_, ()>;
}

/// Bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Frames received that were no answer to what was asked (late, foreign, broken), and were dropped.
    pub dropped_frames: u64,
}

/// What the host does next after a driver's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The transport is sound: try the request again, or the next one.
    Retry,
    /// The transport is gone or out of step: close it and connect again after a pause.
    Reconnect,
    /// Nothing helps but another configuration.
    Reconfigure,
    /// A defect of the driver: the lane ends.
    Fatal,
}

/// A driver's error: what happened, what readings say of it, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DriverError {
    /// What the host does next.
    pub next: Next,
    /// What the readings of the request say.
    pub reason: Reason,
    /// For a person: the operation and the object, for example `connect to 192.0.2.20:502: connection refused`.
    pub detail: String,
}

impl DriverError {
    /// An error after which the same transport goes on.
    pub fn retry(reason: Reason, detail: impl Into<String>) -> Self {
        Self { next: Next::Retry, reason, detail: detail.into() }
    }

    /// An error that costs the transport.
    pub fn reconnect(reason: Reason, detail: impl Into<String>) -> Self {
        Self { next: Next::Reconnect, reason, detail: detail.into() }
    }

    /// An error that only another configuration mends.
    pub fn reconfigure(detail: impl Into<String>) -> Self {
        Self { next: Next::Reconfigure, reason: Reason::Disconnected, detail: detail.into() }
    }
}
