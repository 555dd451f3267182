//! The lease as the rest of the process sees it.

use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, mpsc::SyncSender},
    thread,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    Fence, LeaseEvent, LeaseView,
    admission::admitted,
    epoch::EpochStore,
    lock::LeaderLock,
    record::{INSTANCE_WIDTH, TTL_MAX, TTL_MIN},
    store::{FileStore, Store},
    thread::{Message, Parts, Renewer},
    view::Outlet,
};
use crate::coordination::{FileLock, LockError, Process, holder};

/// Messages to the lease's thread that may wait.
const MESSAGES: usize = 32;
/// Events that may wait for the supervisor.
const EVENTS: usize = 64;
/// How long an instance that starts waits for an earlier process of its id to be gone.
const PREDECESSOR: Duration = Duration::from_millis(100);
/// How long giving the lease up may take; a write to tmpfs and two closes.
const RELEASE: Duration = Duration::from_secs(5);

/// What the lease needs to know.
pub struct LeaseOptions {
    /// Volatile, shared by the instances.
    pub run_dir: PathBuf,
    /// On flash, shared by the instances.
    pub state_dir: PathBuf,
    /// This instance's id: 1 to 32 letters, digits, `-`, `_`, `.`.
    pub instance: String,
    /// For how long a renewal holds.
    pub ttl: Duration,
    /// The version of this binary.
    pub build: String,
    /// The highest epoch that is known elsewhere (the journal's). Asked at each promotion, on its path: it must be quick.
    pub epoch_floor: Box<dyn Fn() -> u64 + Send>,
}

impl fmt::Debug for LeaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseOptions")
            .field("run_dir", &self.run_dir)
            .field("state_dir", &self.state_dir)
            .field("instance", &self.instance)
            .field("ttl", &self.ttl)
            .field("build", &self.build)
            .finish_non_exhaustive()
    }
}

