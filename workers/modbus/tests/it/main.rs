//! The driver against servers that misbehave, over real sockets. Each test is named after the fault that it stands for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;
mod connections;
mod late;
mod malformed;
mod refusals;
mod support;
