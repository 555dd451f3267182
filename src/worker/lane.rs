//! One transport connection: connects, polls its stations in turn, closes. A thin driver around
//! [`Schedule`] (when) and [`Station`] (what it means).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, timeout},
};
use worker_contract::{Driver, DriverError, Next, Outcome, Reading, Reason, Sink, Slot, StationConfig};

use crate::{
    clock::{Boot, Wall},
    worker::{
        gate::Gate,
        outbox::Outbox,
        schedule::{Cycle, Schedule, Step, probe_timeout},
        station::{Ended, Station},
        wire::{self, FromWorker, Readings, StationReport},
    },
};

/// The first pause before a lost connection is tried again.
const RECONNECT_FIRST: Duration = Duration::from_millis(250);
/// The longest pause.
const RECONNECT_MAX: Duration = Duration::from_secs(30);
/// A driver that does not end a request so long after its time is out of order, and its connection is closed.
const GRACE: Duration = Duration::from_secs(2);
/// The shortest and the longest time for a connection to be made, whatever the stations' timeouts.
const CONNECT_MIN: Duration = Duration::from_millis(500);
/// See [`CONNECT_MIN`].
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A lane with nothing to do wakes by a command.
const FOREVER: Duration = Duration::from_secs(86_400);
/// Good manners at the end of a connection take no longer.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// A cycle is given up after so many requests without an answer.
const TIMEOUTS_PER_CYCLE: u32 = 2;

/// What the host tells a lane.
#[derive(Debug)]
pub enum Command {
    /// Polls a station from now on.
    Add(StationConfig),
    /// Forgets the station with this handle.
    Remove(u32),
    /// Stops or resumes polling.
    Pause(bool),
    /// Ends the lane after the request in flight.
    Stop,
}

#[derive(Debug, Default)]
struct Reports {
    list: Vec<StationReport>,
    urgent: bool,
}

/// What lanes share with the process's writer.
#[derive(Debug)]
pub struct Shared {
    outbox: Mutex<Outbox>,
    reports: Mutex<Reports>,
    /// Woken when there is something to send.
    pub news: Notify,
}

impl Shared {
    /// With an outbox of so many bytes.
    #[must_use]
    pub fn new(outbox_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            outbox: Mutex::new(Outbox::new(outbox_bytes)),
            reports: Mutex::new(Reports::default()),
            news: Notify::new(),
        })
    }

    /// The outbox. Nothing panics while it is held, so a poisoned lock is as good as another.
    pub fn outbox(&self) -> std::sync::MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reports(&self) -> std::sync::MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the reports that wait.
    pub fn take_reports(&self) -> Vec<StationReport> {
        let mut reports = self.reports();
        reports.urgent = false;
        std::mem::take(&mut reports.list)
    }

    /// Whether a change of state waits, which is told at once; counters have time.
    pub fn is_urgent(&self) -> bool {
        self.reports().urgent
    }

    /// Adds a report; a newer one of the same station takes the older one's place, so the list is bounded by the stations.
    fn report(&self, report: StationReport, urgent: bool) {
        let mut reports = self.reports();
        reports.urgent |= urgent;
        match reports.list.iter_mut().find(|r| r.handle == report.handle) {
            Some(old) => *old = report,
            None => reports.list.push(report),
        }
        drop(reports);
        if urgent {
            self.news.notify_one();
        }
    }

    fn send(&self, handle: u32, readings: &mut Vec<Reading>) {
        if readings.is_empty() {
            return;
        }
        let mut outbox = self.outbox();
        let count = readings.len() as u64;
        let message = FromWorker::Readings(Readings {
            first: outbox.next_number(),
            handle,
            ts: Wall::now().0,
            readings: std::mem::take(readings),
        });
        match wire::pack(&message) {
            Ok(frame) => outbox.push(count, frame),
            Err(e) => tracing::error!(handle, error = %e, "readings do not pack"),
        }
        drop(outbox);
        // The buffer goes back for the next request.
        if let FromWorker::Readings(mut sent) = message {
            sent.readings.clear();
            *readings = sent.readings;
        }
        self.news.notify_one();
    }
}

/// A lane's task.
pub struct Lane {
    /// The connection's id, for logs.
    pub id: String,
    /// The driver.
    pub driver: Box<dyn Driver>,
    /// What must be held before anything is opened.
    pub gate: Arc<Gate>,
    /// Where readings and reports go.
    pub shared: Arc<Shared>,
    /// What the host says. Unbounded, since the host sends only what a configuration holds, and a lane takes all of it
    /// between two requests.
    pub commands: mpsc::UnboundedReceiver<Command>,
}

