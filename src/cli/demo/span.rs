//! Spans of time as a person writes them: `500ms`, `10s`, `1m`.

use std::time::Duration;

/// Reads a span. For clap.
///
/// # Errors
/// What is wrong with it, for a person.
pub fn parse(text: &str) -> Result<Duration, String> {
    let hint = || format!("`{text}` is no span of time; write for example 500ms, 10s or 1m");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(hint)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| hint())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(hint()),
    };
    let span = number.checked_mul(millis).filter(|ms| *ms <= 365 * 24 * 3_600_000);
    span.map(Duration::from_millis).ok_or_else(|| format!("`{text}` is more than a year"))
}

/// A span in the unit that suits it: `850 ms`, `12.3 s`, `4 min 05 s`.
#[must_use]
pub fn show(span: Duration) -> String {
    let millis = span.as_millis();
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} min {:02} s", millis / 60_000, millis % 60_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit_and_never_without() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "10", "s", "-1s", "1.5s", "10 s", "9d", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_are_shown_in_the_unit_that_suits_them() {
        let shown = [850, 12_345, 245_000].map(|ms| show(Duration::from_millis(ms)));
        assert_eq!(shown, ["850 ms", "12.3 s", "4 min 05 s"]);
    }
}
