//! `[[stations.points]]`: what the core owns of them; the rest is the protocol's.

use std::ops::{Range, RangeInclusive};

use toml::de::DeValue;
use worker_contract::{
    Conditioning, Fields, Opaque, PointConfig, Protocol,
    conditioning::{Linear, Mark},
    fields::{Located, is_hidden, real, whole},
};

use super::{lines::Lines, model::AlarmLevels, tables::Seen};

/// What the points of a station are points of.
pub struct Of<'p> {
    /// Checks their own keys.
    pub protocol: &'p dyn Protocol,
    /// The connection's kind.
    pub kind: &'p str,
    /// The protocol's settings of the station; `None` when not even defaults could be had.
    pub station: Option<&'p Opaque>,
}

/// What reading a point found.
pub struct Checked {
    /// `None` after faults.
    pub config: Option<PointConfig>,
    /// False when it is switched off.
    pub enabled: bool,
    /// Its alarm levels and where they stand.
    pub alarm: Option<(AlarmLevels, Range<usize>)>,
}

/// Reads one point; the caller ends the fields.
pub fn read(fields: &mut Fields<'_>, station: &str, of: &Of<'_>, names: &mut Seen, lines: &Lines<'_>) -> Checked {
    let before = fields.fault_count();
    let name = fields.required_string("name");
    if let Some(name) = &name {
        fields.rename(format!("{station}, point \"{}\"", name.value));
        let what = format!("{station}: point");
        names.first(name, &what, lines, fields.faults());
        if !is_name(name.value) {
            let hint = "a name has 1 to 128 characters, no control or hidden characters, and no space at either end";
            fields.fault(name.span.clone(), "`name` cannot be used", hint.to_owned());
        }
    }
    let enabled = fields.bool("enabled").unwrap_or(true);
    let marks = marks(fields);
    let (unit, conditioning) = conditioning(fields, &marks);
    let alarm = alarm(fields);
    let checked = of.station.and_then(|station| of.protocol.point(of.kind, station, fields));
    if of.station.is_none() {
        // Whose keys these are cannot be told before the station's own faults are mended.
        fields.know_all();
    }
    if checked.as_ref().is_some_and(|c| !c.numeric) {
        refuse_numeric_keys(fields);
    }
    if let Some(whole) = checked.as_ref().and_then(|c| c.whole.as_ref()) {
        refuse_marks(fields, &marks, whole);
    }
    let clean = fields.fault_count() == before;
    let config = match (name, checked) {
        (Some(name), Some(checked)) if clean => Some(PointConfig {
            name: name.value.into(),
            unit,
            conditioning: (!conditioning.is_empty()).then(|| Box::new(conditioning)),
            settings: checked.settings,
        }),
        _ => None,
    };
    Checked { config, enabled, alarm }
}

fn is_name(name: &str) -> bool {
    name.chars().count() <= 128 && name.trim() == name && !name.chars().any(is_hidden)
}

fn refuse_numeric_keys(fields: &mut Fields<'_>) {
    for key in ["scale", "range", "dead_band", "not_available", "alarm"] {
        if fields.has(key) {
            let hint = format!("leave `{key}` out, or give the point a numeric data type");
            fields.fault(fields.span_of(key), format!("`{key}` needs a number, and the point's value is none"), hint);
        }
    }
}

fn conditioning(fields: &mut Fields<'_>, marks: &[Located<Vec<Mark>>]) -> (Option<Box<str>>, Conditioning) {
    let unit = unit(fields, "unit");
    let (scale, scale_unit) = scale(fields);
    if let (Some(a), Some(b)) = (&unit, &scale_unit)
        && a != b
    {
        let hint = "keep one of the two".to_owned();
        fields.fault(fields.span_of("unit"), format!("`unit` is \"{a}\", and the scale's unit is \"{b}\""), hint);
    }
    let range = pair(fields, "range").map(|found| found.0);
    let dead_band = fields.number("dead_band").and_then(|band| {
        let fits = band.value >= 0.0;
        if !fits {
            fields.fault(band.span, "`dead_band` is below zero", "use 0 or more".to_owned());
        }
        fits.then_some(band.value)
    });
    let not_available = marks.iter().flat_map(|m| m.value.iter().copied()).collect();
    (unit.or(scale_unit), Conditioning { not_available, scale, range, dead_band })
}

fn unit(fields: &mut Fields<'_>, key: &'static str) -> Option<Box<str>> {
    let found = fields.string(key)?;
    if found.value.is_empty() || found.value.chars().count() > 32 || found.value.chars().any(is_hidden) {
        let hint = "a unit has 1 to 32 characters, none of them hidden, for example \"°C\"".to_owned();
        fields.fault(found.span, format!("`{key}` cannot be used"), hint);
        return None;
    }
    Some(found.value.into())
}

