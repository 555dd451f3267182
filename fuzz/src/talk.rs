//! What comes over a socket: between supervisor and worker, from commands, to the simulator.

use std::{
    future::Future,
    io::Write as _,
    net::Shutdown,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use sensor_poll::{
    registry,
    rpc::{
        api::{Hub, Instance, Refusal, ReloadError, ReloadReport, Subscription, Topic},
        client::Client,
        frame::Frames,
        message::{self, Incoming},
        methods,
    },
    sim::{
        pdu::{self, HEADER, Header, MAX_PDU},
        registers::Registers,
    },
    status::{LatestReading, Role, Status},
    worker::wire::{FromWorker, ToWorker, VERSION, WireError, open, pack},
};
use serde_json::{Value, json};

/// Nothing here waits for anything; what takes so long hangs.
const DEADLINE: Duration = Duration::from_secs(10);

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let make = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    RUNTIME.get_or_init(|| make().expect("a runtime can be made"))
}

/// Byte 0 says from which side and whether the version comes by itself; the rest are the stream's bytes. What is a
/// message is understood by the protocols of this build too.
pub fn wire(data: &[u8]) {
    let [how, stream @ ..] = data else { return };
    let frame = |bytes: &[u8]| [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat();
    let version = frame(&pack(&VERSION).expect("a number packs"));
    let bytes = if how & 1 == 0 { [&version[..], stream].concat() } else { stream.to_vec() };
    // More would not fit the socket's buffer, and nobody reads meanwhile.
    let bytes = &bytes[..bytes.len().min(64 * 1024)];
    runtime().block_on(async {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
        far.write_all(bytes).expect("it fits the buffer");
        far.shutdown(Shutdown::Write).expect("it is connected");
        near.set_nonblocking(true).expect("it is a socket");
        let near = tokio::net::UnixStream::from_std(near).expect("it is a socket");
        let Ok((mut reader, _writer)) = open(near, DEADLINE).await else { return };
        loop {
            let ended = if how & 2 == 0 {
                reader.receive_within::<ToWorker>(DEADLINE).await.map(|message| understand(&message))
            } else {
                reader.receive_within::<FromWorker>(DEADLINE).await.map(|message| repacks(&message))
            };
            match ended {
                // The framing holds: the next frame may be a message again.
                Ok(()) | Err(WireError::Decode(_)) => {}
                Err(WireError::Deadline(_)) => panic!("the stream has ended, and the reader waits"),
                Err(_) => return,
            }
        }
    });
}

fn repacks(message: &(impl serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug)) {
    let packed = pack(message).expect("plain data packs");
    let again = rmp_serde::from_slice(&packed).expect("what was packed unpacks");
    fn same<T: std::fmt::Debug>(a: &T, b: &T) {
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
    same(message, &again);
}

fn understand(message: &ToWorker) {
    repacks(message);
    for protocol in registry::protocols() {
        match message {
            ToWorker::Configure { connections, .. } => {
                for connection in connections {
                    let _ = protocol.open(connection);
                    connection.stations.iter().for_each(|station| drop(protocol.plan(station)));
                }
            }
            ToWorker::Station { station, .. } => drop(protocol.plan(station)),
            ToWorker::Hello { .. } | ToWorker::Ack { .. } | ToWorker::Pause(_) | ToWorker::Drain { .. } => {}
        }
    }
}

/// The longest frame that the target takes: short, so that the limit is met.
const FRAME: usize = 512;

/// Byte 0 gives the chunks; the rest is a stream of calls. Each frame has an answer or none, and the answer is a frame.
pub fn calls(data: &[u8]) {
    let [chunk, stream @ ..] = data else { return };
    let mut frames = Frames::new(FRAME);
    for piece in stream.chunks(usize::from(*chunk).max(1)) {
        frames.buffer().extend_from_slice(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => {
                    assert!(frame.len() <= FRAME && !frame.contains(&b'\n'));
                    answer(&frame);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(frames.buffer().len() <= FRAME, "no more is held than a frame");
    }
    if let Some(rest) = frames.finish() {
        answer(&rest);
    }
}

fn answer(frame: &[u8]) {
    let calls = match message::parse(frame) {
        Incoming::Single(one) => vec![one],
        Incoming::Batch(calls) => calls,
    };
    assert!((1..=message::MAX_BATCH).contains(&calls.len()));
    for call in calls {
        let out = match call {
            Err(answer) => answer.into_frame(),
            Ok(call) => {
                let run = methods::run(&Nobody, &call.method, call.params);
                let outcome = runtime().block_on(run).map(|done| done.result);
                message::Answer { id: call.id.unwrap_or(message::Id::NULL), outcome }.into_frame()
            }
        };
        assert!(out.ends_with(b"\n") && out.len() <= 4 * FRAME + 1024, "{} bytes for {}", out.len(), frame.len());
        let answer: Value = serde_json::from_slice(&out).expect("an answer is JSON");
        assert_eq!(answer["jsonrpc"], "2.0");
    }
}

/// Byte 0 chooses a call or a subscription; the rest is what a supervisor answers.
pub fn answers(data: &[u8]) {
    let [how, stream @ ..] = data else { return };
    runtime().block_on(async {
        let (near, mut far) = tokio::io::duplex(stream.len() + 4096);
        tokio::io::AsyncWriteExt::write_all(&mut far, stream).await.expect("it fits the buffer");
        tokio::io::AsyncWriteExt::shutdown(&mut far).await.expect("it is open");
        let mut client = Client::over(near, "the target".to_owned(), DEADLINE);
        if how & 1 == 0 {
            let _ = client.call::<Status>("Lifecycle.Status", json!({})).await;
        }
        while tokio::time::timeout(DEADLINE, client.notification()).await.expect("the stream has ended").is_ok() {}
    });
}

/// A supervisor that has nothing and does nothing.
struct Nobody;

type Promise<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Instance for Nobody {
    fn status(&self) -> Status {
        Status {
            instance: String::new(),
            role: Role::Leader,
            node_id: String::new(),
            epoch: 0,
            build: String::new(),
            since: String::new(),
            instances: Vec::new(),
            workers: Vec::new(),
            stations: Vec::new(),
            journal: None,
            uplinks: Vec::new(),
            alarms: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn lease(&self) -> Value {
        Value::Null
    }

    fn latest(&self, station: Option<&str>) -> Result<Vec<LatestReading>, Refusal> {
        Err(Refusal::Unknown { kind: "station".to_owned(), name: station.unwrap_or_default().to_owned() })
    }

    fn drain(&self) -> Promise<(), Refusal> {
        Box::pin(async { Ok(()) })
    }

    fn reload(&self) -> Promise<ReloadReport, ReloadError> {
        Box::pin(async { Ok(ReloadReport::default()) })
    }

    fn restart_worker(&self, key: &str, station: Option<&str>) -> Promise<(), Refusal> {
        let (kind, name) = ("worker".to_owned(), format!("{key}{}", station.unwrap_or_default()));
        Box::pin(async { Err(Refusal::Unknown { kind, name }) })
    }

    fn subscribe(&self, topic: Topic) -> Result<Subscription, Refusal> {
        Arc::new(Hub::default()).subscribe(topic)
    }
}

/// Requests to the simulator, one after the other.
pub fn simulator(mut stream: &[u8]) {
    let mut plant = Registers::new(3, 1000);
    while let Ok(Some(header)) = Header::parse(stream) {
        let Some(request) = stream.get(HEADER..HEADER + header.pdu_len) else { return };
        let answer = pdu::answer(&mut plant, header.unit, request);
        assert!((2..=MAX_PDU).contains(&answer.len()));
        assert_eq!(answer[0] & 0x7f, request[0] & 0x7f);
        let frame = header.answer(&answer);
        let again = Header::parse(&frame).expect("an answer is a frame").expect("a whole one");
        assert_eq!((again.transaction, again.unit, again.pdu_len), (header.transaction, header.unit, answer.len()));
        stream = &stream[HEADER + header.pdu_len..];
    }
}
