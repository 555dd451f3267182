//! The journal: one JSON object a line, in segments, committed in groups.
//!
//! | module | holds |
//! | --- | --- |
//! | [`entry`], [`names`] | what callers hand over |
//! | [`record`], [`mod@line`] | from entries to bytes and back (pure) |
//! | [`segment`], [`scan`], [`reader`] | files, from bytes to records across files |
//! | [`recovery`], [`checkpoint`] | opening after whatever end the last writer had |
//! | [`writer`] | the thread that commits; `queue`, `space` (pure) and `commit` are its parts |
//! | [`feed`], [`stats`] | what others see of it |
//!
//! One thread, `journal`, started by [`writer::start`]: batches go in, notices come out (commits with their
//! acknowledgements, trouble, failure). It ends when it is closed, when its last handle is dropped, or when the fence falls.

pub mod checkpoint;
mod commit;
pub mod disk;
pub mod entry;
mod escape;
pub mod fault;
pub mod feed;
pub mod line;
pub mod names;
mod queue;
pub mod reader;
pub mod record;
pub mod recovery;
pub mod scan;
pub mod segment;
mod space;
pub mod stats;
#[cfg(test)]
mod testing;
mod timestamp;
pub mod writer;

use std::{io, path::PathBuf};

pub use checkpoint::{CheckpointData, SourcePosition};
pub use commit::Fence;
pub use entry::{Batch, Entry};
pub use fault::Fault;
pub use feed::{Chunk, Subscription};
pub use line::Record;
pub use names::StationNames;
pub use queue::{Overflow, Rejected, RejectedWhy};
pub use recovery::{RecoverOptions, Recovered, RecoveryReport, recover};
pub use stats::Stats;
pub use writer::{CloseReport, Commit, Failure, Hooks, Notice, WriterHandle, WriterOptions};

/// Why the journal cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is none.
    #[error("there is no journal at {path}")]
    Missing {
        /// Its folder.
        path: PathBuf,
    },
    /// The folder cannot be listed.
    #[error("cannot list the journal's folder {path}")]
    List {
        /// It.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The writer's thread cannot be started.
    #[error("cannot start the journal writer's thread")]
    Thread(#[source] io::Error),
}
