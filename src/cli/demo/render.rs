//! The table on a terminal. Pure: a view and a size in, lines out.

use std::path::Path;

use super::{
    span,
    text::{Line, Style, count, time_of_day, value},
    view::{InstanceView, View},
};
use crate::status::{LatestReading, Role, StationState, StationStatus};
use worker_contract::Quality;

/// What fits: as many lines as the terminal is high at most, none longer than it is wide.
#[must_use]
pub fn render(view: &View, width: usize, height: usize, colour: bool) -> Vec<String> {
    let head = head(view);
    let foot = foot(view);
    let addresses = addresses(view);
    let room = height.saturating_sub(head.len() + foot.len());
    let table = table(view);
    // The whole table if it fits, a line or two a station if it does not, and the addresses where there is room left.
    let body = if table.len() <= room { table } else { compact(view, width) };
    let (body, more) = cut(body, room);
    let left = room - body.len();
    let mut lines = head;
    lines.extend(body);
    lines.extend(more);
    lines.extend(foot);
    if left >= addresses.len() {
        lines.extend(addresses);
    }
    lines.truncate(height);
    lines.iter().map(|l| l.finish(width, colour)).collect()
}

/// Cuts to a height, with a line that says so.
fn cut(mut lines: Vec<Line>, room: usize) -> (Vec<Line>, Option<Line>) {
    if lines.len() <= room {
        return (lines, None);
    }
    lines.truncate(room.saturating_sub(1));
    let more = (room > 0).then(|| Line::new().put(Style::Dim, "  … more: enlarge the terminal"));
    // The mark counts as a line of the body.
    if more.is_some() { (lines, more) } else { (Vec::new(), None) }
}

fn head(view: &View) -> Vec<Line> {
    let mut lines = vec![
        Line::new()
            .put(Style::Bold, "sensor-poll demo")
            .put(Style::Dim, format!("   {}   Ctrl-C drains the pair and ends", span::show(view.elapsed))),
        Line::new(),
    ];
    lines.extend((0..2).map(|i| instance(&view.instances[i], view.leader() == Some(i))));
    lines.push(Line::new());
    lines
}

fn instance(instance: &InstanceView, leads: bool) -> Line {
    let line = Line::new().put(if leads { Style::Bold } else { Style::Plain }, format!("  {}", instance.id)).to(5);
    let line = match (&instance.word, instance.pid) {
        (Some(word), _) => {
            let style = match word.role {
                Role::Leader => Style::Good,
                Role::Follower => Style::Plain,
                Role::Draining => Style::Warn,
            };
            let since = time_of_day(&word.since);
            line.put(style, word.role.as_str())
                .to(15)
                .put(Style::Plain, format!("epoch {}", word.epoch))
                .to(26)
                .put(Style::Dim, format!("since {since} UTC"))
        }
        (None, Some(_)) => line.put(Style::Warn, "no answer"),
        (None, None) => line.put(Style::Bad, "dead"),
    };
    match instance.pid {
        Some(pid) => line.to(46).put(Style::Dim, format!("pid {pid}")),
        None => line,
    }
}

fn station_style(state: StationState) -> Style {
    match state {
        StationState::Good => Style::Good,
        StationState::Connecting | StationState::Degraded | StationState::Backoff => Style::Warn,
        StationState::Disconnected | StationState::Quarantined => Style::Bad,
        StationState::Disabled => Style::Dim,
    }
}

fn quality_style(quality: Quality) -> Style {
    match quality {
        Quality::Good => Style::Good,
        Quality::Uncertain => Style::Warn,
        Quality::Bad => Style::Bad,
    }
}

fn readings<'a>(view: &'a View, station: &StationStatus) -> impl Iterator<Item = &'a LatestReading> {
    let id = station.id.clone();
    view.latest.iter().filter(move |r| r.station == id)
}

/// A line for each point.
fn table(view: &View) -> Vec<Line> {
    let Some(status) = &view.status else { return vec![nobody()] };
    let title = Line::new().put(Style::Dim, "  station").to(24).put(Style::Dim, "point");
    let mut lines =
        vec![title.right(52, Style::Dim, "value").to(53).put(Style::Dim, "unit").to(60).put(Style::Dim, "quality")];
    for station in &status.stations {
        let mut left = vec![
            Line::new()
                .put(Style::Bold, format!("  {}", station.id))
                .to(12)
                .put(station_style(station.state), station.state.as_str()),
        ];
        if let Some(reason) = &station.reason {
            left.push(Line::new().put(Style::Dim, format!("    {}", short(reason, 18))));
        }
        let mut left = left.into_iter();
        for reading in readings(view, station) {
            lines.push(point(left.next().unwrap_or_default(), reading));
        }
        lines.extend(left);
    }
    lines
}

