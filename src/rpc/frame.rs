//! Newline-delimited frames. Pure: bytes in, whole frames out, whatever the chunking.

use bytes::{Bytes, BytesMut};

/// Gathers bytes and gives out whole lines.
#[derive(Debug)]
pub struct Frames {
    buffer: BytesMut,
    /// Bytes at the front that hold no line feed, so that a long frame is searched once and not once for each piece.
    searched: usize,
    limit: usize,
}

/// A frame is longer than the limit. The stream cannot be trusted to be in step any more: close it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit.
    pub limit: usize,
}

impl Frames {
    /// An empty buffer above this is given back: a connection that once had a long frame may be idle for long.
    const KEEP: usize = 16 << 10;

    /// Takes frames of at most `limit` bytes, the line feed not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, limit }
    }

    /// Where to read into: [`tokio::io::AsyncReadExt::read_buf`] appends to it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole frame without its line feed; blank lines are passed over. `None`: more bytes are needed.
    ///
    /// # Errors
    /// When the frame is longer than the limit, whether its end has come or not.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') else {
                self.searched = self.buffer.len();
                if self.buffer.is_empty() && self.buffer.capacity() > Self::KEEP {
                    self.buffer = BytesMut::new();
                }
                return if self.searched > self.limit { Err(self.too_long()) } else { Ok(None) };
            };
            let end = self.searched + at;
            if end > self.limit {
                return Err(self.too_long());
            }
            self.searched = 0;
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            if !is_blank(&line) {
                return Ok(Some(line.freeze()));
            }
        }
    }

    /// True when a frame has begun and not ended.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        !is_blank(&self.buffer)
    }

    /// What is left at the end of the stream: a last frame without its line feed. A truncated object is never valid JSON,
    /// so it cannot be taken for a whole one.
    pub fn finish(&mut self) -> Option<Bytes> {
        self.searched = 0;
        let rest = self.buffer.split();
        (!is_blank(&rest)).then(|| rest.freeze())
    }

    fn too_long(&self) -> TooLong {
        TooLong { limit: self.limit }
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(frames: &mut Frames) -> Vec<Bytes> {
        std::iter::from_fn(|| frames.next_frame().unwrap()).collect()
    }

    #[test]
    fn blank_lines_are_no_frames_and_a_carriage_return_stays() {
        let mut frames = Frames::new(100);
        frames.buffer().extend_from_slice(b"\n \r\n{}\r\n\n[]\n{");
        assert_eq!(drain(&mut frames), ["{}\r", "[]"]);
        assert!(frames.is_partial());
        assert_eq!(frames.finish().as_deref(), Some(&b"{"[..]));
        assert_eq!(frames.finish(), None);
    }

    #[test]
    fn a_frame_past_the_limit_is_refused_before_and_after_its_end() {
        for end in ["", "\n"] {
            let mut frames = Frames::new(4);
            frames.buffer().extend_from_slice(format!("abcd\nabcde{end}").as_bytes());
            assert_eq!(frames.next_frame(), Ok(Some(Bytes::from_static(b"abcd"))));
            assert_eq!(frames.next_frame(), Err(TooLong { limit: 4 }));
        }
    }

    #[test]
    fn the_buffer_of_a_long_frame_does_not_stay() {
        let mut frames = Frames::new(1 << 20);
        let long = format!("{}\n", "x".repeat(1 << 20));
        frames.buffer().extend_from_slice(long.as_bytes());
        assert_eq!(drain(&mut frames).len(), 1);
        assert!(frames.buffer().capacity() <= Frames::KEEP);
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_the_chunking(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
                                                sizes in prop::collection::vec(1usize..9, 1..50)) {
            let mut whole = Frames::new(1000);
            whole.buffer().extend_from_slice(&bytes);
            let mut pieces = Frames::new(1000);
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at((*size).min(rest.len()));
                pieces.buffer().extend_from_slice(now);
                got.extend(drain(&mut pieces));
                rest = later;
            }
            prop_assert_eq!(got, drain(&mut whole));
            prop_assert_eq!(pieces.finish(), whole.finish());
        }
    }
}
