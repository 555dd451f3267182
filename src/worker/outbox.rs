//! Readings that the supervisor has not committed yet. Pure: packed frames in, frames to send out.
//!
//! Each batch of readings stays here until its ack. The outbox is bounded by bytes; at the bound the oldest batch goes.
//! One that was sent already is most likely in the journal's memory, and only the protection against the supervisor's
//! death is gone; one that was never sent is lost, and is counted as such.

use std::collections::VecDeque;

use bytes::Bytes;

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    batches: VecDeque<Batch>,
    /// How many of `batches`, from the front, were handed out by [`Outbox::next_unsent`].
    sent: usize,
    next: u64,
    bytes: usize,
    max_bytes: usize,
    lost: u64,
}

#[derive(Debug)]
struct Batch {
    first: u64,
    count: u64,
    frame: Bytes,
}

impl Outbox {
    /// An empty outbox. Numbers start at 1.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { batches: VecDeque::new(), sent: 0, next: 1, bytes: 0, max_bytes, lost: 0 }
    }

    /// The number that the next reading gets.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Keeps a packed batch whose first reading has [`Outbox::next_number`].
    pub fn push(&mut self, count: u64, frame: Bytes) {
        self.bytes += frame.len();
        self.batches.push_back(Batch { first: self.next, count, frame });
        self.next += count;
        while self.bytes > self.max_bytes && self.batches.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.batches.pop_front() else { return };
        self.bytes -= oldest.frame.len();
        if self.sent > 0 {
            self.sent -= 1;
        } else {
            self.lost += oldest.count;
        }
    }

    /// The next batch to send, if there is one.
    pub fn next_unsent(&mut self) -> Option<Bytes> {
        let batch = self.batches.get(self.sent)?;
        self.sent += 1;
        Some(batch.frame.clone())
    }

    /// Forgets what is committed. A number beyond what was sent forgets no more than was sent.
    pub fn ack(&mut self, up_to: u64) {
        while self.sent > 0 && self.batches.front().is_some_and(|b| b.first + b.count - 1 <= up_to) {
            if let Some(b) = self.batches.pop_front() {
                self.bytes -= b.frame.len();
            }
            self.sent -= 1;
        }
    }

    /// The packed batches that wait for their ack, sent or not.
    pub fn frames(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.batches.iter().map(|b| b.frame.clone())
    }

    /// Readings that wait for their ack.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        self.batches.front().map_or(0, |b| self.next - b.first)
    }

    /// True when every reading is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Readings that were dropped before they were sent.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(n: usize) -> Bytes {
        Bytes::from(vec![0; n])
    }

    #[test]
    fn a_batch_stays_until_its_last_reading_is_acknowledged() {
        let mut o = Outbox::new(1000);
        o.push(3, frame(10));
        o.push(2, frame(10));
        assert_eq!((o.next_unsent().is_some(), o.next_unsent().is_some(), o.next_unsent()), (true, true, None));
        o.ack(2);
        assert_eq!(o.uncommitted(), 5);
        o.ack(3);
        assert_eq!(o.uncommitted(), 2);
        o.ack(5);
        assert!(o.is_empty());
        assert_eq!(o.next_number(), 6);
    }

    #[test]
    fn what_was_not_sent_is_not_forgotten_by_an_ack() {
        let mut o = Outbox::new(1000);
        o.push(1, frame(1));
        o.ack(u64::MAX);
        assert_eq!(o.uncommitted(), 1);
    }

    #[test]
    fn at_the_bound_the_oldest_goes_and_only_the_unsent_count_as_lost() {
        let mut o = Outbox::new(30);
        o.push(2, frame(20));
        assert!(o.next_unsent().is_some());
        o.push(3, frame(20));
        assert_eq!((o.lost(), o.uncommitted()), (0, 3));
        o.push(4, frame(20));
        assert_eq!((o.lost(), o.uncommitted()), (3, 4));
        assert_eq!(o.next_unsent().map(|f| f.len()), Some(20));
        assert_eq!(o.next_unsent(), None);
    }
}
