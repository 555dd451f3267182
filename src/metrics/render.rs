//! From a snapshot to Prometheus' text format 0.0.4. Pure.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use super::names::{self, Family};
use crate::{
    clock::Wall,
    status::{JournalStatus, Role, StationState, StationStatus, Status, WorkerState, WorkerStatus},
};

/// Everything that the metrics say.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The status, with the counters of stations and workers.
    pub status: Status,
    /// The lease's counters.
    pub lease: LeaseCounters,
    /// The journal's counters; `None` on a follower.
    pub journal: Option<JournalCounters>,
    /// One for each uplink.
    pub uplinks: Vec<UplinkCounters>,
    /// Events that bounded streams lost, by the stream's name.
    pub events_dropped: Vec<(String, u64)>,
    /// Now, for the ages.
    pub now: Wall,
}

/// What the lease counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseCounters {
    /// The state's name, as the lease's own machine has it; one of `states`, or empty when unknown.
    pub state: String,
    /// The names of all states.
    pub states: Vec<String>,
    /// Renewals by this process.
    pub renewals: u64,
    /// Promotions of this process.
    pub promotions: u64,
    /// Leaders that this process ended.
    pub fencings: u64,
}

/// What the journal counts beside [`JournalStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalCounters {
    /// Records committed.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Group commits.
    pub commits: u64,
    /// Time spent in them.
    pub commit_time: Duration,
    /// The last one's duration.
    pub last_commit: Duration,
    /// Torn tails cut and bad records skipped.
    pub repairs: u64,
}

/// What an uplink counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UplinkCounters {
    /// The manifest's id.
    pub id: String,
    /// The newest record that the server holds.
    pub acked_seq: u64,
    /// Committed records that it does not hold yet.
    pub lag_records: u64,
    /// Age of the oldest of them.
    pub lag: Duration,
    /// Batches taken.
    pub batches: u64,
    /// Batches called invalid.
    pub refused: u64,
}

/// Renders the snapshot.
#[must_use]
pub fn render(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    identity(&mut page, &snapshot.status);
    lease(&mut page, &snapshot.lease, snapshot.status.epoch);
    snapshot.status.workers.iter().for_each(|w| worker(&mut page, w));
    snapshot.status.stations.iter().for_each(|s| station(&mut page, s, snapshot.now));
    if let Some(status) = &snapshot.status.journal {
        journal(&mut page, status, snapshot.journal.as_ref());
    }
    snapshot.uplinks.iter().for_each(|u| uplink(&mut page, u));
    for (stream, dropped) in &snapshot.events_dropped {
        page.count(names::EVENTS_DROPPED, &[("stream", stream)], *dropped);
    }
    page.into_text()
}

/// Samples by family: a family's samples stand together under one HELP and TYPE, however they were added.
#[derive(Default)]
struct Page {
    samples: BTreeMap<&'static str, String>,
}

impl Page {
    fn sample(&mut self, family: Family, labels: &[(&str, &str)], value: &str) {
        let text = self.samples.entry(family.name).or_default();
        text.push_str(family.name);
        for (i, (name, value)) in labels.iter().enumerate() {
            text.push_str(if i == 0 { "{" } else { "," });
            text.push_str(name);
            text.push_str("=\"");
            escape(text, value);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        text.push(' ');
        text.push_str(value);
        text.push('\n');
    }

    fn count(&mut self, family: Family, labels: &[(&str, &str)], value: u64) {
        self.sample(family, labels, &value.to_string());
    }

    fn seconds(&mut self, family: Family, labels: &[(&str, &str)], value: f64) {
        self.sample(family, labels, &value.to_string());
    }

    /// One series a state, of which one is 1, so that a query needs no knowledge of the order of states.
    fn state<'a>(
        &mut self,
        family: Family,
        of: Option<(&str, &str)>,
        label: &str,
        states: impl Iterator<Item = &'a str>,
        present: &str,
    ) {
        for state in states {
            let labels: Vec<_> = of.into_iter().chain([(label, state)]).collect();
            self.count(family, &labels, u64::from(state == present));
        }
    }

    fn into_text(self) -> String {
        let mut text = String::with_capacity(self.samples.values().map(|s| s.len() + 160).sum());
        for family in names::ALL {
            if let Some(samples) = self.samples.get(family.name) {
                let _ = writeln!(text, "# HELP {} {}", family.name, family.help);
                let _ = writeln!(text, "# TYPE {} {}", family.name, family.kind.as_str());
                text.push_str(samples);
            }
        }
        text
    }
}

fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

