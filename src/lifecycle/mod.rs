//! What every run mode shares of its life: readiness and probes, signals, drain, listeners, the service manager.
//!
//! | module | holds |
//! | --- | --- |
//! | [`readiness`] | latches, health of the parts, and the pure rule of `/readyz` |
//! | [`probes`] | the HTTP application of `/healthz`, `/readyz`, `/leader`, `/metrics` |

pub mod probes;
pub mod readiness;
pub mod unix_socket;
