//! Addresses as people write them. Two forms, so that none is ambiguous: a prefix and the zero-based wire address
//! (`hr:100`), or the one-based number of a PLC's documentation with five or six digits (`40101`, `400101`).
#![deny(clippy::disallowed_methods)]

use crate::table::Table;

/// Where a value starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The table.
    pub table: Table,
    /// The zero-based address on the wire.
    pub wire: u16,
    /// One bit of the register; 0 is the least significant.
    pub bit: Option<u8>,
}

/// Why a text is no address, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AddressError {
    /// What is wrong with it.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl AddressError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }
}

const FORMS: &str = "write co:, di:, ir: or hr: and the zero-based address (hr:100), or the number of the PLC's \
                     documentation with five or six digits (40101)";

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`AddressError`] for anything but the two forms.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some((prefix, rest)) => prefixed(text, prefix, rest),
            None => numbered(text),
        }
    }
}

fn prefixed(text: &str, prefix: &str, rest: &str) -> Result<Address, AddressError> {
    let Some(table) = Table::ALL.into_iter().find(|t| t.prefix() == prefix) else {
        let lower = prefix.trim().to_ascii_lowercase();
        let hint = match Table::ALL.into_iter().find(|t| t.prefix() == lower) {
            Some(table) => format!("write {}:{rest}", table.prefix()),
            None => FORMS.to_owned(),
        };
        return Err(AddressError::new(format!("\"{text}\" does not start with a known table"), hint));
    };
    let (number, bit) = match rest.split_once('.') {
        Some((number, bit)) => (number, Some(bit)),
        None => (rest, None),
    };
    let wire = wire_number(text, table, number)?;
    let bit = bit.map(|bit| bit_number(text, table, number, bit)).transpose()?;
    Ok(Address { table, wire, bit })
}

fn wire_number(text: &str, table: Table, number: &str) -> Result<u16, AddressError> {
    let prefix = table.prefix();
    let (digits, radix) = match number.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (number, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(no_number(text, table, number));
    }
    // What is past 64 bits is past 16 as well.
    u16::from_str_radix(digits, radix).map_err(|_| {
        AddressError::new(
            format!("\"{text}\" is beyond the last address, {prefix}:65535"),
            "the number after the prefix is the zero-based wire address, from 0 to 65535",
        )
    })
}

/// What stands where the number belongs.
fn no_number(text: &str, table: Table, number: &str) -> AddressError {
    let prefix = table.prefix();
    let example = || format!("write {prefix}:100, or {prefix}:0x64");
    let trimmed: String = number.chars().filter(|c| !c.is_whitespace()).collect();
    if number.is_empty() {
        AddressError::new(format!("\"{text}\" has no number after {prefix}:"), example())
    } else if number.strip_prefix('-').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        AddressError::new(format!("\"{text}\" is before the first address, {prefix}:0"), example())
    } else if trimmed.len() != number.len() && wire_number(text, table, &trimmed).is_ok() {
        AddressError::new(format!("\"{text}\" has a space in it"), format!("write {prefix}:{trimmed}"))
    } else if matches!(number, "0x" | "0X") {
        AddressError::new(format!("\"{text}\" has no digits after {number}"), example())
    } else {
        AddressError::new(format!("\"{text}\": `{number}` is no whole number"), example())
    }
}

fn bit_number(text: &str, table: Table, number: &str, bit: &str) -> Result<u8, AddressError> {
    let prefix = table.prefix();
    if table.is_bits() {
        return Err(AddressError::new(
            format!("\"{text}\" names a bit of what is a single bit already"),
            format!("write {prefix}:{number}"),
        ));
    }
    let digits = !bit.is_empty() && bit.len() <= 2 && bit.bytes().all(|b| b.is_ascii_digit());
    match bit.parse() {
        Ok(n) if digits && n <= 15 => Ok(n),
        _ => Err(AddressError::new(
            format!("\"{text}\" names no bit of a register"),
            format!("write {prefix}:{number}.0 for the least significant bit, up to {prefix}:{number}.15"),
        )),
    }
}

fn numbered(text: &str) -> Result<Address, AddressError> {
    if let Some((number, bit)) = text.split_once('.')
        && let Ok(address) = numbered(number)
    {
        let hint = format!("write {}:{}.{bit}", address.table.prefix(), address.wire);
        return Err(AddressError::new(format!("\"{text}\": only the prefix form names a bit"), hint));
    }
    let no_address = || AddressError::new(format!("\"{text}\" is not a Modbus address"), FORMS);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(no_address());
    }
    if text.len() != 5 && text.len() != 6 {
        return Err(short_number(text));
    }
    let (digit, rest) = text.split_at(1);
    let Some(table) = Table::ALL.into_iter().find(|t| digit.starts_with(t.digit())) else {
        return Err(AddressError::new(
            format!("\"{text}\": no table starts with {digit}"),
            "the first digit names the table: 0 coils, 1 discrete inputs, 3 input registers, 4 holding registers",
        ));
    };
    let number: u32 = rest.parse().map_err(|_| no_address())?;
    match number.checked_sub(1).map(u16::try_from) {
        Some(Ok(wire)) => Ok(Address { table, wire, bit: None }),
        None => Err(AddressError::new(
            format!("\"{text}\" is before the first address"),
            format!("this form counts from 1: write {digit}{:0width$}", 1, width = rest.len()),
        )),
        Some(Err(_)) => Err(AddressError::new(
            format!("\"{text}\" is beyond the last address, {digit}65536"),
            format!("with six digits, {digit}00001 to {digit}65536"),
        )),
    }
}

