//! From a decoded value to a reading: "not available" marks, scale, range, dead band. Pure; the same for every protocol.

use serde::{Deserialize, Serialize};

use crate::value::{Reason, Value};

/// A point's conditioning, in the order in which it is applied.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Conditioning {
    /// Raw values (before scaling) by which the device says that it has none, for example `0x8000`.
    pub not_available: Vec<Mark>,
    /// `value = raw * factor + offset`.
    pub scale: Option<Linear>,
    /// The plausible range in engineering units, both ends included. A value outside is kept and is uncertain.
    pub range: Option<(f64, f64)>,
    /// A reading is recorded when it differs from the last recorded one by more than this, in engineering units.
    pub dead_band: Option<f64>,
}

/// A raw value that means "not available".
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Mark {
    /// Compared with the raw integer; a negative mark matches the two's complement of unsigned types as well.
    Int(i64),
    /// Compared with the raw float.
    Float(f64),
}

/// A linear scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// Multiplied first. Not zero, finite.
    pub factor: f64,
    /// Added second. Finite.
    pub offset: f64,
}

impl Linear {
    /// Applies the scale. Where the factor is the inverse of a whole number (0.1, 0.01) it divides, so that the
    /// result is the double nearest to the decimal that the engineer expects: 3 at 0.1 is 0.3.
    #[must_use]
    pub fn apply(self, raw: f64) -> f64 {
        let inverse = (1.0 / self.factor).round();
        let scaled =
            if inverse.abs() >= 2.0 && 1.0 / inverse == self.factor { raw / inverse } else { raw * self.factor };
        scaled + self.offset
    }
}

impl Conditioning {
    /// Passes everything but NaN and infinities.
    pub const PLAIN: Self = Self { not_available: Vec::new(), scale: None, range: None, dead_band: None };

    /// True when a decoded value passes unchanged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::PLAIN
    }

    /// Conditions one decoded value. `Err` carries the reason of a bad reading; `Ok` has the value and, when it is
    /// uncertain, the reason for that. A NaN is a device's usual way to say "none", an infinity is no value at all.
    pub fn apply(&self, raw: Value) -> Result<(Value, Option<Reason>), Reason> {
        match &raw {
            Value::F32(f) if f.is_nan() => return Err(Reason::NotAvailable),
            Value::F64(f) if f.is_nan() => return Err(Reason::NotAvailable),
            Value::F32(f) if f.is_infinite() => return Err(Reason::Decode),
            Value::F64(f) if f.is_infinite() => return Err(Reason::Decode),
            _ => {}
        }
        if self.not_available.iter().any(|mark| mark.matches(&raw)) {
            return Err(Reason::NotAvailable);
        }
        let value = match (self.scale, raw) {
            (None, raw) => raw,
            (Some(scale), Value::F32(f)) => {
                // A single-precision raw value has no more than 24 bits to give: more digits would be noise.
                Value::F32(scale.apply(f64::from(f)) as f32)
            }
            (Some(scale), raw) => match raw.as_f64() {
                Some(f) => Value::F64(scale.apply(f)),
                None => raw,
            },
        };
        match &value {
            Value::F32(f) if !f.is_finite() => return Err(Reason::Range),
            Value::F64(f) if !f.is_finite() => return Err(Reason::Range),
            _ => {}
        }
        if let (Some((low, high)), Some(f)) = (self.range, value.as_f64())
            && !(low..=high).contains(&f)
        {
            return Ok((value, Some(Reason::Range)));
        }
        Ok((value, None))
    }
}

impl Mark {
    fn matches(self, raw: &Value) -> bool {
        match (self, raw) {
            (Self::Int(mark), Value::Int(i)) => mark == *i,
            (Self::Int(mark), Value::UInt(u)) => mark as u64 == *u,
            (Self::Int(mark), Value::F32(f)) => mark as f64 == f64::from(*f),
            (Self::Int(mark), Value::F64(f)) => mark as f64 == *f,
            (Self::Float(mark), raw) => match raw {
                // A mark written in decimal names a single when the device sends singles.
                Value::F32(f) => (mark as f32) == *f,
                _ => raw.as_f64() == Some(mark),
            },
            (Self::Int(_), Value::Bool(_) | Value::Text(_)) => false,
        }
    }
}

