//! The loop of the demo: looks at the pair about twice a second, shows what it sees, and does what was asked. While
//! something is measured it looks every few milliseconds at that alone.
//!
//! One task; it ends by a signal, after the time it was given, when stdout is gone, or when an instance cannot be kept
//! running.

use std::{collections::VecDeque, io, pin::pin, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use super::{
    folder::Folder,
    lines::{self, Changes},
    observer::Observer,
    pair::{Ended, IDS, Pair},
    render,
    screen::Screen,
    source::DemoSource,
    span,
    view::View,
};

const LOOK: Duration = Duration::from_millis(500);
const LOOK_CLOSELY: Duration = Duration::from_millis(4);
/// A killed instance comes back after this: late enough that the other one leads by then.
const AGAIN_AFTER: Duration = Duration::from_millis(1500);
/// Without a leader there is nobody to kill; after this there may be.
const KILL_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// So many lines of news are kept.
const MAX_NEWS: usize = 8;

/// The signals that the demo takes. Taken first, so that none ends it before there is something to clean up.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    child: Signal,
}

impl Signals {
    /// Takes them.
    ///
    /// # Errors
    /// When the runtime cannot.
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            child: signal(SignalKind::child())?,
        })
    }
}

/// See the module.
#[derive(Debug)]
pub struct Session<'a, S> {
    began: Instant,
    folder: &'a Folder,
    pair: Pair,
    observer: Observer<'a, S>,
    screen: Screen,
    changes: Changes,
    news: VecDeque<String>,
    leader: Option<usize>,
    looks: u64,
    /// Why stdout could not be written.
    unwritten: Option<io::Error>,
}

impl<'a, S: DemoSource> Session<'a, S> {
    /// A session over a pair that has been started.
    #[must_use]
    pub fn new(began: Instant, folder: &'a Folder, pair: Pair, observer: Observer<'a, S>, screen: Screen) -> Self {
        let (changes, news) = (Changes::default(), VecDeque::new());
        Self { began, folder, pair, observer, screen, changes, news, leader: None, looks: 0, unwritten: None }
    }

    /// Runs until it is to end.
    ///
    /// # Errors
    /// When an instance cannot be kept running.
    pub async fn run(
        &mut self,
        mut signals: Signals,
        kill_leader_after: Option<Duration>,
        lasts: Option<Duration>,
    ) -> anyhow::Result<()> {
        self.greet();
        let mut kill = kill_leader_after.map(|after| self.began + after);
        let end = lasts.map(|l| self.began + l);
        let mut look = ticks(LOOK);
        let mut closely = ticks(LOOK_CLOSELY);
        let mut how = String::new();
        loop {
            let (kill_at, end_at) = (kill.unwrap_or(self.began), end.unwrap_or(self.began));
            tokio::select! {
                _ = signals.terminate.recv() => return Ok(()),
                _ = signals.interrupt.recv() => return Ok(()),
                _ = signals.hangup.recv() => return Ok(()),
                () = sleep_until(end_at), if end.is_some() => return Ok(()),
                _ = signals.child.recv() => self.pair.reap(),
                ended = self.pair.ended() => how = self.ended(ended),
                () = sleep_until(kill_at), if kill.is_some() => {
                    kill = if self.kill_leader().await { None } else { Some(Instant::now() + KILL_AGAIN_AFTER) };
                }
                _ = closely.tick(), if self.observer.is_measuring() => self.observer.look_closely().await,
                _ = look.tick() => {
                    self.pair.reap();
                    for id in self.pair.start_due(self.folder, &how)? {
                        self.tell(format!("{id} was started again"));
                    }
                    if let Err(e) = self.look().await {
                        self.unwritten = Some(e);
                        return Ok(());
                    }
                }
            }
            for text in self.observer.take_news() {
                self.tell(text);
            }
        }
    }

    fn greet(&self) {
        if self.screen.is_plain() {
            let folder = self.folder.path().display();
            let mut text = String::from("sensor-poll demo: a simulated plant and a gateway pair\n");
            text += &format!("folder {folder}\nlogs {folder}/a.log {folder}/b.log\n");
            let commands = IDS.map(|id| render::curl_command(&self.folder.run(), id));
            text += &commands.join("\n");
            // Whether stdout is gone shows at the first look.
            let _ = self.screen.line(&text);
        }
    }

    fn tell(&mut self, text: String) {
        if self.screen.is_plain() {
            let _ = self.screen.line(&text);
        }
        if self.news.len() == MAX_NEWS {
            self.news.pop_front();
        }
        self.news.push_back(text);
    }

    /// Takes the end of an instance, and gives how it ended.
    fn ended(&mut self, ended: Ended) -> String {
        if !ended.wanted {
            let id = IDS[ended.index];
            let log = self.folder.log(id);
            self.tell(format!("{id} ended by itself ({}); see {}", ended.how, log.display()));
        }
        ended.how
    }

    /// Kills the leader; false when nobody leads.
    async fn kill_leader(&mut self) -> bool {
        let Some((index, epoch)) = self.observer.leader().await else { return false };
        // What is in the journal by now is the old leader's.
        self.observer.read_journal();
        let Some(pid) = self.pair.kill(index, AGAIN_AFTER) else { return false };
        self.observer.killed(index, epoch);
        self.tell(format!("killed {} (leader, epoch {epoch}, pid {pid}) with SIGKILL", IDS[index]));
        true
    }

    async fn look(&mut self) -> io::Result<()> {
        self.looks += 1;
        let mut view = self.observer.look([0, 1].map(|i| self.pair.pid(i))).await;
        self.leader = view.leader().or(self.leader);
        for text in self.observer.take_news() {
            self.tell(text);
        }
        view.news.extend(self.news.iter().cloned());
        self.show(&view)
    }

    fn show(&mut self, view: &View) -> io::Result<()> {
        if !self.screen.is_plain() {
            let (width, height, colour) = self.screen.size();
            return self.screen.draw(&render::render(view, width, height, colour));
        }
        for change in self.changes.of(view) {
            self.screen.line(&change)?;
        }
        // A line a second, and one at once.
        if self.looks % 2 == 1 {
            self.screen.line(&lines::summary(view))?;
        }
        Ok(())
    }

    /// Drains the pair and says what there was.
    ///
    /// # Errors
    /// When that cannot be written, or what was shown before could not.
    pub async fn end(&mut self, keep: bool) -> io::Result<()> {
        self.screen.restore();
        let began = Instant::now();
        let clean = {
            let mut stopping = pin!(self.pair.stop(self.leader));
            // A word when it takes longer than a person expects.
            tokio::select! {
                clean = &mut stopping => clean,
                () = sleep(Duration::from_secs(1)) => {
                    let _ = self.screen.line("draining …");
                    stopping.await
                }
            }
        };
        self.observer.read_journal();
        let how = if clean { "drained" } else { "ended, not in good manners," };
        let mut lines = vec![format!("the pair {how} in {}", span::show(began.elapsed()))];
        lines.extend(self.observer.summary());
        if keep {
            lines.push(format!("kept {}", self.folder.path().display()));
            lines.push(format!("try: sensor-poll journal verify --state-dir {}", self.folder.state().display()));
        }
        let told = self.screen.line(&lines.join("\n"));
        self.unwritten.take().map_or(told, Err)
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
