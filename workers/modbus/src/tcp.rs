//! A Modbus TCP connection on which no answer is ever taken for another's.
//!
//! It owns its socket and starts no task. Each method has a deadline. Dropping a method's future loses no received
//! byte; dropping it half way through a send is noticed at the next request, and costs the connection.

use std::{io, net::SocketAddr, pin::Pin, time::Duration};

use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use worker_contract::{Reason, driver::Traffic};

use crate::{
    adu::{
        Inbox,
        mbap::{self, HeaderFault},
    },
    pdu::{Expected, PduFault},
    transaction::{Ended, Silence, Transaction, Verdict},
};

/// So many frames may be dropped while one answer is awaited; a peer that sends more is not speaking to us.
const MAX_DROPPED: u32 = 256;
/// So many bytes may wait from before a request.
const MAX_STALE: usize = 64 * 1024;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// No answer before the deadline; the connection goes on.
    #[error("no answer in time")]
    Timeout,
    /// Requests in a row brought not one byte.
    #[error("no byte received for {requests} requests in a row")]
    Silent {
        /// How many.
        requests: u32,
    },
    /// The answer must not be used; the connection goes on.
    #[error(transparent)]
    Refused(PduFault),
    /// The answer contradicts itself.
    #[error("out of step: {0}")]
    OutOfStep(PduFault),
    /// The bytes are no Modbus TCP.
    #[error("out of step: {0}")]
    Header(HeaderFault),
    /// The peer sends frames that nobody asked for, without end.
    #[error("the peer floods the connection with frames that were not asked for")]
    Flooded,
    /// The request could not be sent in time, or a send was given up half way.
    #[error("the request could not be sent whole")]
    Unsent,
    /// There is no connection (any more).
    #[error("the peer closed the connection")]
    Closed,
    /// The system says so.
    #[error("cannot {operation}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The request is longer than the protocol allows.
    #[error("a request of {0} bytes is longer than the protocol allows")]
    TooLong(usize),
}

impl TransactionError {
    /// True when the same connection can carry the next request.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Timeout | Self::Refused(_) | Self::TooLong(_) => true,
            Self::Silent { .. }
            | Self::OutOfStep(_)
            | Self::Header(_)
            | Self::Flooded
            | Self::Unsent
            | Self::Closed
            | Self::Io { .. } => false,
        }
    }

    /// What readings say of it.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Timeout | Self::Silent { .. } | Self::Unsent => Reason::Timeout,
            Self::Refused(_) | Self::OutOfStep(_) | Self::Header(_) | Self::Flooded | Self::TooLong(_) => {
                Reason::Protocol
            }
            Self::Closed | Self::Io { .. } => Reason::Disconnected,
        }
    }
}

/// A connection to a Modbus TCP device.
#[derive(Debug)]
pub struct StrictTcp {
    stream: TcpStream,
    inbox: Inbox,
    outbox: Box<[u8; mbap::MAX_ADU]>,
    last_id: u16,
    /// A send has begun and has not ended.
    sending: bool,
    silence: Silence,
    traffic: Traffic,
    /// For [`crate::client`] alone: the unit it speaks to, and how long it waits.
    pub(crate) unit: u8,
    pub(crate) patience: Duration,
    pub(crate) closed: bool,
}

impl StrictTcp {
    /// Resolves the host and connects to the first of its addresses that answers, all within the deadline.
    ///
    /// # Errors
    /// [`TransactionError::Timeout`], or [`TransactionError::Io`] with what the last address said.
    pub async fn connect(host: &str, port: u16, deadline: Instant) -> Result<Self, TransactionError> {
        let connecting = async {
            let addresses = tokio::net::lookup_host((host, port))
                .await
                .map_err(|source| TransactionError::Io { operation: "resolve the host's name", source })?;
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in addresses {
                match Self::connect_to(address).await {
                    Ok(stream) => return Ok(Self::over(stream)),
                    Err(error) => last = error,
                }
            }
            Err(TransactionError::Io { operation: "connect", source: last })
        };
        timeout_at(deadline, connecting).await.unwrap_or(Err(TransactionError::Timeout))
    }

