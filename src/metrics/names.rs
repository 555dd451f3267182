//! The metrics: name, type and help of each family. Dashboards and alerts rely on the names.

/// A family's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, but for a restart of what counts.
    Counter,
    /// Goes either way.
    Gauge,
}

impl Kind {
    /// The word in the text format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A family of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it says, its unit included.
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident $kind:ident $name:literal $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Family = Family { name: $name, kind: Kind::$kind, help: $help };
        )*
        /// Every family, in the order of the text.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD_INFO Gauge "sensor_poll_build_info" "Always 1; the labels say what runs.";
    ROLE Gauge "sensor_poll_role" "1 for the role that the instance has, 0 for the others.";
    LEASE_STATE Gauge "sensor_poll_lease_state" "1 for the state of the lease as this instance sees it, 0 for the others.";
    LEASE_EPOCH Gauge "sensor_poll_lease_epoch" "The epoch that the instance leads under, or sees the leader under.";
    LEASE_RENEWALS Counter "sensor_poll_lease_renewals_total" "Renewals of the lease by this process.";
    LEASE_PROMOTIONS Counter "sensor_poll_lease_promotions_total" "How often this process became the leader.";
    LEASE_FENCINGS Counter "sensor_poll_lease_fencings_total" "How often this process ended a leader that hung.";
    WORKER_STATE Gauge "sensor_poll_worker_state" "1 for the state that the worker is in, 0 for the others.";
    WORKER_RESTARTS Counter "sensor_poll_worker_restarts_total" "How often the worker was started again.";
    WORKER_LAST_EXIT Gauge "sensor_poll_worker_last_exit_info" "Always 1; the label says how the worker's last process ended.";
    WORKER_UNCOMMITTED Gauge "sensor_poll_worker_uncommitted_readings" "Readings that the worker holds because they are not committed yet.";
    WORKER_LAST_SUCCESS Gauge "worker_last_success_timestamp_seconds" "Unix time of the worker's last success; set by success alone.";
    STATION_STATE Gauge "sensor_poll_station_state" "1 for the state that the station is in, 0 for the others.";
    STATION_POINTS Gauge "sensor_poll_station_points" "Points of the station.";
    STATION_POLLS Counter "sensor_poll_station_polls_total" "Polls begun.";
    STATION_MISSED Counter "sensor_poll_station_missed_polls_total" "Polls skipped because the one before took too long, or the process stood still.";
    STATION_REQUESTS Counter "sensor_poll_station_requests_total" "Requests sent, repeats included.";
    STATION_READS Counter "sensor_poll_station_reads_total" "Points read with a value.";
    STATION_ERRORS Counter "sensor_poll_station_read_errors_total" "Points read without a value, by reason.";
    STATION_ROUND_TRIP Gauge "sensor_poll_station_round_trip_seconds" "The last round trip.";
    STATION_BACKOFF Gauge "sensor_poll_station_backoff_seconds" "The present back-off; 0 when there is none.";
    STATION_AGE Gauge "sensor_poll_station_last_good_age_seconds" "Age of the last poll that brought every point good; absent before the first.";
    STATION_BYTES Counter "sensor_poll_station_bytes_total" "Bytes sent to the station and received from it.";
    JOURNAL_RECORDS Counter "sensor_poll_journal_records_total" "Records committed by this process.";
    JOURNAL_WRITTEN Counter "sensor_poll_journal_written_bytes_total" "Bytes written by this process.";
    JOURNAL_COMMITS Counter "sensor_poll_journal_commits_total" "Group commits by this process.";
    JOURNAL_COMMIT_SECONDS Counter "sensor_poll_journal_commit_seconds_total" "Time spent in group commits.";
    JOURNAL_LAST_COMMIT Gauge "sensor_poll_journal_last_commit_seconds" "Duration of the last group commit.";
    JOURNAL_REPAIRS Counter "sensor_poll_journal_repairs_total" "Torn tails cut and bad records skipped by this process.";
    JOURNAL_DROPPED Counter "sensor_poll_journal_dropped_records_total" "Records lost to the bounds of memory or disk.";
    JOURNAL_BYTES Gauge "sensor_poll_journal_bytes" "Bytes on disk.";
    JOURNAL_PENDING Gauge "sensor_poll_journal_pending_bytes" "Bytes that wait in memory.";
    JOURNAL_FIRST_SEQ Gauge "sensor_poll_journal_first_seq" "The oldest record that is still there.";
    JOURNAL_LAST_SEQ Gauge "sensor_poll_journal_last_seq" "The newest committed record.";
    JOURNAL_WRITABLE Gauge "sensor_poll_journal_writable" "0 while nothing can be written.";
    UPLINK_ACKED Gauge "sensor_poll_uplink_acked_seq" "The newest record that the server holds.";
    UPLINK_LAG_RECORDS Gauge "sensor_poll_uplink_lag_records" "Committed records that the server does not hold yet.";
    UPLINK_LAG_SECONDS Gauge "sensor_poll_uplink_lag_seconds" "Age of the oldest record that the server does not hold yet.";
    UPLINK_BATCHES Counter "sensor_poll_uplink_batches_total" "Batches that the server took.";
    UPLINK_REFUSED Counter "sensor_poll_uplink_refused_batches_total" "Batches that the server called invalid.";
    EVENTS_DROPPED Counter "sensor_poll_events_dropped_total" "Events that a bounded stream lost.";
}
