//! The probes of an instance over HTTP.

use super::readiness::Readiness;
use crate::status::Role;

/// What the probes ask of a run mode. Called on each request: must be quick and must not wait.
pub trait ProbeState: Send + Sync + 'static {
    /// What readiness is judged by.
    fn readiness(&self) -> Readiness;

    /// The role at present.
    fn role(&self) -> Role;

    /// The metrics in Prometheus' text format 0.0.4.
    fn metrics(&self) -> String;
}