/// Remembers a point's last recorded reading, and says whether the next one is worth a record.
#[derive(Debug, Clone, Default)]
pub struct Conditioner {
    last: Option<Recorded>,
}

#[derive(Debug, Clone, PartialEq)]
enum Recorded {
    Value(Value, Option<Reason>),
    Bad(Reason),
}

impl Conditioner {
    /// True when the reading is to be recorded. Without a dead band each one is; with one, a change of quality always is.
    pub fn keep(&mut self, rules: &Conditioning, reading: &Result<(Value, Option<Reason>), Reason>) -> bool {
        let Some(band) = rules.dead_band else { return true };
        let keep = match (&self.last, reading) {
            (Some(Recorded::Value(old, old_reason)), Ok((new, reason))) if old_reason == reason => {
                match (old.as_f64(), new.as_f64()) {
                    (Some(a), Some(b)) => (a - b).abs() > band,
                    _ => old != new,
                }
            }
            (Some(Recorded::Bad(old)), Err(new)) => old != new,
            _ => true,
        };
        if keep {
            self.last = Some(match reading {
                Ok((value, reason)) => Recorded::Value(value.clone(), *reason),
                Err(reason) => Recorded::Bad(*reason),
            });
        }
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(scale: Option<Linear>) -> Conditioning {
        Conditioning { scale, ..Conditioning::default() }
    }

    #[test]
    fn a_tenth_scales_to_the_decimal_that_one_expects() {
        let tenth = Linear { factor: 0.1, offset: 0.0 };
        assert_eq!(with(Some(tenth)).apply(Value::Int(3)), Ok((Value::F64(0.3), None)));
        assert_eq!(with(Some(tenth)).apply(Value::Int(235)), Ok((Value::F64(23.5), None)));
        assert_eq!(with(Some(tenth)).apply(Value::F32(23.0)), Ok((Value::F32(2.3), None)));
        let negative = Linear { factor: -0.01, offset: 0.0 };
        assert_eq!(with(Some(negative)).apply(Value::Int(7)), Ok((Value::F64(-0.07), None)));
    }

    #[test]
    fn nan_infinity_and_marks_are_bad_and_never_a_value() {
        let rules =
            Conditioning { not_available: vec![Mark::Int(0x8000), Mark::Int(-32768)], ..Conditioning::default() };
        assert_eq!(rules.apply(Value::F32(f32::NAN)), Err(Reason::NotAvailable));
        assert_eq!(rules.apply(Value::F64(f64::INFINITY)), Err(Reason::Decode));
        assert_eq!(rules.apply(Value::Int(0x8000)), Err(Reason::NotAvailable));
        assert_eq!(rules.apply(Value::Int(-32768)), Err(Reason::NotAvailable));
        assert_eq!(rules.apply(Value::Int(0x7fff)), Ok((Value::Int(0x7fff), None)));
    }

    #[test]
    fn a_value_outside_its_range_is_kept_and_uncertain() {
        let rules = Conditioning { range: Some((0.0, 100.0)), ..Conditioning::default() };
        assert_eq!(rules.apply(Value::Int(101)), Ok((Value::Int(101), Some(Reason::Range))));
        assert_eq!(rules.apply(Value::Int(100)), Ok((Value::Int(100), None)));
    }

    #[test]
    fn the_dead_band_is_measured_from_the_last_record_and_quality_always_passes() {
        let rules = Conditioning { dead_band: Some(1.0), ..Conditioning::default() };
        let mut c = Conditioner::default();
        let good = |v: f64| Ok((Value::F64(v), None));
        assert!(c.keep(&rules, &good(10.0)));
        assert!(!c.keep(&rules, &good(10.9)));
        assert!(!c.keep(&rules, &good(11.0)));
        assert!(c.keep(&rules, &good(11.1)));
        assert!(c.keep(&rules, &Err(Reason::Timeout)));
        assert!(!c.keep(&rules, &Err(Reason::Timeout)));
        assert!(c.keep(&rules, &Err(Reason::Exception(2))));
        assert!(c.keep(&rules, &good(11.1)));
    }
}
