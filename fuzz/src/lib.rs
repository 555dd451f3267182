//! What the fuzz targets check. The tests of the crates run the same functions.

pub mod journal;
pub mod modbus;
pub mod talk;
pub mod text;
