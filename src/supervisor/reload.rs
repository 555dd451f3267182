//! Reading the manifest again, beside everything else: a file that is just being written is waited for, and meanwhile the
//! instance goes on. Who asks while a reading is under way gets the answer of the next one, which sees what was changed
//! since.

use std::{
    fs, future,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use tokio::{
    sync::oneshot,
    task::{JoinHandle, spawn_blocking},
};

use crate::{
    config::{self, LoadError, Loaded, Manifest, RenderedFault},
    rpc::api::{Changes, ManifestFault, Refusal, ReloadError, ReloadReport},
    supervisor::leader::{changed_stations, connection_notes},
};

/// Names a state of a file, to see in one look whether it is another one by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    /// The file's state now. Taken before the file is read, so that a change in between is seen later.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self(fs::metadata(path).ok().map(|m| (m.ino(), m.len(), m.mtime(), m.mtime_nsec())))
    }
}

/// Who waits for a reload's outcome.
pub type Answer = oneshot::Sender<Result<ReloadReport, ReloadError>>;

/// A manifest that was read, or was not.
pub struct Reread {
    /// The file's state before.
    pub stamp: Stamp,
    /// What came of it.
    pub outcome: Result<Loaded, ReloadError>,
    /// Who waits for what comes of it.
    pub answers: Vec<Answer>,
}

#[derive(Debug)]
struct Reading {
    task: JoinHandle<Result<Loaded, LoadError>>,
    stamp: Stamp,
    answers: Vec<Answer>,
}

/// The reading under way, and who wants another one.
#[derive(Debug, Default)]
pub struct Reloads {
    reading: Option<Reading>,
    /// `Some` when another reading is wanted.
    next: Option<Vec<Answer>>,
    path: PathBuf,
}

impl Reloads {
    /// Of this file.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    /// Reads the manifest, now or after the reading that is under way.
    pub fn ask(&mut self, answer: Option<Answer>) {
        let answers = self.next.get_or_insert_default();
        answers.extend(answer);
        self.begin();
    }

    fn begin(&mut self) {
        if self.reading.is_some() {
            return;
        }
        if let Some(answers) = self.next.take() {
            let (path, stamp) = (self.path.clone(), Stamp::of(&self.path));
            self.reading = Some(Reading { task: spawn_blocking(move || config::reload(&path)), stamp, answers });
        }
    }

    /// The next manifest that was read; waits without end when nobody asks. Safe to drop at its await point.
    pub async fn read(&mut self) -> Reread {
        let Some(reading) = &mut self.reading else { return future::pending().await };
        let outcome = match (&mut reading.task).await {
            Ok(Ok(loaded)) => Ok(loaded),
            Ok(Err(error)) => {
                tracing::error!("the manifest is refused and the old one stays in force\n{error}");
                Err(refused(&error))
            }
            Err(error) => {
                Err(ReloadError::Refused(Refusal::Failed { why: format!("reading the manifest broke: {error}") }))
            }
        };
        let (stamp, answers) = (reading.stamp, std::mem::take(&mut reading.answers));
        self.reading = None;
        self.begin();
        Reread { stamp, outcome, answers }
    }
}

fn refused(error: &LoadError) -> ReloadError {
    let fault = |f: &RenderedFault| ManifestFault {
        file: f.file.clone(),
        line: f.line.into(),
        column: f.column.into(),
        message: f.message.clone(),
        hint: f.hint.clone(),
    };
    ReloadError::Manifest { faults: error.faults.iter().map(fault).collect(), more: error.more }
}

/// Warnings as notes of a report: the first ones, and how many there are besides.
#[must_use]
pub fn told(warnings: &[RenderedFault]) -> Vec<String> {
    const MOST: usize = 20;
    let mut notes: Vec<_> = warnings.iter().take(MOST).map(|w| format!("line {}: {}", w.line, w.message)).collect();
    if warnings.len() > MOST {
        notes.push(format!("and {} more warnings: see sensor-poll check", warnings.len() - MOST));
    }
    notes
}

/// What a reload changes on an instance that follows: what it will poll once it leads.
#[must_use]
pub fn between(before: &Manifest, after: &Manifest) -> ReloadReport {
    let changes = config::diff(before, after);
    let stations = changed_stations(changes.stations, after);
    let mut notes = vec!["this instance follows: the leader is to be told as well".to_owned()];
    notes.extend(connection_notes(&changes.connections));
    notes.extend(changes.restart_needed.iter().map(|key| format!("{key} takes effect at the next start")));
    ReloadReport { stations, workers: Changes::default(), notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_asks_during_a_reading_is_answered_by_the_next() {
        let mut reloads = Reloads::of("/nonexistent/manifest.toml".into());
        let (first, _f) = oneshot::channel();
        let (second, _s) = oneshot::channel();
        reloads.ask(Some(first));
        reloads.ask(Some(second));
        reloads.ask(None);
        for waiting in [1, 1] {
            let read = reloads.read().await;
            assert!(matches!(read.outcome, Err(ReloadError::Manifest { .. })));
            assert_eq!(read.answers.len(), waiting);
        }
        assert!(reloads.reading.is_none() && reloads.next.is_none());
    }
}
