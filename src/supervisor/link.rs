//! One worker's socket: commands out; readings into the journal, and only when they are committed an ack back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use crate::{
    clock::Wall,
    config::{model::WorkerPlan, timeouts::WORKER_SILENCE},
    errors::chain,
    journal::{Batch, Entry, Rejected, RejectedWhy, WriterHandle},
    status::StationState,
    supervisor::{
        board::{Board, Standing},
        desired::Desired,
        event,
    },
    worker::wire::{self, FromWorker, Reader, Readings, ToWorker, WireError, Writer},
};

/// From the launch to the worker's hello, at most.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// A journal that refuses is asked again so often.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// What the pool tells a link.
#[derive(Debug)]
pub enum Order {
    /// Puts a configuration into force.
    Configure {
        /// Named in the answer.
        generation: u64,
        /// The manifest.
        desired: Arc<Desired>,
        /// Which worker of it.
        plan: WorkerPlan,
    },
    /// Lets the worker finish and leave.
    Drain {
        /// In this time.
        within: Duration,
    },
}

/// What a link tells the pool.
#[derive(Debug)]
pub enum News {
    /// A configuration is in force, but for what was refused.
    Configured {
        /// Which.
        generation: u64,
        /// By id, with why.
        refused: Vec<(String, String)>,
    },
    /// The worker said goodbye.
    Drained {
        /// Readings that it got no ack for.
        uncommitted: u64,
    },
    /// The conversation is over. Why, unless the worker just closed its end, as one does that ends.
    Closed(Option<String>),
}

/// A link.
pub struct Link {
    /// The worker's key.
    pub key: String,
    /// Names this process of the worker in the journal's acks.
    pub source: u64,
    /// This supervisor's build.
    pub build: String,
    /// This supervisor's instance.
    pub instance: String,
    /// Its epoch.
    pub epoch: u64,
    /// Where readings and reports are kept.
    pub board: Arc<Board>,
    /// Where readings are recorded.
    pub journal: WriterHandle,
    /// The number of the last reading that was handed to the journal.
    pub recorded: Arc<AtomicU64>,
    /// What the journal has committed of this source.
    pub committed: watch::Receiver<u64>,
    /// What the pool says. Bounded by what a reload can order; the pool never waits for a link.
    pub orders: mpsc::Receiver<Order>,
}

impl Link {
    /// Runs until the socket closes. `tell` takes the news; it must not block.
    pub async fn run(self, stream: UnixStream, tell: impl Fn(News)) {
        let why = match self.converse(stream, &tell).await {
            Ok(()) | Err(WireError::Closed | WireError::Io(_)) => None,
            Err(e) => Some(chain(&e)),
        };
        tell(News::Closed(why));
    }

    async fn converse(mut self, stream: UnixStream, tell: &impl Fn(News)) -> Result<(), WireError> {
        let (mut reader, mut writer) = wire::open(stream, HELLO_WITHIN).await?;
        let hello = ToWorker::Hello {
            build: self.build.clone(),
            epoch: self.epoch,
            instance: self.instance.clone(),
            session: self.source,
        };
        writer.send(&hello).await?;
        let FromWorker::Hello { pid, .. } = reader.receive_within(HELLO_WITHIN).await? else {
            return Err(WireError::Closed);
        };
        tracing::debug!(worker = self.key, pid, "worker said hello");
        let (flow, mut flowing) = mpsc::channel(4);
        let intake = Intake {
            key: self.key.clone(),
            source: self.source,
            board: Arc::clone(&self.board),
            journal: self.journal.clone(),
            recorded: Arc::clone(&self.recorded),
            expected: 1,
            unknown: false,
        };
        let reading = intake.run(&mut reader, &flow, tell);
        tokio::pin!(reading);
        // A worker that ended may have left readings in the socket: once it takes no more, it is only listened to.
        let mut listens = true;
        loop {
            let said = tokio::select! {
                ended = &mut reading => return ended,
                changed = self.committed.changed(), if listens => match changed {
                    Ok(()) => {
                        let up_to = *self.committed.borrow_and_update();
                        taken(writer.send(&ToWorker::Ack { up_to })).await
                    }
                    Err(_) => Err(WireError::Closed),
                },
                Some(paused) = flowing.recv(), if listens => taken(writer.send(&ToWorker::Pause(paused))).await,
                order = self.orders.recv(), if listens => match order {
                    Some(order) => taken(obey(&mut writer, order)).await,
                    None => Err(WireError::Closed),
                },
            };
            listens = said.is_ok();
        }
    }
}

