//! What the fuzz targets check. The tests of the crates run the same functions.

pub mod modbus;