fn identity(page: &mut Page, status: &Status) {
    let labels = [("version", status.build.as_str()), ("instance", &status.instance), ("node_id", &status.node_id)];
    page.count(names::BUILD_INFO, &labels, 1);
    let roles = [Role::Leader, Role::Follower, Role::Draining].map(Role::as_str);
    page.state(names::ROLE, None, "role", roles.into_iter(), status.role.as_str());
}

fn lease(page: &mut Page, lease: &LeaseCounters, epoch: u64) {
    page.state(names::LEASE_STATE, None, "state", lease.states.iter().map(String::as_str), &lease.state);
    page.count(names::LEASE_EPOCH, &[], epoch);
    page.count(names::LEASE_RENEWALS, &[], lease.renewals);
    page.count(names::LEASE_PROMOTIONS, &[], lease.promotions);
    page.count(names::LEASE_FENCINGS, &[], lease.fencings);
}

fn worker(page: &mut Page, worker: &WorkerStatus) {
    let of = ("worker", worker.key.as_str());
    let states = WorkerState::ALL.map(WorkerState::as_str);
    page.state(names::WORKER_STATE, Some(of), "state", states.into_iter(), worker.state.as_str());
    page.count(names::WORKER_RESTARTS, &[of], worker.restarts);
    page.count(names::WORKER_UNCOMMITTED, &[of], worker.uncommitted);
    if let Some(exit) = &worker.last_exit {
        page.count(names::WORKER_LAST_EXIT, &[of, ("exit", exit)], 1);
    }
    if let Some(seconds) = worker.last_success {
        page.seconds(names::WORKER_LAST_SUCCESS, &[of], seconds);
    }
}

fn station(page: &mut Page, station: &StationStatus, now: Wall) {
    let of = ("station", station.id.as_str());
    let states = StationState::ALL.map(StationState::as_str);
    page.state(names::STATION_STATE, Some(of), "state", states.into_iter(), station.state.as_str());
    let c = &station.counters;
    page.count(names::STATION_POINTS, &[of], station.points);
    page.count(names::STATION_POLLS, &[of], c.polls);
    page.count(names::STATION_MISSED, &[of], c.missed);
    page.count(names::STATION_REQUESTS, &[of], c.requests);
    page.count(names::STATION_READS, &[of], c.reads);
    for (reason, count) in &c.errors {
        page.count(names::STATION_ERRORS, &[of, ("reason", &reason.to_string())], *count);
    }
    page.seconds(names::STATION_ROUND_TRIP, &[of], c.round_trip_us as f64 / 1e6);
    page.seconds(names::STATION_BACKOFF, &[of], c.backoff_ms as f64 / 1e3);
    if c.last_good_us > 0 {
        // A clock that was stepped back must not make an age negative.
        let age = now.0.saturating_sub(c.last_good_us).max(0);
        page.seconds(names::STATION_AGE, &[of], age as f64 / 1e6);
    }
    page.count(names::STATION_BYTES, &[of, ("direction", "sent")], c.bytes_sent);
    page.count(names::STATION_BYTES, &[of, ("direction", "received")], c.bytes_received);
}

fn journal(page: &mut Page, status: &JournalStatus, counters: Option<&JournalCounters>) {
    if let Some(c) = counters {
        page.count(names::JOURNAL_RECORDS, &[], c.records);
        page.count(names::JOURNAL_WRITTEN, &[], c.bytes);
        page.count(names::JOURNAL_COMMITS, &[], c.commits);
        page.seconds(names::JOURNAL_COMMIT_SECONDS, &[], c.commit_time.as_secs_f64());
        page.seconds(names::JOURNAL_LAST_COMMIT, &[], c.last_commit.as_secs_f64());
        page.count(names::JOURNAL_REPAIRS, &[], c.repairs);
    }
    page.count(names::JOURNAL_DROPPED, &[], status.dropped);
    page.count(names::JOURNAL_BYTES, &[], status.bytes);
    page.count(names::JOURNAL_PENDING, &[], status.pending_bytes);
    page.count(names::JOURNAL_FIRST_SEQ, &[], status.first_seq);
    page.count(names::JOURNAL_LAST_SEQ, &[], status.last_seq);
    page.count(names::JOURNAL_WRITABLE, &[], u64::from(status.trouble.is_none()));
}

fn uplink(page: &mut Page, uplink: &UplinkCounters) {
    let of = ("uplink", uplink.id.as_str());
    page.count(names::UPLINK_ACKED, &[of], uplink.acked_seq);
    page.count(names::UPLINK_LAG_RECORDS, &[of], uplink.lag_records);
    page.seconds(names::UPLINK_LAG_SECONDS, &[of], uplink.lag.as_secs_f64());
    page.count(names::UPLINK_BATCHES, &[of], uplink.batches);
    page.count(names::UPLINK_REFUSED, &[of], uplink.refused);
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