fn short(text: &str, width: usize) -> String {
    Line::new().put(Style::Plain, text).finish(width, false)
}

fn point(line: Line, reading: &LatestReading) -> Line {
    let line = line.to(24).put(Style::Plain, &reading.point);
    let line = match &reading.value {
        Some(v) => line.right(52, Style::Bold, &value(v)),
        None => line.right(52, Style::Dim, "–"),
    };
    let line = line.to(53).put(Style::Dim, reading.unit.as_deref().unwrap_or_default()).to(60);
    let line = line.put(quality_style(reading.quality), reading.quality.as_str());
    match &reading.reason {
        Some(reason) => line.put(Style::Plain, format!(" {reason}")),
        None => line,
    }
}

/// A station a paragraph, for small terminals.
fn compact(view: &View, width: usize) -> Vec<Line> {
    let Some(status) = &view.status else { return vec![nobody()] };
    let mut lines = Vec::new();
    for station in &status.stations {
        let mut line = Line::new()
            .put(Style::Bold, format!("  {}", station.id))
            .to(12)
            .put(station_style(station.state), station.state.as_str())
            .to(24);
        if let (Some(reason), None) = (&station.reason, readings(view, station).find(|r| r.value.is_some())) {
            lines.push(line.put(Style::Dim, reason));
            continue;
        }
        for reading in readings(view, station) {
            let text = match (&reading.value, &reading.unit) {
                (Some(v), Some(unit)) => format!("{} {} {unit}", reading.point, value(v)),
                (Some(v), None) => format!("{} {}", reading.point, value(v)),
                (None, _) => format!("{} –", reading.point),
            };
            if line.width() > 24 && line.width() + text.chars().count() > width {
                lines.push(std::mem::replace(&mut line, Line::new().to(24)));
            }
            let style = if reading.quality == Quality::Good { Style::Plain } else { quality_style(reading.quality) };
            line = line.put(style, text).put(Style::Plain, "  ");
        }
        lines.push(line);
    }
    lines
}

fn nobody() -> Line {
    Line::new().put(Style::Warn, "  nobody leads")
}

fn foot(view: &View) -> Vec<Line> {
    let journal = &view.journal;
    let mut text =
        format!("seq {}   {} readings   {:.0}/s", count(journal.last_seq), count(journal.readings), journal.rate);
    if let Some(bytes) = journal.bytes {
        text += &format!("   {} bytes", count(bytes));
    }
    let mut line = Line::new().put(Style::Dim, "  journal").to(12).put(Style::Plain, text);
    if let Some(first) = view.first_reading {
        line = line.put(Style::Dim, format!("   first after {} ms", first.as_millis()));
    }
    let mut lines = vec![Line::new(), line];
    if let Some(trouble) = &journal.trouble {
        lines.push(Line::new().to(12).put(Style::Bad, trouble));
    }
    for (i, takeover) in view.takeovers.iter().enumerate() {
        let style = if takeover.measured.is_complete() { Style::Good } else { Style::Warn };
        let sentence = takeover.sentence(i + 1);
        // In pieces, so that a terminal of 80 columns has the numbers too.
        let mut pieces = sentence.split("; ");
        lines.push(Line::new().put(style, format!("  {}", pieces.next().unwrap_or_default())));
        lines.extend(pieces.map(|piece| Line::new().to(4).put(Style::Plain, piece)));
    }
    if let Some(news) = view.news.last() {
        lines.push(Line::new().put(Style::Dim, format!("  {news}")));
    }
    lines
}

fn addresses(view: &View) -> Vec<Line> {
    let mut lines = vec![Line::new()];
    // Without a label in front, so that a command fits 80 columns and can be pasted.
    lines.extend(curl_commands(view).into_iter().map(|command| Line::new().put(Style::Plain, format!("  {command}"))));
    let label = |text: &str| Line::new().put(Style::Dim, format!("  {text}")).to(12);
    lines.push(label("journal").put(Style::Plain, view.journal.path.display().to_string()));
    lines.push(label("logs").put(Style::Plain, format!("{0}/a.log {0}/b.log", view.folder.display())));
    lines
}

/// A command to paste for each address that answers probes.
#[must_use]
pub fn curl_commands(view: &View) -> Vec<String> {
    let leader = view.leader_http.iter().map(|url| format!("curl {url}/metrics"));
    leader.chain(view.instances.iter().map(|i| curl_command(&view.folder.join("run"), i.id))).collect()
}

/// The command that asks an instance for its readiness.
#[must_use]
pub fn curl_command(run_dir: &Path, id: &str) -> String {
    format!("curl --unix-socket {} http://{id}/readyz", run_dir.join(format!("{id}.http.sock")).display())
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