enum Link {
    /// Open. `used` once a request was answered over it.
    Up { used: bool },
    /// Closed in good order, or not opened yet: opened when a station is due.
    Closed,
    /// Failed: opened when a station is due, not before `retry`.
    Failed { retry: Boot },
}

struct Running {
    id: String,
    driver: Box<dyn Driver>,
    gate: Arc<Gate>,
    shared: Arc<Shared>,
    schedule: Schedule,
    stations: Vec<Station>,
    link: Link,
    /// The next pause after a failure; back to the first once a request is answered.
    pause: Duration,
    paused: bool,
    next_slot: Slot,
    buffer: Vec<Reading>,
}

impl Lane {
    /// Runs until told to stop.
    pub async fn run(self) {
        let Self { id, driver, gate, shared, mut commands } = self;
        let mut lane = Running {
            id,
            driver,
            gate,
            shared,
            schedule: Schedule::default(),
            stations: Vec::new(),
            link: Link::Closed,
            pause: RECONNECT_FIRST,
            paused: false,
            next_slot: 0,
            buffer: Vec::new(),
        };
        loop {
            loop {
                match commands.try_recv() {
                    Ok(command) => {
                        if lane.obey(command).is_break() {
                            return lane.close().await;
                        }
                    }
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return lane.close().await,
                }
            }
            let pause = lane.step().await;
            let Some(until) = pause else {
                // A driver that never waits must not keep the others from running.
                tokio::task::yield_now().await;
                continue;
            };
            tokio::select! {
                command = commands.recv() => {
                    if command.is_none_or(|command| lane.obey(command).is_break()) {
                        return lane.close().await;
                    }
                }
                () = sleep(until) => {}
            }
        }
    }
}

impl Running {
    fn obey(&mut self, command: Command) -> std::ops::ControlFlow<()> {
        match command {
            Command::Add(config) => self.add(config),
            Command::Remove(handle) => {
                if let Some(at) = self.stations.iter().position(|s| s.config.handle == handle) {
                    let station = self.stations.swap_remove(at);
                    self.schedule.remove(station.slot);
                    self.driver.remove_station(station.slot);
                }
            }
            Command::Pause(paused) => self.paused = paused,
            Command::Stop => return std::ops::ControlFlow::Break(()),
        }
        std::ops::ControlFlow::Continue(())
    }

    fn add(&mut self, config: StationConfig) {
        let slot = self.next_slot;
        self.next_slot = self.next_slot.wrapping_add(1);
        if let Err(error) = self.driver.add_station(slot, &config) {
            // The manifest's check passed, so this is a defect; the station is told as such, and the others go on.
            tracing::error!(station = config.id, %error, "station refused by its driver");
            let mut station = Station::new(slot, config);
            station.finish(Ended::Disconnected(error.to_string()), None, Wall::now());
            self.report(&mut station, true);
            return;
        }
        let interval = Duration::from_millis(u64::from(config.poll_interval_ms));
        self.schedule.add(slot, interval, Boot::now());
        let mut station = Station::new(slot, config);
        self.report(&mut station, true);
        self.stations.push(station);
    }

    fn report(&self, station: &mut Station, urgent: bool) {
        if let Some(report) = station.take_report() {
            self.shared.report(report, urgent);
        }
    }

    /// Does what is due. `Some` is a pause before the next step.
    async fn step(&mut self) -> Option<Duration> {
        let due = if self.paused { None } else { self.schedule.next_due() };
        let Some(due) = due else { return Some(FOREVER) };
        let now = Boot::now();
        let from = match self.link {
            Link::Up { .. } | Link::Closed => due,
            Link::Failed { retry } => due.max(retry),
        };
        if now < from {
            return Some(from.since(now));
        }
        if !matches!(self.link, Link::Up { .. }) {
            let outage = matches!(self.link, Link::Failed { .. });
            match self.connect().await {
                Ok(()) if outage => self.schedule.after_outage(Boot::now()),
                Ok(()) => {}
                Err(error) => self.disconnected(&error),
            }
            return None;
        }
        match self.schedule.next(now) {
            Step::Idle => Some(FOREVER),
            Step::Wait(until) => Some(until.since(now)),
            Step::Poll { slot, missed, probe, lively } => {
                let at = self.stations.iter().position(|s| s.slot == slot)?;
                let mut station = self.stations.swap_remove(at);
                let patience = match probe {
                    Some(pause) => Patience { probe: Some(probe_timeout(pause, station.timeout())), retries: 0 },
                    None => Patience { probe: None, retries: if lively { station.config.retries } else { 0 } },
                };
                self.poll(&mut station, missed, patience).await;
                self.stations.push(station);
                None
            }
        }
    }

