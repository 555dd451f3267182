//! Frames on the wire.
//!
//! Framing says where a frame starts and ends and whom it is from and for; what it says is [`crate::pdu`]'s, and
//! whether it answers the request is [`crate::transaction`]'s. [`mbap`] frames Modbus TCP.

pub mod inbox;
pub mod mbap;

pub use inbox::Inbox;
