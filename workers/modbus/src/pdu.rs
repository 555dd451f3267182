//! What is asked and what counts as its answer, whatever the framing.
#![deny(clippy::disallowed_methods)]

use crate::table::Table;

/// A read request's PDU.
#[must_use]
pub fn read(table: Table, address: u16, count: u16) -> [u8; 5] {
    let [address_high, address_low] = address.to_be_bytes();
    let [count_high, count_low] = count.to_be_bytes();
    [table.read_function().value(), address_high, address_low, count_high, count_low]
}

/// What an answer must look like, apart from its function code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A byte count of exactly this, and so many bytes.
    Bytes(u8),
    /// So many bytes of the request again, from its function code on.
    Echo(usize),
    /// Anything: the function defines its own answer.
    Any,
}

/// What a PDU says to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It answers it.
    Answer,
    /// The device refuses, with its code.
    Exception(u8),
}

/// Why a PDU is no answer to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PduFault {
    /// Another function.
    #[error("function {got} was answered, and {asked} was asked")]
    Function {
        /// What was asked.
        asked: u8,
        /// What came.
        got: u8,
    },
    /// A sound answer to another question.
    #[error("{got} bytes of data were answered, and {asked} were asked")]
    ByteCount {
        /// What was asked.
        asked: u8,
        /// What came.
        got: u8,
    },
    /// The answer to a write repeats something else than what was written.
    #[error("the answer to a write repeats another request")]
    Echo,
    /// The PDU contradicts itself: it is longer or shorter than it says. The frame's length cannot be trusted.
    #[error("the answer has {got} bytes and says that it has {said}")]
    Inconsistent {
        /// By its own byte count or function code.
        said: usize,
        /// By its frame.
        got: usize,
    },
}

impl PduFault {
    /// True when the frame's own length is in doubt, and with it where the next frame starts.
    #[must_use]
    pub fn breaks_framing(self) -> bool {
        match self {
            Self::Inconsistent { .. } => true,
            Self::Function { .. } | Self::ByteCount { .. } | Self::Echo => false,
        }
    }
}

const EXCEPTION: u8 = 0x80;

/// Holds a PDU against the request that it should answer.
///
/// # Errors
/// [`PduFault`]: no value may be taken from it.
pub fn judge(request: &[u8], expected: Expected, pdu: &[u8]) -> Result<Reply, PduFault> {
    let asked = request.first().copied().unwrap_or_default();
    let got = pdu.first().copied().unwrap_or_default();
    if got == asked | EXCEPTION {
        return match pdu {
            [_, code] => Ok(Reply::Exception(*code)),
            _ => Err(PduFault::Inconsistent { said: 2, got: pdu.len() }),
        };
    }
    if got != asked {
        consistent(pdu)?;
        return Err(PduFault::Function { asked, got });
    }
    match expected {
        Expected::Bytes(bytes) => {
            let said = pdu.get(1).copied().unwrap_or_default();
            if pdu.len() != 2 + usize::from(said) {
                return Err(PduFault::Inconsistent { said: 2 + usize::from(said), got: pdu.len() });
            }
            if said != bytes {
                return Err(PduFault::ByteCount { asked: bytes, got: said });
            }
        }
        Expected::Echo(len) if pdu.len() != len => {
            return Err(PduFault::Inconsistent { said: len, got: pdu.len() });
        }
        Expected::Echo(len) if request.get(..len) != Some(pdu) => return Err(PduFault::Echo),
        Expected::Echo(_) | Expected::Any => {}
    }
    Ok(Reply::Answer)
}

/// Whether an answer to a function that was not asked is as long as it says.
fn consistent(pdu: &[u8]) -> Result<(), PduFault> {
    let said = match pdu {
        [1..=4 | 23, count, ..] => 2 + usize::from(*count),
        [5 | 6 | 15 | 16, ..] => 5,
        [22, ..] => 7,
        [128..=255, ..] => 2,
        _ => return Ok(()),
    };
    if said == pdu.len() { Ok(()) } else { Err(PduFault::Inconsistent { said, got: pdu.len() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: [u8; 5] = [3, 0, 0, 0, 4];

    fn told(pdu: &[u8]) -> Result<Reply, PduFault> {
        judge(&ASKED, Expected::Bytes(8), pdu)
    }

    #[test]
    fn only_the_exact_answer_is_one() {
        assert_eq!(told(&[3, 8, 0, 1, 0, 2, 0, 3, 0, 4]), Ok(Reply::Answer));
        assert_eq!(told(&[0x83, 11]), Ok(Reply::Exception(11)));
        assert_eq!(told(&[3, 6, 0, 1, 0, 2, 0, 3]), Err(PduFault::ByteCount { asked: 8, got: 6 }));
        assert_eq!(told(&[3, 10, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5]), Err(PduFault::ByteCount { asked: 8, got: 10 }));
        assert_eq!(told(&[4, 8, 0, 1, 0, 2, 0, 3, 0, 4]), Err(PduFault::Function { asked: 3, got: 4 }));
        assert_eq!(told(&[0x84, 2]), Err(PduFault::Function { asked: 3, got: 0x84 }));
    }

    #[test]
    fn a_pdu_that_contradicts_itself_puts_the_framing_in_doubt() {
        for pdu in [&[3, 8, 0, 1][..], &[3, 8], &[3, 8, 0, 1, 0, 2, 0, 3, 0, 4, 0], &[0x83, 2, 0], &[4, 8, 0, 1]] {
            let fault = told(pdu).expect_err("no answer");
            assert!(fault.breaks_framing(), "{pdu:?}: {fault}");
        }
        assert!(!PduFault::ByteCount { asked: 8, got: 6 }.breaks_framing());
    }

    #[test]
    fn the_answer_to_a_write_repeats_it() {
        let request = [6, 0, 1, 0, 9];
        assert_eq!(judge(&request, Expected::Echo(5), &request), Ok(Reply::Answer));
        assert_eq!(judge(&request, Expected::Echo(5), &[6, 0, 1, 0, 8]), Err(PduFault::Echo));
        assert!(judge(&request, Expected::Echo(5), &[6, 0, 1, 0]).is_err());
    }
}