    async fn connect(&mut self) -> Result<(), DriverError> {
        let within = self.stations.iter().map(Station::timeout).max().unwrap_or(CONNECT_MAX);
        let within = within.clamp(CONNECT_MIN, CONNECT_MAX);
        let connected = match self.gate.pass() {
            Ok(()) => timeout(within + GRACE, self.driver.connect(within)).await.unwrap_or_else(|_| {
                Err(DriverError::reconnect(Reason::Disconnected, "the driver did not come back from connecting"))
            }),
            Err(error) => Err(error),
        };
        self.link = match &connected {
            Ok(()) => Link::Up { used: false },
            Err(_) => self.failed(),
        };
        connected
    }

    /// The link after a failure, with a pause that doubles until something is answered again.
    fn failed(&mut self) -> Link {
        let retry = Boot::now().plus(self.pause);
        self.pause = (self.pause * 2).min(RECONNECT_MAX);
        Link::Failed { retry }
    }

    /// Tells every station that there is no connection; the points of those that were due are bad.
    fn disconnected(&mut self, error: &DriverError) {
        let now = Boot::now();
        let mut stations = std::mem::take(&mut self.stations);
        for station in &mut stations {
            if self.schedule.is_due(station.slot, now) {
                station.begin(0);
                self.fail_points(station, 0..station.points(), error.reason);
            }
            self.finish(station, Cycle::NotAsked, Ended::Disconnected(error.detail.clone()));
        }
        self.stations = stations;
    }

    fn fail_points(&mut self, station: &mut Station, points: impl IntoIterator<Item = u32>, reason: Reason) {
        let mut sink = station.sink(&mut self.buffer);
        for point in points {
            sink.push(point, Err(reason));
        }
        self.shared.send(station.config.handle, &mut self.buffer);
    }

    fn finish(&mut self, station: &mut Station, cycle: Cycle, ended: Ended) {
        let backoff = self.schedule.finished(station.slot, cycle, Boot::now());
        let before = station.state().0;
        let crossed = station.finish(ended, backoff, Wall::now());
        if let Some(cycles) = station.worth_a_line(crossed, Boot::now()) {
            let (state, reason) = station.state();
            let (id, to) = (&station.config.id, state.as_str());
            if crossed {
                tracing::info!(station = id, from = before.as_str(), to, reason, "station state");
            } else {
                tracing::info!(station = id, state = to, reason, cycles, "station still not well");
            }
        }
        self.report(station, crossed);
    }

    async fn poll(&mut self, station: &mut Station, missed: u64, patience: Patience) {
        station.begin(missed);
        let slot = station.slot;
        let all = self.driver.requests(slot);
        let mut walk = Walk::new(std::mem::take(&mut station.first_request), all);
        let mut retries = patience.retries;
        loop {
            let before = self.driver.requests(slot);
            let Some(index) = walk.index(before) else { break };
            // Once it answers it is asked as ever.
            let within = patience.probe.filter(|_| !walk.answered).unwrap_or_else(|| station.timeout());
            match self.request(station, index, within).await {
                Ok(Outcome::Split) => walk.split(before, self.driver.requests(slot)),
                Ok(Outcome::Done) => {
                    self.link = Link::Up { used: true };
                    self.pause = RECONNECT_FIRST;
                    retries = station.config.retries;
                    walk.done();
                }
                Err(error) if error.next == Next::Retry && retries > 0 => retries -= 1,
                Err(error) if error.next == Next::Retry => {
                    retries = station.config.retries;
                    if error.reason == Reason::Timeout && walk.silent() {
                        station.first_request = if walk.answered { index + 1 } else { 0 };
                        self.fail_rest(station, index, walk.left, error.reason);
                        break;
                    }
                    // A broken answer is an answer: the station lives.
                    walk.answered |= error.reason != Reason::Timeout;
                    let points = self.driver.points_of(slot, index).to_vec();
                    self.fail_points(station, points, error.reason);
                    walk.done_without_answer();
                }
                Err(error) => {
                    // Peers close idle connections: one that was used before is opened again and asked once more.
                    let stale = error.reason == Reason::Disconnected && matches!(self.link, Link::Up { used: true });
                    self.driver.close(CLOSE_WITHIN).await;
                    if stale && !walk.answered && self.connect().await.is_ok() {
                        continue;
                    }
                    self.fail_rest(station, index, walk.left, error.reason);
                    return self.hang_up(station, walk.answered, &error);
                }
            }
        }
        let answered = walk.answered || all == 0;
        let (cycle, ended) = if answered { (Cycle::Answered, Ended::Answered) } else { (Cycle::Silent, Ended::Silent) };
        self.finish(station, cycle, ended);
        if station.config.close_after_poll {
            self.driver.close(CLOSE_WITHIN).await;
            self.link = Link::Closed;
        }
    }

