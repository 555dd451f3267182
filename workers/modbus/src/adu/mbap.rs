//! The frame of Modbus TCP: a header of seven bytes (transaction, protocol, length, unit), then the PDU.
//! MODBUS Messaging on TCP/IP Implementation Guide 1.0b, section 3.1.3.
#![deny(clippy::disallowed_methods)]

use std::ops::Range;

/// The longest PDU.
pub const MAX_PDU: usize = 253;
/// The header, unit included.
pub const HEADER: usize = 7;
/// The longest frame.
pub const MAX_ADU: usize = HEADER + MAX_PDU;

/// A whole frame at the start of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Which request it says to answer.
    pub transaction: u16,
    /// Which unit it says to come from.
    pub unit: u8,
    /// Where its PDU is; two bytes at least, 253 at most.
    pub pdu: Range<usize>,
}

/// A header that no Modbus TCP peer may send. Where the next frame starts is not known after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Not Modbus.
    #[error("a frame's protocol identifier is {0}, not 0")]
    Protocol(u16),
    /// Unit, function and one byte are the least, unit and 253 bytes the most.
    #[error("a frame's length is {0}, and only 3 to 254 is legal")]
    Length(u16),
}

/// Looks for a frame at the start of the bytes. `None` when more bytes are needed; a bad header is refused as soon as
/// its bad field is there, whatever the rest would be.
///
/// # Errors
/// [`HeaderFault`]; the bytes are out of step then.
pub fn decode(bytes: &[u8]) -> Result<Option<Frame>, HeaderFault> {
    let field = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    if let Some(protocol @ 1..) = field(2) {
        return Err(HeaderFault::Protocol(protocol));
    }
    let length = match field(4) {
        Some(length @ 3..=254) => usize::from(length),
        Some(length) => return Err(HeaderFault::Length(length)),
        None => return Ok(None),
    };
    let end = HEADER - 1 + length;
    match (field(0), bytes.get(HEADER - 1)) {
        (Some(transaction), Some(&unit)) if bytes.len() >= end => {
            Ok(Some(Frame { transaction, unit, pdu: HEADER..end }))
        }
        _ => Ok(None),
    }
}

/// Writes the header for a PDU that already stands behind it, and gives the length of the whole frame.
pub fn encode(adu: &mut [u8; MAX_ADU], transaction: u16, unit: u8, pdu: usize) -> usize {
    let pdu = pdu.min(MAX_PDU);
    let length = u16::try_from(pdu + 1).expect("at most 254");
    adu[..2].copy_from_slice(&transaction.to_be_bytes());
    adu[2..4].copy_from_slice(&[0, 0]);
    adu[4..6].copy_from_slice(&length.to_be_bytes());
    adu[6] = unit;
    HEADER + pdu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_only_with_its_last_byte() {
        let bytes = [0, 9, 0, 0, 0, 5, 1, 3, 2, 0xAB, 0xCD, 0xEE];
        for n in 0..11 {
            assert_eq!(decode(&bytes[..n]), Ok(None), "{n} bytes");
        }
        assert_eq!(decode(&bytes), Ok(Some(Frame { transaction: 9, unit: 1, pdu: 7..11 })));
    }

    #[test]
    fn lengths_outside_3_to_254_are_refused_as_soon_as_they_are_seen() {
        for length in [0_u16, 1, 2, 255, 256, 65535] {
            let [high, low] = length.to_be_bytes();
            assert_eq!(decode(&[0, 1, 0, 0, high, low]), Err(HeaderFault::Length(length)));
        }
        for length in [3_u16, 254] {
            let [high, low] = length.to_be_bytes();
            assert_eq!(decode(&[0, 1, 0, 0, high, low]), Ok(None));
        }
        assert_eq!(decode(&[0, 1, 0, 7]), Err(HeaderFault::Protocol(7)));
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut adu = [0; MAX_ADU];
        for pdu in 2..=MAX_PDU {
            let end = encode(&mut adu, 0xBEEF, 17, pdu);
            assert_eq!(decode(&adu[..end]), Ok(Some(Frame { transaction: 0xBEEF, unit: 17, pdu: 7..end })));
        }
    }
}
