//! The buffer that received bytes wait in until they are a frame. Its size is fixed; half a frame stays in it across
//! requests, time-outs and cancelled reads, so that framing is never lost.
#![deny(clippy::disallowed_methods)]

use std::ops::Range;

use super::mbap::{self, Frame, HeaderFault};

/// Room for three of the longest frames.
const CAPACITY: usize = 1024;

/// Received bytes.
#[derive(Debug, Clone)]
pub struct Inbox {
    bytes: Box<[u8; CAPACITY]>,
    start: usize,
    end: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: Box::new([0; CAPACITY]), start: 0, end: 0 }
    }
}

impl Inbox {
    /// Room for the next bytes; never empty once [`Inbox::next_frame`] gave `None`. Frames that were given out before
    /// are overwritten.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// Counts in the bytes that were put into [`Inbox::room`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(CAPACITY);
    }

    /// Cuts off the next whole frame. Its bytes can be read until [`Inbox::room`] is called.
    ///
    /// # Errors
    /// [`HeaderFault`]; the connection is out of step then, and the same fault is given for ever.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, HeaderFault> {
        let Some(frame) = mbap::decode(&self.bytes[self.start..self.end])? else { return Ok(None) };
        let pdu = self.start + frame.pdu.start..self.start + frame.pdu.end;
        self.start = pdu.end;
        Ok(Some(Frame { pdu, ..frame }))
    }

    /// The bytes of a frame that was cut off.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// How many bytes wait to become a frame.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.end - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(transaction: u16, pdu: &[u8]) -> Vec<u8> {
        let mut adu = [0; mbap::MAX_ADU];
        adu[mbap::HEADER..mbap::HEADER + pdu.len()].copy_from_slice(pdu);
        let end = mbap::encode(&mut adu, transaction, 1, pdu.len());
        adu[..end].to_vec()
    }

    proptest! {
        #[test]
        fn frames_are_the_same_whatever_the_chunks(
            pdus in prop::collection::vec(prop::collection::vec(any::<u8>(), 2..=253), 1..20),
            chunks in prop::collection::vec(1_usize..600, 1..50),
        ) {
            let stream: Vec<u8> = (0..).zip(&pdus).flat_map(|(i, pdu)| frame(i, pdu)).collect();
            let mut inbox = Inbox::default();
            let mut got = Vec::new();
            let mut rest = &stream[..];
            let mut chunks = chunks.iter().cycle();
            while !rest.is_empty() {
                let room = inbox.room();
                let n = rest.len().min(room.len()).min(*chunks.next().expect("cycles"));
                prop_assert!(n > 0);
                room[..n].copy_from_slice(&rest[..n]);
                inbox.filled(n);
                rest = &rest[n..];
                while let Some(frame) = inbox.next_frame().expect("sound frames") {
                    got.push((frame.transaction, inbox.bytes(frame.pdu).to_vec()));
                }
            }
            prop_assert_eq!(got, (0..).zip(pdus).collect::<Vec<_>>());
            prop_assert_eq!(inbox.waiting(), 0);
        }
    }
}
