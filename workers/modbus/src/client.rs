//! [`StrictTcp`] as a `tokio-modbus` client, for everything that is not polling.
//!
//! `tokio-modbus`'s own TCP client takes the next frame for the answer, so that one late answer leaves it behind for
//! ever. Behind its public trait, ours keeps the types and the functions of that crate with checked transactions:
//! `Context::from(Box::new(strict) as Box<dyn Client>)`.

use std::{io, time::Duration};

use tokio::time::Instant;
use tokio_modbus::{ExceptionCode, Request, Response, Slave, bytes::Bytes, client::Client, slave::SlaveContext};

use crate::{
    pdu::Expected,
    tcp::{StrictTcp, TransactionError},
    transaction::Ended,
};

impl StrictTcp {
    /// How long [`Client::call`] waits for an answer; one second unless it is set.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    async fn call_strictly(&mut self, request: Request<'_>) -> tokio_modbus::Result<Response> {
        if self.closed {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        let (pdu, expected) = encode(&request);
        let deadline = Instant::now() + self.patience;
        match self.exchange(self.unit, &pdu, expected, deadline).await {
            Ok(Ended::Answer(range)) => Ok(Ok(Response::try_from(Bytes::copy_from_slice(self.bytes(range)))?)),
            Ok(Ended::Exception(code)) => Ok(Err(ExceptionCode::new(code))),
            Err(error) => {
                self.closed = !error.is_sound();
                Err(io::Error::new(kind(&error), error).into())
            }
        }
    }
}

fn kind(error: &TransactionError) -> io::ErrorKind {
    match error {
        TransactionError::Timeout | TransactionError::Silent { .. } | TransactionError::Unsent => {
            io::ErrorKind::TimedOut
        }
        TransactionError::Refused(_)
        | TransactionError::OutOfStep(_)
        | TransactionError::Header(_)
        | TransactionError::Flooded => io::ErrorKind::InvalidData,
        TransactionError::TooLong(_) => io::ErrorKind::InvalidInput,
        TransactionError::Closed => io::ErrorKind::UnexpectedEof,
        TransactionError::Io { source, .. } => source.kind(),
    }
}

/// A request's PDU, and what its answer must look like.
fn encode(request: &Request<'_>) -> (Vec<u8>, Expected) {
    let mut pdu = vec![request.function_code().value()];
    let mut words = |list: &[u16]| pdu.extend(list.iter().flat_map(|w| w.to_be_bytes()));
    let bytes = |n: usize| u8::try_from(n).map_or(Expected::Any, Expected::Bytes);
    let expected = match request {
        Request::ReadCoils(address, count) | Request::ReadDiscreteInputs(address, count) => {
            words(&[*address, *count]);
            bytes(usize::from(*count).div_ceil(8))
        }
        Request::ReadInputRegisters(address, count) | Request::ReadHoldingRegisters(address, count) => {
            words(&[*address, *count]);
            bytes(usize::from(*count) * 2)
        }
        Request::WriteSingleCoil(address, on) => {
            words(&[*address, if *on { 0xFF00 } else { 0 }]);
            Expected::Echo(5)
        }
        Request::WriteSingleRegister(address, word) => {
            words(&[*address, *word]);
            Expected::Echo(5)
        }
        Request::WriteMultipleCoils(address, coils) => {
            words(&[*address, coils.len() as u16]);
            pdu.push(coils.len().div_ceil(8) as u8);
            pdu.extend(coils.chunks(8).map(|c| (0..).zip(c).fold(0, |byte, (i, on)| byte | u8::from(*on) << i)));
            Expected::Echo(5)
        }
        Request::WriteMultipleRegisters(address, data) => {
            words(&[*address, data.len() as u16]);
            pdu.push((data.len() * 2) as u8);
            pdu.extend(data.iter().flat_map(|w| w.to_be_bytes()));
            Expected::Echo(5)
        }
        Request::MaskWriteRegister(address, and, or) => {
            words(&[*address, *and, *or]);
            Expected::Echo(7)
        }
        Request::ReadWriteMultipleRegisters(address, count, write_address, data) => {
            words(&[*address, *count, *write_address, data.len() as u16]);
            pdu.push((data.len() * 2) as u8);
            pdu.extend(data.iter().flat_map(|w| w.to_be_bytes()));
            bytes(usize::from(*count) * 2)
        }
        Request::ReportServerId => Expected::Any,
        Request::ReadDeviceIdentification(code, object) => {
            pdu.extend([0x0E, code.value(), *object]);
            Expected::Any
        }
        Request::Custom(_, data) => {
            pdu.extend_from_slice(data);
            Expected::Any
        }
    };
    (pdu, expected)
}

#[async_trait::async_trait]
impl Client for StrictTcp {
    async fn call(&mut self, request: Request<'_>) -> tokio_modbus::Result<Response> {
        self.call_strictly(request).await
    }

    async fn disconnect(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let deadline = Instant::now() + self.patience;
        match self.shut_down(deadline).await {
            // The peer was faster.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        }
    }
}

impl SlaveContext for StrictTcp {
    fn set_slave(&mut self, slave: Slave) {
        self.unit = slave.into();
    }
}
