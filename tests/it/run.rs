//! The whole product, as a gateway runs it: real processes, sockets, signals and kills. See `harness` and `peer`.

#![allow(clippy::unwrap_used)]

mod faults;
mod harness;
mod pair;
mod peer;
mod platform;
mod reload;
mod spine;
mod worker;
