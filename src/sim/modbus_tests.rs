//! The server over a socket.

use std::net::Ipv4Addr;

use super::*;
use crate::sim::{faults::Of, registers::Registers};

async fn start(faults: Faults) -> Server {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let plant = Box::new(Registers::new(3, 65_536));
    Server::start(Options { listen, plant, faults }).await.unwrap()
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.addr()).await.unwrap()
}

/// A read of one holding register.
fn request(transaction: u16, unit: u8, address: u16) -> Vec<u8> {
    let [t1, t0] = transaction.to_be_bytes();
    let [a1, a0] = address.to_be_bytes();
    vec![t1, t0, 0, 0, 0, 6, unit, 3, a1, a0, 0, 1]
}

/// One frame: transaction, unit, PDU. `None` when the peer closed.
async fn receive(stream: &mut TcpStream) -> Option<(u16, u8, Vec<u8>)> {
    let read = async {
        let mut header = [0; 7];
        stream.read_exact(&mut header).await.ok()?;
        let mut pdu = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]])) - 1];
        stream.read_exact(&mut pdu).await.ok()?;
        Some((u16::from_be_bytes([header[0], header[1]]), header[6], pdu))
    };
    timeout(Duration::from_secs(5), read).await.expect("an answer or an end within five seconds")
}

#[tokio::test]
async fn pipelined_and_cut_requests_are_answered_in_turn() {
    let server = start(Faults::default()).await;
    let mut stream = connect(&server).await;
    let both = [request(1, 1, 100), request(2, 2, 200)].concat();
    for piece in both.chunks(5) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(receive(&mut stream).await, Some((1, 1, vec![3, 2, 0, 100])));
    assert_eq!(receive(&mut stream).await, Some((2, 2, vec![3, 2, 0, 200])));
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn garbage_closes_its_own_connection_only() {
    let server = start(Faults::default()).await;
    let mut good = connect(&server).await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 1, 0, 0, 0, 0, 1], &[0, 1, 0, 0, 255, 255, 1, 3]] {
        let mut bad = connect(&server).await;
        bad.write_all(garbage).await.unwrap();
        assert_eq!(receive(&mut bad).await, None);
    }
    good.write_all(&request(1, 1, 7)).await.unwrap();
    assert_eq!(receive(&mut good).await, Some((1, 1, vec![3, 2, 0, 7])));
}

#[tokio::test]
async fn a_late_unit_does_not_hold_up_a_prompt_one() {
    let late = vec![Of { unit: Some(2), value: 60 }];
    let server = start(Faults { late, ..Faults::default() }).await;
    let mut stream = connect(&server).await;
    let began = Instant::now();
    stream.write_all(&[request(1, 2, 1), request(2, 1, 2)].concat()).await.unwrap();
    assert_eq!(receive(&mut stream).await.unwrap().0, 2);
    assert_eq!(receive(&mut stream).await, Some((1, 2, vec![3, 2, 0, 1])));
    assert!(began.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn faults_hit_their_unit_and_end_when_they_are_taken_back() {
    let exception = vec![Of { unit: Some(1), value: 11 }];
    let drop = vec![Of { unit: Some(2), value: true }];
    let server = start(Faults { exception, drop, ..Faults::default() }).await;
    let mut stream = connect(&server).await;
    stream.write_all(&[request(1, 2, 5), request(2, 1, 5), request(3, 3, 5)].concat()).await.unwrap();
    assert_eq!(receive(&mut stream).await, Some((2, 1, vec![0x83, 11])));
    assert_eq!(receive(&mut stream).await, Some((3, 3, vec![3, 2, 0, 5])));
    server.set_faults(Faults::default());
    stream.write_all(&request(4, 2, 5)).await.unwrap();
    assert_eq!(receive(&mut stream).await, Some((4, 2, vec![3, 2, 0, 5])));
}

#[tokio::test]
async fn each_nth_request_of_a_connection_closes_it() {
    let server = start(Faults { close_every: 2, ..Faults::default() }).await;
    for _ in 0..2 {
        let mut stream = connect(&server).await;
        stream.write_all(&request(1, 1, 5)).await.unwrap();
        assert!(receive(&mut stream).await.is_some());
        stream.write_all(&request(2, 1, 5)).await.unwrap();
        assert_eq!(receive(&mut stream).await, None);
    }
}

#[tokio::test]
async fn a_server_of_one_connection_takes_a_second_when_the_first_is_gone() {
    let server = start(Faults { one_connection: true, ..Faults::default() }).await;
    let mut first = connect(&server).await;
    first.write_all(&request(1, 1, 5)).await.unwrap();
    assert!(receive(&mut first).await.is_some());
    let mut second = connect(&server).await;
    assert_eq!(receive(&mut second).await, None);
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut third = connect(&server).await;
        if third.write_all(&request(1, 1, 5)).await.is_ok() && receive(&mut third).await.is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "the place of the first stays taken");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn connections_are_bounded() {
    let server = start(Faults::default()).await;
    let mut open = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = connect(&server).await;
        stream.write_all(&request(1, 1, 5)).await.unwrap();
        assert!(receive(&mut stream).await.is_some());
        open.push(stream);
    }
    let mut more = connect(&server).await;
    assert_eq!(receive(&mut more).await, None);
}

#[tokio::test]
async fn stopped_it_closes_all_and_frees_its_port() {
    let server = start(Faults::default()).await;
    let mut stream = connect(&server).await;
    stream.write_all(&request(1, 1, 5)).await.unwrap();
    assert!(receive(&mut stream).await.is_some());
    server.hang_up();
    assert_eq!(receive(&mut stream).await, None);
    let mut stream = connect(&server).await;
    let listen = server.addr();
    server.stop().await;
    assert_eq!(receive(&mut stream).await, None);
    let plant = Box::new(Registers::new(1, 10));
    let again = Server::start(Options { listen, plant, faults: Faults::default() }).await.unwrap();
    assert_eq!(again.addr(), listen);
}

#[tokio::test]
async fn the_address_that_is_taken_is_named() {
    let server = start(Faults::default()).await;
    let plant = Box::new(Registers::new(1, 10));
    let options = Options { listen: server.addr(), plant, faults: Faults::default() };
    let error = Server::start(options).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {}", server.addr()));
}
