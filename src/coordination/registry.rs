//! The instances on this device: `RUN_DIR/registry.json`.
//!
//! Writers change it under a lock and replace it by rename, so a reader needs no lock and sees a whole file. It is a
//! view and decides nothing: who leads is the lease's to say.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    file::{FileLock, LockError},
    process::Process,
};
use crate::status::{InstanceStatus, Role};

/// How long to wait for another instance that writes.
const WAIT: Duration = Duration::from_secs(2);
/// Ids that are remembered; beyond that, those that left first go first.
const IDS_AT_MOST: usize = 64;
/// No registry of ours is as long as this.
const BYTES_AT_MOST: u64 = 1 << 20;

/// Why the registry could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It is locked and stays so, or cannot be locked.
    #[error("cannot lock the registry of instances")]
    Lock(#[source] LockError),
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The registry's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be replaced.
    #[error("cannot replace {}", path.display())]
    Write {
        /// The registry's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The instance is not in it.
    #[error("instance {id} is not registered")]
    Unknown {
        /// Its id.
        id: String,
    },
}

/// What an instance says of itself when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Its id.
    pub id: String,
    /// What it is at present.
    pub role: Role,
    /// Its process.
    pub process: Process,
    /// The version of its binary.
    pub build: String,
    /// RFC 3339.
    pub started_at: String,
}

/// How a registration went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Rises each time an instance of this id starts.
    pub generation: u64,
    /// What was wrong with the file, when it had to be rebuilt.
    pub rebuilt: Option<String>,
}

/// The registry of one run folder. Cheap to clone; holds nothing open.
#[derive(Debug, Clone)]
pub struct Registry {
    path: PathBuf,
    lock: FileLock,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    id: String,
    role: Role,
    pid: u32,
    pid_start: u64,
    build: String,
    started_at: String,
    generation: u64,
    /// It left in order. The entry stays so that its generation is remembered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    left: bool,
}

impl Entry {
    fn is_alive(&self) -> bool {
        !self.left && Process { pid: self.pid, start: self.pid_start }.is_alive()
    }
}

