//! The command line: one file a command.

pub mod demo;
pub mod exit;
pub mod sim;
