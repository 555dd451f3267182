//! The four tables of a Modbus device.
#![deny(clippy::disallowed_methods)]

use serde::{Deserialize, Serialize};
use tokio_modbus::FunctionCode;

/// A table of a Modbus device, in the order in which a poll reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Table {
    /// Single bits that can be written.
    Coils,
    /// Single bits that can only be read.
    DiscreteInputs,
    /// Registers that can only be read.
    InputRegisters,
    /// Registers that can be written.
    HoldingRegisters,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Coils, Self::DiscreteInputs, Self::InputRegisters, Self::HoldingRegisters];

    /// The function that reads it.
    #[must_use]
    pub const fn read_function(self) -> FunctionCode {
        match self {
            Self::Coils => FunctionCode::ReadCoils,
            Self::DiscreteInputs => FunctionCode::ReadDiscreteInputs,
            Self::InputRegisters => FunctionCode::ReadInputRegisters,
            Self::HoldingRegisters => FunctionCode::ReadHoldingRegisters,
        }
    }

    /// The prefix of its addresses in a manifest.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Coils => "co",
            Self::DiscreteInputs => "di",
            Self::InputRegisters => "ir",
            Self::HoldingRegisters => "hr",
        }
    }

    /// The first digit of its addresses in a PLC's documentation.
    #[must_use]
    pub const fn digit(self) -> char {
        match self {
            Self::Coils => '0',
            Self::DiscreteInputs => '1',
            Self::InputRegisters => '3',
            Self::HoldingRegisters => '4',
        }
    }

    /// What a person calls it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Coils => "coils",
            Self::DiscreteInputs => "discrete inputs",
            Self::InputRegisters => "input registers",
            Self::HoldingRegisters => "holding registers",
        }
    }

    /// True when it holds bits, not registers.
    #[must_use]
    pub const fn is_bits(self) -> bool {
        match self {
            Self::Coils | Self::DiscreteInputs => true,
            Self::InputRegisters | Self::HoldingRegisters => false,
        }
    }

    /// True when the protocol can write it.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        match self {
            Self::Coils | Self::HoldingRegisters => true,
            Self::DiscreteInputs | Self::InputRegisters => false,
        }
    }

    /// How many bytes `count` of its items take in an answer.
    #[must_use]
    pub const fn bytes(self, count: u16) -> usize {
        if self.is_bits() { (count as usize).div_ceil(8) } else { count as usize * 2 }
    }

    /// A wire address as a PLC's documentation names it: five digits where they reach, else six.
    #[must_use]
    pub fn plc_address(self, wire: u16) -> String {
        let number = u32::from(wire) + 1;
        let digit = self.digit();
        if number <= 9999 { format!("{digit}{number:04}") } else { format!("{digit}{number:05}") }
    }
}

impl From<Table> for u8 {
    fn from(table: Table) -> Self {
        table as Self
    }
}

impl TryFrom<u8> for Table {
    type Error = &'static str;

    fn try_from(code: u8) -> Result<Self, Self::Error> {
        Self::ALL.get(usize::from(code)).copied().ok_or("no such Modbus table")
    }
}