/// A worker that hangs takes nothing once its socket's buffer is full, and must not hold up what else the link does.
async fn taken(said: impl Future<Output = Result<(), WireError>>) -> Result<(), WireError> {
    timeout(WORKER_SILENCE, said).await.unwrap_or(Err(WireError::Deadline(WORKER_SILENCE)))
}

async fn obey(writer: &mut Writer, order: Order) -> Result<(), WireError> {
    match order {
        Order::Drain { within } => {
            let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            writer.send(&ToWorker::Drain { within_ms }).await
        }
        Order::Configure { generation, desired, plan } => {
            let stations = u32::try_from(desired.station_count(&plan)).unwrap_or(u32::MAX);
            let connections = desired.connections(&plan);
            writer.send(&ToWorker::Configure { generation, connections, stations }).await?;
            for (connection, station) in desired.stations(&plan) {
                writer.send(&ToWorker::Station { connection, station }).await?;
            }
            Ok(())
        }
    }
}

struct Intake {
    key: String,
    source: u64,
    board: Arc<Board>,
    journal: WriterHandle,
    recorded: Arc<AtomicU64>,
    expected: u64,
    unknown: bool,
}

impl Intake {
    async fn run(
        mut self,
        reader: &mut Reader,
        flow: &mpsc::Sender<bool>,
        tell: &impl Fn(News),
    ) -> Result<(), WireError> {
        loop {
            match reader.receive_within(WORKER_SILENCE).await? {
                FromWorker::Readings(readings) => self.readings(readings, flow).await,
                FromWorker::Stations { reports, lost } => {
                    self.board.set_lost(&self.key, lost);
                    for (standing, before) in self.board.take_reports(reports) {
                        self.journal_state(&standing, before);
                    }
                }
                FromWorker::Configured { generation, refused } => tell(News::Configured { generation, refused }),
                FromWorker::Drained { uncommitted } => tell(News::Drained { uncommitted }),
                FromWorker::Hello { .. } => {}
            }
        }
    }

    async fn readings(&mut self, batch: Readings, flow: &mpsc::Sender<bool>) {
        let Readings { first, handle, ts, readings } = batch;
        if first > self.expected {
            let lost = first - self.expected;
            tracing::error!(worker = self.key, lost, "the worker's memory was full and readings were lost");
            let fields = [("worker", self.key.as_str().into()), ("lost", lost.into())];
            event::record(&self.journal, "readings_lost", fields);
        }
        let up_to = first + readings.len() as u64 - 1;
        self.expected = up_to + 1;
        let Some(station) = self.board.take_readings(handle, ts, &readings) else {
            if !std::mem::replace(&mut self.unknown, true) {
                tracing::warn!(
                    worker = self.key,
                    handle,
                    "readings of a station that is no longer configured are dropped"
                );
            }
            return;
        };
        let entries = vec![Entry::Readings { station, ts: Wall(ts), readings }];
        let mut batch = Batch { source: self.source, up_to, entries, urgent: first == 1 };
        let mut paused = false;
        loop {
            match self.journal.append(batch) {
                Ok(()) => {
                    self.recorded.store(up_to, Ordering::Release);
                    break;
                }
                Err(Rejected { why: RejectedWhy::Full, batch: back }) => {
                    batch = *back;
                    if !std::mem::replace(&mut paused, true) {
                        tracing::error!(worker = self.key, "the journal is full: polling stops until there is room");
                        let _ = flow.try_send(true);
                    }
                    sleep(FULL_PAUSE).await;
                }
                // The writer is closed or fenced; the worker keeps what is not acknowledged.
                Err(Rejected { why: RejectedWhy::Closed, .. }) => break,
            }
        }
        if paused {
            tracing::info!(worker = self.key, "the journal has room again: polling resumes");
            // Not sent when the worker is gone, which polls nothing anyway.
            let _ = flow.try_send(false);
        }
    }

    fn journal_state(&self, now: &Standing, before: StationState) {
        let fields = [
            ("station", now.id.as_str().into()),
            ("from", before.as_str().into()),
            ("to", now.state.as_str().into()),
            ("reason", now.reason.as_deref().map_or(serde_json::Value::Null, Into::into)),
        ];
        event::record(&self.journal, "station_state", fields);
    }
}
