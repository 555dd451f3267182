//! Simulators: a plant to poll without the plant.
//!
//! A plant is a pure model: time is passed in ([`Plant::step`]), and what a register holds is asked of it. The Modbus
//! server over it is a thin driver, and the faults that it makes on request stand beside it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`plant`] | the trait, tables, exceptions |
//! | [`demo_plant`] | boiler, tank, meter and a pump drive that goes dead now and then |
//! | [`registers`] | register n holds n: for tests and load |
//! | [`pdu`] | requests and answers of Modbus, and frames of Modbus TCP (pure) |
//! | [`faults`] | what goes wrong on request (pure) |
//! | [`modbus`] | the server |
//! | [`manifest`] | a manifest that fits a simulator |

pub mod demo_plant;
pub mod faults;
pub mod manifest;
pub mod modbus;
pub mod pdu;
pub mod plant;
pub mod registers;

pub use faults::Faults;
pub use plant::{Exception, Plant, Table};
