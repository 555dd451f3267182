//! The one binary: parse, log, choose the mode, map an error to an exit code.

fn main() {}
