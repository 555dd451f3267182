//! What the demo knows at a moment: the one thing that both renderings are made from.

use std::{path::PathBuf, time::Duration};

use super::takeover::Takeover;
use crate::status::{LatestReading, Role, Status};

/// See the module.
#[derive(Debug, Clone)]
pub struct View {
    /// Since the demo began.
    pub elapsed: Duration,
    /// Both instances.
    pub instances: [InstanceView; 2],
    /// The leader's status; `None` while nobody leads.
    pub status: Option<Status>,
    /// The leader's readings, in the manifest's order.
    pub latest: Vec<LatestReading>,
    /// The journal, as its files say.
    pub journal: JournalView,
    /// From the start of the demo to the first reading in the journal.
    pub first_reading: Option<Duration>,
    /// Changes of leaders that the demo brought about.
    pub takeovers: Vec<TakeoverView>,
    /// Where the leader answers over TCP, once it does.
    pub leader_http: Option<String>,
    /// The demo's folder.
    pub folder: PathBuf,
    /// What happened last, the newest last.
    pub news: Vec<String>,
}

/// An instance.
#[derive(Debug, Clone)]
pub struct InstanceView {
    /// Its id.
    pub id: &'static str,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// Its own word; `None` while it does not answer.
    pub word: Option<Word>,
}

/// What an instance says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its role.
    pub role: Role,
    /// The epoch that it leads under or sees.
    pub epoch: u64,
    /// Since when (RFC 3339).
    pub since: String,
}

/// The journal.
#[derive(Debug, Clone, Default)]
pub struct JournalView {
    /// Where.
    pub path: PathBuf,
    /// The newest record.
    pub last_seq: u64,
    /// Readings.
    pub readings: u64,
    /// Readings a second, over the last seconds.
    pub rate: f64,
    /// Bytes on disk, as the leader says.
    pub bytes: Option<u64>,
    /// Why nothing can be written.
    pub trouble: Option<String>,
}

/// A takeover and what the journal says of it.
#[derive(Debug, Clone)]
pub struct TakeoverView {
    /// As it was measured.
    pub measured: Takeover,
    /// Polls that it cost, once a station has been heard of under the new epoch.
    pub missed: Option<u64>,
    /// Readings that are in the journal twice.
    pub doubled: u64,
}

impl View {
    /// The place of the instance that leads, by the highest epoch if two say so.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let leads = |i: &usize| self.instances[*i].word.as_ref().filter(|w| w.role == Role::Leader).map(|w| w.epoch);
        (0..2).filter(|i| leads(i).is_some()).max_by_key(leads)
    }
}

impl TakeoverView {
    /// One sentence.
    #[must_use]
    pub fn sentence(&self, number: usize) -> String {
        let Takeover { killed, epoch, answered, first_reading, .. } = &self.measured;
        let mut text = format!("takeover {number}: {killed} (epoch {epoch}) was killed");
        match answered {
            None => text.push_str("; waiting for the other one to lead"),
            Some(answer) => {
                let after = super::span::show(answer.after);
                text += &format!("; {} answered as leader after {after} under epoch {}", answer.by, answer.epoch);
            }
        }
        if let Some(after) = first_reading {
            text += &format!("; first reading after {}", super::span::show(*after));
        }
        if let Some(missed) = self.missed {
            text += &format!("; readings missed {missed}, doubled {}", self.doubled);
        }
        text
    }
}
