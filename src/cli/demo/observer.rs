//! Looks at the pair from outside, as an operator would: through its sockets and the journal's files.

use std::{collections::VecDeque, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    folder::Folder,
    ledger::{Epoch, Ledger},
    pair::IDS,
    source::DemoSource,
    span,
    tail::Tail,
    takeover::Takeover,
    view::{InstanceView, JournalView, TakeoverView, View, Word},
};
use crate::{
    sim::manifest::DEMO_INTERVALS,
    status::{LatestReading, Role, Status},
};

/// What has not come by then is looked at as rarely as everything else.
const CLOSELY_AT_MOST: Duration = Duration::from_secs(10);
/// The rate is that of the last seconds.
const RATE_OVER: Duration = Duration::from_secs(5);
/// Where the leader answers unless it is told otherwise.
const LEADER_PORT: u16 = 8600;
/// So many lines of news wait to be taken.
const MAX_NEWS: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Observer<'a, S> {
    began: Instant,
    folder: &'a Folder,
    source: S,
    leader_port_is_free: bool,
    leader_http_told: bool,
    tail: Tail,
    ledger: Ledger,
    first_reading: Option<Duration>,
    takeovers: Vec<Takeover>,
    /// Readings by the time of the look.
    rate: VecDeque<(Instant, u64)>,
    latest: Vec<LatestReading>,
    news: VecDeque<String>,
}

/// Whether nobody else has the port at which a leader answers. Asked before the pair starts: what answers there later is
/// the pair's.
#[must_use]
pub fn leader_port_is_free() -> bool {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, LEADER_PORT)).is_ok()
}

impl<'a, S: DemoSource> Observer<'a, S> {
    /// Of a pair in a folder; `began` is the start of the demo.
    #[must_use]
    pub fn new(began: Instant, folder: &'a Folder, source: S, leader_port_is_free: bool) -> Self {
        Self {
            began,
            folder,
            source,
            leader_port_is_free,
            leader_http_told: false,
            tail: Tail::new(folder.state().join("journal")),
            ledger: Ledger::new(&DEMO_INTERVALS),
            first_reading: None,
            takeovers: Vec::new(),
            rate: VecDeque::new(),
            latest: Vec::new(),
            news: VecDeque::new(),
        }
    }

    /// What has been noticed since this was last asked.
    pub fn take_news(&mut self) -> VecDeque<String> {
        std::mem::take(&mut self.news)
    }

    fn tell(&mut self, text: String) {
        if self.news.len() < MAX_NEWS {
            self.news.push_back(text);
        }
    }

