//! The instances on this device: `RUN_DIR/registry.json`.
//!
//! Writers change it under a lock and replace it by rename, so a reader needs no lock and sees a whole file. It is a
//! view and decides nothing: who leads is the lease's to say.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    draft,
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
    /// The instance is not in it, and was not registered through this handle.
    #[error("instance {id} is not registered")]
    Unknown {
        /// Its id.
        id: String,
    },
    /// An instance of this run folder runs with another state folder: each would write a journal of its own.
    #[error(
        "instance {id} (process {pid}) shares the run folder {} and has another state folder, {}, not {}; give both \
         instances the same --state-dir, or each pair its own --run-dir",
        run_dir.display(), theirs.display(), ours.display()
    )]
    OtherState {
        /// The instance that runs.
        id: String,
        /// Its process.
        pid: u32,
        /// The folder that both share.
        run_dir: PathBuf,
        /// Its state folder.
        theirs: PathBuf,
        /// Ours.
        ours: PathBuf,
    },
}

/// A folder that cannot be mistaken for another one, however its path is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Its path, for people.
    pub path: PathBuf,
    /// The device that it is on.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
}

impl Folder {
    /// The folder at a path.
    ///
    /// # Errors
    /// When there is none that can be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { path: absolute, dev: found.dev(), ino: found.ino() })
    }

    fn is(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
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
    run_dir: PathBuf,
    path: PathBuf,
    lock: FileLock,
    /// Where whoever registers through this handle keeps its journal.
    state: Option<Folder>,
    /// What was last registered through this handle: entered anew when somebody cleaned the run folder.
    own: Arc<Mutex<Option<Entry>>>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Folder>,
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
        Self {
            run_dir: run_dir.to_owned(),
            path: run_dir.join("registry.json"),
            lock: FileLock::new(run_dir.join("registry.lock")).making_folder(),
            state: None,
            own: Arc::default(),
        }
    }

    /// For an instance that keeps its journal in this folder: it is registered only when no other instance of the run
    /// folder runs with another one.
    #[must_use]
    pub fn with_state(self, state: Folder) -> Self {
        Self { state: Some(state), ..self }
    }

    /// Checks that no other instance of this run folder runs with another state folder. For an instance that starts,
    /// before it touches anything; [`Registry::register`] checks it again.
    ///
    /// # Errors
    /// [`RegistryError::OtherState`], or when the file is there and cannot be read.
    pub fn admits(&self, id: &str) -> Result<(), RegistryError> {
        self.same_state(&self.read()?.0, id)
    }

    /// Enters an instance that starts, in place of an earlier one of its id. Blocks for moments.
    ///
    /// # Errors
    /// When the file cannot be locked, read or replaced, and [`RegistryError::OtherState`].
    pub fn register(&self, new: &Registration) -> Result<Registered, RegistryError> {
        let mut entry = Entry {
            id: new.id.clone(),
            role: new.role,
            pid: new.process.pid,
            pid_start: new.process.start,
            build: new.build.clone(),
            started_at: new.started_at.clone(),
            generation: 1,
            state: self.state.clone(),
            left: false,
        };
        let rebuilt = self.change(|entries| {
            self.same_state(entries, &new.id)?;
            if let Some(earlier) = entries.iter().find(|e| e.id == new.id) {
                entry.generation = earlier.generation.saturating_add(1);
            }
            entries.retain(|e| e.id != new.id);
            entries.push(entry.clone());
            Ok(())
        })?;
        let generation = entry.generation;
        *self.own() = Some(entry);
        Ok(Registered { generation, rebuilt })
    }

    /// Notes an instance's new role. One that was registered through this handle, and is no longer in the file, is
    /// entered anew: somebody cleaned the run folder.
    ///
    /// # Errors
    /// As [`Registry::register`], and [`RegistryError::Unknown`] when it is not in the file and was registered elsewhere.
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
        let own = self.own().clone().filter(|own| own.id == id);
        let mut altered = None;
        self.change(|entries| {
            if !entries.iter().any(|e| e.id == id) {
                entries.extend(own);
            }
            let entry = entries.iter_mut().find(|e| e.id == id);
            let entry = entry.ok_or_else(|| RegistryError::Unknown { id: id.to_owned() })?;
            alter(entry);
            altered = Some(entry.clone());
            Ok(())
        })?;
        let mut own = self.own();
        if own.as_ref().is_some_and(|own| own.id == id) {
            *own = altered;
        }
        Ok(())
    }

    fn own(&self) -> MutexGuard<'_, Option<Entry>> {
        // Replaced as a whole, so it is whole whatever panicked.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry that does not say (an earlier version's) is no objection.
    fn same_state(&self, entries: &[Entry], id: &str) -> Result<(), RegistryError> {
        let Some(ours) = &self.state else { return Ok(()) };
        for entry in entries.iter().filter(|e| e.id != id) {
            if let Some(theirs) = entry.state.as_ref().filter(|theirs| !theirs.is(ours))
                && entry.is_alive()
            {
                return Err(RegistryError::OtherState {
                    id: entry.id.clone(),
                    pid: entry.pid,
                    run_dir: self.run_dir.clone(),
                    theirs: theirs.path.clone(),
                    ours: ours.path.clone(),
                });
            }
        }
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
        let path = self.path.with_extension("json.new");
        draft(&path)?.write_all(&serde_json::to_vec_pretty(entries)?)?;
        fs::rename(&path, &self.path)
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
    fn an_instance_is_entered_anew_after_the_run_folder_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        let registry = Registry::new(&run);
        let me = Process::current().unwrap();
        registry.register(&registration("a", me)).unwrap();
        registry.register(&registration("a", me)).unwrap();
        fs::remove_dir_all(&run).unwrap();
        registry.clone().set_role("a", Role::Leader).unwrap();
        let [a] = &registry.list().unwrap()[..] else { panic!("not one instance") };
        assert_eq!((a.id.as_str(), a.role, a.generation), ("a", Role::Leader, 2));
        fs::remove_file(run.join("registry.json")).unwrap();
        registry.remove("a").unwrap();
        assert_eq!(ids(&registry), [""; 0]);
        assert_eq!(Registry::new(&run).register(&registration("a", me)).unwrap().generation, 3);
    }

    #[test]
    fn an_instance_with_another_state_folder_is_refused_while_the_first_one_lives() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            fs::create_dir_all(dir.path().join(name)).unwrap();
            Folder::of(&dir.path().join(name)).unwrap()
        };
        std::os::unix::fs::symlink("one", dir.path().join("same")).unwrap();
        let (one, same, two) = (folder("one"), folder("same"), folder("two"));
        let [one, same, two] = [one, same, two].map(|state| Registry::new(dir.path()).with_state(state));
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let process = Process::find(child.id()).unwrap().unwrap();
        one.register(&registration("a", process)).unwrap();
        same.admits("b").unwrap();
        let refused = two.admits("b").unwrap_err().to_string();
        assert!(refused.contains("instance a (process ") && refused.contains("two; give both"), "{refused}");
        let b = registration("b", Process::current().unwrap());
        assert!(matches!(two.register(&b), Err(RegistryError::OtherState { .. })));
        assert_eq!(ids(&two), ["a"]);
        child.kill().unwrap();
        child.wait().unwrap();
        two.register(&b).unwrap();
        assert_eq!(ids(&two), ["b"]);
    }

    #[test]
    fn an_entry_of_an_earlier_version_says_nothing_of_its_state_folder() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path());
        registry.register(&registration("a", Process::current().unwrap())).unwrap();
        assert!(!fs::read_to_string(dir.path().join("registry.json")).unwrap().contains("state"));
        registry.with_state(Folder::of(dir.path()).unwrap()).admits("b").unwrap();
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
