//! The client: one connection, calls in turn, each with a deadline, and the notifications between them.

use std::{collections::VecDeque, io, path::Path, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
    time::{Instant, timeout_at},
};

use super::{
    frame::Frames,
    message::{RpcError, request},
};

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("nobody listens at {peer}")]
    Nobody {
        /// Where.
        peer: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {operation} {peer}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// With whom.
        peer: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// No answer within the deadline.
    #[error("no answer from {peer} to {method} within {} s", after.as_secs_f64())]
    Timeout {
        /// With whom.
        peer: String,
        /// What was asked.
        method: String,
        /// The deadline.
        after: Duration,
    },
    /// The other side closed before it answered.
    #[error("{peer} closed the connection")]
    Closed {
        /// With whom.
        peer: String,
    },
    /// What came is no answer.
    #[error("{peer} does not speak this protocol: {why}")]
    Protocol {
        /// With whom.
        peer: String,
        /// What was wrong.
        why: String,
    },
    /// The answer is an error.
    #[error("{}", .0.message)]
    Answered(RpcError),
}

/// A notification from the server. The parameters are its bytes as they came.
#[derive(Debug)]
pub struct Notification {
    /// For example `Reading`.
    pub method: String,
    /// A journal record, for `Reading` and `Event`.
    pub params: Box<RawValue>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    // `Value` and not `Option`: an id of null is an answer as well.
    #[serde(default)]
    id: Value,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<RpcError>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to a supervisor.
pub struct Client {
    stream: Box<dyn Stream>,
    peer: String,
    frames: Frames,
    deadline: Duration,
    calls: u64,
    early: VecDeque<Notification>,
}

impl Client {
    /// An answer's bytes: the status of ten thousand stations is a few mebibytes.
    const MAX_ANSWER: usize = 64 << 20;
    /// Notifications that come before an answer; the oldest goes beyond that.
    const MAX_EARLY: usize = 4096;

    /// Connects to a Unix socket. `deadline` holds for this and for each call.
    ///
    /// # Errors
    /// [`ClientError::Nobody`] when there is no socket, or nobody behind it.
    pub async fn connect(path: &Path, deadline: Duration) -> Result<Self, ClientError> {
        let peer = path.display().to_string();
        match tokio::time::timeout(deadline, UnixStream::connect(path)).await {
            Ok(Ok(stream)) => Ok(Self::over(stream, peer, deadline)),
            Ok(Err(e)) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Err(ClientError::Nobody { peer, source: e })
            }
            Ok(Err(e)) => Err(ClientError::Io { operation: "connect to", peer, source: e }),
            Err(_) => Err(ClientError::Timeout { peer, method: "connect".into(), after: deadline }),
        }
    }

    /// Talks over a stream that is connected already. `peer` names it in errors.
    pub fn over<S>(stream: S, peer: String, deadline: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let frames = Frames::new(Self::MAX_ANSWER);
        Self { stream: Box::new(stream), peer, frames, deadline, calls: 0, early: VecDeque::new() }
    }

    /// Calls a method and waits for its result.
    ///
    /// # Errors
    /// [`ClientError::Answered`] when the supervisor says no; the others when there was no answer.
    pub async fn call<R: DeserializeOwned>(&mut self, method: &str, params: Value) -> Result<R, ClientError> {
        let until = Instant::now() + self.deadline;
        match timeout_at(until, self.exchange(method, &params)).await {
            Ok(result) => {
                let raw = result?;
                serde_json::from_str(raw.get()).map_err(|e| self.protocol(format!("{method}: {e}")))
            }
            Err(_) => {
                let (peer, method) = (self.peer.clone(), method.to_owned());
                Err(ClientError::Timeout { peer, method, after: self.deadline })
            }
        }
    }

    /// The next notification, whenever it comes; safe to drop at its await point.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the supervisor is gone.
    pub async fn notification(&mut self) -> Result<Notification, ClientError> {
        loop {
            if let Some(early) = self.early.pop_front() {
                return Ok(early);
            }
            match self.message().await? {
                Message { method: Some(method), params: Some(params), .. } => {
                    return Ok(Notification { method, params });
                }
                // Without an id that is ours: the server refuses this connection as a whole.
                Message { error: Some(error), .. } => return Err(ClientError::Answered(error)),
                _ => {}
            }
        }
    }

    async fn exchange(&mut self, method: &str, params: &Value) -> Result<Box<RawValue>, ClientError> {
        self.calls += 1;
        let id = self.calls;
        self.send(request(id, method, params)).await?;
        loop {
            match self.message().await? {
                Message { method: Some(method), params: Some(params), .. } => {
                    if self.early.len() >= Self::MAX_EARLY {
                        self.early.pop_front();
                    }
                    self.early.push_back(Notification { method, params });
                }
                Message { error: Some(error), id: got, .. } if got.is_null() || got == id => {
                    return Err(ClientError::Answered(error));
                }
                Message { result, id: got, .. } if got == id => return result.map_or_else(|| self.null(), Ok),
                // An answer to an earlier call that was given up.
                _ => {}
            }
        }
    }

    async fn send(&mut self, frame: Bytes) -> Result<(), ClientError> {
        match self.stream.write_all(&frame).await {
            Ok(()) => Ok(()),
            // What the server said before it closed is worth more than the error of this write.
            Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            Err(source) => Err(ClientError::Io { operation: "write to", peer: self.peer.clone(), source }),
        }
    }

    async fn message(&mut self) -> Result<Message, ClientError> {
        loop {
            match self.frames.next_frame() {
                Ok(Some(frame)) => return serde_json::from_slice(&frame).map_err(|e| self.protocol(e.to_string())),
                Ok(None) => {}
                Err(e) => return Err(self.protocol(e.to_string())),
            }
            match self.stream.read_buf(self.frames.buffer()).await {
                Ok(0) => return Err(ClientError::Closed { peer: self.peer.clone() }),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ClientError::Closed { peer: self.peer.clone() });
                }
                Err(source) => return Err(ClientError::Io { operation: "read from", peer: self.peer.clone(), source }),
            }
        }
    }

    /// A result of null, which serde takes for none.
    fn null(&self) -> Result<Box<RawValue>, ClientError> {
        RawValue::from_string("null".to_owned()).map_err(|e| self.protocol(e.to_string()))
    }

    fn protocol(&self, why: String) -> ClientError {
        ClientError::Protocol { peer: self.peer.clone(), why }
    }
}
