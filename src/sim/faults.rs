//! What goes wrong on request. Pure: the server asks for each request, and does what it is told.

use std::{str::FromStr, time::Duration};

/// A fault's setting for one unit, or for all: `2:500` or `500`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Of<T> {
    /// `None`: every unit.
    pub unit: Option<u8>,
    /// The setting.
    pub value: T,
}

impl<T: Copy> Of<T> {
    fn for_unit(list: &[Self], unit: u8) -> Option<T> {
        // The last word counts, and a word for the unit counts more than one for all.
        let named = list.iter().rev().find(|f| f.unit == Some(unit));
        named.or_else(|| list.iter().rev().find(|f| f.unit.is_none())).map(|f| f.value)
    }
}

impl<T: FromStr> FromStr for Of<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (unit, value) = match text.split_once(':') {
            Some((unit, value)) => (Some(unit.parse().map_err(|_| format!("`{unit}` is no unit (0 to 255)"))?), value),
            None => (None, text),
        };
        let value = value.parse().map_err(|_| format!("`{value}` is no number that fits here"))?;
        Ok(Self { unit, value })
    }
}

/// The faults that are on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Answers so many milliseconds late.
    pub late: Vec<Of<u32>>,
    /// Does not answer.
    pub drop: Vec<Of<bool>>,
    /// Answers with this exception code.
    pub exception: Vec<Of<u8>>,
    /// `late`, `drop` and `exception` hit each Nth request of a unit only; 0 and 1: each.
    pub every: u64,
    /// They hit the first N requests of a unit only; 0: all.
    pub first: u64,
    /// Closes the connection instead of answering the Nth request on it; 0: never.
    pub close_every: u64,
    /// Closes a second connection at once, while a first one is open.
    pub one_connection: bool,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered after a while, which is mostly zero.
    Answer {
        /// How much later.
        after: Duration,
        /// With this exception instead of what the plant says.
        exception: Option<u8>,
    },
    /// It is not answered.
    Silence,
    /// The connection is closed.
    Close,
}

impl Faults {
    /// Decides on a request: the unit's `of_unit`th and the connection's `of_connection`th, counted from 1.
    #[must_use]
    pub fn judge(&self, unit: u8, of_unit: u64, of_connection: u64) -> Verdict {
        if self.close_every > 0 && of_connection.is_multiple_of(self.close_every) {
            return Verdict::Close;
        }
        let hit = of_unit.is_multiple_of(self.every.max(1)) && (self.first == 0 || of_unit <= self.first);
        if !hit {
            return Verdict::Answer { after: Duration::ZERO, exception: None };
        }
        if Of::for_unit(&self.drop, unit) == Some(true) {
            return Verdict::Silence;
        }
        let late = Of::for_unit(&self.late, unit).unwrap_or_default();
        let exception = Of::for_unit(&self.exception, unit);
        Verdict::Answer { after: Duration::from_millis(late.into()), exception }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(exception: Option<u8>) -> Verdict {
        Verdict::Answer { after: Duration::ZERO, exception }
    }

    #[test]
    fn a_fault_names_its_unit_or_all() {
        assert_eq!("2:500".parse(), Ok(Of { unit: Some(2), value: 500_u32 }));
        assert_eq!("500".parse(), Ok(Of { unit: None, value: 500_u32 }));
        assert!("x:500".parse::<Of<u32>>().is_err());
        assert!("2:".parse::<Of<u32>>().is_err());
        assert!("300".parse::<Of<u8>>().is_err());
    }

    #[test]
    fn a_word_for_the_unit_counts_more_than_one_for_all() {
        let late = vec![Of { unit: Some(2), value: 0 }, Of { unit: None, value: 500 }];
        let faults = Faults { late, ..Faults::default() };
        assert_eq!(faults.judge(2, 1, 1), prompt(None));
        assert_eq!(faults.judge(3, 1, 1), Verdict::Answer { after: Duration::from_millis(500), exception: None });
    }

    #[test]
    fn every_and_first_count_the_requests_of_a_unit() {
        let exception = vec![Of { unit: None, value: 6 }];
        let faults = Faults { exception, every: 3, first: 6, ..Faults::default() };
        let hits: Vec<u64> = (1..12).filter(|n| faults.judge(1, *n, *n) == prompt(Some(6))).collect();
        assert_eq!(hits, [3, 6]);
    }

    #[test]
    fn closing_goes_before_all_else_and_counts_the_connection() {
        let drop = vec![Of { unit: None, value: true }];
        let faults = Faults { drop, close_every: 2, ..Faults::default() };
        assert_eq!(faults.judge(1, 7, 1), Verdict::Silence);
        assert_eq!(faults.judge(1, 8, 2), Verdict::Close);
    }
}
