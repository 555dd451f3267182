//! A plant for tests and load: each value is known from its address.
//!
//! Holding register n starts at n, input register n is n + 1000 (modulo 65,536), coil n is whether n is odd, discrete
//! input n is whether three divides n. Holding registers and coils keep what is written to them.

use std::time::Duration;

use super::plant::{Exception, Plant, Table};

/// Units 1 to N, each with the same number of values in each table.
#[derive(Debug)]
pub struct Registers {
    units: Vec<Written>,
    size: u32,
}

/// What was written to a unit. A table is copied out at its first write, so that a large plant that is only read costs
/// nothing, and a written one has a bound.
#[derive(Debug, Clone, Default)]
struct Written {
    holding: Option<Box<[u16]>>,
    coils: Option<Box<[u16]>>,
}

impl Registers {
    /// A plant of units 1 to `units` (247 at most) with addresses 0 to `size` - 1 (65,536 at most).
    #[must_use]
    pub fn new(units: u8, size: u32) -> Self {
        Self { units: vec![Written::default(); usize::from(units.min(247))], size: size.min(65_536) }
    }

    fn unit(&self, unit: u8) -> Result<&Written, Exception> {
        usize::from(unit).checked_sub(1).and_then(|i| self.units.get(i)).ok_or(Exception::NoTarget)
    }

    fn within(&self, address: u16, count: usize) -> Result<(), Exception> {
        let fits = u32::try_from(count).is_ok_and(|n| u32::from(address) + n <= self.size);
        if fits { Ok(()) } else { Err(Exception::IllegalAddress) }
    }
}

fn initial(table: Table, address: u16) -> u16 {
    match table {
        Table::Holding => address,
        Table::Input => address.wrapping_add(1000),
        Table::Coils => address & 1,
        Table::Discrete => u16::from(address.is_multiple_of(3)),
    }
}

impl Plant for Registers {
    fn step(&mut self, _dt: Duration) {}

    fn read(&self, unit: u8, table: Table, address: u16, out: &mut [u16]) -> Result<(), Exception> {
        let written = self.unit(unit)?;
        self.within(address, out.len())?;
        let kept = match table {
            Table::Holding => written.holding.as_deref(),
            Table::Coils => written.coils.as_deref(),
            Table::Input | Table::Discrete => None,
        };
        let from = usize::from(address);
        match kept {
            Some(kept) => out.copy_from_slice(&kept[from..from + out.len()]),
            None => {
                for (at, word) in (address..=u16::MAX).zip(out.iter_mut()) {
                    *word = initial(table, at);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, unit: u8, table: Table, address: u16, values: &[u16]) -> Result<(), Exception> {
        self.unit(unit)?;
        self.within(address, values.len())?;
        let size = self.size;
        let written = &mut self.units[usize::from(unit) - 1];
        let kept = match table {
            Table::Holding => &mut written.holding,
            Table::Coils => &mut written.coils,
            Table::Input | Table::Discrete => return Err(Exception::IllegalFunction),
        };
        let kept = kept.get_or_insert_with(|| (0..=u16::MAX).take(size as usize).map(|a| initial(table, a)).collect());
        let from = usize::from(address);
        kept[from..from + values.len()].copy_from_slice(values);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(plant: &Registers, unit: u8, table: Table, address: u16, count: usize) -> Result<Vec<u16>, Exception> {
        let mut out = vec![0; count];
        plant.read(unit, table, address, &mut out).map(|()| out)
    }

    #[test]
    fn each_value_is_known_from_its_address() {
        let plant = Registers::new(2, 65_536);
        assert_eq!(read(&plant, 1, Table::Holding, 65_533, 3), Ok(vec![65_533, 65_534, 65_535]));
        assert_eq!(read(&plant, 2, Table::Input, 64_535, 2), Ok(vec![65_535, 0]));
        assert_eq!(read(&plant, 1, Table::Coils, 0, 3), Ok(vec![0, 1, 0]));
        assert_eq!(read(&plant, 1, Table::Discrete, 3, 4), Ok(vec![1, 0, 0, 1]));
    }

    #[test]
    fn what_does_not_exist_is_refused_with_its_code() {
        let plant = Registers::new(2, 100);
        assert_eq!(read(&plant, 0, Table::Holding, 0, 1), Err(Exception::NoTarget));
        assert_eq!(read(&plant, 3, Table::Holding, 0, 1), Err(Exception::NoTarget));
        assert_eq!(read(&plant, 1, Table::Holding, 99, 1), Ok(vec![99]));
        assert_eq!(read(&plant, 1, Table::Holding, 99, 2), Err(Exception::IllegalAddress));
    }

    #[test]
    fn a_write_is_kept_in_its_unit_alone_and_is_all_or_nothing() {
        let mut plant = Registers::new(2, 100);
        plant.write(1, Table::Holding, 10, &[7, 8]).unwrap();
        assert_eq!(read(&plant, 1, Table::Holding, 9, 4), Ok(vec![9, 7, 8, 12]));
        assert_eq!(read(&plant, 2, Table::Holding, 10, 1), Ok(vec![10]));
        assert_eq!(plant.write(1, Table::Holding, 99, &[1, 1]), Err(Exception::IllegalAddress));
        assert_eq!(read(&plant, 1, Table::Holding, 99, 1), Ok(vec![99]));
        assert_eq!(plant.write(1, Table::Input, 0, &[1]), Err(Exception::IllegalFunction));
    }
}
