//! Modbus on the wire, the server's side. Pure: bytes in, bytes out.

use super::plant::{Exception, Plant, Table};

/// The longest request or answer after the unit id.
pub const MAX_PDU: usize = 253;
/// Transaction, protocol, length, unit.
pub const HEADER: usize = 7;

/// The header of a Modbus TCP frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The client's number for the request; the answer repeats it.
    pub transaction: u16,
    /// The device that is meant.
    pub unit: u8,
    /// Bytes of the request that follow.
    pub pdu_len: usize,
}

/// What is wrong with a frame. The stream cannot be brought in step again: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not Modbus.
    #[error("protocol id {0} is not Modbus")]
    Protocol(u16),
    /// Shorter than a function code, or longer than Modbus allows.
    #[error("length {0} is not from 2 to 254")]
    Length(u16),
}

impl Header {
    /// Reads the header at the start of `bytes`; `None` until all of it is there.
    ///
    /// # Errors
    /// As soon as the bytes cannot become a header of Modbus.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let [t1, t0, p1, p0, l1, l0, unit] = *header;
        let protocol = u16::from_be_bytes([p1, p0]);
        if protocol != 0 {
            return Err(FrameError::Protocol(protocol));
        }
        let length = u16::from_be_bytes([l1, l0]);
        if !(2..=254).contains(&length) {
            return Err(FrameError::Length(length));
        }
        Ok(Some(Self { transaction: u16::from_be_bytes([t1, t0]), unit, pdu_len: usize::from(length) - 1 }))
    }

    /// A frame that answers this one.
    #[must_use]
    pub fn answer(self, pdu: &[u8]) -> Vec<u8> {
        debug_assert!(!pdu.is_empty() && pdu.len() <= MAX_PDU, "an answer is never empty nor too long");
        let mut frame = Vec::with_capacity(HEADER + pdu.len());
        frame.extend_from_slice(&self.transaction.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(&(pdu.len() as u16 + 1).to_be_bytes());
        frame.push(self.unit);
        frame.extend_from_slice(pdu);
        frame
    }
}

/// The answer to a request, refusals included. `pdu` is not empty.
#[must_use]
pub fn answer(plant: &mut dyn Plant, unit: u8, pdu: &[u8]) -> Vec<u8> {
    serve(plant, unit, pdu).unwrap_or_else(|e| refusal(pdu, e.code()))
}

/// An answer that refuses with a code.
#[must_use]
pub fn refusal(pdu: &[u8], code: u8) -> Vec<u8> {
    vec![pdu.first().copied().unwrap_or_default() | 0x80, code]
}

fn serve(plant: &mut dyn Plant, unit: u8, pdu: &[u8]) -> Result<Vec<u8>, Exception> {
    let (&function, body) = pdu.split_first().ok_or(Exception::IllegalFunction)?;
    match function {
        1 => read_bits(plant, unit, Table::Coils, function, body),
        2 => read_bits(plant, unit, Table::Discrete, function, body),
        3 => read_words(plant, unit, Table::Holding, function, body),
        4 => read_words(plant, unit, Table::Input, function, body),
        5 => write_coil(plant, unit, pdu, body),
        6 => write_register(plant, unit, pdu, body),
        15 => write_coils(plant, unit, pdu, body),
        16 => write_registers(plant, unit, pdu, body),
        _ => Err(Exception::IllegalFunction),
    }
}

/// The two 16-bit fields that every served request starts with, and what follows them.
fn fields(body: &[u8]) -> Result<(u16, u16, &[u8]), Exception> {
    let (head, rest) = body.split_first_chunk::<4>().ok_or(Exception::IllegalValue)?;
    Ok((u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]), rest))
}

/// Address and count of a request that holds nothing else.
fn range(body: &[u8], max: u16) -> Result<(u16, u16), Exception> {
    let (address, count, rest) = fields(body)?;
    if !rest.is_empty() || !(1..=max).contains(&count) {
        return Err(Exception::IllegalValue);
    }
    in_range(address, count)?;
    Ok((address, count))
}

