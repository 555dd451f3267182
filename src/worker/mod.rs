//! The process side of every worker: what a protocol's driver does not do itself.
//!
//! | module | decides or does |
//! | --- | --- |
//! | [`wire`] | the messages between worker and supervisor |
//! | [`schedule`] | when each station of a lane is polled (pure) |
//! | [`outbox`] | readings that are not committed yet (pure) |
//! | [`spool`] | what a worker leaves behind that is not committed |
//! | [`station`] | a station's state, counters and conditioning (pure) |
//! | [`lane`] | one transport connection: polls its stations in turn |
//! | [`gate`] | the locks of the physical resources behind a connection |
//! | [`lanes`] | makes the lanes match the configuration, station by station |
//! | [`host`] | the process: locks, socket, supervisor's commands |
//!
//! Tasks of the process, all on one thread:
//!
//! | task | in | out | ends |
//! | --- | --- | --- | --- |
//! | host | the supervisor's messages | commands to lanes | socket closed, or drained |
//! | writer | outbox, reports | the socket | with the host |
//! | a lane each | commands, the clock | outbox, reports | told to, or aborted with the host |

pub mod gate;
pub mod host;
pub mod lane;
pub mod lanes;
pub mod outbox;
pub mod schedule;
pub mod spool;
pub mod station;
pub mod wire;
