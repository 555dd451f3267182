//! The lease: which of a device's supervisors leads, and that no two ever do.
//!
//! The kernel's lock makes the leader, and frees itself when that process is gone. The record says who it is and when it
//! last showed life, so that a leader that hangs can be ended, and so that it stops by itself before that. All times are
//! CLOCK_BOOTTIME with the boot's id; the wall clock decides nothing, and may step as it likes.
//!
//! | file | holds |
//! | --- | --- |
//! | `machine` | what to do, pure |
//! | `record`, `store` | the record as text, and as a file |
//! | `lock` | the lock that makes a leader |
//! | `admission` | whether an instance that starts belongs to this pair |
//! | `epoch` | epochs over boots |
//! | `fence` | [`Fence`], checked before each commit, write and message |
//! | `driver`, `thread`, `view` | [`Lease`], the thread behind it, what it tells |

mod admission;
mod driver;
mod epoch;
#[cfg(test)]
mod explore;
mod fence;
mod lock;
mod machine;
#[cfg(test)]
mod machine_tests;
mod record;
mod store;
#[cfg(test)]
mod tests;
mod thread;
mod view;

pub use driver::{Lease, LeaseError, LeaseOptions};
pub use fence::{Fence, Fenced};
pub use record::{Record, RecordError};
pub use view::{LeaderView, LeaseEvent, LeaseView};
