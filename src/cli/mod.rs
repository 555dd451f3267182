//! The command line: one file a command.

pub mod drain;
pub mod exit;
pub mod reload;
pub mod status;
pub mod table;
pub mod tail;
pub mod talk;
