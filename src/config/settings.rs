//! The tables of the process: `[facility]`, `[lease]`, `[journal]`, `[lifecycle]`, `[workers]`, `[upgrade]`.

use std::{ops::Range, time::Duration};

use toml::de::DeTable;
use worker_contract::{Faults, Fields, fields::is_hidden};

use super::{
    model::{
        Facility, Isolation, JournalSettings, LeaseSettings, LifecycleSettings, OnFailover, Overflow, Standby,
        UpgradeSettings, WorkerSettings,
    },
    timeouts, units,
};

const MIB: u64 = 1 << 20;

/// The words of `isolation`.
pub const ISOLATION: &[(&str, Isolation)] = &[("protocol", Isolation::Protocol), ("connection", Isolation::Connection)];

/// All of them.
pub struct Settings {
    /// `None` after a fault.
    pub facility: Option<Facility>,
    /// See the model.
    pub lease: LeaseSettings,
    /// See the model.
    pub journal: JournalSettings,
    /// See the model.
    pub lifecycle: LifecycleSettings,
    /// See the model.
    pub workers: WorkerSettings,
    /// See the model.
    pub upgrade: UpgradeSettings,
}

/// Takes every table of the process from the root.
pub fn read(root: &mut Fields<'_>, warnings: &mut Faults) -> Settings {
    let facility = facility(root);
    let lease = read_table(root, "lease", |fields| lease(fields, warnings));
    let journal = read_table(root, "journal", journal);
    let lifecycle = read_table(root, "lifecycle", lifecycle);
    let workers = read_table(root, "workers", |fields| workers(fields, warnings));
    let upgrade = read_table(root, "upgrade", |fields| upgrade(fields, warnings));
    let settings = Settings { facility, lease, journal, lifecycle, workers, upgrade };
    check_orders(root, &settings);
    settings
}