fn in_range(address: u16, count: u16) -> Result<(), Exception> {
    if u32::from(address) + u32::from(count) > 65_536 { Err(Exception::IllegalAddress) } else { Ok(()) }
}

fn read_words(plant: &dyn Plant, unit: u8, table: Table, function: u8, body: &[u8]) -> Result<Vec<u8>, Exception> {
    let (address, count) = range(body, 125)?;
    let mut words = [0; 125];
    let words = &mut words[..usize::from(count)];
    plant.read(unit, table, address, words)?;
    let mut out = Vec::with_capacity(2 + 2 * words.len());
    out.extend_from_slice(&[function, (2 * words.len()) as u8]);
    out.extend(words.iter().flat_map(|w| w.to_be_bytes()));
    Ok(out)
}

fn read_bits(plant: &dyn Plant, unit: u8, table: Table, function: u8, body: &[u8]) -> Result<Vec<u8>, Exception> {
    let (address, count) = range(body, 2000)?;
    let mut bits = vec![0; usize::from(count)];
    plant.read(unit, table, address, &mut bits)?;
    let mut out = vec![0; 2 + bits.len().div_ceil(8)];
    out[0] = function;
    out[1] = bits.len().div_ceil(8) as u8;
    for (i, bit) in bits.iter().enumerate() {
        out[2 + i / 8] |= u8::from(*bit != 0) << (i % 8);
    }
    Ok(out)
}

fn write_coil(plant: &mut dyn Plant, unit: u8, pdu: &[u8], body: &[u8]) -> Result<Vec<u8>, Exception> {
    let (address, value, rest) = fields(body)?;
    let bit = match (value, rest) {
        (0xff00, []) => 1,
        (0, []) => 0,
        _ => return Err(Exception::IllegalValue),
    };
    plant.write(unit, Table::Coils, address, &[bit])?;
    Ok(pdu.to_vec())
}

fn write_register(plant: &mut dyn Plant, unit: u8, pdu: &[u8], body: &[u8]) -> Result<Vec<u8>, Exception> {
    let (address, value, rest) = fields(body)?;
    if !rest.is_empty() {
        return Err(Exception::IllegalValue);
    }
    plant.write(unit, Table::Holding, address, &[value])?;
    Ok(pdu.to_vec())
}

fn write_coils(plant: &mut dyn Plant, unit: u8, pdu: &[u8], body: &[u8]) -> Result<Vec<u8>, Exception> {
    let (address, count, rest) = fields(body)?;
    let bytes = data(count, 1968, usize::from(count).div_ceil(8), rest)?;
    in_range(address, count)?;
    let bits: Vec<u16> = (0..usize::from(count)).map(|i| u16::from(bytes[i / 8] >> (i % 8) & 1)).collect();
    plant.write(unit, Table::Coils, address, &bits)?;
    Ok(pdu[..5].to_vec())
}

fn write_registers(plant: &mut dyn Plant, unit: u8, pdu: &[u8], body: &[u8]) -> Result<Vec<u8>, Exception> {
    let (address, count, rest) = fields(body)?;
    let bytes = data(count, 123, 2 * usize::from(count), rest)?;
    in_range(address, count)?;
    let words: Vec<u16> = bytes.chunks_exact(2).map(|w| u16::from_be_bytes([w[0], w[1]])).collect();
    plant.write(unit, Table::Holding, address, &words)?;
    Ok(pdu[..5].to_vec())
}

