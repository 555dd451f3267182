//! What lets several processes of one device agree: locks, the registry of instances, the device's identity.
//!
//! | module | holds |
//! | --- | --- |
//! | [`file`](mod@file) | [`FileLock`]: a lock on a file, released by the kernel when its holder dies |
//! | [`process`] | a process by pid and start time, and how to end it without hitting another one |
//! | [`owner`] | whose a lock is, so that a holder that hangs can be ended |
//! | [`registry`] | the instances on this device |
//! | [`identity`] | the node's and the journal's ids, made once |

pub mod file;
pub mod identity;
pub mod owner;
pub mod process;
pub mod registry;

pub use file::{FileGuard, FileLock, LockError};
pub use identity::{Identity, IdentityError};
pub use owner::{OwnerError, end_owner, write_owner};
pub use process::{Ended, Process};
pub use registry::{Registered, Registration, Registry, RegistryError};

/// A lock that one process at a time holds, whatever it is made of.
///
/// The lock is held for as long as its guard lives, and is released by whoever keeps it (kernel, database) when the
/// process dies.
pub trait CoordinationLock {
    /// What holds the lock; dropping it releases the lock.
    type Guard: Send + 'static;
    /// Why the lock could not even be asked for.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the lock if nobody holds it. Never waits.
    ///
    /// # Errors
    /// When the lock could not be asked for. "Somebody else holds it" is no error: it is [`Attempt::Held`].
    fn try_acquire(&self) -> Result<Attempt<Self::Guard>, Self::Error>;

    /// Waits for the lock, for ever if need be: only for a thread of its own.
    ///
    /// # Errors
    /// When the lock could not be asked for.
    fn acquire(&self) -> Result<Self::Guard, Self::Error>;
}

/// How an attempt at a lock ended. Two variants and no bool, so that "not obtained" cannot be taken for success.
#[derive(Debug)]
#[must_use = "an attempt that was not looked at may have failed"]
pub enum Attempt<G> {
    /// The lock is ours for as long as the guard lives.
    Acquired(G),
    /// Somebody else holds it.
    Held,
}
