//! The way of committed journal lines to subscribers: one publisher that never waits, bounded queues, oldest lost first.
//!
//! The publisher pays one short lock and a reference count for each subscriber and nothing at all without any. A
//! subscriber that does not keep up loses the oldest chunks and is told how many records went by.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::Notify;

use super::api::Refusal;

/// What a subscriber wants of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topic {
    /// `reading` records, of one station or of all.
    Readings {
        /// `None`: every station.
        station: Option<String>,
    },
    /// Everything else that happens: `event`, `alarm`, `register`, `write`.
    Events,
}

/// The part of a journal record that decides who wants it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    station: Option<std::borrow::Cow<'a, str>>,
}

impl Topic {
    /// The method of its notifications.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Readings { .. } => "Reading",
            Self::Events => "Event",
        }
    }

    /// Whether a journal line is of this topic. A line that is not a record is of none.
    #[must_use]
    pub fn wants(&self, line: &[u8]) -> bool {
        // As text first: what is skipped over would not be held to be UTF-8.
        let Ok(line) = std::str::from_utf8(line) else { return false };
        let Ok(head) = serde_json::from_str::<Head<'_>>(line) else { return false };
        match self {
            Self::Readings { station: None } => head.kind == "reading",
            Self::Readings { station: Some(wanted) } => {
                head.kind == "reading" && head.station.as_deref() == Some(wanted.as_str())
            }
            Self::Events => head.kind != "reading" && head.kind != "ack",
        }
    }
}

/// Where the committer publishes and subscribers come from. Cheap to clone; clones are the same hub.
#[derive(Debug, Clone, Default)]
pub struct Hub {
    queues: Arc<Mutex<Queues>>,
}

#[derive(Debug, Default)]
struct Queues {
    list: Vec<Arc<Queue>>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Queue {
    inner: Mutex<Inner>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    chunks: VecDeque<(Bytes, u64)>,
    bytes: usize,
    lost: u64,
    ended: bool,
}

/// A subscriber's end. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription {
    queue: Arc<Queue>,
    hub: Hub,
    topic: Topic,
}

/// What a subscriber takes at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Journal records of any kind that went by unseen before these lines, because the subscriber was slow.
    pub lost: u64,
    /// Whole JSONL lines of any kind, each with its line feed; [`Topic::wants`] picks.
    pub lines: Bytes,
}

/// Guards hold plain data that is valid at each statement, so a poisoned lock is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// So many subscribers at once; the next one is refused.
    pub const MAX_SUBSCRIBERS: usize = 32;
    /// So many bytes wait for one subscriber; the oldest chunks go beyond that. One chunk always fits.
    pub const MAX_BYTES: usize = 1 << 20;
    /// So many chunks wait for one subscriber.
    pub const MAX_CHUNKS: usize = 256;
    /// So many bytes has a chunk at most, unless one line alone is longer: it is what a subscriber has in hand beside what
    /// waits.
    pub const CHUNK: usize = 64 << 10;

    /// A hub without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True when somebody listens: without, a chunk need not be made.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.subscribers() > 0
    }

    /// How many listen.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        lock(&self.queues).list.len()
    }

    /// Hands whole committed lines to each subscriber. Never waits. `records` is the number of lines, and of those that
    /// went by before them.
    ///
    /// They are copied in pieces, once for all: a part of a commit that some subscriber still has would keep the whole of
    /// it in memory, and a commit is as long as its journal lets it be.
    pub fn publish(&self, lines: &[u8], records: u64) {
        let queues = lock(&self.queues);
        if queues.list.is_empty() {
            return;
        }
        let (mut rest, mut left) = (lines, records);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(piece_end(rest));
            // The last one has what the line feeds do not account for.
            let count =
                if after.is_empty() { left } else { left.min(memchr::memchr_iter(b'\n', piece).count() as u64) };
            let piece = Bytes::copy_from_slice(piece);
            for queue in &queues.list {
                queue.push(piece.clone(), count);
            }
            (rest, left) = (after, left - count);
        }
    }

    /// Opens a subscription, which sees what is published from now on.
    ///
    /// # Errors
    /// When the hub was closed, or has [`Hub::MAX_SUBSCRIBERS`].
    pub fn subscribe(&self, topic: Topic) -> Result<Subscription, Refusal> {
        let mut queues = lock(&self.queues);
        if queues.closed {
            return Err(Refusal::Draining);
        }
        if queues.list.len() >= Self::MAX_SUBSCRIBERS {
            return Err(Refusal::TooMany { what: "subscribers".into(), limit: Self::MAX_SUBSCRIBERS as u64 });
        }
        let queue = Arc::new(Queue::default());
        queues.list.push(Arc::clone(&queue));
        Ok(Subscription { queue, hub: self.clone(), topic })
    }

    /// Ends every subscription after what already waits in it, and refuses new ones: the instance no longer leads.
    pub fn close(&self) {
        let mut queues = lock(&self.queues);
        queues.closed = true;
        for queue in queues.list.drain(..) {
            lock(&queue.inner).ended = true;
            queue.arrived.notify_one();
        }
    }

    /// Takes subscribers again after [`Hub::close`].
    pub fn reopen(&self) {
        lock(&self.queues).closed = false;
    }
}

/// Where the first piece of some lines ends: after as many whole lines as fit [`Hub::CHUNK`], and after one at least.
fn piece_end(lines: &[u8]) -> usize {
    if lines.len() <= Hub::CHUNK {
        return lines.len();
    }
    let (fits, beyond) = lines.split_at(Hub::CHUNK);
    match memchr::memrchr(b'\n', fits) {
        Some(at) => at + 1,
        None => memchr::memchr(b'\n', beyond).map_or(lines.len(), |at| Hub::CHUNK + at + 1),
    }
}

