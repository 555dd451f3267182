//! JSON-RPC 2.0 between a supervisor and the commands that talk to it. `docs/rpc.schema.json` has each message.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | what a run mode implements and what the methods answer |
//! | [`subscription`] | the bounded way of journal lines to subscribers |
//! | [`frame`], [`message`] | framing, requests, answers (pure) |
//! | [`methods`] | from a call to the instance and back |
//! | [`transport`] | what the server listens on |
//! | [`server`], [`client`] | the two ends |

pub mod api;
pub mod client;
mod connection;
pub mod frame;
pub mod message;
pub mod methods;
mod outbox;
pub mod server;
pub mod subscription;
pub mod transport;
