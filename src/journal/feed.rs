//! Committed lines as they come, for `tail` and for whoever follows. Costs nothing while nobody does.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use tokio::sync::Notify;

/// Whole lines of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The first number in it.
    pub first_seq: u64,
    /// The last.
    pub last_seq: u64,
    /// The lines, each with its newline.
    pub lines: Bytes,
}

/// A bounded view of what is committed. When it is not read in time the oldest go, and are counted.
#[derive(Debug)]
pub struct Subscription(Arc<Inbox>);

#[derive(Debug)]
struct Inbox {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    capacity: usize,
    lost: u64,
    ended: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Waits for the next chunk; `None` when the writer has ended and all is read. With it, how many records were lost
    /// before it because nobody read them in time.
    pub async fn next(&mut self) -> Option<(u64, Chunk)> {
        loop {
            let arrived = self.0.arrived.notified();
            if let Some(got) = self.pop() {
                return Some(got);
            }
            if self.0.lock().ended {
                return None;
            }
            arrived.await;
        }
    }

    /// The next chunk when there is one.
    pub fn try_next(&mut self) -> Option<(u64, Chunk)> {
        self.pop()
    }

    fn pop(&self) -> Option<(u64, Chunk)> {
        let mut state = self.0.lock();
        let chunk = state.chunks.pop_front()?;
        state.bytes -= chunk.lines.len();
        Some((std::mem::take(&mut state.lost), chunk))
    }
}

/// The subscribers.
#[derive(Debug, Default)]
pub(super) struct Feed(Mutex<Inboxes>);

#[derive(Debug, Default)]
struct Inboxes {
    all: Vec<Weak<Inbox>>,
    ended: bool,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Inboxes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self, capacity: usize) -> Subscription {
        let mut inboxes = self.lock();
        let state = State { chunks: VecDeque::new(), bytes: 0, capacity, lost: 0, ended: inboxes.ended };
        let inbox = Arc::new(Inbox { state: Mutex::new(state), arrived: Notify::new() });
        inboxes.all.push(Arc::downgrade(&inbox));
        Subscription(inbox)
    }

    /// Gives committed lines to all. Copies them once, and not at all without subscribers.
    pub(super) fn send(&self, first_seq: u64, last_seq: u64, lines: &[u8]) {
        let mut inboxes = self.lock();
        inboxes.all.retain(|inbox| inbox.strong_count() > 0);
        if inboxes.all.is_empty() || lines.is_empty() {
            return;
        }
        let chunk = Chunk { first_seq, last_seq, lines: Bytes::copy_from_slice(lines) };
        for inbox in inboxes.all.iter().filter_map(Weak::upgrade) {
            let mut state = inbox.lock();
            state.bytes += chunk.lines.len();
            state.chunks.push_back(chunk.clone());
            while state.bytes > state.capacity && state.chunks.len() > 1 {
                if let Some(old) = state.chunks.pop_front() {
                    state.bytes -= old.lines.len();
                    state.lost += (old.last_seq + 1).saturating_sub(old.first_seq);
                }
            }
            drop(state);
            inbox.arrived.notify_one();
        }
    }

    /// No more will come.
    pub(super) fn end(&self) {
        let mut inboxes = self.lock();
        inboxes.ended = true;
        for inbox in inboxes.all.drain(..).filter_map(|i| i.upgrade()) {
            inbox.lock().ended = true;
            inbox.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_subscriber_loses_the_oldest_and_learns_how_many() {
        let feed = Feed::default();
        let mut subscription = feed.subscribe(25);
        for n in 0..5 {
            feed.send(n * 10 + 1, n * 10 + 10, b"0123456789");
        }
        let (lost, chunk) = subscription.next().await.unwrap();
        assert_eq!((lost, chunk.first_seq), (30, 31));
        assert_eq!(subscription.next().await.unwrap().0, 0);
        feed.end();
        assert_eq!(subscription.next().await, None);
    }

    #[test]
    fn a_subscriber_that_left_is_forgotten() {
        let feed = Feed::default();
        drop(feed.subscribe(10));
        feed.send(1, 1, b"x\n");
        assert!(feed.lock().all.is_empty());
    }
}
