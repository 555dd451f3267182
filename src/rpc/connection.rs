//! One connection of the server.
//!
//! Tasks: this one reads frames, runs calls and hands their answers to the writer; the writer ends when all senders are
//! gone or its peer takes nothing for the write deadline; one for each subscription moves journal lines to the writer,
//! and ends with the subscription or the connection. The queue to the writer is bounded by bytes: when it is full, this task
//! stops reading, and subscriptions lose their oldest lines in the hub.
//!
//! On a drain, calls that have come are answered before the connection closes: those in flight by what they give, others by
//! the refusal that the instance drains.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::{Buf, Bytes};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::{Duration, Instant, sleep_until, timeout, timeout_at},
};

use super::{
    api::{Refusal, Subscription, Topic},
    frame::{Frames, TooLong},
    message::{Answer, BatchAnswer, Call, Id, Incoming, RpcError, code, notification, parse},
    methods,
    outbox::{Gone, Outbox, Queued, outbox},
    server::Shared,
};

/// On a drain, how long a peer must have sent nothing before the connection closes: it may be between two calls.
const QUIET: Duration = Duration::from_millis(50);
/// On a drain, how long a peer that goes on sending is answered.
const GRACE: Duration = Duration::from_millis(250);
/// How long what a peer still sends after a fault is read and thrown away, so that it can read why.
const LINGER: Duration = Duration::from_secs(1);

/// What came of a frame: the bytes to send, and the streams to start after that.
struct Handled {
    frame: Option<Bytes>,
    streams: Vec<(Subscription, OwnedSemaphorePermit)>,
}

/// Why reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The peer sends no more, or is gone.
    Peer,
    /// The peer broke the framing or was silent for too long.
    Fault,
    /// The server drains.
    Drain,
}

struct Connection {
    shared: Shared,
    frames: Frames,
    work: FuturesUnordered<BoxFuture<'static, Handled>>,
    streams: JoinSet<()>,
    slots: Arc<Semaphore>,
    out: Outbox,
}

/// Serves one connection to its end.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(stream: S, shared: Shared) {
    let (mut read, write) = tokio::io::split(stream);
    let (out, queue) = outbox();
    let writer = tokio::spawn(write_loop(write, queue, shared.clone()));
    let mut connection = Connection {
        frames: Frames::new(shared.limits.frame_bytes),
        work: FuturesUnordered::new(),
        streams: JoinSet::new(),
        slots: Arc::new(Semaphore::new(shared.limits.subscriptions)),
        out,
        shared,
    };
    let ended = connection.read_loop(&mut read).await;
    connection.finish(ended, &mut read).await;
    // The writer ends by itself: each write has its deadline and the queue takes nothing new.
    let _ = writer.await;
    if ended == Ended::Fault {
        let mut waste = [0; 8192];
        let _ = timeout(LINGER, async { while read.read(&mut waste).await.is_ok_and(|n| n > 0) {} }).await;
    }
}

impl Connection {
    async fn read_loop<R: AsyncRead + Unpin>(&mut self, read: &mut R) -> Ended {
        let mut last = Instant::now();
        let mut begun = None;
        loop {
            match self.take_frames() {
                Ok(0) => {}
                Ok(_) => last = Instant::now(),
                Err(e) => {
                    let answer = Answer::refuse(Id::NULL, code::INVALID_REQUEST, e.to_string());
                    let _ = self.out.send(answer.into_frame()).await;
                    return Ended::Fault;
                }
            }
            while self.streams.try_join_next().is_some() {}
            let room = self.work.len() < self.shared.limits.in_flight;
            begun = if room && self.frames.is_partial() { begun.or(Some(Instant::now())) } else { None };
            let (wait_until, quiet) = self.patience(last, begun);
            tokio::select! {
                biased;
                () = self.shared.drain.cancelled() => return Ended::Drain,
                () = self.out.closed() => return Ended::Peer,
                Some(handled) = self.work.next() => {
                    last = Instant::now();
                    if self.deliver(handled).await.is_err() { return Ended::Peer }
                }
                got = read.read_buf(self.frames.buffer()), if room => match got {
                    Ok(0) | Err(_) => return Ended::Peer,
                    Ok(_) => {}
                },
                () = sleep_until(wait_until), if quiet => {
                    let answer = Answer::refuse(Id::NULL, code::DEADLINE, "closed: nothing whole came for too long");
                    let _ = self.out.send(answer.into_frame()).await;
                    return Ended::Fault;
                }
            }
        }
    }

