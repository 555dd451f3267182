//! What a simulated plant is.

use std::time::Duration;

/// The four tables of Modbus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// `co:`, one bit, read and write.
    Coils,
    /// `di:`, one bit, read only.
    Discrete,
    /// `ir:`, 16 bits, read only.
    Input,
    /// `hr:`, 16 bits, read and write.
    Holding,
}

/// Why a device refuses, with the code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Exception {
    /// The function is not served.
    #[error("illegal function")]
    IllegalFunction = 1,
    /// The address, or a part of the range, does not exist.
    #[error("illegal data address")]
    IllegalAddress = 2,
    /// The count or the value is not allowed.
    #[error("illegal data value")]
    IllegalValue = 3,
    /// A gateway has no such unit behind it.
    #[error("gateway target device failed to respond")]
    NoTarget = 11,
}

impl Exception {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// A model of a plant. It knows no clock: what time does to it is what [`Plant::step`] is told.
pub trait Plant: Send {
    /// Lets a while pass.
    fn step(&mut self, dt: Duration);

    /// Whether the unit answers at present. A unit that does not exist "answers": with [`Exception::NoTarget`].
    fn answers(&self, unit: u8) -> bool {
        let _ = unit;
        true
    }

    /// Reads `out.len()` registers or bits (0 or 1) from `address` on.
    ///
    /// # Errors
    /// What the unit would refuse with; `out` is then of no meaning.
    fn read(&self, unit: u8, table: Table, address: u16, out: &mut [u16]) -> Result<(), Exception>;

    /// Writes registers, or bits (0 or 1), from `address` on. All or nothing.
    ///
    /// # Errors
    /// What the unit would refuse with.
    fn write(&mut self, unit: u8, table: Table, address: u16, values: &[u16]) -> Result<(), Exception>;
}

/// Numbers that look random and come out alike for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Dice of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` up to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        // 53 bits, as many as a double holds without rounding.
        let unit = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        low + unit * (high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_of_one_seed_fall_alike_and_stay_in_their_range() {
        let (mut a, mut b) = (Dice::new(7), Dice::new(7));
        for _ in 0..1000 {
            let x = a.between(2.0, 3.0);
            assert!((2.0..3.0).contains(&x));
            assert_eq!(x.to_bits(), b.between(2.0, 3.0).to_bits());
        }
    }
}
