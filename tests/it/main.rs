//! Tests over real processes and sockets, one file for each part.

mod check;
mod demo;
mod journal;
mod lease;
mod peers;
mod rpc;
mod run;
