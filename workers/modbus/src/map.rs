//! From registers to values. Total: any bytes give a value or a reason, and nothing but a string allocates.
#![deny(clippy::disallowed_methods)]

use worker_contract::{Reason, Sample, Value};

use crate::settings::{Decoder, Encoding, Layout, Number, Order};

/// Decodes one value out of an answer's data. `offset` is the value's place in the answer, in registers or bits.
#[inline]
pub fn decode(decoder: Decoder, data: &[u8], offset: u16) -> Sample {
    let offset = usize::from(offset);
    if decoder == Decoder::Coil {
        let byte = data.get(offset / 8).ok_or(Reason::Decode)?;
        return Ok(Value::Bool(byte >> (offset % 8) & 1 == 1));
    }
    let start = offset * 2;
    let bytes = data.get(start..start + usize::from(decoder.count()) * 2).ok_or(Reason::Decode)?;
    match decoder {
        Decoder::Coil => Err(Reason::Decode),
        Decoder::Bit(bit) => Ok(Value::Bool(word(bytes, Order::default())? >> (bit & 15) & 1 == 1)),
        Decoder::Number(kind, order) => number(kind, order, bytes),
        Decoder::Text(length, layout, encoding) => text(bytes, usize::from(length), layout, encoding),
    }
}

#[inline]
fn number(kind: Number, order: Order, bytes: &[u8]) -> Sample {
    Ok(match kind {
        Number::U16 => Value::Int(i64::from(word(bytes, order)?)),
        Number::I16 => Value::Int(i64::from(word(bytes, order)? as i16)),
        Number::U32 => Value::Int(i64::from(double(bytes, order)?)),
        Number::I32 => Value::Int(i64::from(double(bytes, order)? as i32)),
        Number::F32 => Value::F32(f32::from_bits(double(bytes, order)?)),
        Number::U64 => Value::from(quad(bytes, order)?),
        Number::I64 => Value::Int(quad(bytes, order)? as i64),
        Number::F64 => Value::F64(f64::from_bits(quad(bytes, order)?)),
        Number::Bcd16 => Value::Int(bcd(u64::from(word(bytes, order)?), 4)?),
        Number::Bcd32 => Value::Int(bcd(u64::from(double(bytes, order)?), 8)?),
        Number::Bcd64 => Value::Int(bcd(quad(bytes, order)?, 16)?),
    })
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Reason> {
    bytes.try_into().map_err(|_| Reason::Decode)
}

fn word(bytes: &[u8], order: Order) -> Result<u16, Reason> {
    let word = u16::from_be_bytes(array(bytes)?);
    Ok(if order.bytes_swapped { word.swap_bytes() } else { word })
}

fn double(bytes: &[u8], order: Order) -> Result<u32, Reason> {
    let value = u32::from_be_bytes(array(bytes)?);
    Ok(match (order.words_reversed, order.bytes_swapped) {
        (false, false) => value,
        (true, false) => value.rotate_left(16),
        // Both reversals at once swap all four bytes; undoing the words leaves the swap within each word.
        (false, true) => value.swap_bytes().rotate_left(16),
        (true, true) => value.swap_bytes(),
    })
}

fn quad(bytes: &[u8], order: Order) -> Result<u64, Reason> {
    let value = u64::from_be_bytes(array(bytes)?);
    Ok(match (order.words_reversed, order.bytes_swapped) {
        (false, false) => value,
        (true, false) => reverse_words(value),
        (false, true) => reverse_words(value.swap_bytes()),
        (true, true) => value.swap_bytes(),
    })
}

fn reverse_words(value: u64) -> u64 {
    let halves = value.rotate_left(32);
    (halves & 0xffff_0000_ffff_0000) >> 16 | (halves & 0x0000_ffff_0000_ffff) << 16
}

/// Digits of four bits each, the highest first. At most sixteen, so that they always fit.
fn bcd(raw: u64, digits: u32) -> Result<i64, Reason> {
    (0..digits).rev().try_fold(0_i64, |value, digit| match raw >> (digit * 4) & 15 {
        nibble @ 0..=9 => Ok(value * 10 + nibble as i64),
        _ => Err(Reason::Decode),
    })
}

/// A string ends at its first NUL, since devices leave old bytes behind it; spaces at the end are padding.
fn text(bytes: &[u8], length: usize, layout: Layout, encoding: Encoding) -> Sample {
    // Registers hold at most 250 bytes; a fixed buffer puts them in reading order.
    let mut buffer = [0_u8; 256];
    let mut filled = 0;
    for pair in bytes.chunks_exact(2) {
        let (characters, count) = match layout {
            Layout::HighLow => ([pair[0], pair[1]], 2),
            Layout::LowHigh => ([pair[1], pair[0]], 2),
            Layout::High => ([pair[0], 0], 1),
            Layout::Low => ([pair[1], 0], 1),
        };
        let Some(room) = buffer.get_mut(filled..filled + count) else { break };
        room.copy_from_slice(&characters[..count]);
        filled += count;
    }
    let text = &buffer[..filled.min(length)];
    let text = text.split(|b| *b == 0).next().unwrap_or_default().trim_ascii_end();
    let decoded = match encoding {
        Encoding::Ascii if !text.is_ascii() => None,
        Encoding::Ascii | Encoding::Utf8 => std::str::from_utf8(text).ok().map(str::to_owned),
        Encoding::Latin1 => Some(text.iter().map(|b| char::from(*b)).collect()),
    };
    decoded.map(Value::Text).ok_or(Reason::Decode)
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
