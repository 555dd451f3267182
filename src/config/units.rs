//! Values with a unit, as people write them: sizes, ages, names.

use std::time::Duration;

use toml::de::DeValue;
use worker_contract::{
    Fields,
    fields::{Located, whole},
};

/// The longest id.
pub const MAX_ID: usize = 64;

/// What an id may be, told as a hint.
pub const ID_HINT: &str =
    "an id starts with a letter or a digit and goes on with letters, digits, `_`, `-` and `.`, 64 in all";

/// True when a text may be an id. Ids are part of file names, of metrics' labels and of commands.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() <= MAX_ID
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Takes the id that a table must have.
pub fn id<'a>(fields: &mut Fields<'a>, key: &'static str) -> Option<Located<&'a str>> {
    let found = fields.required_string(key)?;
    if is_id(found.value) {
        return Some(found);
    }
    fields.fault(found.span, format!("`{key}` = \"{}\" is no id", found.value), ID_HINT.to_owned());
    None
}

/// Takes a number of milliseconds, or else the default.
pub fn millis(fields: &mut Fields<'_>, key: &'static str, bounds: std::ops::RangeInclusive<i64>, default: u32) -> u32 {
    fields.integer(key, bounds).and_then(|found| u32::try_from(found.value).ok()).unwrap_or(default)
}

/// Takes a size: a number of bytes, or a string such as `"256 MiB"`.
pub fn bytes(fields: &mut Fields<'_>, key: &'static str, bounds: std::ops::RangeInclusive<u64>, default: u64) -> u64 {
    const HINT: &str = "write bytes as a number, or a string such as \"256 MiB\"";
    quantity(fields, key, HINT, parse_bytes)
        .filter(|size| {
            within(fields, key, *size, &bounds, |b| {
                format!("use {} to {}", show_bytes(*b.start()), show_bytes(*b.end()))
            })
        })
        .unwrap_or(default)
}

/// Takes an age: a string such as `"30d"`, or a number of seconds.
pub fn age(
    fields: &mut Fields<'_>,
    key: &'static str,
    bounds: std::ops::RangeInclusive<u64>,
    default: Duration,
) -> Duration {
    const HINT: &str = "write a string such as \"30d\", \"12h\" or \"90 min\", or seconds as a number";
    quantity(fields, key, HINT, parse_seconds)
        .filter(|age| {
            within(fields, key, *age, &bounds, |b| format!("use {} to {}", show_age(*b.start()), show_age(*b.end())))
        })
        .map_or(default, Duration::from_secs)
}

fn within(
    fields: &mut Fields<'_>,
    key: &'static str,
    value: u64,
    bounds: &std::ops::RangeInclusive<u64>,
    hint: impl FnOnce(&std::ops::RangeInclusive<u64>) -> String,
) -> bool {
    let fits = bounds.contains(&value);
    if !fits {
        fields.fault(fields.span_of(key), format!("`{key}` is out of range"), hint(bounds));
    }
    fits
}

fn quantity(
    fields: &mut Fields<'_>,
    key: &'static str,
    hint: &str,
    parse: impl FnOnce(&str) -> Option<u64>,
) -> Option<u64> {
    let value = fields.take(key)?;
    let read = match value.get_ref() {
        DeValue::String(text) => parse(text),
        number @ DeValue::Integer(_) => whole(number).and_then(|n| u64::try_from(n).ok()),
        _ => None,
    };
    if read.is_none() {
        fields.fault(value.span(), format!("`{key}` cannot be read"), hint.to_owned());
    }
    read
}

fn parse_bytes(text: &str) -> Option<u64> {
    scaled(text, |unit| {
        Some(match unit {
            "" | "b" => 1,
            "kib" | "k" => 1 << 10,
            "mib" | "m" => 1 << 20,
            "gib" | "g" => 1 << 30,
            "tib" | "t" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return None,
        })
    })
}

fn parse_seconds(text: &str) -> Option<u64> {
    scaled(text, |unit| {
        Some(match unit {
            "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hour" | "hours" => 3_600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 604_800,
            _ => return None,
        })
    })
}

/// A whole number and its unit, with or without a space between them.
fn scaled(text: &str, factor: impl FnOnce(&str) -> Option<u64>) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    number.parse::<u64>().ok()?.checked_mul(factor(&unit.trim().to_ascii_lowercase())?)
}

/// A size in the largest binary unit that keeps it whole.
#[must_use]
pub fn show_bytes(size: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (size, 0);
    while size >= 1024 && size.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    format!("{size} {}", UNITS[unit])
}

/// An age in the largest unit that keeps it whole.
fn show_age(seconds: u64) -> String {
    let units = [(86_400, "days"), (3_600, "h"), (60, "min")];
    let whole = units.iter().find(|(size, _)| seconds >= *size && seconds.is_multiple_of(*size));
    whole.map_or_else(|| format!("{seconds} s"), |(size, unit)| format!("{} {unit}", seconds / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("256 MiB"), Some(256 << 20));
        assert_eq!(parse_bytes("1GB"), Some(1_000_000_000));
        assert_eq!(parse_bytes("77"), Some(77));
        assert_eq!(parse_bytes("1.5 GiB"), None);
        assert_eq!(parse_bytes("99999999999 TiB"), None);
        assert_eq!(parse_seconds("30d"), Some(30 * 86_400));
        assert_eq!(parse_seconds("30 days"), Some(30 * 86_400));
        assert_eq!(parse_seconds("90 min"), Some(5_400));
        assert_eq!(parse_seconds("30"), None);
        assert_eq!(parse_seconds(""), None);
        assert_eq!(show_bytes(256 << 20), "256 MiB");
        assert_eq!(show_bytes(1000), "1000 B");
    }

    #[test]
    fn ids_are_safe_in_file_names() {
        assert!(is_id("boiler-1.a_b"));
        for bad in ["", "-a", "..", ".a", "a/b", "a b", "ü", &"x".repeat(65)] {
            assert!(!is_id(bad), "{bad}");
        }
        assert!(is_id(&"x".repeat(64)));
    }
}