fn scale(fields: &mut Fields<'_>) -> (Option<Linear>, Option<Box<str>>) {
    let Some((table, span)) = fields.table("scale") else { return (None, None) };
    let what = format!("{}, scale", fields.what());
    let mut fields = Fields::over(table, span, what, fields.faults());
    let ranged = fields.one_of("kind", &[("linear", false), ("range", true)]).unwrap_or(false);
    let unit = unit(&mut fields, "unit");
    let linear = if ranged { span_to_span(&mut fields) } else { linear(&mut fields) };
    fields.finish();
    (linear, unit)
}

fn linear(fields: &mut Fields<'_>) -> Option<Linear> {
    let factor = fields.number("factor").map_or(1.0, |f| f.value);
    let offset = fields.number("offset").map_or(0.0, |f| f.value);
    if factor == 0.0 {
        let hint = "use 1 to leave the value as it is".to_owned();
        fields.fault(fields.span_of("factor"), "`factor` is zero: every reading would be the offset", hint);
        return None;
    }
    // A scale that changes nothing would only turn integers into floats.
    (factor != 1.0 || offset != 0.0).then_some(Linear { factor, offset })
}

/// A scale given by two spans: `raw = [0, 27648]` becomes `eng = [0.0, 100.0]`.
fn span_to_span(fields: &mut Fields<'_>) -> Option<Linear> {
    for key in ["raw", "eng"] {
        if !fields.has(key) {
            fields.missing(key);
        }
    }
    let raw = pair(fields, "raw");
    let eng = ends(fields, "eng");
    let (((raw_low, raw_high), _), ((eng_low, eng_high), span)) = (raw?, eng?);
    let factor = (eng_high - eng_low) / (raw_high - raw_low);
    let offset = raw_low.mul_add(-factor, eng_low);
    if factor == 0.0 || !factor.is_finite() || !offset.is_finite() {
        fields.fault(span, "`raw` and `eng` give no scale", "the ends of `eng` must differ".to_owned());
        return None;
    }
    Some(Linear { factor, offset })
}

/// Two finite numbers, the lower one first.
fn pair(fields: &mut Fields<'_>, key: &'static str) -> Option<((f64, f64), Range<usize>)> {
    let found = ends(fields, key)?;
    if found.0.0 < found.0.1 {
        return Some(found);
    }
    fields.fault(found.1, format!("`{key}`: the first end is not below the second"), "write [low, high]".to_owned());
    None
}

/// Two finite numbers.
fn ends(fields: &mut Fields<'_>, key: &'static str) -> Option<((f64, f64), Range<usize>)> {
    let items = fields.array(key)?;
    let span = fields.span_of(key);
    let number = |i: usize| items.get(i).and_then(|v| real(v.get_ref())).filter(|n| n.is_finite());
    match (items.len(), number(0), number(1)) {
        (2, Some(low), Some(high)) => Some(((low, high), span)),
        _ => {
            fields.fault(span, format!("`{key}` must be two numbers"), "write [low, high]".to_owned());
            None
        }
    }
}

/// The marks by which a device says that it has no value, as many for each as it may be read.
fn marks(fields: &mut Fields<'_>) -> Vec<Located<Vec<Mark>>> {
    const HINT: &str = "use a number, a text such as \"0x8000\", or a list of them";
    let mut found = Vec::new();
    let Some(value) = fields.take("not_available") else { return found };
    let items = match value.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![value],
    };
    if items.len() > 16 {
        fields.fault(
            value.span(),
            "`not_available` has more than 16 marks",
            "keep those that the device sends".to_owned(),
        );
        return found;
    }
    for item in items {
        let mut marks = Vec::new();
        mark(item.get_ref(), &mut marks);
        if marks.is_empty() {
            fields.fault(item.span(), "`not_available` cannot be read", HINT.to_owned());
        } else {
            found.push(Located { value: marks, span: item.span() });
        }
    }
    found
}

/// Refuses marks that no raw value of the type can ever be: they would never match.
fn refuse_marks(fields: &mut Fields<'_>, marks: &[Located<Vec<Mark>>], whole: &RangeInclusive<i64>) {
    let fits = |mark: &Mark| match mark {
        Mark::Int(i) => whole.contains(i),
        Mark::Float(f) => f.fract() == 0.0 && (*whole.start() as f64..=*whole.end() as f64).contains(f),
    };
    for Located { value, span } in marks.iter().filter(|m| !m.value.iter().any(fits)) {
        let shown = match value.first() {
            Some(Mark::Int(i)) => i.to_string(),
            Some(Mark::Float(f)) => f.to_string(),
            None => continue,
        };
        let message = format!("`not_available`: no raw value of this data type is {shown}");
        let hint = format!(
            "its raw values are whole numbers from {} to {}: use one, or correct `data_type`",
            whole.start(),
            whole.end()
        );
        fields.fault(span.clone(), message, hint);
    }
}

