//! The messages between worker and supervisor: length-delimited MessagePack over a Unix socket, a version first.
//!
//! Each side sends its [`VERSION`] as a frame of its own, then its hello; only then anything else. A version that is not
//! ours ends the conversation before another byte is understood.

use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::net::{
    UnixStream,
    unix::{OwnedReadHalf, OwnedWriteHalf},
};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};
use worker_contract::{ConnectionConfig, Reading, StationConfig};

use crate::status::{StationCounters, StationState};

/// Rises with each change that the other side would misread.
pub const VERSION: u32 = 1;

/// No frame is longer. A station of the largest sort (20,000 points) takes about 2 MiB.
pub const MAX_FRAME: usize = 16 << 20;

/// What goes wrong on the wire.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The socket failed.
    #[error("worker socket")]
    Io(#[source] io::Error),
    /// The other side went away.
    #[error("the other side closed the worker socket")]
    Closed,
    /// Nothing came in time.
    #[error("nothing came over the worker socket within {0:?}")]
    Deadline(Duration),
    /// The bytes are no message.
    #[error("a frame on the worker socket is no message: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
    /// A message that cannot be packed, which plain data never is.
    #[error("a message does not pack: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    /// The other side speaks another version.
    #[error("the other side speaks version {theirs} of the worker protocol, this build {VERSION}")]
    Version {
        /// What it said.
        theirs: u32,
    },
}

/// From the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Who leads. A worker obeys only the highest epoch that it has seen.
    Hello {
        /// The supervisor's build.
        build: String,
        /// Its epoch.
        epoch: u64,
        /// Its instance.
        instance: String,
        /// Names this process of the worker, in the journal and in its spool.
        session: u64,
    },
    /// A new configuration: its connections without their stations, which follow one by one.
    Configure {
        /// Names the configuration in the answer.
        generation: u64,
        /// The connections, each with an empty list of stations.
        connections: Vec<ConnectionConfig>,
        /// How many [`ToWorker::Station`] follow.
        stations: u32,
    },
    /// A station of the configuration that was begun.
    Station {
        /// Its connection's place in [`ToWorker::Configure`].
        connection: u32,
        /// The station, with its handle.
        station: StationConfig,
    },
    /// Every reading up to this number is committed to the journal.
    Ack {
        /// The number of the last one.
        up_to: u64,
    },
    /// Stops or resumes polling, for a journal that refuses more.
    Pause(
        /// True to stop.
        bool,
    ),
    /// Finish what is in flight, begin nothing, wait until all is acknowledged, leave.
    Drain {
        /// The time there is.
        within_ms: u64,
    },
}

/// From the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// Who it is.
    Hello {
        /// The worker's build.
        build: String,
        /// Its process.
        pid: u32,
        /// The protocol's name.
        protocol: String,
    },
    /// The configuration is in force.
    Configured {
        /// Which.
        generation: u64,
        /// What could not be applied: the connection's or station's id and why.
        refused: Vec<(String, String)>,
    },
    /// Readings of one station.
    Readings(Readings),
    /// What changed about stations since the last report.
    Stations {
        /// The stations' reports.
        reports: Vec<StationReport>,
        /// Readings that the bounded outbox had to drop before they were sent, since the start.
        lost: u64,
    },
    /// Everything is sent and acknowledged, or the time is up; the worker leaves.
    Drained {
        /// Readings that no ack came for.
        uncommitted: u64,
    },
}

/// Readings of one station, numbered `first`, `first + 1`, and so on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// The first one's number.
    pub first: u64,
    /// The station's configuration.
    pub handle: u32,
    /// Wall microseconds of the answer.
    pub ts: i64,
    /// The readings.
    pub readings: Vec<Reading>,
}

/// A station's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StationReport {
    /// The station's configuration.
    pub handle: u32,
    /// Its state.
    pub state: StationState,
    /// Why, when it is not good.
    pub reason: Option<String>,
    /// Whether it was polled to the end at least once.
    pub polled: bool,
    /// What was counted.
    pub counters: StationCounters,
}

