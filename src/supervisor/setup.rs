//! From options to an instance that follows: folders, locks, identity, registry, lease, sockets. In this order, so that a
//! second process of the same id, or a folder that cannot be used, is told before anything is touched.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::mpsc;

use crate::{
    clock::Wall,
    config::model::Manifest,
    coordination::{Folder, IdentityError, Process, Registration, Registry, RegistryError, identity},
    errors::chain,
    journal::segment,
    lease::{Lease, LeaseError, LeaseEvent, LeaseOptions},
    lifecycle::{inherited::Inherited, listen::ListenError, probes::ProbeServer, unix_socket::BindError},
    rpc::{
        api::Hub,
        server::{Limits, Server, serve},
        transport::UnixTransport,
    },
    status::Role,
    supervisor::{
        instance::{Given, Instance, Wish},
        listeners,
        run::RunOptions,
    },
};

/// The service manager's sockets.
pub type Sockets = Arc<Inherited>;
/// The lease's events.
pub type LeaseEvents = mpsc::Receiver<LeaseEvent>;
/// Why a supervisor cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A folder cannot be made.
    #[error("cannot make the folder {path}: run as the service's user, or name another with {flag}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This process cannot be found in /proc.
    #[error("cannot read /proc/self")]
    Proc(#[source] io::Error),
    /// The node's identity cannot be had.
    #[error("the node's identity")]
    Identity(#[source] IdentityError),
    /// The registry cannot be written.
    #[error("the registry of instances")]
    Registry(#[source] RegistryError),
    /// The lease cannot be used.
    #[error("the lease")]
    Lease(#[source] LeaseError),
    /// The instance's socket cannot be made.
    #[error("the instance's socket")]
    Socket(#[source] BindError),
    /// The probes' address cannot be used.
    #[error("the address for probes")]
    Probes(#[source] ListenError),
}

/// An instance that follows.
pub struct Prepared {
    /// What commands and probes see.
    pub instance: Arc<Instance>,
    /// What the lease says.
    pub events: LeaseEvents,
    /// The service manager's sockets.
    pub inherited: Sockets,
    /// The instance's own socket.
    pub server: Server,
    /// The instance's own probes.
    pub probes: Option<ProbeServer>,
}

/// Prepares an instance.
///
/// # Errors
/// See [`SetupError`].
pub async fn prepare(
    options: &RunOptions,
    manifest: &Arc<Manifest>,
    wishes: mpsc::Sender<Wish>,
) -> Result<Prepared, SetupError> {
    let inherited = Arc::new(Inherited::take());
    folder(&options.run_dir, "--run-dir")?;
    folder(&options.state_dir, "--state-dir")?;
    let registry = Registry::new(&options.run_dir).with_state(state_folder(options)?);
    // Before the lease: an instance that has another journal must not lead for a moment either.
    registry.admits(&options.instance).map_err(SetupError::Registry)?;
    let journal = segment::folder(&options.state_dir);
    let (lease, events) = Lease::start(LeaseOptions {
        run_dir: options.run_dir.clone(),
        state_dir: options.state_dir.clone(),
        instance: options.instance.clone(),
        ttl: manifest.lease.ttl,
        build: options.build.clone(),
        epoch_floor: Box::new(move || highest_epoch(&journal)),
    })
    .map_err(SetupError::Lease)?;
    // The lease holds the instance's id: a second process of it got no further.
    let node_id = node_id(&options.state_dir)?;
    register(&registry, options)?;
    let instance = Arc::new(Instance::new(Given {
        id: options.instance.clone(),
        build: options.build.clone(),
        node_id,
        registry,
        lease,
        hub: Hub::new(),
        wishes,
    }));
    let socket = options.run_dir.join(format!("{}.sock", options.instance));
    let transport = UnixTransport::bind(&socket).await.map_err(SetupError::Socket)?;
    let server = serve(transport, Arc::clone(&instance) as _, Limits::default());
    let probes = listeners::of_instance(options, &inherited, &instance).await.map_err(SetupError::Probes)?;
    Ok(Prepared { instance, events, inherited, server, probes })
}

fn folder(path: &Path, flag: &'static str) -> Result<(), SetupError> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(|source| SetupError::Folder {
        path: path.to_owned(),
        flag,
        source,
    })
}

/// The identity upstream; with a disk that takes no writes, the one that the machine's own id gives.
fn node_id(state_dir: &Path) -> Result<String, SetupError> {
    match identity::node_id(state_dir) {
        Ok(identity) => {
            if let Some(notice) = identity.notice {
                tracing::warn!("{notice}");
            }
            Ok(identity.id)
        }
        Err(error) => match identity::derived_node_id() {
            Some(id) => {
                tracing::warn!("{}; using the machine's own", chain(&error));
                Ok(id)
            }
            None => Err(SetupError::Identity(error)),
        },
    }
}

fn state_folder(options: &RunOptions) -> Result<Folder, SetupError> {
    let path = &options.state_dir;
    Folder::of(path).map_err(|source| SetupError::Folder { path: path.clone(), flag: "--state-dir", source })
}

fn register(registry: &Registry, options: &RunOptions) -> Result<(), SetupError> {
    let registered = registry
        .register(&Registration {
            id: options.instance.clone(),
            role: Role::Follower,
            process: Process::current().map_err(SetupError::Proc)?,
            build: options.build.clone(),
            started_at: Wall::now().to_string(),
        })
        .map_err(SetupError::Registry)?;
    if let Some(why) = registered.rebuilt {
        tracing::warn!(why, "the registry of instances was rebuilt");
    }
    Ok(())
}

/// The highest epoch that any segment of the journal names; 0 without one.
fn highest_epoch(journal: &Path) -> u64 {
    let listing = segment::list(journal).ok().flatten();
    listing.map_or(0, |l| l.segments.iter().map(|s| s.id.epoch).max().unwrap_or(0))
}
