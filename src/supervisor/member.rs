//! One worker of the pool: where it is in its life, its process, its link, and what an earlier process of it left.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    config::model::WorkerPlan,
    supervisor::{budget::Budget, child::Identity, inherit::Found, link::Order, machine::Unit},
};

/// What a worker that ended left in its socket is read within this time.
const LINK_ENDS: Duration = Duration::from_secs(5);

/// See the module.
pub struct Worker {
    /// What it runs.
    pub plan: WorkerPlan,
    /// Where it is in its life.
    pub unit: Unit,
    /// Its failures.
    pub budget: Budget,
    /// Names its latest process.
    pub launch: u64,
    /// The process, while there is one.
    pub process: Option<Identity>,
    /// Asked to end before the launch was through.
    pub kill_on_launch: bool,
    /// The link to it.
    pub link: Option<LinkHandle>,
    /// The link of the process before, which reads on to the end of its socket.
    pub ending: Option<Ending>,
    /// How often it was started again.
    pub restarts: u64,
    /// Whether it was ever started.
    pub started: bool,
    /// How its last process ended.
    pub last_exit: Option<String>,
    /// Why the pool ended the present process.
    pub killed_because: Option<String>,
    /// Not in the manifest any more: forgotten once it is gone.
    pub leaving: bool,
    /// Who waits for which configuration.
    pub answers: Vec<(u64, Waiting)>,
}

/// A link, as the pool holds it.
pub struct LinkHandle {
    /// Where orders go.
    pub orders: mpsc::Sender<Order>,
    /// What the journal has committed of it.
    pub committed: watch::Sender<u64>,
    /// The number of the last reading that went to the journal.
    pub recorded: Arc<AtomicU64>,
    /// The link's task.
    pub task: JoinHandle<()>,
}

/// A link whose worker has ended.
#[derive(Debug)]
pub struct Ending {
    /// Its session.
    pub session: u64,
    /// The number of the last reading that went to the journal.
    pub recorded: Arc<AtomicU64>,
    /// The link's task.
    pub task: JoinHandle<()>,
}

/// What an earlier process of a worker left.
#[derive(Debug)]
pub struct Left {
    /// Its session, and the number of the last reading that went to the journal.
    pub recorded: Option<(u64, u64)>,
    /// What it left behind.
    pub spools: Vec<Found>,
}

impl Ending {
    /// Waits for the end of the socket, then says what was recorded.
    pub async fn settle(mut self) -> (u64, u64) {
        if tokio::time::timeout(LINK_ENDS, &mut self.task).await.is_err() {
            self.task.abort();
            // Its end must be seen: until then it may record more.
            let _ = self.task.await;
        }
        (self.session, self.recorded.load(Ordering::Acquire))
    }
}

/// Where refusals of a configuration go.
pub type Waiting = mpsc::UnboundedSender<(String, String)>;

impl Worker {
    /// One that was never started.
    #[must_use]
    pub fn new(plan: WorkerPlan) -> Self {
        Self {
            plan,
            unit: Unit::Down,
            budget: Budget::default(),
            launch: 0,
            process: None,
            kill_on_launch: false,
            link: None,
            ending: None,
            restarts: 0,
            started: false,
            last_exit: None,
            killed_because: None,
            leaving: false,
            answers: Vec::new(),
        }
    }

    /// Gives an order, without waiting.
    pub fn order(&self, order: Order) {
        if let Some(link) = &self.link
            && let Err(e) = link.orders.try_send(order)
        {
            // Sixteen orders wait: the worker does not listen, and its deadlines will end it.
            tracing::warn!(worker = self.plan.key.as_str(), error = %e, "order not taken");
        }
    }
}

/// Names a worker's process, in the journal and in its spool: random, since later leaders must not give it again. 53 bits, so
/// that every reader of JSON keeps it exact; not 0, which is the supervisor itself.
pub fn new_session() -> u64 {
    (RandomState::new().build_hasher().finish() >> 11).max(1)
}
