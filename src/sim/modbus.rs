//! A Modbus TCP server over a [`Plant`].
//!
//! Tasks: one that accepts, and one for each connection (256 at most; more are closed at once). All end when the
//! [`Server`] is stopped or dropped. The plant has no timer of its own: a request first lets it catch up with the
//! clock, so a simulator that nobody asks costs nothing. A connection that sends what is no Modbus is closed, and no
//! other one notices.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    faults::{Faults, Verdict},
    pdu::{self, FrameError, HEADER, Header},
    plant::Plant,
};

/// So many connections at once.
pub const MAX_CONNECTIONS: usize = 256;
/// A peer that began a request, or does not take its answer, has this long.
const PEER_DEADLINE: Duration = Duration::from_secs(5);
/// A peer that asks nothing has this long.
const IDLE_DEADLINE: Duration = Duration::from_secs(600);
/// So many answers may wait on a connection for their time; one more, and the oldest is never sent.
const MAX_LATE: usize = 64;
/// The plant catches up in steps no shorter than this.
const MIN_STEP: Duration = Duration::from_millis(10);

/// What to serve.
pub struct Options {
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The plant.
    pub plant: Box<dyn Plant>,
    /// What goes wrong.
    pub faults: Faults,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {listen}")]
pub struct StartError {
    /// Where.
    pub listen: SocketAddr,
    /// Why not.
    #[source]
    pub source: io::Error,
}

/// A running server. Dropped, it stops.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    hang_up: watch::Sender<()>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    plant: Box<dyn Plant>,
    stepped: Instant,
    faults: Faults,
    requests: u64,
    of_unit: HashMap<u8, u64>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in one connection leaves plain numbers behind, which the others can go on with.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Binds and serves.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let listen = options.listen;
        let failed = |source| StartError { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let state = State {
            plant: options.plant,
            stepped: Instant::now(),
            faults: options.faults,
            requests: 0,
            of_unit: HashMap::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        let (hang_up, hung_up) = watch::channel(());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), hung_up));
        Ok(Self { addr, shared, accepting, hang_up })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many requests it has had.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.lock().requests
    }

    /// Sets other faults, from the next request on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.lock().faults = faults;
    }

    /// Closes every connection; new ones are welcome.
    pub fn hang_up(&self) {
        self.hang_up.send_replace(());
    }

    /// Stops listening and closes every connection. When it returns, the port is free.
    pub async fn stop(mut self) {
        self.accepting.abort();
        // Aborted is what is wanted, so the outcome says nothing.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, hung_up: watch::Receiver<()>) {
    // Owned here: when this task is aborted, the set goes, and each connection with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let limit = if shared.lock().faults.one_connection { 1 } else { MAX_CONNECTIONS };
                    // Connections that have ended by now do not count.
                    while connections.try_join_next().is_some() {}
                    if connections.len() < limit {
                        connections.spawn(serve(stream, Arc::clone(&shared), hung_up.clone()));
                    }
                }
                // Out of descriptors or memory: the peers wait in the backlog until some are free again.
                Err(_) => sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

/// How a connection ended; told to nobody, since a simulator's peers end as they like.
enum Ended {
    Gone,
    Wanted,
    Garbage,
    Slow,
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, mut hung_up: watch::Receiver<()>) {
    hung_up.mark_unchanged();
    // Answers are small and asked one by one: without this each would wait for the acknowledgement of the last.
    let _ = stream.set_nodelay(true);
    let mut connection =
        Connection { stream, shared, input: Vec::with_capacity(1024), late: VecDeque::new(), count: 0 };
    tokio::select! {
        _ = hung_up.changed() => {}
        _ = connection.run() => {}
    }
}

struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    input: Vec<u8>,
    /// Answers whose time has not come, the earliest first.
    late: VecDeque<(Instant, Vec<u8>)>,
    count: u64,
}

impl Connection {
    async fn run(&mut self) -> Ended {
        let mut chunk = [0; 2048];
        loop {
            let mut out = Vec::new();
            match self.requests(&mut out) {
                Ok(true) => {}
                Ok(false) => return Ended::Wanted,
                Err(_) => return Ended::Garbage,
            }
            self.take_due(&mut out);
            if !out.is_empty() {
                match timeout(PEER_DEADLINE, self.stream.write_all(&out)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Ended::Gone,
                    Err(_) => return Ended::Slow,
                }
            }
            let patience = if self.input.is_empty() { IDLE_DEADLINE } else { PEER_DEADLINE };
            let next_due = self.late.front().map(|(due, _)| *due);
            tokio::select! {
                read = timeout(patience, self.stream.read(&mut chunk)) => match read {
                    Ok(Ok(n)) if n > 0 => self.input.extend_from_slice(&chunk[..n]),
                    Ok(_) => return Ended::Gone,
                    Err(_) => return Ended::Slow,
                },
                () = sleep_until(next_due.unwrap_or_else(Instant::now)), if next_due.is_some() => {}
            }
        }
    }

    /// Answers each whole request of the input, now into `out` or later. False when the connection is to be closed.
    fn requests(&mut self, out: &mut Vec<u8>) -> Result<bool, FrameError> {
        let mut from = 0;
        while let Some(header) = Header::parse(&self.input[from..])? {
            let end = from + HEADER + header.pdu_len;
            let Some(pdu) = self.input.get(from + HEADER..end) else { break };
            self.count += 1;
            match self.shared.lock().answer(header, pdu, self.count) {
                Answer::Now(frame) => out.extend(frame),
                Answer::At(due, frame) => {
                    let place = self.late.partition_point(|(other, _)| *other <= due);
                    self.late.insert(place, (due, frame));
                    if self.late.len() > MAX_LATE {
                        self.late.pop_front();
                    }
                }
                Answer::Never => {}
                Answer::Close => return Ok(false),
            }
            from = end;
        }
        // At most one unfinished request stays.
        self.input.drain(..from);
        Ok(true)
    }

    fn take_due(&mut self, out: &mut Vec<u8>) {
        let now = Instant::now();
        while self.late.front().is_some_and(|(due, _)| *due <= now) {
            out.extend(self.late.pop_front().into_iter().flat_map(|(_, frame)| frame));
        }
    }
}

enum Answer {
    Now(Vec<u8>),
    At(Instant, Vec<u8>),
    Never,
    Close,
}

impl State {
    fn answer(&mut self, header: Header, pdu: &[u8], of_connection: u64) -> Answer {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.stepped);
        if passed >= MIN_STEP {
            self.plant.step(passed);
            self.stepped = now;
        }
        self.requests += 1;
        let of_unit = self.of_unit.entry(header.unit).or_default();
        *of_unit += 1;
        let verdict = self.faults.judge(header.unit, *of_unit, of_connection);
        let (after, exception) = match verdict {
            Verdict::Close => return Answer::Close,
            Verdict::Silence => return Answer::Never,
            Verdict::Answer { .. } if !self.plant.answers(header.unit) => return Answer::Never,
            Verdict::Answer { after, exception } => (after, exception),
        };
        let answer = match exception {
            Some(code) => pdu::refusal(pdu, code),
            None => pdu::answer(self.plant.as_mut(), header.unit, pdu),
        };
        let frame = header.answer(&answer);
        if after.is_zero() { Answer::Now(frame) } else { Answer::At(now + after, frame) }
    }
}

#[cfg(test)]
#[path = "modbus_tests.rs"]
mod tests;
