//! The command line: one file a command.

pub mod exit;
pub mod journal;
