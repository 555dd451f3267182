//! `sensor-poll demo`: a simulated plant and a gateway pair on this machine. Nothing to install, no root, nothing left.
//!
//! The demo serves the plant itself and starts two instances of `run` from its own image.
//!
//! | module | holds |
//! | --- | --- |
//! | [`folder`], [`leftovers`] | the private temporary folder, and those of demos that were killed |
//! | [`pair`] | the two instances: started, killed, ended |
//! | [`source`] | asking an instance |
//! | [`tail`], [`ledger`] | following the journal's files; counting what they say (pure) |
//! | [`takeover`] | measuring a change of leaders (pure) |
//! | [`observer`] | looking at the pair from outside |
//! | [`view`], [`render`], [`lines`], [`text`] | what is known; a table, or lines, of it (pure) |
//! | [`screen`] | the terminal |
//! | [`session`] | the loop over all of them |

pub mod folder;
pub mod ledger;
pub mod leftovers;
pub mod lines;
pub mod observer;
pub mod pair;
pub mod render;
pub mod screen;
pub mod session;
pub mod source;
pub mod span;
pub mod tail;
pub mod takeover;
#[cfg(test)]
mod testing;
pub mod text;
pub mod view;

use std::{env, fs, net::Ipv4Addr, time::Duration};

use anyhow::Context;
use tokio::time::Instant;

use self::{folder::Folder, observer::Observer, pair::Pair, screen::Screen, session::Session, source::Sockets};
use super::{exit::Exit, talk::unwritten};
use crate::sim::{
    Faults,
    demo_plant::DemoPlant,
    manifest,
    modbus::{Options, Server},
};

/// A simulated plant and a gateway pair on this machine: nothing to install, nothing left behind.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Kill the leader (SIGKILL) after this long, and show the takeover: 500ms, 10s, 1m
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    kill_leader_after: Option<Duration>,
    /// End after this long
    #[arg(long = "for", value_name = "SPAN", value_parser = span::parse)]
    lasts: Option<Duration>,
    /// Keep the demo's folder: manifest, logs, journal
    #[arg(long)]
    keep: bool,
    /// Print lines even on a terminal
    #[arg(long)]
    plain: bool,
    /// Plants of one seed behave alike
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
///
/// # Errors
/// When the plant or the pair cannot be started, or an instance ends again and again.
pub async fn run(args: Args) -> anyhow::Result<Exit> {
    let began = Instant::now();
    let signals = session::Signals::take().context("cannot take signals")?;
    leftovers::remove(&env::temp_dir());
    let folder = Folder::create(&env::temp_dir(), args.keep)?;
    let plant = Box::new(DemoPlant::new(args.seed));
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let plant = Server::start(Options { listen, plant, faults: Faults::default() }).await?;
    let path = folder.manifest();
    fs::write(&path, manifest::demo(plant.addr())).with_context(|| format!("cannot write {}", path.display()))?;
    let leader_port_is_free = observer::leader_port_is_free();
    let pair = Pair::start(&folder)?;
    let observer = Observer::new(began, &folder, Sockets::new(folder.run()), leader_port_is_free);
    let mut session = Session::new(began, &folder, pair, observer, Screen::of_stdout(args.plain));
    let outcome = session.run(signals, args.kill_leader_after, args.lasts).await;
    // Whatever happened, nothing stays.
    let told = session.end(args.keep).await;
    plant.stop().await;
    // Those of a demo that was killed just before this one began were still draining then.
    leftovers::remove(&env::temp_dir());
    outcome?;
    Ok(told.map_or_else(|e| unwritten(&e), |()| Exit::Done))
}