impl Queue {
    fn push(&self, lines: Bytes, records: u64) {
        let mut inner = lock(&self.inner);
        inner.bytes += lines.len();
        inner.chunks.push_back((lines, records));
        while inner.chunks.len() > 1 && (inner.bytes > Hub::MAX_BYTES || inner.chunks.len() > Hub::MAX_CHUNKS) {
            let Some((oldest, count)) = inner.chunks.pop_front() else { break };
            inner.bytes -= oldest.len();
            inner.lost = inner.lost.saturating_add(count);
        }
        drop(inner);
        self.arrived.notify_one();
    }
}

impl Subscription {
    /// What it is about.
    #[must_use]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The next lines; `None` once the hub is closed and everything was taken. Safe to drop at its await point.
    pub async fn next(&mut self) -> Option<Delivery> {
        loop {
            {
                let mut inner = lock(&self.queue.inner);
                if let Some((lines, _)) = inner.chunks.pop_front() {
                    inner.bytes -= lines.len();
                    return Some(Delivery { lost: std::mem::take(&mut inner.lost), lines });
                }
                if inner.ended {
                    return None;
                }
            }
            self.queue.arrived.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.hub.queues).list.retain(|q| !Arc::ptr_eq(q, &self.queue));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, station: &str, seq: u64) -> String {
        format!(
            "{{\"seq\":{seq},\"epoch\":1,\"ts\":\"x\",\"kind\":\"{kind}\",\"station\":\"{station}\",\"crc\":\"0\"}}\n"
        )
    }

    #[test]
    fn a_topic_wants_its_own_kinds_and_station() {
        let all = Topic::Readings { station: None };
        let one = Topic::Readings { station: Some("b\"1".into()) };
        assert!(all.wants(line("reading", "x", 1).as_bytes()));
        assert!(!one.wants(line("reading", "x", 1).as_bytes()));
        assert!(one.wants(line("reading", "b\\\"1", 1).as_bytes()));
        assert!(!all.wants(line("event", "x", 1).as_bytes()));
        assert!(Topic::Events.wants(line("alarm", "x", 1).as_bytes()));
        assert!(!Topic::Events.wants(line("ack", "x", 1).as_bytes()));
        assert!(!Topic::Events.wants(b"half a line"));
        assert!(!Topic::Events.wants(b"{\"kind\":\"event\",\"x\":\"\xff\"}"));
    }

    #[tokio::test]
    async fn a_slow_subscriber_loses_the_oldest_and_is_told_how_many() {
        let hub = Hub::new();
        assert!(!hub.wanted());
        let mut sub = hub.subscribe(Topic::Events).unwrap();
        assert!(hub.wanted());
        let chunk = Bytes::from(vec![b'x'; Hub::MAX_BYTES / 2]);
        for _ in 0..5 {
            hub.publish(&chunk, 10);
        }
        assert_eq!(sub.next().await, Some(Delivery { lost: 30, lines: chunk.clone() }));
        assert_eq!(sub.next().await, Some(Delivery { lost: 0, lines: chunk }));
    }

    #[tokio::test]
    async fn a_long_commit_comes_in_pieces_of_whole_lines_and_no_record_is_miscounted() {
        let hub = Hub::new();
        let mut sub = hub.subscribe(Topic::Events).unwrap();
        let line = format!("{}\n", "x".repeat(999));
        let long = format!("{}\n", "y".repeat(2 * Hub::CHUNK));
        let text = line.repeat(200) + &long + &line.repeat(200);
        hub.publish(text.as_bytes(), 401);
        hub.close();
        let mut got = String::new();
        while let Some(Delivery { lost, lines }) = sub.next().await {
            assert!(lost == 0 && lines.ends_with(b"\n"));
            assert!(lines.len() <= Hub::CHUNK || lines.ends_with(long.as_bytes()), "{}", lines.len());
            got.push_str(std::str::from_utf8(&lines).unwrap());
        }
        assert_eq!(got, text);

        hub.reopen();
        let mut sub = hub.subscribe(Topic::Events).unwrap();
        let (commits, per_commit) = (10, 2 * Hub::MAX_BYTES / line.len());
        for _ in 0..commits {
            hub.publish(line.repeat(per_commit).as_bytes(), per_commit as u64);
        }
        assert!(lock(&sub.queue.inner).bytes <= Hub::MAX_BYTES, "a commit past the bound is bounded too");
        hub.close();
        let (mut lost, mut seen) = (0, 0);
        while let Some(delivery) = sub.next().await {
            lost += delivery.lost;
            seen += delivery.lines.len() / line.len();
        }
        assert_eq!(lost + seen as u64, (commits * per_commit) as u64);
        assert!(seen > 0);
    }

    #[tokio::test]
    async fn a_closed_hub_delivers_what_waits_and_then_ends() {
        let hub = Hub::new();
        let mut sub = hub.subscribe(Topic::Events).unwrap();
        hub.publish(b"a\n", 1);
        hub.close();
        assert!(sub.next().await.is_some());
        assert_eq!(sub.next().await, None);
        assert!(hub.subscribe(Topic::Events).is_err());
        hub.reopen();
        assert!(hub.subscribe(Topic::Events).is_ok());
    }

    #[test]
    fn subscribers_are_bounded_and_leave_when_dropped() {
        let hub = Hub::new();
        let all: Vec<_> = (0..Hub::MAX_SUBSCRIBERS).map(|_| hub.subscribe(Topic::Events).unwrap()).collect();
        assert!(matches!(hub.subscribe(Topic::Events), Err(Refusal::TooMany { .. })));
        drop(all);
        assert!(!hub.wanted());
    }
}
