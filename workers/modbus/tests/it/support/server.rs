//! The server. Each request is given to a script, and the script's steps are carried out beside those of other
//! requests, so that a late answer does not hold up the next one.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::{JoinHandle, JoinSet},
};

/// A request as the server sees it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The how-many-eth request of the server's life, from 0.
    pub number: u64,
    pub tid: u16,
    pub unit: u8,
    pub function: u8,
    pub address: u16,
    pub count: u16,
}

/// What the server does about it.
#[derive(Debug, Clone)]
pub enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    Close,
}

impl Asked {
    /// A register's value is its address.
    pub fn register(address: u16) -> u16 {
        address
    }

    /// Every third bit is on.
    pub fn bit(address: u16) -> bool {
        address.is_multiple_of(3)
    }

    /// The PDU of the honest answer.
    pub fn pdu(&self) -> Vec<u8> {
        let each = |n: u16| self.address.wrapping_add(n);
        match self.function {
            1 | 2 => {
                let mut data = vec![0; usize::from(self.count).div_ceil(8)];
                for n in (0..self.count).filter(|n| Self::bit(each(*n))) {
                    data[usize::from(n / 8)] |= 1 << (n % 8);
                }
                // The padding is nobody's business.
                if !self.count.is_multiple_of(8) {
                    *data.last_mut().unwrap() |= 0xFF << (self.count % 8);
                }
                [vec![self.function, data.len() as u8], data].concat()
            }
            3 | 4 => {
                let data: Vec<u8> = (0..self.count).flat_map(|n| Self::register(each(n)).to_be_bytes()).collect();
                [vec![self.function, data.len() as u8], data].concat()
            }
            _ => [&[self.function][..], &self.address.to_be_bytes(), &self.count.to_be_bytes()].concat(),
        }
    }

    /// The honest answer's frame.
    pub fn answer(&self) -> Vec<u8> {
        self.frame(&self.pdu())
    }

    /// A frame that answers this request with any PDU.
    pub fn frame(&self, pdu: &[u8]) -> Vec<u8> {
        frame(self.tid, self.unit, (pdu.len() + 1) as u16, pdu)
    }

    pub fn exception(&self, code: u8) -> Vec<u8> {
        self.frame(&[self.function | 0x80, code])
    }

    /// True when the request covers the register.
    pub fn covers(&self, register: u16) -> bool {
        (u32::from(self.address)..u32::from(self.address) + u32::from(self.count)).contains(&u32::from(register))
    }

    pub fn honest(&self) -> Vec<Step> {
        vec![Step::Send(self.answer())]
    }
}

/// A frame with any length field.
pub fn frame(tid: u16, unit: u8, length: u16, pdu: &[u8]) -> Vec<u8> {
    [&tid.to_be_bytes()[..], &[0, 0], &length.to_be_bytes(), &[unit], pdu].concat()
}

type Script = Arc<dyn Fn(&Asked) -> Vec<Step> + Send + Sync>;

/// Ends when it is dropped, with all its connections.
pub struct Server {
    pub address: SocketAddr,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    open: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

impl Server {
    pub async fn start(script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), usize::MAX, script).await
    }

    /// At an address; connections beyond `most` at once are closed as soon as they are open.
    pub async fn start_at(
        address: SocketAddr,
        most: usize,
        script: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = bind(address).await;
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let task = tokio::spawn(accept(listener, most, Arc::new(script), Arc::clone(&counts)));
        Self { address, counts, task }
    }

    /// How many connections were served.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// How many requests were ever unanswered at once.
    pub fn most_in_flight(&self) -> u64 {
        self.counts.most_in_flight.load(Ordering::SeqCst)
    }

    /// Waits until no connection is open: the server sees the end of one a moment later than its client.
    pub async fn all_closed(&self) {
        let none_open = async {
            while self.counts.open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), none_open).await.unwrap();
    }

    /// Ends it and waits until its port is free.
    pub async fn stop(self) -> SocketAddr {
        self.task.abort();
        while !self.task.is_finished() {
            tokio::task::yield_now().await;
        }
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The port of a server that was stopped is free within moments.
async fn bind(address: SocketAddr) -> TcpListener {
    for _ in 0..200 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{address} stays taken");
}

async fn accept(listener: TcpListener, most: usize, script: Script, counts: Arc<Counts>) {
    let mut open = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        while open.try_join_next().is_some() {}
        if open.len() < most {
            counts.connections.fetch_add(1, Ordering::SeqCst);
            counts.open.fetch_add(1, Ordering::SeqCst);
            let (script, counts) = (Arc::clone(&script), Arc::clone(&counts));
            open.spawn(async move {
                serve(stream, script, Arc::clone(&counts)).await;
                counts.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

async fn serve(stream: TcpStream, script: Script, counts: Arc<Counts>) {
    stream.set_nodelay(true).unwrap();
    let (mut reader, writer) = stream.into_split();
    let writer = Arc::new(Mutex::new(Some(writer)));
    let mut answers = JoinSet::new();
    let mut bytes = [0; 260];
    while reader.read_exact(&mut bytes[..6]).await.is_ok() {
        let length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if reader.read_exact(&mut bytes[6..6 + length]).await.is_err() {
            return;
        }
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let asked = Asked {
            number: counts.requests.fetch_add(1, Ordering::SeqCst),
            tid: word(0),
            unit: bytes[6],
            function: bytes[7],
            address: word(8),
            count: word(10),
        };
        let now = counts.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let steps = script(&asked);
        let (writer, counts) = (Arc::clone(&writer), Arc::clone(&counts));
        while answers.try_join_next().is_some() {}
        answers.spawn(async move {
            let mut unanswered = true;
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        // Counted before it is sent: the next request may come before this task runs again.
                        if std::mem::take(&mut unanswered) {
                            counts.in_flight.fetch_sub(1, Ordering::SeqCst);
                        }
                        if let Some(writer) = &mut *writer.lock().await {
                            let _ = writer.write_all(&bytes).await;
                        }
                    }
                    Step::Wait(time) => tokio::time::sleep(time).await,
                    Step::Close => *writer.lock().await = None,
                }
            }
            if unanswered {
                counts.in_flight.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
}