    /// Until when the peer may be silent, and whether that holds at present.
    fn patience(&self, last: Instant, begun: Option<Instant>) -> (Instant, bool) {
        match begun {
            Some(begun) => (begun + self.shared.limits.frame, true),
            None => (last + self.shared.limits.idle, self.work.is_empty() && self.streams.is_empty()),
        }
    }

    /// Starts the whole frames that have come, up to the bound on what is in flight.
    fn take_frames(&mut self) -> Result<usize, TooLong> {
        let mut taken = 0;
        while self.work.len() < self.shared.limits.in_flight {
            let Some(frame) = self.frames.next_frame()? else { break };
            self.work.push(handle(frame, self.shared.clone(), Arc::clone(&self.slots)).boxed());
            taken += 1;
        }
        Ok(taken)
    }

    /// The answer first, then the streams that it promised.
    async fn deliver(&mut self, handled: Handled) -> Result<(), Gone> {
        if let Some(frame) = handled.frame {
            self.out.send(frame).await?;
        }
        for (subscription, permit) in handled.streams {
            let (out, drain) = (self.out.clone(), self.shared.drain.clone());
            self.streams.spawn(async move {
                tokio::select! {
                    () = stream(subscription, &out) => {}
                    () = drain.cancelled() => ended(&out, "this instance is draining").await,
                }
                drop(permit);
            });
        }
        Ok(())
    }

    /// Answers calls in flight, and refuses those that come meanwhile and shortly after.
    async fn refuse_late<R: AsyncRead + Unpin>(&mut self, read: &mut R) -> Result<(), Gone> {
        let began = Instant::now();
        let mut quiet = began + QUIET;
        let mut open = true;
        // A peer that was between two calls is told as well: its next one comes to a closed connection.
        let mut told = !self.work.is_empty() || !self.streams.is_empty();
        loop {
            loop {
                match self.frames.next_frame() {
                    Ok(Some(frame)) => {
                        told = true;
                        if let Some(frame) = refuse_all(&frame) {
                            self.out.send(frame).await?;
                        }
                    }
                    Ok(None) => break,
                    Err(TooLong { .. }) => break open = false,
                }
            }
            let idle = self.work.is_empty();
            if idle && !open {
                return Ok(());
            }
            tokio::select! {
                () = self.out.closed() => return Err(Gone),
                Some(handled) = self.work.next() => self.deliver(handled).await?,
                got = read.read_buf(self.frames.buffer()), if open => match got {
                    Ok(0) | Err(_) => open = false,
                    Ok(_) => quiet = (Instant::now() + QUIET).min(began + GRACE),
                },
                () = sleep_until(quiet), if idle => {
                    let word = Answer { id: Id::NULL, outcome: Err(Refusal::Draining.into()) };
                    return if told { Ok(()) } else { self.out.send(word.into_frame()).await };
                }
            }
        }
    }

    async fn finish<R: AsyncRead + Unpin>(mut self, ended: Ended, read: &mut R) {
        match ended {
            // A last call may come without its line feed before the peer closes its half.
            Ended::Peer => {
                while let Ok(1..) = self.take_frames() {
                    while let Some(handled) = self.work.next().await {
                        if self.deliver(handled).await.is_err() {
                            return;
                        }
                    }
                }
                if let Some(frame) = self.frames.finish() {
                    self.work.push(handle(frame, self.shared.clone(), Arc::clone(&self.slots)).boxed());
                }
            }
            Ended::Drain => {
                if self.refuse_late(read).await.is_err() {
                    return;
                }
            }
            Ended::Fault => {}
        }
        while let Some(handled) = self.work.next().await {
            if self.deliver(handled).await.is_err() {
                return;
            }
        }
        if ended == Ended::Drain {
            while self.streams.join_next().await.is_some() {}
        }
    }
}

async fn handle(frame: Bytes, shared: Shared, slots: Arc<Semaphore>) -> Handled {
    let mut streams = Vec::new();
    // One deadline for a frame, be it a batch: the caller waits for all of it.
    let until = Instant::now() + shared.limits.request;
    let incoming = parse(&frame);
    // A call that takes long holds its parameters and not the buffer that its frame came in.
    drop(frame);
    let frame = match incoming {
        Incoming::Single(one) => answer(one, until, &shared, &slots, &mut streams).await.map(Answer::into_frame),
        Incoming::Batch(calls) => {
            let mut answers = BatchAnswer::default();
            for call in calls {
                let one = match (call, answers.refusal()) {
                    (Ok(call), Some(no)) => call.id.map(|id| Answer { id, outcome: Err(no) }),
                    (call, _) => answer(call, until, &shared, &slots, &mut streams).await,
                };
                if let Some(one) = one {
                    answers.push(one);
                }
            }
            answers.into_frame()
        }
    };
    Handled { frame, streams }
}

