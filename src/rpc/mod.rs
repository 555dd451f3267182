//! JSON-RPC 2.0 between a supervisor and the commands that talk to it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | what a run mode implements and what the methods answer |
//! | [`subscription`] | the bounded way of journal lines to subscribers |

pub mod api;
pub mod subscription;