/// Reads a table that may be absent: its defaults are those of an empty one.
fn read_table<T>(root: &mut Fields<'_>, key: &'static str, read: impl FnOnce(&mut Fields<'_>) -> T) -> T {
    let empty = DeTable::new();
    let (table, span) = root.table(key).unwrap_or((&empty, root.span()));
    let mut fields = Fields::over(table, span, format!("[{key}]"), root.faults());
    let value = read(&mut fields);
    fields.finish();
    value
}

fn facility(root: &mut Fields<'_>) -> Option<Facility> {
    if !root.has("facility") {
        root.know(&["facility"]);
        let hint = "begin the manifest with:  [facility]  id = \"my-plant\"";
        let span = root.span();
        root.faults().push_absence(span, "manifest: the table `[facility]` is missing", Some(hint.to_owned()));
        return None;
    }
    let (table, span) = root.table("facility")?;
    let mut fields = Fields::over(table, span, "[facility]", root.faults());
    let id = units::id(&mut fields, "id");
    let name = fields.string("name");
    if let Some(name) = name.as_ref().filter(|n| n.value.chars().any(is_hidden)) {
        let hint = "write it without control characters and characters that are not seen".to_owned();
        fields.fault(name.span.clone(), "`name` cannot be used", hint);
    }
    fields.finish();
    let id = id?.value.to_owned();
    let name = name.map_or_else(|| id.clone(), |n| n.value.to_owned());
    Some(Facility { id, name })
}

fn lease(fields: &mut Fields<'_>, warnings: &mut Faults) -> LeaseSettings {
    let ttl = units::millis(fields, "ttl_ms", 300..=60_000, 3_000);
    let standby = fields.one_of("standby", &[("cold", Standby::Cold), ("hot", Standby::Hot)]).unwrap_or_default();
    if standby == Standby::Hot {
        let message = "[lease]: `standby = \"hot\"`: this version stands by cold and replays the journal when promoted";
        warnings.push(fields.span_of("standby"), message, None);
    }
    LeaseSettings { ttl: Duration::from_millis(ttl.into()), standby }
}

fn journal(fields: &mut Fields<'_>) -> JournalSettings {
    let commit_interval = units::millis(fields, "commit_interval_ms", 1..=10_000, 200);
    let commit_bytes = units::bytes(fields, "commit_bytes", 4 << 10..=64 * MIB, MIB);
    let max_bytes = units::bytes(fields, "max_bytes", MIB..=1 << 44, 1 << 30);
    let max_age = units::age(fields, "max_age", 60..=3_660 * 86_400, Duration::from_secs(30 * 86_400));
    // A share of the whole, so that dropping the oldest segment never drops most of the journal.
    let segment_default = (max_bytes / 8).clamp(64 << 10, 16 * MIB);
    let segment_bytes = units::bytes(fields, "segment_bytes", 64 << 10..=1 << 30, segment_default);
    let memory_bytes = units::bytes(fields, "memory_bytes", MIB..=1 << 32, 32 * MIB);
    let words = [("drop_oldest", Overflow::DropOldest), ("stop_polling", Overflow::StopPolling)];
    let overflow = fields.one_of("overflow", &words).unwrap_or_default();
    if segment_bytes.saturating_mul(2) > max_bytes {
        let (segment, whole) = (units::show_bytes(segment_bytes), units::show_bytes(max_bytes));
        let message =
            format!("`segment_bytes` ({segment}) leaves no room for two segments within `max_bytes` ({whole})");
        let hint = "raise `max_bytes`, or lower `segment_bytes` to an eighth of it";
        let key = if fields.has("segment_bytes") { "segment_bytes" } else { "max_bytes" };
        fields.fault(fields.span_of(key), message, hint.to_owned());
    }
    // A commit that waits for more than may wait, or than there may be, would never come by its size.
    for (key, most) in [("memory_bytes", memory_bytes), ("max_bytes", max_bytes)] {
        if commit_bytes <= most {
            continue;
        }
        let (commit, most) = (units::show_bytes(commit_bytes), units::show_bytes(most));
        let message = format!("`{key}` ({most}) must not be below `commit_bytes` ({commit})");
        let at = if fields.has("commit_bytes") { "commit_bytes" } else { key };
        fields.fault(fields.span_of(at), message, format!("lower `commit_bytes`, or raise `{key}`"));
    }
    let commit_interval = Duration::from_millis(commit_interval.into());
    JournalSettings { commit_interval, commit_bytes, max_bytes, max_age, segment_bytes, memory_bytes, overflow }
}

fn lifecycle(fields: &mut Fields<'_>) -> LifecycleSettings {
    let default = u32::try_from(timeouts::DRAIN_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let drain = units::millis(fields, "drain_timeout_ms", 500..=3_600_000, default);
    LifecycleSettings { drain_timeout: Duration::from_millis(drain.into()) }
}

fn workers(fields: &mut Fields<'_>, warnings: &mut Faults) -> WorkerSettings {
    let isolation = fields.one_of("isolation", ISOLATION).unwrap_or_default();
    let words = [("adopt", OnFailover::Adopt), ("respawn", OnFailover::Respawn)];
    let on_failover = fields.one_of("on_failover", &words);
    if on_failover == Some(OnFailover::Adopt) {
        let message = "[workers]: `on_failover = \"adopt\"`: in this version workers leave with their supervisor, and \
                       the next leader starts its own";
        let hint = "leave it out, or write \"respawn\": both mean what is done today".to_owned();
        warnings.push(fields.span_of("on_failover"), message, Some(hint));
    }
    WorkerSettings { isolation, on_failover: on_failover.unwrap_or_default() }
}

fn upgrade(fields: &mut Fields<'_>, warnings: &mut Faults) -> UpgradeSettings {
    if !fields.has("source") {
        fields.know(&["source"]);
        return UpgradeSettings::default();
    }
    let source = fields.required_string("source");
    if let Some(found) = &source {
        warnings.push(found.span.clone(), "[upgrade]: `source`: this version takes no upgrade from a source yet", None);
    }
    UpgradeSettings { source: source.map(|s| s.value.into()) }
}

/// Refuses settings that break the order of the timeouts, at the setting that breaks it.
fn check_orders(root: &mut Fields<'_>, settings: &Settings) {
    let drain = settings.lifecycle.drain_timeout;
    for order in timeouts::orders(drain, settings.lease.ttl, settings.journal.commit_interval) {
        if order.holds() {
            continue;
        }
        let (table, key, hint) = match order.lower.0 {
            "journal's commit interval" => ("journal", "commit_interval_ms", "lower it, or raise `drain_timeout_ms`"),
            "lease's time to live and the relaunch of a supervisor" => ("lease", "ttl_ms", "lower it"),
            _ => (
                "lifecycle",
                "drain_timeout_ms",
                "lower it below 85000: the service manager kills what is left after 90 s",
            ),
        };
        let span = setting_span(root, table, key);
        root.faults().push(span, format!("[{table}]: `{key}`: {}", order.words()), Some(hint.to_owned()));
    }
}

fn setting_span(root: &mut Fields<'_>, table: &'static str, key: &str) -> Range<usize> {
    match root.table(table) {
        Some((inner, span)) => inner.get(key).map_or(span, toml::Spanned::span),
        None => root.span(),
    }
}
