//! Which frame answers a request, and which is late, foreign or broken.
//!
//! A request is answered by the frame with its transaction identifier and its unit, and by no other. A late frame
//! carries the identifier of a request that was given up; a foreign one comes from another unit. Both are dropped, and
//! the wait goes on: neither may become a value, and neither may end the wait for the right one.
#![deny(clippy::disallowed_methods)]

use std::ops::Range;

use crate::{
    adu::mbap::Frame,
    pdu::{self, Expected, PduFault, Reply},
};

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub struct Transaction<'a> {
    /// Its identifier.
    pub id: u16,
    /// The unit that was asked.
    pub unit: u8,
    /// What was asked.
    pub request: &'a [u8],
    /// What its answer must look like.
    pub expected: Expected,
}

/// What a frame is to a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The answer.
    Answer,
    /// The device's refusal.
    Exception(u8),
    /// The answer to something else: drop it, and wait on.
    Foreign,
    /// An answer that must not be used; the next request can go on.
    Wrong(PduFault),
    /// As wrong as that, and nobody knows where the next frame starts.
    OutOfStep(PduFault),
}

impl Transaction<'_> {
    /// Judges a frame. `pdu` are the bytes that the frame names.
    #[must_use]
    pub fn judge(&self, frame: &Frame, pdu: &[u8]) -> Verdict {
        if frame.transaction != self.id || frame.unit != self.unit {
            return Verdict::Foreign;
        }
        match pdu::judge(self.request, self.expected, pdu) {
            Ok(Reply::Answer) => Verdict::Answer,
            Ok(Reply::Exception(code)) => Verdict::Exception(code),
            Err(fault) if fault.breaks_framing() => Verdict::OutOfStep(fault),
            Err(fault) => Verdict::Wrong(fault),
        }
    }
}

/// How a transaction ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The answer's PDU is there in the buffer.
    Answer(Range<usize>),
    /// The device refuses.
    Exception(u8),
}

/// Tells a silent unit from a dead connection.
///
/// Behind a gateway one unit may be off while its neighbours answer: its silence says nothing about the connection.
/// Requests in a row that bring not one byte do, when they went to more than one unit, or to the only one there is,
/// or when there were very many of them.
#[derive(Debug, Clone, Default)]
pub struct Silence {
    requests: u32,
    silent: Units,
    asked: Units,
}

impl Silence {
    /// So many requests in a row without a byte are suspicious.
    pub const SUSPICIOUS: u32 = 3;
    /// So many are enough in any case.
    pub const ENOUGH: u32 = 10;

    /// A request to the unit timed out and no byte came. True when the connection is dead.
    pub fn timed_out(&mut self, unit: u8) -> bool {
        self.requests = self.requests.saturating_add(1);
        self.silent.add(unit);
        let all_there_is = self.silent.count >= 2 || self.asked.count <= 1;
        self.requests >= Self::ENOUGH || (self.requests >= Self::SUSPICIOUS && all_there_is)
    }

    /// A unit is asked.
    pub fn asked(&mut self, unit: u8) {
        self.asked.add(unit);
    }

    /// A byte came.
    pub fn heard(&mut self) {
        if self.requests > 0 {
            self.requests = 0;
            self.silent = Units::default();
        }
    }

    /// How many requests in a row brought nothing.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests
    }
}

#[derive(Debug, Clone, Default)]
struct Units {
    bits: [u64; 4],
    count: u32,
}

impl Units {
    fn add(&mut self, unit: u8) {
        let word = &mut self.bits[usize::from(unit / 64)];
        let bit = 1 << (unit % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_or_foreign_frame_is_neither_an_answer_nor_an_error() {
        let tx = Transaction { id: 7, unit: 1, request: &[3, 0, 0, 0, 1], expected: Expected::Bytes(2) };
        let pdu = [3, 2, 0, 9];
        let frame = |transaction, unit| Frame { transaction, unit, pdu: 7..11 };
        assert_eq!(tx.judge(&frame(7, 1), &pdu), Verdict::Answer);
        assert_eq!(tx.judge(&frame(6, 1), &pdu), Verdict::Foreign);
        assert_eq!(tx.judge(&frame(7, 2), &pdu), Verdict::Foreign);
        assert_eq!(tx.judge(&frame(7, 1), &[0x83, 2]), Verdict::Exception(2));
        assert!(matches!(tx.judge(&frame(7, 1), &[3, 4, 0, 9, 0, 9]), Verdict::Wrong(_)));
        assert!(matches!(tx.judge(&frame(7, 1), &[3, 4, 0, 9]), Verdict::OutOfStep(_)));
    }

    #[test]
    fn three_silent_requests_to_the_only_unit_mean_a_dead_connection() {
        let mut s = Silence::default();
        s.asked(1);
        assert!(!s.timed_out(1));
        assert!(!s.timed_out(1));
        s.heard();
        assert!(!s.timed_out(1));
        assert!(!s.timed_out(1));
        assert!(s.timed_out(1));
    }

    #[test]
    fn one_silent_unit_among_others_does_not_cost_the_connection() {
        let mut s = Silence::default();
        s.asked(1);
        s.asked(2);
        for _ in 0..5 {
            assert!(!s.timed_out(2));
        }
        assert!(s.timed_out(1), "two units are silent");
        s.heard();
        for _ in 1..Silence::ENOUGH {
            assert!(!s.timed_out(2));
        }
        assert!(s.timed_out(2));
    }
}