/// The data of a write: its byte count, the bytes that follow and what the count asks for must all agree.
fn data(count: u16, max: u16, wanted: usize, rest: &[u8]) -> Result<&[u8], Exception> {
    let (&told, bytes) = rest.split_first().ok_or(Exception::IllegalValue)?;
    let agree = (1..=max).contains(&count) && usize::from(told) == wanted && bytes.len() == wanted;
    if agree { Ok(bytes) } else { Err(Exception::IllegalValue) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::registers::Registers, *};

    fn ask(pdu: &[u8]) -> Vec<u8> {
        answer(&mut Registers::new(2, 1000), 1, pdu)
    }

    #[test]
    fn reads_answer_with_values_in_network_order_and_bits_from_the_lowest() {
        assert_eq!(ask(&[3, 1, 0, 0, 2]), [3, 4, 1, 0, 1, 1]);
        assert_eq!(ask(&[4, 0, 0, 0, 1]), [4, 2, 3, 232]);
        assert_eq!(ask(&[1, 0, 0, 0, 10]), [1, 2, 0b1010_1010, 0b10]);
        assert_eq!(ask(&[2, 0, 0, 0, 4]), [2, 1, 0b1001]);
    }

    #[test]
    fn each_kind_of_write_is_read_back() {
        let mut plant = Registers::new(1, 1000);
        let mut ask = |pdu: &[u8]| answer(&mut plant, 1, pdu);
        assert_eq!(ask(&[6, 0, 5, 0xab, 0xcd]), [6, 0, 5, 0xab, 0xcd]);
        assert_eq!(ask(&[16, 0, 6, 0, 2, 4, 0, 1, 0, 2]), [16, 0, 6, 0, 2]);
        assert_eq!(ask(&[3, 0, 5, 0, 3]), [3, 6, 0xab, 0xcd, 0, 1, 0, 2]);
        assert_eq!(ask(&[5, 0, 0, 0xff, 0]), [5, 0, 0, 0xff, 0]);
        assert_eq!(ask(&[15, 0, 1, 0, 3, 1, 0b010]), [15, 0, 1, 0, 3]);
        assert_eq!(ask(&[1, 0, 0, 0, 4]), [1, 1, 0b0101]);
    }

    #[test]
    fn refusals_carry_the_code_of_their_kind() {
        assert_eq!(ask(&[7]), [0x87, 1]);
        assert_eq!(ask(&[3, 0x03, 0xe7, 0, 2]), [0x83, 2], "one past the end of the unit");
        assert_eq!(ask(&[3, 0xff, 0xff, 0, 2]), [0x83, 2], "past the end of all addresses");
        assert_eq!(ask(&[3, 0, 0, 0, 0]), [0x83, 3], "no register");
        assert_eq!(ask(&[3, 0, 0, 0, 126]), [0x83, 3], "too many registers");
        assert_eq!(ask(&[3, 0, 0, 0]), [0x83, 3], "cut short");
        assert_eq!(ask(&[5, 0, 0, 0xff, 1]), [0x85, 3], "neither on nor off");
        assert_eq!(ask(&[16, 0, 0, 0, 2, 4, 0, 1, 0]), [0x90, 3], "fewer bytes than told");
        assert_eq!(answer(&mut Registers::new(2, 10), 9, &[3, 0, 0, 0, 1]), [0x83, 11]);
    }

    #[test]
    fn a_header_is_refused_as_soon_as_it_cannot_be_modbus() {
        assert_eq!(Header::parse(&[0, 1, 0, 0, 0, 6]), Ok(None));
        let header = Header { transaction: 1, unit: 9, pdu_len: 5 };
        assert_eq!(Header::parse(&[0, 1, 0, 0, 0, 6, 9, 3]), Ok(Some(header)));
        assert_eq!(Header::parse(&[0, 1, 0, 1, 0, 6, 9]), Err(FrameError::Protocol(1)));
        for length in [0, 1, 255, 65_535_u16] {
            let [hi, lo] = length.to_be_bytes();
            assert_eq!(Header::parse(&[0, 1, 0, 0, hi, lo, 9]), Err(FrameError::Length(length)));
        }
    }

    proptest! {
        #[test]
        fn any_request_has_an_answer_that_fits_a_frame(pdu in prop::collection::vec(any::<u8>(), 1..=MAX_PDU), unit: u8) {
            let out = answer(&mut Registers::new(3, 65_536), unit, &pdu);
            prop_assert!((2..=MAX_PDU).contains(&out.len()));
            prop_assert_eq!(out[0] & 0x7f, pdu[0] & 0x7f);
        }

        #[test]
        fn any_bytes_are_a_header_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(Some(header)) = Header::parse(&bytes) {
                prop_assert!((1..=MAX_PDU).contains(&header.pdu_len));
            }
        }
    }
}
