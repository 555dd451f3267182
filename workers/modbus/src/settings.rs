//! What connection, station and point look like once they are checked.
//!
//! A point is eight bytes here and about as many on the wire: a gateway holds a hundred thousand of them.
#![deny(clippy::disallowed_methods)]

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::table::Table;

/// Where a device answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSettings {
    /// A name or an IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// How a station wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationSettings {
    /// The unit that is asked.
    pub unit_id: u8,
    /// So many registers in a request at most.
    pub max_registers: u16,
    /// So many coils or discrete inputs in a request at most.
    pub max_coils: u16,
    /// So many unwanted registers or bits between two points may be read along to save a request.
    pub max_gap: u16,
    /// Asks for each point alone.
    pub one_request_per_point: bool,
    /// The order of bytes where a point does not say.
    pub order: Order,
}

impl StationSettings {
    /// The most registers that the protocol allows in one request.
    pub const MAX_REGISTERS: u16 = 125;
    /// The most bits that the protocol allows in one request.
    pub const MAX_COILS: u16 = 2000;
}

impl Default for StationSettings {
    fn default() -> Self {
        Self {
            unit_id: 1,
            max_registers: Self::MAX_REGISTERS,
            max_coils: Self::MAX_COILS,
            max_gap: 0,
            one_request_per_point: false,
            order: Order::default(),
        }
    }
}

/// Where a value is and how to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Packed", try_from = "Packed")]
pub struct PointSettings {
    /// The table.
    pub table: Table,
    /// The zero-based address on the wire.
    pub address: u16,
    /// How to read it.
    pub decoder: Decoder,
    /// The manifest allows to write it.
    pub writable: bool,
}

impl PointSettings {
    /// How many registers or bits the value takes.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.decoder.count()
    }
}

/// In which order a value's bytes come, for every width: words reversed, bytes swapped within each word, both or
/// neither. `ABCD` is neither, `CDAB` the first, `BADC` the second, `DCBA` both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Order {
    /// The least significant word comes first.
    pub words_reversed: bool,
    /// The low byte of each word comes first.
    pub bytes_swapped: bool,
}

/// From bytes to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoder {
    /// A coil or a discrete input.
    Coil,
    /// A bit of a register; 0 is the least significant.
    Bit(u8),
    /// A number in one to four registers.
    Number(Number, Order),
    /// A string of so many characters at most.
    Text(u8, Layout, Encoding),
}

/// The numbers that registers hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// A signed integer of 16 bits.
    I16,
    /// An unsigned integer of 16 bits.
    U16,
    /// A signed integer of 32 bits.
    I32,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
    /// Four decimal digits.
    Bcd16,
    /// Eight decimal digits.
    Bcd32,
    /// Sixteen decimal digits.
    Bcd64,
}

/// How a string lies in its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Two characters a register, the first in the high byte.
    HighLow,
    /// Two characters a register, the first in the low byte.
    LowHigh,
    /// One character a register, in the high byte.
    High,
    /// One character a register, in the low byte.
    Low,
}

/// What a string's bytes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// 7 bits; anything else is no text.
    Ascii,
    /// ISO 8859-1.
    Latin1,
    /// UTF-8; `length` counts bytes.
    Utf8,
}

impl Number {
    const ALL: [Self; 11] = [
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Bcd16,
        Self::Bcd32,
        Self::Bcd64,
    ];

    /// Every value that it has, where these are whole numbers that fit 64 bits with a sign.
    #[must_use]
    pub const fn whole(self) -> Option<RangeInclusive<i64>> {
        match self {
            Self::I16 => Some(i16::MIN as i64..=i16::MAX as i64),
            Self::U16 => Some(0..=u16::MAX as i64),
            Self::I32 => Some(i32::MIN as i64..=i32::MAX as i64),
            Self::U32 => Some(0..=u32::MAX as i64),
            Self::I64 => Some(i64::MIN..=i64::MAX),
            Self::Bcd16 => Some(0..=9_999),
            Self::Bcd32 => Some(0..=99_999_999),
            Self::Bcd64 => Some(0..=9_999_999_999_999_999),
            Self::U64 | Self::F32 | Self::F64 => None,
        }
    }

    /// How many registers it takes.
    #[must_use]
    pub const fn registers(self) -> u16 {
        match self {
            Self::I16 | Self::U16 | Self::Bcd16 => 1,
            Self::I32 | Self::U32 | Self::F32 | Self::Bcd32 => 2,
            Self::I64 | Self::U64 | Self::F64 | Self::Bcd64 => 4,
        }
    }
}

impl Layout {
    const ALL: [Self; 4] = [Self::HighLow, Self::LowHigh, Self::High, Self::Low];

    /// How many registers a string of so many characters takes.
    #[must_use]
    pub const fn registers(self, characters: u16) -> u16 {
        match self {
            Self::HighLow | Self::LowHigh => characters.div_ceil(2),
            Self::High | Self::Low => characters,
        }
    }
}