/// Runs one call. `None` for a notification.
async fn answer(
    call: Result<Call, Box<Answer>>,
    until: Instant,
    shared: &Shared,
    slots: &Arc<Semaphore>,
    streams: &mut Vec<(Subscription, OwnedSemaphorePermit)>,
) -> Option<Answer> {
    let Call { id, method, params } = match call {
        Ok(call) => call,
        Err(answer) => return Some(*answer),
    };
    let run = AssertUnwindSafe(methods::run(shared.instance.as_ref(), &method, params)).catch_unwind();
    let outcome = match timeout_at(until, run).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_panic)) => {
            if let Some(untold) = shared.noise.panicked.note(Instant::now()) {
                tracing::error!(method, untold, "a control request panicked");
            }
            Err(RpcError::new(code::INTERNAL, "internal error; the supervisor's log has more"))
        }
        Err(_) => {
            let seconds = shared.limits.request.as_secs_f64();
            Err(RpcError::new(code::DEADLINE, format!("{method} took longer than {seconds} s")))
        }
    };
    let outcome = outcome.and_then(|done| {
        if let Some(subscription) = done.subscription {
            let limit = shared.limits.subscriptions as u64;
            let permit = Arc::clone(slots)
                .try_acquire_owned()
                .map_err(|_| Refusal::TooMany { what: "subscriptions of one connection".into(), limit })?;
            streams.push((subscription, permit));
        }
        Ok(done.result)
    });
    id.map(|id| Answer { id, outcome })
}

/// The answer to a frame that came too late.
fn refuse_all(frame: &[u8]) -> Option<Bytes> {
    let refuse = |one: Result<Call, Box<Answer>>| match one {
        Ok(call) => call.id.map(|id| Answer { id, outcome: Err(Refusal::Draining.into()) }),
        Err(answer) => Some(*answer),
    };
    match parse(frame) {
        Incoming::Single(one) => refuse(one).map(Answer::into_frame),
        Incoming::Batch(calls) => {
            let mut answers = BatchAnswer::default();
            calls.into_iter().filter_map(refuse).for_each(|one| answers.push(one));
            answers.into_frame()
        }
    }
}

/// Moves journal lines of a subscription to the writer.
async fn stream(mut subscription: Subscription, out: &Outbox) {
    while let Some(delivery) = subscription.next().await {
        if delivery.lost > 0 {
            let params = json!({ "method": subscription.topic().method(), "lost": delivery.lost });
            if out.send(notification("Subscription.Lost", &params)).await.is_err() {
                return;
            }
        }
        let frames = wrap(subscription.topic(), &delivery.lines);
        if !frames.is_empty() && out.send(frames).await.is_err() {
            return;
        }
    }
    ended(out, "this instance commits no records any more").await;
}

async fn ended(out: &Outbox, why: &str) {
    let _ = out.send(notification("Subscription.Ended", &json!({ "why": why }))).await;
}

/// Notifications of the lines that the topic wants. A line goes in as it stands, since its checksum is over its bytes.
fn wrap(topic: &Topic, lines: &[u8]) -> Bytes {
    // Twice the lines holds nearly always; what is larger grows.
    let mut frames = Vec::with_capacity(2 * lines.len());
    for line in lines.split(|b| *b == b'\n').filter(|line| topic.wants(line)) {
        frames.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"");
        frames.extend_from_slice(topic.method().as_bytes());
        frames.extend_from_slice(b"\",\"params\":");
        frames.extend_from_slice(line);
        frames.extend_from_slice(b"}\n");
    }
    // What waits for the writer is counted by its length.
    frames.shrink_to_fit();
    frames.into()
}

/// Writes frames in turn. Ends when a peer takes not one byte for the write deadline.
async fn write_loop<W: AsyncWrite + Unpin>(mut write: W, mut queue: mpsc::Receiver<Queued>, shared: Shared) {
    let stall = shared.limits.write;
    while let Some(mut queued) = queue.recv().await {
        while !queued.frame.is_empty() {
            match timeout(stall, write.write(&queued.frame)).await {
                Ok(Ok(n)) if n > 0 => queued.frame.advance(n),
                Ok(Ok(_) | Err(_)) => return,
                Err(_) => {
                    if let Some(untold) = shared.noise.stuck.note(Instant::now()) {
                        tracing::info!(untold, "control connection closed: its peer takes nothing");
                    }
                    return;
                }
            }
        }
    }
    let _ = timeout(stall, write.shutdown()).await;
}