/// A number with too few or too many digits: nobody can know which table and which base were meant.
fn short_number(text: &str) -> AddressError {
    let hint = match text.parse::<u16>() {
        Ok(n) => {
            let plc = Table::HoldingRegisters.plc_address(n);
            format!("for holding register {n} counted from zero write hr:{n}, which is {plc} counted from one")
        }
        Err(_) => FORMS.to_owned(),
    };
    AddressError::new(format!("\"{text}\" does not say which table, nor whether it counts from 0 or from 1"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(table: Table, wire: u16, bit: Option<u8>) -> Address {
        Address { table, wire, bit }
    }

    #[test]
    fn the_prefix_form_is_the_wire_address() {
        use Table::*;
        for (text, want) in [
            ("co:0", at(Coils, 0, None)),
            ("di:65535", at(DiscreteInputs, 65535, None)),
            ("ir:7", at(InputRegisters, 7, None)),
            ("hr:100", at(HoldingRegisters, 100, None)),
            ("hr:0x64", at(HoldingRegisters, 100, None)),
            ("hr:0xFFFF", at(HoldingRegisters, 65535, None)),
            ("hr:100.3", at(HoldingRegisters, 100, Some(3))),
            ("ir:0x10.15", at(InputRegisters, 16, Some(15))),
        ] {
            assert_eq!(Address::parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn five_and_six_digits_count_from_one() {
        use Table::*;
        for (text, want) in [
            ("40101", at(HoldingRegisters, 100, None)),
            ("400101", at(HoldingRegisters, 100, None)),
            ("465536", at(HoldingRegisters, 65535, None)),
            ("49999", at(HoldingRegisters, 9998, None)),
            ("00001", at(Coils, 0, None)),
            ("09999", at(Coils, 9998, None)),
            ("000001", at(Coils, 0, None)),
            ("10001", at(DiscreteInputs, 0, None)),
            ("30001", at(InputRegisters, 0, None)),
        ] {
            assert_eq!(Address::parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_an_address_and_each_fault_has_a_hint() {
        for (text, hint) in [
            ("100", "hr:100"),
            ("1", "hr:1,"),
            ("4000001", "five or six digits"),
            ("", "hr:100"),
            ("abc", "hr:100"),
            ("HR:100", "hr:100"),
            ("hr 100", "hr:100"),
            ("hr:", "hr:100"),
            ("hr:-1", "hr:100"),
            ("hr:+1", "hr:100"),
            ("hr: 1", "hr:1"),
            ("hr:1_0", "hr:100"),
            ("hr:0x", "hr:100"),
            ("hr:0x+1", "hr:100"),
            ("hr:65536", "65535"),
            ("hr:99999999999999999999999", "65535"),
            ("hr:0x10000000000000000", "65535"),
            ("hr:100.16", "hr:100.15"),
            ("hr:100.", "hr:100.15"),
            ("hr:100.+3", "hr:100.15"),
            ("hr:100.003", "hr:100.15"),
            ("co:100.3", "co:100"),
            ("40101.3", "hr:100.3"),
            ("40000", "40001"),
            ("400000", "400001"),
            ("465537", "465536"),
            ("20001", "first digit"),
            ("99999", "first digit"),
            ("４0001", "hr:100"),
        ] {
            let error = Address::parse(text).expect_err(text);
            let told = error.hint.unwrap_or_default();
            assert!(told.contains(hint), "{text}: {told}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_number_is_said_as_it_is() {
        for (text, message) in [
            ("hr:", "has no number after hr:"),
            ("hr:.3", "has no number after hr:"),
            ("hr:0x", "has no digits after 0x"),
            ("hr:99999999999999999999", "is beyond the last address"),
            ("hr:00000000000000000000065536", "is beyond the last address"),
            ("hr: 1", "has a space in it"),
            ("hr:1 .3", "has a space in it"),
            ("hr:1 0", "has a space in it"),
            ("hr: x", "` x` is no whole number"),
            ("hr:-1", "is before the first address, hr:0"),
            ("hr:+1", "`+1` is no whole number"),
            ("hr:1_0", "`1_0` is no whole number"),
            ("hr:-x", "`-x` is no whole number"),
            ("hr:abc", "`abc` is no whole number"),
        ] {
            let told = Address::parse(text).expect_err(text).message;
            assert!(told.contains(message), "{text}: {told}");
        }
        assert!(Address::parse("hr:00000000000000000000065535").is_ok());
    }

    #[test]
    fn the_plc_address_has_five_digits_while_they_reach() {
        assert_eq!(Table::HoldingRegisters.plc_address(100), "40101");
        assert_eq!(Table::HoldingRegisters.plc_address(9998), "49999");
        assert_eq!(Table::HoldingRegisters.plc_address(9999), "410000");
        assert_eq!(Table::HoldingRegisters.plc_address(65535), "465536");
        assert_eq!(Table::Coils.plc_address(0), "00001");
        for wire in [0, 1, 9998, 9999, 10000, 65535] {
            for table in Table::ALL {
                assert_eq!(Address::parse(&table.plc_address(wire)), Ok(at(table, wire, None)));
            }
        }
    }
}
