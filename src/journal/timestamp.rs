//! RFC 3339 with six digits, fast: the date is worked out once a second.

use crate::clock::Wall;

/// Formats times; remembers the last second.
#[derive(Debug)]
pub(super) struct Stamp {
    second: i64,
    text: [u8; Self::LEN],
}

impl Stamp {
    /// `2026-11-30T12:00:00.123456Z`
    pub(super) const LEN: usize = 27;

    pub(super) fn new() -> Self {
        let mut stamp = Self { second: i64::MIN, text: *b"1970-01-01T00:00:00.000000Z" };
        stamp.date(0);
        stamp
    }

    /// The text of a time. Years before 0 and after 9999 have no such form: 1970, as [`Wall`] prints them.
    pub(super) fn format(&mut self, ts: Wall) -> &[u8; Self::LEN] {
        /// The first microsecond of year 0 and the last that jiff knows of year 9999.
        const RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200_000_000..=253_402_207_200_999_999;
        let us = if RANGE.contains(&ts.0) { ts.0 } else { 0 };
        let second = us.div_euclid(1_000_000);
        if second != self.second {
            self.date(second);
        }
        digits(&mut self.text[20..26], us.rem_euclid(1_000_000));
        &self.text
    }

    fn date(&mut self, second: i64) {
        self.second = second;
        let (days, rest) = (second.div_euclid(86_400), second.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        digits(&mut self.text[0..4], year);
        digits(&mut self.text[5..7], month);
        digits(&mut self.text[8..10], day);
        digits(&mut self.text[11..13], rest / 3600);
        digits(&mut self.text[14..16], rest / 60 % 60);
        digits(&mut self.text[17..19], rest % 60);
    }
}

fn digits(out: &mut [u8], mut number: i64) {
    for place in out.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Days since 1970 to year, month and day, in the proleptic Gregorian calendar. Counts in eras of 400 years that begin
/// on 1 March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_prints_what_the_slow_way_prints(us in -62_167_219_200_000_000i64..=253_402_207_200_999_999) {
            let mut stamp = Stamp::new();
            prop_assert_eq!(std::str::from_utf8(stamp.format(Wall(us))).unwrap(), Wall(us).to_string());
        }
    }

    #[test]
    fn the_second_is_remembered_and_the_fraction_is_not() {
        let mut stamp = Stamp::new();
        for us in [1_796_040_000_123_456, 1_796_040_000_999_999, 1_796_040_001_000_000, 1_796_039_999_000_001, i64::MAX]
        {
            assert_eq!(std::str::from_utf8(stamp.format(Wall(us))).unwrap(), Wall(us).to_string());
        }
    }
}