/// Reads messages.
pub struct Reader {
    frames: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
}

/// Writes messages.
pub struct Writer {
    frames: FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>,
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME).new_codec()
}

/// Packs a message into the bytes of one frame, without its length.
///
/// # Errors
/// Never for plain data.
pub fn pack<T: Serialize>(message: &T) -> Result<Bytes, WireError> {
    Ok(Bytes::from(rmp_serde::to_vec(message)?))
}

/// Splits a connected socket and exchanges versions.
///
/// # Errors
/// When the other side speaks another version, or nothing in time.
pub async fn open(stream: UnixStream, within: Duration) -> Result<(Reader, Writer), WireError> {
    let (read, write) = stream.into_split();
    let mut reader = Reader { frames: FramedRead::new(read, codec()) };
    let mut writer = Writer { frames: FramedWrite::new(write, codec()) };
    writer.send(&VERSION).await?;
    let theirs: u32 = reader.receive_within(within).await?;
    if theirs == VERSION { Ok((reader, writer)) } else { Err(WireError::Version { theirs }) }
}

impl Reader {
    /// The next message; waits without end, since the other side may have nothing to say.
    ///
    /// # Errors
    /// [`WireError::Closed`] at the end of the stream.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, WireError> {
        let frame: BytesMut = match self.frames.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(e)) => return Err(WireError::Io(e)),
            None => return Err(WireError::Closed),
        };
        Ok(rmp_serde::from_slice(&frame)?)
    }

    /// The next message, within a time.
    ///
    /// # Errors
    /// [`WireError::Deadline`] when there was none.
    pub async fn receive_within<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, WireError> {
        tokio::time::timeout(within, self.receive()).await.map_err(|_| WireError::Deadline(within))?
    }
}

impl Writer {
    /// Sends a message.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        self.frames.send(pack(message)?).await.map_err(WireError::Io)
    }

    /// Puts a packed message into the buffer; [`Writer::flush`] sends it.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn feed(&mut self, packed: Bytes) -> Result<(), WireError> {
        self.frames.feed(packed).await.map_err(WireError::Io)
    }

    /// Sends what is in the buffer.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn flush(&mut self) -> Result<(), WireError> {
        SinkExt::<Bytes>::flush(&mut self.frames).await.map_err(WireError::Io)
    }
}

#[cfg(test)]
mod tests {
    use worker_contract::{Reason, Value};

    use super::*;

    #[tokio::test]
    async fn messages_arrive_as_they_were_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        let within = Duration::from_secs(5);
        let (left, right) = tokio::join!(open(a, within), open(b, within));
        let (_, mut send) = left.unwrap();
        let (mut receive, _) = right.unwrap();
        let readings = vec![
            Reading { point: 0, value: Some(Value::F32(21.6)), reason: None },
            Reading { point: 7, value: None, reason: Some(Reason::Exception(2)) },
            Reading { point: 9, value: Some(Value::Text("é".into())), reason: Some(Reason::Range) },
        ];
        let message = FromWorker::Readings(Readings { first: 1 << 40, handle: 3, ts: -1, readings });
        send.send(&message).await.unwrap();
        assert_eq!(receive.receive_within::<FromWorker>(within).await.unwrap(), message);
    }

    #[tokio::test]
    async fn another_version_is_refused_and_named() {
        let (a, b) = UnixStream::pair().unwrap();
        let (_, write) = b.into_split();
        let mut other = Writer { frames: FramedWrite::new(write, codec()) };
        other.send(&7_u32).await.unwrap();
        let error = open(a, Duration::from_secs(5)).await.err().unwrap();
        assert!(matches!(error, WireError::Version { theirs: 7 }), "{error}");
    }

    #[tokio::test]
    async fn garbage_is_an_error_and_not_a_panic() {
        for garbage in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x01\xc1", b"\0\0\0\0", b"\0\0\0\x02\x92\x01"] {
            let (a, mut b) = UnixStream::pair().unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut b, garbage).await.unwrap();
            drop(b);
            assert!(open(a, Duration::from_secs(5)).await.is_err());
        }
    }
}