    async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Over an open stream on which nothing was sent yet.
    #[must_use]
    pub fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            inbox: Inbox::default(),
            outbox: Box::new([0; mbap::MAX_ADU]),
            last_id: 0,
            sending: false,
            silence: Silence::default(),
            traffic: Traffic::default(),
            unit: 255,
            patience: Duration::from_secs(1),
            closed: false,
        }
    }

    /// Bytes and dropped frames of this connection.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The bytes of an answer; good until the next request.
    #[must_use]
    pub fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.inbox.bytes(range)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`TransactionError`]; when it is not [sound](TransactionError::is_sound) the connection is to be dropped.
    pub async fn exchange(
        &mut self,
        unit: u8,
        request: &[u8],
        expected: Expected,
        deadline: Instant,
    ) -> Result<Ended, TransactionError> {
        if request.len() > mbap::MAX_PDU {
            return Err(TransactionError::TooLong(request.len()));
        }
        if self.sending {
            return Err(TransactionError::Unsent);
        }
        self.drop_stale()?;
        self.last_id = self.last_id.wrapping_add(1);
        self.silence.asked(unit);
        let received = self.traffic.received;
        self.send(unit, request, deadline).await?;
        let transaction = Transaction { id: self.last_id, unit, request, expected };
        match self.answer(&transaction, deadline).await {
            Err(TransactionError::Timeout) if self.traffic.received == received => {
                if self.silence.timed_out(unit) {
                    Err(TransactionError::Silent { requests: self.silence.requests() })
                } else {
                    Err(TransactionError::Timeout)
                }
            }
            ended => ended,
        }
    }

    /// Drops what came before the request was sent: it cannot be its answer, even when identifiers wrap around. What
    /// the poller has not told of yet is dropped by its identifier while the answer is awaited.
    fn drop_stale(&mut self) -> Result<(), TransactionError> {
        let mut stale = 0;
        loop {
            while self.inbox.next_frame().map_err(TransactionError::Header)?.is_some() {
                self.traffic.dropped_frames += 1;
            }
            match self.receive()? {
                0 => return Ok(()),
                n => stale += n,
            }
            if stale > MAX_STALE {
                return Err(TransactionError::Flooded);
            }
        }
    }

    async fn send(&mut self, unit: u8, request: &[u8], deadline: Instant) -> Result<(), TransactionError> {
        self.outbox[mbap::HEADER..mbap::HEADER + request.len()].copy_from_slice(request);
        let end = mbap::encode(&mut self.outbox, self.last_id, unit, request.len());
        self.sending = true;
        let mut sent = 0;
        while sent < end {
            match self.stream.try_write(&self.outbox[sent..end]) {
                Ok(n) => {
                    sent += n;
                    self.traffic.sent += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match timeout_at(deadline, self.stream.writable()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(source)) => return Err(TransactionError::Io { operation: "send", source }),
                        Err(_) => return Err(TransactionError::Unsent),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TransactionError::Io { operation: "send", source }),
            }
        }
        self.sending = false;
        Ok(())
    }

    async fn answer(&mut self, transaction: &Transaction<'_>, deadline: Instant) -> Result<Ended, TransactionError> {
        let mut dropped = 0;
        loop {
            while let Some(frame) = self.inbox.next_frame().map_err(TransactionError::Header)? {
                match transaction.judge(&frame, self.inbox.bytes(frame.pdu.clone())) {
                    Verdict::Answer => return Ok(Ended::Answer(frame.pdu)),
                    Verdict::Exception(code) => return Ok(Ended::Exception(code)),
                    Verdict::Wrong(fault) => return Err(TransactionError::Refused(fault)),
                    Verdict::OutOfStep(fault) => return Err(TransactionError::OutOfStep(fault)),
                    Verdict::Foreign => {
                        self.traffic.dropped_frames += 1;
                        dropped += 1;
                    }
                }
                if dropped > MAX_DROPPED {
                    return Err(TransactionError::Flooded);
                }
            }
            match timeout_at(deadline, self.receive_some()).await {
                Ok(received) => received?,
                Err(_) => return Err(TransactionError::Timeout),
            }
        }
    }

    /// Waits for bytes and takes them. Through `poll_read`, since that notes a read that empties the socket: the look
    /// for stale bytes before the next request then costs no system call.
    async fn receive_some(&mut self) -> Result<(), TransactionError> {
        let Self { stream, inbox, .. } = self;
        let read = std::future::poll_fn(|cx| {
            let mut room = ReadBuf::new(inbox.room());
            Pin::new(&mut *stream).poll_read(cx, &mut room).map_ok(|()| room.filled().len())
        });
        match read.await {
            Ok(0) => Err(TransactionError::Closed),
            Ok(n) => {
                self.count_in(n);
                Ok(())
            }
            Err(source) => Err(TransactionError::Io { operation: "receive", source }),
        }
    }

    fn count_in(&mut self, bytes: usize) {
        self.inbox.filled(bytes);
        self.traffic.received += bytes as u64;
        self.silence.heard();
    }

    /// Takes what is there, without waiting; 0 when nothing is.
    fn receive(&mut self) -> Result<usize, TransactionError> {
        loop {
            match self.stream.try_read(self.inbox.room()) {
                Ok(0) => return Err(TransactionError::Closed),
                Ok(n) => {
                    self.count_in(n);
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TransactionError::Io { operation: "receive", source }),
            }
        }
    }

    /// Tells the peer that nothing more comes.
    ///
    /// # Errors
    /// When the system refuses, or not within the deadline.
    pub async fn shut_down(&mut self, deadline: Instant) -> io::Result<()> {
        use tokio::io::AsyncWriteExt as _;
        timeout_at(deadline, self.stream.shutdown()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
