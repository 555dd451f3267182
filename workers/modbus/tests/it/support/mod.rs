//! A Modbus TCP server that does what a script says, and a host small enough to poll it.

pub mod host;
pub mod server;

pub use host::{Host, Polled};
pub use server::{Server, Step};