    async fn request(&mut self, station: &mut Station, index: usize, within: Duration) -> Result<Outcome, DriverError> {
        if station.config.inter_request_ms > 0 {
            sleep(Duration::from_millis(u64::from(station.config.inter_request_ms))).await;
        }
        let slot = station.slot;
        let before = self.driver.traffic();
        let begun = Instant::now();
        let mut sink = station.sink(&mut self.buffer);
        let result =
            timeout(within + GRACE, self.driver.request(slot, index, within, &mut sink)).await.unwrap_or_else(|_| {
                Err(DriverError::reconnect(Reason::Timeout, "the driver did not come back from a request"))
            });
        let after = self.driver.traffic();
        station.requested(begun.elapsed(), after.sent - before.sent, after.received - before.received);
        self.shared.send(station.config.handle, &mut self.buffer);
        result
    }

    /// Marks the points of this request and of those that the cycle does not come to.
    fn fail_rest(&mut self, station: &mut Station, index: usize, left: usize, reason: Reason) {
        let all = self.driver.requests(station.slot);
        let points: Vec<u32> = (0..left)
            .flat_map(|n| self.driver.points_of(station.slot, (index + n) % all.max(1)).iter().copied())
            .collect();
        self.fail_points(station, points, reason);
    }

    fn hang_up(&mut self, station: &mut Station, answered: bool, error: &DriverError) {
        self.link = if answered && self.pause == RECONNECT_FIRST { Link::Closed } else { self.failed() };
        tracing::debug!(connection = self.id, station = station.config.id, %error, "connection lost");
        let cycle = if error.reason == Reason::Timeout { Cycle::Silent } else { Cycle::NotAsked };
        self.finish(station, cycle, Ended::Disconnected(error.detail.clone()));
    }

    async fn close(mut self) {
        self.driver.close(CLOSE_WITHIN).await;
    }
}

/// How much a cycle waits for its first answer.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The time for a probe; `None` outside a back-off.
    probe: Option<Duration>,
    /// How often a request without an answer is sent again.
    retries: u8,
}

/// The requests of one cycle, each once, beginning anywhere; a split makes the list longer while it is walked.
struct Walk {
    index: usize,
    left: usize,
    answered: bool,
    timeouts: u32,
}

impl Walk {
    fn new(first: usize, all: usize) -> Self {
        Self { index: if first < all { first } else { 0 }, left: all, answered: false, timeouts: 0 }
    }

    /// The next request, of so many that there are now.
    fn index(&mut self, all: usize) -> Option<usize> {
        if self.left == 0 || all == 0 {
            return None;
        }
        if self.index >= all {
            self.index = 0;
        }
        Some(self.index)
    }

    /// The plan changed from so many requests to so many, and this one is to be asked again.
    fn split(&mut self, before: usize, after: usize) {
        self.answered = true;
        self.left = (self.left + after).saturating_sub(before).max(1);
    }

    fn done(&mut self) {
        self.answered = true;
        self.done_without_answer();
    }

    fn done_without_answer(&mut self) {
        self.index += 1;
        self.left -= 1;
    }

    /// Counts a timeout. True when the cycle is to be given up: a station that has not answered at all would hold up the
    /// others, and one that has may keep quiet about single blocks only.
    fn silent(&mut self) -> bool {
        self.timeouts += 1;
        !self.answered || self.timeouts >= TIMEOUTS_PER_CYCLE
    }
}