impl Encoding {
    const ALL: [Self; 3] = [Self::Ascii, Self::Latin1, Self::Utf8];
}

impl Decoder {
    /// How many registers or bits the value takes.
    #[must_use]
    pub const fn count(self) -> u16 {
        match self {
            Self::Coil | Self::Bit(_) => 1,
            Self::Number(number, _) => number.registers(),
            Self::Text(characters, layout, _) => layout.registers(characters as u16),
        }
    }

    /// See [`Number::whole`].
    #[must_use]
    pub const fn whole(self) -> Option<RangeInclusive<i64>> {
        match self {
            Self::Number(number, _) => number.whole(),
            Self::Coil | Self::Bit(_) | Self::Text(..) => None,
        }
    }

    /// True when scale, range and dead band make sense for it.
    #[must_use]
    pub const fn is_numeric(self) -> bool {
        match self {
            Self::Number(..) => true,
            Self::Coil | Self::Bit(_) | Self::Text(..) => false,
        }
    }
}

/// The form in which settings travel: table and flags, address, kind of decoder, two bytes of its own.
type Packed = (u8, u16, u8, u8, u8);

const WRITABLE: u8 = 0x80;
const TEXT: u8 = 0x40;
const BIT: u8 = 0x20;
const COIL: u8 = 0x21;

impl From<PointSettings> for Packed {
    fn from(point: PointSettings) -> Self {
        let table = u8::from(point.table) | if point.writable { WRITABLE } else { 0 };
        let (kind, a, b) = match point.decoder {
            Decoder::Coil => (COIL, 0, 0),
            Decoder::Bit(bit) => (BIT, bit, 0),
            Decoder::Number(number, order) => {
                (number as u8, u8::from(order.words_reversed), u8::from(order.bytes_swapped))
            }
            Decoder::Text(length, layout, encoding) => (TEXT, length, (layout as u8) << 4 | encoding as u8),
        };
        (table, point.address, kind, a, b)
    }
}

impl TryFrom<Packed> for PointSettings {
    type Error = &'static str;

    fn try_from((table, address, kind, a, b): Packed) -> Result<Self, Self::Error> {
        let decoder = match kind {
            COIL => Decoder::Coil,
            BIT if a < 16 => Decoder::Bit(a),
            TEXT => {
                let layout = Layout::ALL.get(usize::from(b >> 4)).ok_or("no such string layout")?;
                let encoding = Encoding::ALL.get(usize::from(b & 15)).ok_or("no such encoding")?;
                Decoder::Text(a, *layout, *encoding)
            }
            kind => {
                let number = Number::ALL.get(usize::from(kind)).ok_or("no such data type")?;
                Decoder::Number(*number, Order { words_reversed: a != 0, bytes_swapped: b != 0 })
            }
        };
        let point =
            Self { table: Table::try_from(table & !WRITABLE)?, address, decoder, writable: table & WRITABLE != 0 };
        if point.table.is_bits() != (decoder == Decoder::Coil) {
            return Err("a data type that its table cannot hold");
        }
        if !(1..=StationSettings::MAX_REGISTERS).contains(&point.count()) {
            return Err("a value that fits no request");
        }
        Ok(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use worker_contract::Opaque;

    #[test]
    fn a_point_takes_eight_bytes_in_memory_and_few_on_the_wire() {
        assert_eq!(size_of::<PointSettings>(), 8);
        let point = PointSettings {
            table: Table::HoldingRegisters,
            address: 65534,
            decoder: Decoder::Number(Number::F32, Order::default()),
            writable: false,
        };
        assert_eq!(format!("{:?}", Opaque::pack(&point)), "Opaque(8 bytes)");
    }

    #[test]
    fn every_point_comes_back_as_it_was_packed_and_no_impossible_one_does() {
        let mut decoders = vec![Decoder::Coil];
        decoders.extend((0..16).map(Decoder::Bit));
        for words_reversed in [false, true] {
            for bytes_swapped in [false, true] {
                decoders.extend(Number::ALL.map(|n| Decoder::Number(n, Order { words_reversed, bytes_swapped })));
            }
        }
        for layout in Layout::ALL {
            decoders.extend(Encoding::ALL.map(|e| Decoder::Text(250, layout, e)));
        }
        for table in Table::ALL {
            for decoder in &decoders {
                for writable in [false, true] {
                    let point = PointSettings { table, address: 0x1234, decoder: *decoder, writable };
                    let unpacked = Opaque::pack(&point).unpack::<PointSettings>();
                    let legal = table.is_bits() == (*decoder == Decoder::Coil) && decoder.count() <= 125;
                    assert_eq!(unpacked.ok(), legal.then_some(point));
                }
            }
        }
    }
}
