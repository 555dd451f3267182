//! The control socket, the probes, signals, and the commands that talk to a supervisor; against a fake instance, over real
//! sockets and processes.

#![allow(clippy::unwrap_used)]

mod child;
mod commands;
mod fake;
mod probes;
mod protocol;
mod schema;
mod signals;
mod subscriptions;
