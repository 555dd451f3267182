//! The supervisor: an instance of the pair, and, while it leads, the workers and the journal.
//!
//! | module | decides or does |
//! | --- | --- |
//! | [`budget`] | the law of the restart budget (pure) |
//! | [`machine`] | the life of one worker process (pure) |
//! | [`desired`] | what the manifest asks of the workers (pure) |
//! | [`board`] | what is known of stations, workers and readings |
//! | [`child`] | launches, signals and ends worker processes |
//! | [`link`] | one worker's socket: commands out, readings into the journal |
//! | [`member`] | one worker of the pool: process, link, what it left |
//! | [`pool`] | owns the workers and makes them match what is desired |
//! | [`leader`] | leading: journal, pool and the leader's listeners, from promotion to drain |
//! | [`event`] | event records |
//! | [`inherit`] | what workers left behind when their supervisor died |
//! | [`instance`] | what commands and probes see of it |
//! | [`reload`] | reading the manifest again, beside everything else |
//! | [`run`] | the instance: lease, signals, RPC, probes |
//!
//! Tasks and threads of a supervisor:
//!
//! | task | in | out | ends |
//! | --- | --- | --- | --- |
//! | run | lease events, signals, RPC's wishes | starts and drains the leader | with the process |
//! | pool | commands, ends of children, link events | launches, commands to links | drained |
//! | a link for each worker | its socket, acks | journal, board, pool | the socket closes |
//! | journal writer (thread) | batches | commits | closed, or fenced |
//! | lease (threads) | the lock, the record | lease events | released |

pub mod board;
pub mod budget;
pub mod child;
pub mod desired;
pub mod event;
pub mod inherit;
pub mod instance;
pub mod leader;
pub mod link;
pub mod listeners;
pub mod machine;
pub mod member;
pub mod pool;
pub mod reload;
pub mod run;
pub mod setup;
