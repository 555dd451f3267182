//! Where an instance answers: its own socket and probes, and the leader's.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::time::{sleep, timeout};

use crate::{
    errors::chain,
    lifecycle::{
        inherited::Inherited,
        listen::{Addr, ListenError, acquire_listener},
        probes::ProbeServer,
    },
    rpc::{
        server::{Limits, Server, serve},
        transport::UnixTransport,
    },
    supervisor::{instance::Instance, run::RunOptions},
};

/// Where the leader answers probes when nothing else is said.
pub const LEADER_HTTP: ([u8; 4], u16) = ([127, 0, 0, 1], 8600);
/// What the service manager's sockets are named.
const OWN_NAME: &str = "probes";
/// See [`OWN_NAME`].
const LEADER_NAME: &str = "leader";
/// A predecessor that was just killed may keep its socket for moments.
const CONTROL_TRIES: u32 = 20;
/// Between two tries.
const CONTROL_PAUSE: Duration = Duration::from_millis(50);

/// Where an instance answers probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Http {
    /// At a socket of its own in the run folder; as the leader at [`LEADER_HTTP`] too.
    Default,
    /// Here alone.
    At(Addr),
    /// Nowhere.
    Off,
}

/// The leader's listeners, beside those of the instance.
pub struct LeaderListeners {
    control: Option<Server>,
    http: Option<ProbeServer>,
}

/// Opens the instance's own probes.
///
/// # Errors
/// When the address cannot be used.
pub async fn of_instance(
    options: &RunOptions,
    inherited: &Inherited,
    instance: &Arc<Instance>,
) -> Result<Option<ProbeServer>, ListenError> {
    let Some(addr) = own_probes(options) else { return Ok(None) };
    let listener = acquire_listener(&addr, OWN_NAME, inherited).await?;
    Ok(Some(ProbeServer::start(listener, Arc::clone(instance) as _)))
}

/// Makes the instance's own sockets anew when somebody removed their files: a gateway that nobody can ask is as good as
/// dead to its operator. True when it had to.
pub async fn mend_own(
    options: &RunOptions,
    inherited: &Inherited,
    instance: &Arc<Instance>,
    server: &mut Server,
    probes: &mut Option<ProbeServer>,
) -> bool {
    let socket = options.run_dir.join(format!("{}.sock", options.instance));
    let gone = !socket.exists();
    if gone && let Some(anew) = bind(&socket, instance).await {
        *server = anew;
    }
    if let Http::Default | Http::At(Addr::Unix(_)) = &options.http
        && !inherited.names().any(|name| name == OWN_NAME)
        && !own_probes(options).is_some_and(|addr| matches!(addr, Addr::Unix(path) if path.exists()))
        && let Ok(anew) = of_instance(options, inherited, instance).await
    {
        *probes = anew;
    }
    gone
}

async fn bind(path: &Path, instance: &Arc<Instance>) -> Option<Server> {
    match UnixTransport::bind(path).await {
        Ok(transport) => {
            tracing::warn!(path = %path.display(), "somebody removed this socket; made anew");
            Some(serve(transport, Arc::clone(instance) as _, Limits::default()))
        }
        // Tried again at the next look; with its folder gone there is more to tell than this.
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "a socket that was removed cannot be made anew");
            None
        }
    }
}

fn own_probes(options: &RunOptions) -> Option<Addr> {
    match &options.http {
        Http::Off => None,
        Http::At(addr) => Some(addr.clone()),
        Http::Default => Some(Addr::Unix(options.run_dir.join(format!("{}.http.sock", options.instance)))),
    }
}

/// Opens the leader's listeners. Neither keeps it from leading.
pub async fn of_leader(options: &RunOptions, inherited: &Arc<Inherited>, instance: &Arc<Instance>) -> LeaderListeners {
    let http = (options.http == Http::Default).then(|| {
        let addr = Addr::Tcp(LEADER_HTTP.into());
        ProbeServer::start_leader(addr, LEADER_NAME.to_owned(), Arc::clone(inherited), Arc::clone(instance) as _)
    });
    LeaderListeners { control: control(options.run_dir.join("control.sock"), instance).await, http }
}

async fn control(path: PathBuf, instance: &Arc<Instance>) -> Option<Server> {
    let mut tries = 0;
    loop {
        match UnixTransport::bind(&path).await {
            Ok(transport) => return Some(serve(transport, Arc::clone(instance) as _, Limits::default())),
            Err(_) if tries < CONTROL_TRIES => {
                tries += 1;
                sleep(CONTROL_PAUSE).await;
            }
            Err(error) => {
                tracing::error!("the leader's socket: {}; commands must name this instance", chain(&error));
                return None;
            }
        }
    }
}

impl LeaderListeners {
    /// As [`mend_own`].
    pub async fn mend(&mut self, options: &RunOptions, instance: &Arc<Instance>) {
        let path = options.run_dir.join("control.sock");
        if !path.exists()
            && let Some(anew) = bind(&path, instance).await
        {
            self.control = Some(anew);
        }
    }

    /// Stops accepting, and lets requests in flight be answered.
    pub async fn close(self, within: Duration) {
        let http = async {
            if let Some(http) = self.http {
                http.stop().await;
            }
        };
        let control = async {
            if let Some(control) = self.control {
                control.drain(within).await;
            }
        };
        let _ = timeout(within, async { tokio::join!(http, control) }).await;
    }
}