impl Registry {
    /// The registry of a run folder.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        Self { path: run_dir.join("registry.json"), lock: FileLock::new(run_dir.join("registry.lock")) }
    }

    /// Enters an instance that starts, in place of an earlier one of its id. Blocks for moments.
    ///
    /// # Errors
    /// When the file cannot be locked, read or replaced.
    pub fn register(&self, new: &Registration) -> Result<Registered, RegistryError> {
        let mut generation = 1;
        let rebuilt = self.change(|entries| {
            generation = entries.iter().find(|e| e.id == new.id).map_or(1, |e| e.generation.saturating_add(1));
            entries.retain(|e| e.id != new.id);
            entries.push(Entry {
                id: new.id.clone(),
                role: new.role,
                pid: new.process.pid,
                pid_start: new.process.start,
                build: new.build.clone(),
                started_at: new.started_at.clone(),
                generation,
                left: false,
            });
            Ok(())
        })?;
        Ok(Registered { generation, rebuilt })
    }

    /// Notes an instance's new role.
    ///
    /// # Errors
    /// As [`Registry::register`], and [`RegistryError::Unknown`] when it is not in the file (any more).
    pub fn set_role(&self, id: &str, role: Role) -> Result<(), RegistryError> {
        self.alter(id, |entry| entry.role = role)
    }

    /// Notes that an instance leaves.
    ///
    /// # Errors
    /// As [`Registry::set_role`].
    pub fn remove(&self, id: &str) -> Result<(), RegistryError> {
        self.alter(id, |entry| entry.left = true)
    }

    /// The instances that run, by id. An entry whose process is gone is left out; a file that is no registry reads as
    /// an empty one, and the next registration rebuilds it.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn list(&self) -> Result<Vec<InstanceStatus>, RegistryError> {
        let (mut entries, _) = self.read()?;
        entries.retain(Entry::is_alive);
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(entries
            .into_iter()
            .map(|e| InstanceStatus {
                id: e.id,
                role: e.role,
                pid: e.pid,
                build: e.build,
                started_at: e.started_at,
                generation: e.generation,
            })
            .collect())
    }

    fn alter(&self, id: &str, alter: impl FnOnce(&mut Entry)) -> Result<(), RegistryError> {
        self.change(|entries| {
            let entry = entries.iter_mut().find(|e| e.id == id);
            alter(entry.ok_or_else(|| RegistryError::Unknown { id: id.to_owned() })?);
            Ok(())
        })?;
        Ok(())
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Entry>) -> Result<(), RegistryError>,
    ) -> Result<Option<String>, RegistryError> {
        let _guard = self.lock.acquire_within(WAIT).map_err(RegistryError::Lock)?;
        let (mut entries, rebuilt) = self.read()?;
        change(&mut entries)?;
        while entries.len() > IDS_AT_MOST {
            let oldest = entries.iter().position(|e| !e.is_alive()).unwrap_or(0);
            entries.remove(oldest);
        }
        self.write(&entries).map_err(|source| RegistryError::Write { path: self.path.clone(), source })?;
        Ok(rebuilt)
    }

    /// The entries, and what was wrong with the file when there are none for that reason.
    fn read(&self) -> Result<(Vec<Entry>, Option<String>), RegistryError> {
        let unreadable = |source| RegistryError::Read { path: self.path.clone(), source };
        match fs::metadata(&self.path) {
            Ok(m) if m.len() > BYTES_AT_MOST => return Ok((Vec::new(), Some(format!("{} bytes long", m.len())))),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
            Err(source) => return Err(unreadable(source)),
        }
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
            Err(source) => return Err(unreadable(source)),
        };
        match serde_json::from_slice(&bytes) {
            Ok(entries) => Ok((entries, None)),
            Err(e) => Ok((Vec::new(), Some(format!("{} was no registry ({e})", self.path.display())))),
        }
    }

    /// On tmpfs, and worth nothing after a boot: no fsync.
    fn write(&self, entries: &[Entry]) -> io::Result<()> {
        let draft = self.path.with_extension("json.new");
        fs::write(&draft, serde_json::to_vec_pretty(entries)?)?;
        fs::rename(&draft, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use super::*;

    fn registration(id: &str, process: Process) -> Registration {
        Registration {
            id: id.to_owned(),
            role: Role::Follower,
            process,
            build: "0.1.0".to_owned(),
            started_at: "2026-11-30T12:00:00.000000Z".to_owned(),
        }
    }

    fn ids(registry: &Registry) -> Vec<String> {
        registry.list().unwrap().into_iter().map(|i| i.id).collect()
    }

    #[test]
    fn instances_register_change_role_and_leave() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path());
        let me = Process::current().unwrap();
        assert_eq!(registry.list().unwrap(), []);
        for (id, generation) in [("b", 1), ("a", 1), ("a", 2)] {
            let done = registry.register(&registration(id, me)).unwrap();
            assert_eq!(done, Registered { generation, rebuilt: None });
        }
        registry.set_role("a", Role::Leader).unwrap();
        let all = registry.list().unwrap();
        assert_eq!(
            all.iter().map(|i| (i.id.as_str(), i.role)).collect::<Vec<_>>(),
            [("a", Role::Leader), ("b", Role::Follower)]
        );
        registry.remove("a").unwrap();
        assert_eq!(ids(&registry), ["b"]);
        assert!(matches!(registry.set_role("c", Role::Leader), Err(RegistryError::Unknown { .. })));
        // Also after it left in order.
        assert_eq!(registry.register(&registration("a", me)).unwrap().generation, 3);
    }

    #[test]
    fn an_instance_whose_process_is_gone_is_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path());
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let process = Process::find(child.id()).unwrap().unwrap();
        registry.register(&registration("a", process)).unwrap();
        registry.register(&registration("b", Process { start: process.start + 1, ..process })).unwrap();
        assert_eq!(ids(&registry), ["a"]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ids(&registry), [""; 0]);
    }

    #[test]
    fn a_torn_or_foreign_file_is_rebuilt_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path());
        let me = Process::current().unwrap();
        for garbage in [&b""[..], b"[{\"id\":\"a\",\"ro", &[0; 4096], b"{}", b"\xff\xfe"] {
            fs::write(dir.path().join("registry.json"), garbage).unwrap();
            assert_eq!(registry.list().unwrap(), []);
            assert!(registry.register(&registration("a", me)).unwrap().rebuilt.is_some());
            assert_eq!(ids(&registry), ["a"]);
        }
    }

    #[test]
    fn registrations_at_once_lose_none() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path());
        let me = Process::current().unwrap();
        thread::scope(|s| {
            for i in 0..8 {
                let registry = &registry;
                s.spawn(move || registry.register(&registration(&format!("i{i}"), me)).unwrap());
            }
        });
        assert_eq!(ids(&registry).len(), 8);
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path());
        let me = Process::current().unwrap();
        registry.register(&registration("lives", me)).unwrap();
        for i in 0..IDS_AT_MOST + 8 {
            registry.register(&registration(&format!("i{i}"), Process { pid: me.pid, start: 1 })).unwrap();
        }
        let (entries, _) = registry.read().unwrap();
        assert_eq!(entries.len(), IDS_AT_MOST);
        assert_eq!(ids(&registry), ["lives"]);
    }
}