/// Why the lease could not be taken part in, or not be left.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The id cannot be a file's name.
    #[error(
        "instance id {instance:?} must have 1 to {INSTANCE_WIDTH} letters, digits, `-`, `_`, `.`, and not begin with `.`"
    )]
    Instance {
        /// The id.
        instance: String,
    },
    /// The time to live is out of range.
    #[error("a lease of {} ms is out of range; use {} to {} ms", ttl.as_millis(), TTL_MIN.as_millis(), TTL_MAX.as_millis())]
    Ttl {
        /// The time to live.
        ttl: Duration,
    },
    /// The run folder is not there and cannot be made.
    #[error("cannot make the run folder {}", path.display())]
    RunDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A lock file cannot be used.
    #[error("cannot take part in the lease")]
    Lock(#[source] LockError),
    /// An instance of this id runs already.
    #[error("instance {instance} runs already: another process holds {}; give this one another id with --instance", path.display())]
    AlreadyRunning {
        /// The id.
        instance: String,
        /// Its lock file.
        path: PathBuf,
    },
    /// The state folder is another pair's: who leads with it does not hold the lock of our run folder.
    #[error(
        "another pair leads with the state folder {}{}; give each pair its own --state-dir, or both instances the same \
         --run-dir", state_dir.display(), holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    AnotherPair {
        /// The state folder.
        state_dir: PathBuf,
        /// Who leads with it, where the kernel says so.
        holder: Option<u32>,
    },
    /// `/proc` does not say when this process started.
    #[error("cannot tell who this process is")]
    Process(#[source] io::Error),
    /// No thread for it.
    #[error("cannot start the lease's thread")]
    Thread(#[source] io::Error),
    /// The thread did not answer in time, or is dead. The fence is closed once the lease runs out.
    #[error("the lease's thread did not give the lease up in time")]
    NotReleased,
}

/// This instance's part in the lease.
///
/// One thread renews or watches, another one waits for the lock; neither touches the async runtime.
///
/// A lease that is merely dropped while leading closes the fence and keeps the lock until the process ends, since nobody
/// said that the I/O under way has ended. [`Lease::release`] and [`Lease::shutdown`] say that, and give it up.
#[derive(Debug)]
pub struct Lease {
    messages: SyncSender<Message>,
    outlet: Arc<Outlet>,
    fence: Fence,
}

impl Lease {
    /// Takes part in the lease: leads if nobody does, stands by otherwise. Events tell which.
    ///
    /// Blocks for some seconds, at most, when it is not clear whom the folders belong to.
    ///
    /// # Errors
    /// When the folders or lock files cannot be used, an instance of this id runs already, or another pair leads with
    /// this state folder.
    pub fn start(options: LeaseOptions) -> Result<(Self, mpsc::Receiver<LeaseEvent>), LeaseError> {
        let store = Box::new(FileStore::new(options.run_dir.join("lease")));
        Self::start_with(options, store)
    }

    pub(super) fn start_with(
        options: LeaseOptions,
        mut store: Box<dyn Store>,
    ) -> Result<(Self, mpsc::Receiver<LeaseEvent>), LeaseError> {
        let LeaseOptions { run_dir, state_dir, instance, ttl, build, epoch_floor } = options;
        if !valid_instance(&instance) {
            return Err(LeaseError::Instance { instance });
        }
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            return Err(LeaseError::Ttl { ttl });
        }
        let process = Process::current().map_err(LeaseError::Process)?;
        fs::create_dir_all(&run_dir).map_err(|source| LeaseError::RunDir { path: run_dir.clone(), source })?;
        // Without it there is no journal either; that is told by whoever opens it. The lease does not need it.
        let _ = fs::create_dir_all(&state_dir);

        let own = FileLock::new(run_dir.join(format!("{instance}.lock")));
        let own = own.acquire_within(PREDECESSOR).map_err(|e| match e {
            LockError::Busy { path, .. } => LeaseError::AlreadyRunning { instance: instance.clone(), path },
            other => LeaseError::Lock(other),
        })?;
        let lease = FileLock::new(run_dir.join("lease.lock")).making_folder();
        // Only to find out now, and not in the thread, that the file cannot be used.
        lease.probe().map_err(LeaseError::Lock)?;
        let lock = LeaderLock::new(lease, FileLock::on_folder(&state_dir));
        if !admitted(&lock, store.as_mut(), ttl) {
            return Err(LeaseError::AnotherPair { holder: holder(&state_dir), state_dir });
        }

        let (outlet, events) = Outlet::new(EVENTS);
        let outlet = Arc::new(outlet);
        let fence = Fence::new();
        let (messages, inbox) = std::sync::mpsc::sync_channel(MESSAGES);
        let renewer = Renewer::new(Parts {
            ttl,
            instance,
            build,
            process,
            own,
            lock,
            store,
            epochs: EpochStore::new(&state_dir),
            floor: epoch_floor,
            fence: fence.clone(),
            outlet: Arc::clone(&outlet),
            messages: messages.clone(),
            inbox,
        });
        thread::Builder::new().name("lease".to_owned()).spawn(move || renewer.run()).map_err(LeaseError::Thread)?;
        Ok((Self { messages, outlet, fence }, events))
    }

    /// The fence, to check before each commit, write and message.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// The lease as this instance sees it now.
    #[must_use]
    pub fn view(&self) -> LeaseView {
        self.outlet.view()
    }

    /// Gives the lease up, or the wish for it: closes the fence, marks the record as released with the reason, lets go
    /// of the lock. Stop all I/O first. Doing it again does nothing.
    ///
    /// # Errors
    /// [`LeaseError::NotReleased`] when that did not happen in time.
    pub async fn release(&self, why: impl Into<String>) -> Result<(), LeaseError> {
        let (done, released) = oneshot::channel();
        self.ask(Message::Release { why: why.into(), done }, released).await
    }

    /// After a [`Lease::release`]: stands by again, behind whoever takes the lease now, or after one time to live.
    ///
    /// # Errors
    /// [`LeaseError::NotReleased`] when the thread does not answer.
    pub fn rejoin(&self) -> Result<(), LeaseError> {
        self.messages.try_send(Message::Rejoin).map_err(|_| LeaseError::NotReleased)
    }

    /// Gives the lease up and ends the thread; the instance's id is free after that. Stop all I/O first.
    ///
    /// # Errors
    /// As [`Lease::release`].
    pub async fn shutdown(self) -> Result<(), LeaseError> {
        let (done, ended) = oneshot::channel();
        self.ask(Message::Stop { done: Some(done) }, ended).await
    }

    async fn ask(&self, message: Message, done: oneshot::Receiver<()>) -> Result<(), LeaseError> {
        self.messages.try_send(message).map_err(|_| LeaseError::NotReleased)?;
        timeout(RELEASE, done).await.map_err(|_| LeaseError::NotReleased)?.map_err(|_| LeaseError::NotReleased)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The thread may be gone already, which is as good.
        let _ = self.messages.try_send(Message::Stop { done: None });
    }
}

fn valid_instance(id: &str) -> bool {
    (1..=INSTANCE_WIDTH).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}