fn mark(value: &DeValue<'_>, found: &mut Vec<Mark>) {
    match value {
        DeValue::Integer(i) if i.radix() == 16 => pattern(i.as_str(), found),
        DeValue::Integer(_) => found.extend(whole(value).map(Mark::Int)),
        DeValue::Float(_) => found.extend(real(value).filter(|f| f.is_finite()).map(Mark::Float)),
        DeValue::String(text) => {
            let text = text.trim();
            if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                pattern(digits, found);
            } else if let Ok(number) = text.parse() {
                found.push(Mark::Int(number));
            } else {
                found.extend(text.parse().ok().filter(|f: &f64| f.is_finite()).map(Mark::Float));
            }
        }
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {}
    }
}

/// A hexadecimal mark is a bit pattern of as many bits as its digits have: it matches unsigned values as it stands, and
/// with its top bit set the negative value of a signed type of that width as well. `0x8000` is 32768 and -32768.
fn pattern(digits: &str, found: &mut Vec<Mark>) {
    let Ok(bits) = u64::from_str_radix(digits, 16) else { return };
    let width = u32::try_from(digits.len() * 4).unwrap_or(64).clamp(1, 64);
    // Marks of 64 bits are one and the same in two's complement.
    let signed = (bits << (64 - width)).cast_signed() >> (64 - width);
    found.push(Mark::Int(bits.cast_signed()));
    if signed != bits.cast_signed() {
        found.push(Mark::Int(signed));
    }
}

fn alarm(fields: &mut Fields<'_>) -> Option<(AlarmLevels, Range<usize>)> {
    let (table, span) = fields.table("alarm")?;
    let what = format!("{}, alarm", fields.what());
    let mut fields = Fields::over(table, span.clone(), what, fields.faults());
    let before = fields.fault_count();
    let levels = ["ll", "l", "h", "hh"].map(|key| fields.number(key).map(|n| n.value));
    let roc = fields.number("roc").map(|n| n.value);
    let hysteresis = fields.number("hysteresis").map_or(0.0, |n| n.value);
    let debounce = fields.integer("debounce", 0..=1000).map_or(1, |n| u32::try_from(n.value).unwrap_or(1));
    let rising: Vec<f64> = levels.iter().flatten().copied().collect();
    if rising.windows(2).any(|pair| pair[0] >= pair[1]) {
        fields.fault(span.clone(), "its levels do not rise", "the order is ll < l < h < hh".to_owned());
    }
    if rising.is_empty() && roc.is_none() {
        let hint = "give at least one of ll, l, h, hh, roc".to_owned();
        fields.fault(span.clone(), "it has no level", hint);
    }
    if hysteresis < 0.0 || roc.is_some_and(|r| r <= 0.0) {
        let message = "`hysteresis` must not be below zero, and `roc` must be above";
        fields.fault(span.clone(), message, "use a positive number".to_owned());
    }
    let clean = fields.fault_count() == before;
    fields.finish();
    let [ll, l, h, hh] = levels;
    clean.then_some((AlarmLevels { ll, l, h, hh, roc, hysteresis, debounce }, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks_of(text: &str) -> Vec<Mark> {
        let mut found = Vec::new();
        mark(DeValue::parse(text).unwrap().get_ref(), &mut found);
        found
    }

    #[test]
    fn a_hexadecimal_mark_is_a_bit_pattern_of_its_width() {
        assert_eq!(marks_of("\"0x8000\""), [Mark::Int(0x8000), Mark::Int(-32768)]);
        assert_eq!(marks_of("0x8000"), [Mark::Int(0x8000), Mark::Int(-32768)]);
        assert_eq!(marks_of("0x7FFF"), [Mark::Int(0x7fff)]);
        assert_eq!(marks_of("\"0xFFFFFFFFFFFFFFFF\""), [Mark::Int(-1)]);
        assert_eq!(marks_of("-999"), [Mark::Int(-999)]);
        assert_eq!(marks_of("\"-9.99\""), [Mark::Float(-9.99)]);
        assert_eq!(marks_of("true"), []);
        assert_eq!(marks_of("\"0x\""), []);
        assert_eq!(marks_of("nan"), []);
    }
}
