//! A Modbus TCP server that was written for these tests alone, so that the product is not only held against its own
//! simulator: it records every connection and request, and a closure says what becomes of each. Holding register n is n.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What was asked, and when.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub at: Instant,
    /// Connections are numbered as they come, from 1.
    pub connection: u64,
    pub transaction: u16,
    pub unit: u8,
    pub function: u8,
    pub address: u16,
    pub count: u16,
}

/// What becomes of a request.
pub enum Answer {
    /// Each register holds its address.
    Addresses,
    Exception(u8),
    Silence,
    /// [`Answer::Addresses`], after a while; other requests are taken meanwhile.
    Late(Duration),
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
}

type Behaviour = dyn Fn(&Request) -> Answer + Send + Sync;

struct Shared {
    behaviour: Mutex<Arc<Behaviour>>,
    requests: Mutex<Vec<Request>>,
    open: AtomicUsize,
    accepted: AtomicUsize,
    refused: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
    /// A second connection is closed at once while a first is open.
    only_one: AtomicBool,
    stop: AtomicBool,
}

/// The server. Dropped, it stops, and its port is free.
pub struct Peer {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Peer {
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap())
    }

    pub fn start_at(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(Arc::new(|_: &Request| Answer::Addresses)),
            requests: Mutex::default(),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            streams: Mutex::default(),
            only_one: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { addr, shared, accepting: Some(accepting) }
    }

    /// Behaves like this from the next request on.
    pub fn behave(&self, behaviour: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Arc::new(behaviour);
    }

    pub fn only_one_connection(&self) {
        self.shared.only_one.store(true, Ordering::SeqCst);
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// How often a unit was asked so far.
    pub fn asked(&self, unit: u8) -> usize {
        self.requests().iter().filter(|r| r.unit == unit).count()
    }

    /// How many connections were made so far, refused ones not counted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// Stops, and gives the address, which is free then.
    pub fn stop(mut self) -> SocketAddr {
        self.end();
        self.addr
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accept.
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        if shared.only_one.load(Ordering::SeqCst) && shared.open.load(Ordering::SeqCst) > 0 {
            shared.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let connection = shared.accepted.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        shared.open.fetch_add(1, Ordering::SeqCst);
        shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = serve(stream, connection, &shared);
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn serve(mut stream: TcpStream, connection: u64, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut frame = [0; 12];
        stream.read_exact(&mut frame)?;
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (transaction, address, count) = (word(0), word(8), word(10));
        let (unit, function) = (frame[6], frame[7]);
        let request = Request { at: Instant::now(), connection, transaction, unit, function, address, count };
        shared.requests.lock().unwrap().push(request);
        let behaviour = Arc::clone(&shared.behaviour.lock().unwrap());
        match behaviour(&request) {
            Answer::Addresses => stream.write_all(&addresses(&request))?,
            Answer::Exception(code) => stream.write_all(&frame_of(&request, &[function | 0x80, code]))?,
            Answer::Silence => {}
            Answer::Raw(bytes) => stream.write_all(&bytes)?,
            Answer::Late(after) => {
                let mut stream = stream.try_clone()?;
                thread::spawn(move || {
                    thread::sleep(after);
                    let _ = stream.write_all(&addresses(&request));
                });
            }
        }
    }
}

/// A frame that answers a request with a PDU.
pub fn frame_of(request: &Request, pdu: &[u8]) -> Vec<u8> {
    let mut frame = request.transaction.to_be_bytes().to_vec();
    frame.extend([0, 0]);
    frame.extend(u16::try_from(pdu.len() + 1).unwrap().to_be_bytes());
    frame.push(request.unit);
    frame.extend(pdu);
    frame
}

/// The right answer.
pub fn addresses(request: &Request) -> Vec<u8> {
    let mut pdu = vec![request.function, u8::try_from(request.count * 2).unwrap()];
    pdu.extend((0..request.count).flat_map(|n| request.address.wrapping_add(n).to_be_bytes()));
    frame_of(request, &pdu)
}