    /// Whether something is measured (the first reading, a takeover) that needs a close look.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        let now = self.began.elapsed();
        let takeover = self.takeovers.last().is_some_and(|t| !t.is_complete() && now < t.at + CLOSELY_AT_MOST);
        takeover || (self.first_reading.is_none() && now < CLOSELY_AT_MOST)
    }

    /// Looks at what is measured, and at nothing else.
    pub async fn look_closely(&mut self) {
        self.read_journal();
        let Some(killed) = self.takeovers.last().filter(|t| t.answered.is_none()).map(|t| t.killed) else { return };
        for id in IDS.into_iter().filter(|id| *id != killed) {
            if let Ok(status) = self.source.status(id).await {
                self.heard(id, &status);
            }
        }
    }

    fn heard(&mut self, id: &'static str, status: &Status) {
        let now = self.began.elapsed();
        let number = self.takeovers.len();
        let Some(takeover) = self.takeovers.last_mut() else { return };
        let waited = takeover.answered.is_none();
        takeover.heard(id, status, now);
        if let (true, Some(answer)) = (waited, &takeover.answered) {
            let (by, epoch, after) = (answer.by, answer.epoch, span::show(answer.after));
            self.tell(format!("takeover {number}: {by} answered as leader after {after} under epoch {epoch}"));
        }
    }

    /// Takes what is new in the journal's files.
    pub fn read_journal(&mut self) {
        let (tail, ledger) = (&mut self.tail, &mut self.ledger);
        tail.look(|line| ledger.feed(line));
        let now = self.began.elapsed();
        if self.first_reading.is_none() && self.ledger.readings > 0 {
            self.first_reading = Some(now);
            self.tell(first_reading(now));
        }
        let number = self.takeovers.len();
        let Some(takeover) = self.takeovers.last_mut() else { return };
        let waited = takeover.first_reading.is_none();
        takeover.journalled(&self.ledger, now);
        if let (true, Some(after)) = (waited, takeover.first_reading) {
            let after = span::show(after);
            self.tell(format!("takeover {number}: first reading of the new leader in the journal after {after}"));
        }
    }

    /// Who leads at this moment, and under which epoch.
    pub async fn leader(&self) -> Option<(usize, u64)> {
        let mut found = None;
        for (index, id) in IDS.into_iter().enumerate() {
            if let Ok(status) = self.source.status(id).await
                && status.role == Role::Leader
            {
                found = found.max(Some((status.epoch, index)));
            }
        }
        found.map(|(epoch, index)| (index, epoch))
    }

    /// The leader has just been killed: its successor is measured from here on.
    pub fn killed(&mut self, index: usize, epoch: u64) {
        self.takeovers.push(Takeover::begin(IDS[index], epoch, self.began.elapsed()));
    }

    /// Looks at everything.
    pub async fn look(&mut self, pids: [Option<u32>; 2]) -> View {
        self.read_journal();
        let (a, b) = tokio::join!(self.source.status(IDS[0]), self.source.status(IDS[1]));
        let mut statuses = [a.ok(), b.ok()];
        for (id, status) in IDS.into_iter().zip(&statuses) {
            if let Some(status) = status {
                self.heard(id, status);
            }
        }
        let instances = [0, 1].map(|i| InstanceView {
            id: IDS[i],
            pid: pids[i],
            word: statuses[i].as_ref().map(|s| Word { role: s.role, epoch: s.epoch, since: s.since.clone() }),
        });
        let mut view = View {
            elapsed: self.began.elapsed(),
            instances,
            status: None,
            latest: Vec::new(),
            journal: JournalView::default(),
            first_reading: self.first_reading,
            takeovers: self.takeovers.iter().map(|t| takeover_view(t, &self.ledger)).collect(),
            leader_http: None,
            folder: self.folder.path().to_owned(),
            news: Vec::new(),
        };
        if let Some(leader) = view.leader() {
            view.status = statuses[leader].take();
            view.latest = self.latest(IDS[leader]).await;
            view.leader_http = self.leader_http().await;
        }
        view.journal = self.journal(view.status.as_ref());
        view
    }

    /// The leader's readings; the last ones when it cannot say, so that the table does not flicker.
    async fn latest(&mut self, leader: &str) -> Vec<LatestReading> {
        if let Ok(latest) = self.source.latest(leader).await {
            self.latest = latest;
        }
        self.latest.clone()
    }

    async fn leader_http(&mut self) -> Option<String> {
        if !self.leader_port_is_free || !leader_answers().await {
            return None;
        }
        let url = format!("http://127.0.0.1:{LEADER_PORT}");
        if !std::mem::replace(&mut self.leader_http_told, true) {
            self.tell(format!("the leader answers at {url}"));
        }
        Some(url)
    }

    fn journal(&mut self, status: Option<&Status>) -> JournalView {
        let now = Instant::now();
        self.rate.push_back((now, self.ledger.readings));
        while self.rate.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_OVER) {
            self.rate.pop_front();
        }
        let rate = self.rate.front().map_or(0.0, |(at, readings)| {
            let seconds = now.duration_since(*at).as_secs_f64().max(0.5);
            (self.ledger.readings - readings) as f64 / seconds
        });
        let told = status.and_then(|s| s.journal.as_ref());
        JournalView {
            path: self.folder.state().join("journal"),
            last_seq: self.ledger.last_seq.max(told.map_or(0, |j| j.last_seq)),
            readings: self.ledger.readings,
            rate,
            bytes: told.map(|j| j.bytes),
            trouble: told.and_then(|j| j.trouble.clone()),
        }
    }

    /// What there was, for the end.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut lines = vec![self.first_reading.map_or_else(|| "no reading was journalled".to_owned(), first_reading)];
        let (readings, seq) = (self.ledger.readings, self.ledger.last_seq);
        let takeovers = match self.takeovers.len() {
            1 => "1 takeover".to_owned(),
            n => format!("{n} takeovers"),
        };
        lines.push(format!("{readings} readings journalled, last seq {seq}, {takeovers}"));
        let sentences = self.takeovers.iter().enumerate();
        lines.extend(sentences.map(|(i, t)| takeover_view(t, &self.ledger).sentence(i + 1)));
        lines
    }
}

fn first_reading(after: Duration) -> String {
    format!("first reading journalled after {} ms", after.as_millis())
}

fn takeover_view(takeover: &Takeover, ledger: &Ledger) -> TakeoverView {
    let epoch = ledger.read_after(takeover.epoch).and_then(|e| ledger.epoch(e));
    TakeoverView {
        measured: takeover.clone(),
        missed: epoch.filter(|e| e.heard() > 0).map(Epoch::missed),
        doubled: epoch.map_or(0, |e| e.doubled),
    }
}

/// Whether a leader answers at the usual address.
async fn leader_answers() -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, LEADER_PORT)).await.ok()?;
        stream.write_all(b"GET /leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.ok()?;
        (&head == b"HTTP/1.1 200").then_some(())
    };
    matches!(timeout(Duration::from_millis(200), ask).await, Ok(Some(())))
}
