//! The status as a person reads it. Pure: text out of a status.

use std::fmt::Write as _;

use crate::{
    clock::Wall,
    status::{LatestReading, Role, StationState, StationStatus, Status, WorkerState, WorkerStatus},
};
use worker_contract::Quality;

/// The status, and below it the newest readings if there are any, in lines of at most `width` characters.
#[must_use]
pub fn render_status(status: &Status, latest: &[LatestReading], width: usize, colour: bool) -> String {
    render_status_at(status, latest, width, colour, Wall::now())
}

/// As [`render_status`], with the moment that ages are told from.
#[must_use]
pub fn render_status_at(status: &Status, latest: &[LatestReading], width: usize, colour: bool, now: Wall) -> String {
    let mut text = String::new();
    let head = format!(
        "{}: {} of {}, epoch {}, build {}, since {}",
        status.instance,
        status.role.as_str(),
        status.node_id,
        status.epoch,
        status.build,
        age(Some(&status.since), now)
    );
    Line(vec![(clean(&head), Tone::Strong)]).write(&mut text, width, colour);
    let sections = [instances(status, now), workers(status), stations(status, now), points(latest, now)];
    for table in sections.into_iter().flatten() {
        text.push('\n');
        table.write(&mut text, width, colour);
    }
    if let Some(line) = journal(status) {
        text.push('\n');
        line.write(&mut text, width, colour);
    }
    for notice in &status.notices {
        Line(vec![(format!("note: {}", clean(notice)), Tone::Warn)]).write(&mut text, width, colour);
    }
    text
}

/// How a cell is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    Strong,
    Faint,
    Good,
    Warn,
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

type Cell = (String, Tone);

fn cell(text: impl AsRef<str>) -> Cell {
    (clean(text.as_ref()), Tone::Plain)
}

fn toned(text: &str, tone: Tone) -> Cell {
    (clean(text), tone)
}

/// Text from devices and manifests must not steer the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Pieces of one line, in order.
struct Line(Vec<Cell>);

impl Line {
    fn write(&self, text: &mut String, width: usize, colour: bool) {
        let mut room = width;
        for (piece, tone) in &self.0 {
            if room == 0 {
                break;
            }
            let piece = clip(piece, room);
            room -= piece.chars().count();
            let code = tone.code();
            if colour && !code.is_empty() && !piece.trim().is_empty() {
                let _ = write!(text, "{code}{piece}\x1b[0m");
            } else {
                text.push_str(&piece);
            }
        }
        if !colour {
            text.truncate(text.trim_end_matches(' ').len());
        }
        text.push('\n');
    }
}

/// The text in at most `room` characters, an ellipsis last when it is cut.
fn clip(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

struct Table {
    head: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    fn some(head: &'static [&'static str], rows: Vec<Vec<Cell>>) -> Option<Self> {
        (!rows.is_empty()).then_some(Self { head, rows })
    }

    fn write(&self, text: &mut String, width: usize, colour: bool) {
        let mut widths: Vec<usize> = self.head.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            for (w, (text, _)) in widths.iter_mut().zip(row) {
                *w = (*w).max(text.chars().count());
            }
        }
        let head: Vec<Cell> = self.head.iter().map(|h| toned(h, Tone::Faint)).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let last = row.len().saturating_sub(1);
            let pieces = row.iter().zip(&widths).enumerate().flat_map(|(i, ((cell, tone), w))| {
                let pad = if i == last { 0 } else { w - cell.chars().count() + 2 };
                [(cell.clone(), *tone), (" ".repeat(pad), Tone::Plain)]
            });
            Line(pieces.collect()).write(text, width, colour);
        }
    }
}

fn instances(status: &Status, now: Wall) -> Option<Table> {
    let row = |i: &crate::status::InstanceStatus| {
        let tone = match i.role {
            Role::Leader => Tone::Good,
            Role::Follower => Tone::Plain,
            Role::Draining => Tone::Warn,
        };
        vec![
            cell(&i.id),
            toned(i.role.as_str(), tone),
            cell(i.pid.to_string()),
            cell(&i.build),
            cell(age(Some(&i.started_at), now)),
        ]
    };
    Table::some(&["INSTANCE", "ROLE", "PID", "BUILD", "STARTED"], status.instances.iter().map(row).collect())
}

