//! Plain lines, for a pipe or a file: a summary a second, and a line for each change. Pure: views in, lines out.

use std::collections::BTreeMap;

use super::{
    span,
    text::{count, value},
    view::View,
};
use crate::status::{Role, StationState};

/// Remembers what it said, and says what is new.
#[derive(Debug, Default)]
pub struct Changes {
    leader: Option<(&'static str, u64)>,
    roles: [Option<Role>; 2],
    /// Kept while nobody leads: a new leader that finds all as it was has no news.
    stations: BTreeMap<String, StationState>,
}

impl Changes {
    /// What is new in a view.
    pub fn of(&mut self, view: &View) -> Vec<String> {
        let mut lines = Vec::new();
        let leader = leadership(view);
        if leader != self.leader {
            lines.push(match leader {
                Some((id, epoch)) => format!("{id} leads under epoch {epoch}"),
                None => "nobody leads".to_owned(),
            });
            self.leader = leader;
        }
        for (instance, known) in view.instances.iter().zip(&mut self.roles) {
            let role = instance.word.as_ref().map(|w| w.role);
            if role == Some(Role::Follower) && *known != role {
                lines.push(format!("{} follows", instance.id));
            }
            *known = role;
        }
        let stations = view.status.as_ref().map(|s| s.stations.as_slice()).unwrap_or_default();
        for station in stations {
            if self.stations.insert(station.id.clone(), station.state) != Some(station.state) {
                let reason = station.reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
                lines.push(clean(&format!("station {} is {}{reason}", station.id, station.state.as_str())));
            }
        }
        if !stations.is_empty() {
            self.stations.retain(|id, _| stations.iter().any(|s| s.id == *id));
        }
        lines
    }
}

/// Names and reasons may come from a device: nothing in them controls the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

fn leadership(view: &View) -> Option<(&'static str, u64)> {
    let i = &view.instances[view.leader()?];
    Some((i.id, i.word.as_ref()?.epoch))
}

/// One line for all.
#[must_use]
pub fn summary(view: &View) -> String {
    let who = match leadership(view) {
        Some((id, epoch)) => format!("leader {id} epoch {epoch}"),
        None => "no leader".to_owned(),
    };
    let stations = view.status.as_ref().map(|s| s.stations.as_slice()).unwrap_or_default();
    let good = stations.iter().filter(|s| s.state == StationState::Good).count();
    let mut line = format!(
        "{}  {who}  stations {good}/{} good  journal seq {} readings {}",
        span::show(view.elapsed),
        stations.len(),
        count(view.journal.last_seq),
        count(view.journal.readings)
    );
    // A taste of the values: the first good reading of each station that is a number.
    let mut tasted: Vec<&str> = Vec::new();
    for reading in &view.latest {
        let Some(v) = reading.value.as_ref().filter(|v| v.is_number()) else { continue };
        if tasted.contains(&reading.station.as_str()) {
            continue;
        }
        tasted.push(&reading.station);
        let unit = reading.unit.as_deref().unwrap_or_default();
        line += format!("  {}.{} {} {unit}", reading.station, reading.point, value(v)).trim_end();
    }
    clean(&line)
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
