//! The queue from a connection to its writer, bounded by bytes.
//!
//! Frames differ by five orders of magnitude, so a number of frames is no bound. Who finds the queue full waits: the
//! connection then reads nothing, and its subscriptions lose their oldest lines in the hub.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// So many bytes wait for the writer, what it has in hand included; one frame always fits.
pub(super) const MAX_BYTES: u32 = 256 << 10;
/// So many frames.
const MAX_FRAMES: usize = 64;

/// The connection's end.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    frames: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// A frame, and the room that it takes until it is dropped.
#[derive(Debug)]
pub(super) struct Queued {
    pub frame: Bytes,
    _room: OwnedSemaphorePermit,
}

/// The writer has ended: nothing can be sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// A queue. It closes for the writer when all clones of the outbox are gone.
pub(super) fn outbox() -> (Outbox, mpsc::Receiver<Queued>) {
    let (frames, queue) = mpsc::channel(MAX_FRAMES);
    (Outbox { frames, room: Arc::new(Semaphore::new(MAX_BYTES as usize)) }, queue)
}

impl Outbox {
    /// Hands a frame to the writer; waits for room.
    pub async fn send(&self, frame: Bytes) -> Result<(), Gone> {
        let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX).clamp(1, MAX_BYTES);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes);
        let room = tokio::select! {
            room = room => room.map_err(|_| Gone)?,
            () = self.frames.closed() => return Err(Gone),
        };
        self.frames.send(Queued { frame, _room: room }).await.map_err(|_| Gone)
    }

    /// Resolves once the writer has ended.
    pub async fn closed(&self) {
        self.frames.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_waits_is_bounded_by_bytes_and_one_frame_always_fits() {
        let (out, mut queue) = outbox();
        let third = Bytes::from(vec![0; MAX_BYTES as usize / 3]);
        for _ in 0..3 {
            assert_eq!(out.send(third.clone()).now_or_never(), Some(Ok(())));
        }
        assert_eq!(out.send(third.clone()).now_or_never(), None);
        let in_hand = queue.recv().await.unwrap();
        assert_eq!(out.send(third.clone()).now_or_never(), None, "what is being written counts");
        drop(in_hand);
        assert_eq!(out.send(third.clone()).now_or_never(), Some(Ok(())));
        while queue.try_recv().is_ok() {}
        assert_eq!(out.send(vec![0; 10 * MAX_BYTES as usize].into()).now_or_never(), Some(Ok(())));
        assert_eq!(out.send(third.clone()).now_or_never(), None);
        drop(queue);
        assert_eq!(out.send(third).await, Err(Gone));
    }
}