fn workers(status: &Status) -> Option<Table> {
    let row = |w: &WorkerStatus| {
        let tone = match w.state {
            WorkerState::Running => Tone::Good,
            WorkerState::Starting | WorkerState::Draining => Tone::Warn,
            WorkerState::Failed | WorkerState::GaveUp | WorkerState::Missing => Tone::Bad,
            WorkerState::Stopped | WorkerState::Disabled => Tone::Faint,
        };
        vec![
            cell(&w.key),
            toned(w.state.as_str(), tone),
            cell(w.pid.map_or_else(|| "-".to_owned(), |p| p.to_string())),
            cell(w.restarts.to_string()),
            cell(if w.adopted { "yes" } else { "no" }),
            cell(w.last_exit.as_deref().unwrap_or("-")),
        ]
    };
    let head = &["WORKER", "STATE", "PID", "RESTARTS", "ADOPTED", "LAST EXIT"];
    Table::some(head, status.workers.iter().map(row).collect())
}

fn stations(status: &Status, now: Wall) -> Option<Table> {
    let row = |s: &StationStatus| {
        let tone = match s.state {
            StationState::Good => Tone::Good,
            StationState::Connecting | StationState::Degraded => Tone::Warn,
            StationState::Backoff | StationState::Disconnected | StationState::Quarantined => Tone::Bad,
            StationState::Disabled => Tone::Faint,
        };
        vec![
            cell(&s.id),
            toned(s.state.as_str(), tone),
            cell(age(s.last_good.as_deref(), now)),
            cell(s.points.to_string()),
            cell(if s.critical { "yes" } else { "no" }),
            cell(s.reason.as_deref().unwrap_or("-")),
        ]
    };
    let head = &["STATION", "STATE", "LAST GOOD", "POINTS", "CRITICAL", "REASON"];
    Table::some(head, status.stations.iter().map(row).collect())
}

fn points(latest: &[LatestReading], now: Wall) -> Option<Table> {
    let row = |r: &LatestReading| {
        let quality = match &r.reason {
            Some(reason) => format!("{} ({reason})", r.quality.as_str()),
            None => r.quality.as_str().to_owned(),
        };
        vec![
            cell(format!("{}.{}", r.station, r.point)),
            cell(value_text(r.value.as_ref(), r.unit.as_deref())),
            cell(age(Some(&r.ts), now)),
            toned(&quality, quality_tone(r.quality)),
        ]
    };
    Table::some(&["POINT", "VALUE", "READ", "QUALITY"], latest.iter().map(row).collect())
}

fn quality_tone(quality: Quality) -> Tone {
    match quality {
        Quality::Good => Tone::Good,
        Quality::Uncertain => Tone::Warn,
        Quality::Bad => Tone::Bad,
    }
}

/// A value and its unit; a dash without a value.
pub(super) fn value_text(value: Option<&serde_json::Value>, unit: Option<&str>) -> String {
    let text = match value {
        None => return "-".to_owned(),
        Some(serde_json::Value::String(s)) => s.clone(),
        Some(other) => other.to_string(),
    };
    unit.map_or(text.clone(), |unit| format!("{text} {unit}"))
}

fn journal(status: &Status) -> Option<Line> {
    let j = status.journal.as_ref()?;
    let mut text = format!("journal: records {} to {}, {}", j.first_seq, j.last_seq, bytes(j.bytes));
    if j.pending_bytes > 0 {
        let _ = write!(text, ", {} wait in memory", bytes(j.pending_bytes));
    }
    if j.dropped > 0 {
        let _ = write!(text, ", {} dropped", j.dropped);
    }
    let mut pieces = vec![cell(text)];
    if let Some(trouble) = &j.trouble {
        pieces.push((format!(", cannot write: {}", clean(trouble)), Tone::Bad));
    }
    Some(Line(pieces))
}

fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut scaled = n as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{scaled:.1} {unit}")
}

/// How long ago, in one unit that says enough. A moment in the future is `now`: clocks are stepped.
fn age(rfc3339: Option<&str>, now: Wall) -> String {
    let Some(text) = rfc3339 else { return "never".to_owned() };
    let Ok(then) = text.parse::<jiff::Timestamp>() else { return text.to_owned() };
    let seconds = now.0.saturating_sub(then.as_microsecond()).max(0) / 1_000_000;
    match seconds {
        0 => "now".to_owned(),
        1..=119 => format!("{seconds} s ago"),
        120..=7199 => format!("{} min ago", seconds / 60),
        7200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
