//! What a reading can say: a value, how far to trust it, and why not further.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A point's value in engineering units.
///
/// `F32` is kept apart from `F64` so that a single-precision register prints as the shortest decimal that names it
/// (`21.6`, not `21.600000381469727`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// A coil, a discrete input, or one bit of a register.
    Bool(bool),
    /// Any integer that fits 64 bits with a sign.
    Int(i64),
    /// An unsigned integer above `i64::MAX`; smaller ones are [`Value::Int`].
    UInt(u64),
    /// A single-precision float; never NaN or infinite in a reading.
    F32(f32),
    /// A double-precision float; never NaN or infinite in a reading.
    F64(f64),
    /// A string.
    Text(String),
}

impl Value {
    /// The value as a double, for scaling and comparison; `None` for text. Integers above 2^53 lose precision.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            Self::Int(i) => Some(*i as f64),
            Self::UInt(u) => Some(*u as f64),
            Self::F32(f) => Some(f64::from(*f)),
            Self::F64(f) => Some(*f),
            Self::Text(_) => None,
        }
    }
}

impl From<u64> for Value {
    fn from(u: u64) -> Self {
        i64::try_from(u).map_or(Self::UInt(u), Self::Int)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(v) => v.fmt(f),
            Self::Int(v) => v.fmt(f),
            Self::UInt(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::Text(v) => v.fmt(f),
        }
    }
}

/// How far a reading can be trusted, after OPC UA's three severities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// The device answered with a value in its range.
    Good,
    /// There is a value, with a doubt about it (outside its range, stale).
    Uncertain,
    /// There is no value.
    Bad,
}

impl Quality {
    /// The word in journal and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Uncertain => "uncertain",
            Self::Bad => "bad",
        }
    }
}

/// Why a reading is not good. [`fmt::Display`] gives the word in journal and JSON (`exception:2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// No answer before the deadline.
    Timeout,
    /// The device refused with this protocol code.
    Exception(u8),
    /// The answer's checksum was wrong.
    Crc,
    /// The answer broke the protocol: wrong length, function or framing.
    Protocol,
    /// There is no connection to the device.
    Disconnected,
    /// The last value is too old.
    Stale,
    /// The value lies outside the point's `range`.
    Range,
    /// The bytes are no value of the point's type.
    Decode,
    /// The device marks the value as not available.
    NotAvailable,
}

impl Reason {
    /// The quality that goes with the reason: `Range` and `Stale` keep a value and are uncertain, the others are bad.
    #[must_use]
    pub fn quality(self) -> Quality {
        match self {
            Self::Range | Self::Stale => Quality::Uncertain,
            Self::Timeout
            | Self::Exception(_)
            | Self::Crc
            | Self::Protocol
            | Self::Disconnected
            | Self::Decode
            | Self::NotAvailable => Quality::Bad,
        }
    }
}

/// The word is none of [`Reason`]'s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no reason")]
pub struct NoReason(pub String);

impl FromStr for Reason {
    type Err = NoReason;

    fn from_str(word: &str) -> Result<Self, NoReason> {
        let none = || NoReason(word.to_owned());
        Ok(match word {
            "timeout" => Self::Timeout,
            "crc" => Self::Crc,
            "protocol" => Self::Protocol,
            "disconnected" => Self::Disconnected,
            "stale" => Self::Stale,
            "range" => Self::Range,
            "decode" => Self::Decode,
            "not_available" => Self::NotAvailable,
            other => {
                let code = other.strip_prefix("exception:").ok_or_else(none)?;
                Self::Exception(code.parse().map_err(|_| none())?)
            }
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timeout"),
            Self::Exception(code) => write!(f, "exception:{code}"),
            Self::Crc => f.write_str("crc"),
            Self::Protocol => f.write_str("protocol"),
            Self::Disconnected => f.write_str("disconnected"),
            Self::Stale => f.write_str("stale"),
            Self::Range => f.write_str("range"),
            Self::Decode => f.write_str("decode"),
            Self::NotAvailable => f.write_str("not_available"),
        }
    }
}

/// One point's reading within a poll of its station, between worker, supervisor and journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The point's place in [`crate::StationConfig::points`].
    pub point: u32,
    /// The value in engineering units; `None` when the reading is bad.
    pub value: Option<Value>,
    /// Why it is not good; `None` when it is.
    pub reason: Option<Reason>,
}

impl Reading {
    /// The quality, which the reason decides.
    #[must_use]
    pub fn quality(&self) -> Quality {
        self.reason.map_or(Quality::Good, Reason::quality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_back_from_its_word() {
        let all = [
            Reason::Timeout,
            Reason::Exception(0),
            Reason::Exception(255),
            Reason::Crc,
            Reason::Protocol,
            Reason::Disconnected,
            Reason::Stale,
            Reason::Range,
            Reason::Decode,
            Reason::NotAvailable,
        ];
        for reason in all {
            assert_eq!(reason.to_string().parse(), Ok(reason));
        }
        for word in ["", "exception:", "exception:256", "exception:x", "Timeout"] {
            assert_eq!(word.parse::<Reason>(), Err(NoReason(word.into())));
        }
    }
}
