//! `StrictTcp` behind `tokio-modbus`'s own client type.

use std::{io, time::Duration};

use tokio::time::Instant;
use tokio_modbus::{
    Error, ExceptionCode, Slave,
    client::{Client, Context, Reader, Writer},
    slave::SlaveContext,
};
use worker_modbus::tcp::StrictTcp;

use crate::support::{Server, Step};

async fn context(server: &Server, patience: u64) -> Context {
    let deadline = Instant::now() + Duration::from_secs(5);
    let address = server.address;
    let mut strict = StrictTcp::connect(&address.ip().to_string(), address.port(), deadline).await.unwrap();
    strict.set_patience(Duration::from_millis(patience));
    let mut context = Context::from(Box::new(strict) as Box<dyn Client>);
    context.set_slave(Slave(1));
    context
}

fn io_kind<T: std::fmt::Debug>(result: tokio_modbus::Result<T>) -> io::ErrorKind {
    match result {
        Err(Error::Transport(error)) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_context_reads_and_writes() {
    let server = Server::start(|asked| match (asked.unit, asked.address) {
        (1, 666) => vec![Step::Send(asked.exception(2))],
        (1, 667) => vec![Step::Send(asked.frame(&[6, 0, 0, 0, 0]))],
        (1, _) => asked.honest(),
        _ => vec![],
    })
    .await;
    let mut context = context(&server, 2000).await;
    assert_eq!(context.read_holding_registers(5, 3).await.unwrap().unwrap(), [5, 6, 7]);
    assert_eq!(context.read_input_registers(9, 1).await.unwrap().unwrap(), [9]);
    assert_eq!(context.read_coils(0, 10).await.unwrap().unwrap().len(), 10);
    assert_eq!(context.read_discrete_inputs(3, 2).await.unwrap().unwrap(), [true, false]);
    context.write_single_register(1, 2).await.unwrap().unwrap();
    context.write_single_coil(1, true).await.unwrap().unwrap();
    context.write_multiple_registers(1, &[1, 2]).await.unwrap().unwrap();
    context.write_multiple_coils(1, &[true; 11]).await.unwrap().unwrap();
    assert_eq!(context.read_holding_registers(666, 1).await.unwrap(), Err(ExceptionCode::IllegalDataAddress));
    assert_eq!(io_kind(context.write_single_register(667, 1).await), io::ErrorKind::InvalidData);
    context.disconnect().await.unwrap();
    context.disconnect().await.unwrap();
    assert_eq!(io_kind(context.read_coils(0, 1).await), io::ErrorKind::NotConnected);
}

#[tokio::test]
async fn m1_the_context_recovers_from_late_answers() {
    let server = Server::start(|asked| {
        let late = if asked.address <= 3 { 400 } else { 0 };
        vec![Step::Wait(Duration::from_millis(late)), Step::Send(asked.answer())]
    })
    .await;
    let mut context = context(&server, 150).await;
    for register in 1..=3 {
        assert_eq!(io_kind(context.read_holding_registers(register, 1).await), io::ErrorKind::TimedOut);
    }
    for register in 4..=9 {
        assert_eq!(context.read_holding_registers(register, 1).await.unwrap().unwrap(), [register]);
    }
}
