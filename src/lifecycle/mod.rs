//! What every run mode shares of its life: readiness and probes, signals, drain, listeners, the service manager.
//!
//! | module | holds |
//! | --- | --- |
//! | [`readiness`] | latches, health of the parts, and the pure rule of `/readyz` |
//! | [`probes`] | the HTTP application of `/healthz`, `/readyz`, `/leader`, `/metrics` |
//! | [`signals`] | what each signal orders |
//! | [`drain`] | ordered hooks under one deadline |
//! | [`listen`], [`inherited`], [`unix_socket`] | listeners: the service manager's, or bound here |
//! | [`hush`] | log lines that a peer can cause, told once and then counted |
//! | [`parent`] | the end of the process that started this one |
//! | [`notify`] | words to the service manager |

pub mod drain;
pub mod hush;
pub mod inherited;
pub mod listen;
pub mod notify;
pub mod parent;
pub mod probes;
pub mod readiness;
pub mod signals;
pub mod unix_socket;
