//! Signals and what they order.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Begin the drain.
    Drain,
    /// End the wait of the drain that has begun.
    EndWait,
    /// Read the configuration again.
    Reload,
    /// Leave at once.
    Leave,
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Stop,
    Reload,
    Quit,
}

/// Turns signals into orders. Pure.
#[derive(Debug, Clone, Copy, Default)]
struct Ears {
    draining: bool,
}

impl Ears {
    /// `None`: a reload while draining, which would start what is being ended.
    fn hear(&mut self, came: Came) -> Option<Order> {
        match (came, self.draining) {
            (Came::Stop, false) => {
                self.draining = true;
                Some(Order::Drain)
            }
            (Came::Stop, true) => Some(Order::EndWait),
            (Came::Reload, false) => Some(Order::Reload),
            (Came::Reload, true) => None,
            (Came::Quit, _) => Some(Order::Leave),
        }
    }
}

/// The installed handlers.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    quit: Signal,
    ears: Ears,
}

impl Signals {
    /// Installs the handlers. The first thing to do in the runtime: a SIGHUP before it ends the process. A signal that comes
    /// before [`Signals::next`] is called is not lost.
    ///
    /// # Errors
    /// When the kernel refuses a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            hup: signal(SignalKind::hangup())?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            ears: Ears::default(),
        })
    }

    /// A drain began for another reason (a request, a failed part): the next SIGTERM ends its wait.
    pub fn drain_began(&mut self) {
        self.ears.draining = true;
    }

    /// The next order. Safe to drop at its await point.
    pub async fn next(&mut self) -> Order {
        loop {
            let came = tokio::select! {
                biased;
                _ = self.quit.recv() => Came::Quit,
                _ = self.term.recv() => Came::Stop,
                _ = self.int.recv() => Came::Stop,
                _ = self.hup.recv() => Came::Reload,
            };
            match self.ears.hear(came) {
                Some(order) => return order,
                None => tracing::info!("SIGHUP ignored while draining"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_stop_ends_the_wait_and_a_reload_while_draining_is_ignored() {
        let mut ears = Ears::default();
        assert_eq!(ears.hear(Came::Reload), Some(Order::Reload));
        assert_eq!(ears.hear(Came::Stop), Some(Order::Drain));
        assert_eq!(ears.hear(Came::Reload), None);
        assert_eq!(ears.hear(Came::Stop), Some(Order::EndWait));
        assert_eq!(ears.hear(Came::Quit), Some(Order::Leave));
    }
}
