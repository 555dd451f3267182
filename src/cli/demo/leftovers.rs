//! Folders of demos that were killed: the next demo removes them.
//!
//! A demo's folder holds a file that names its process, locked for as long as that lives. A folder is removed only when
//! it has the name of a demo's, is this user's own, and names a process that is gone; whatever cannot be looked at stays.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use crate::coordination::Process;

/// How the names of demos' folders begin; six hexadecimal digits follow.
pub const PREFIX: &str = "sensor-poll-";
/// The file in a folder that names its process.
const OWNER: &str = "owner";

/// A folder is this process's until this is dropped. The lock says so to processes that see others under other numbers.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

/// Writes into a folder whose it is. `None` when that cannot be done: the folder is then never taken for a leftover.
#[must_use]
pub fn claim(folder: &Path) -> Option<Claim> {
    let me = Process::current().ok()?;
    let mut file = File::create_new(folder.join(OWNER)).ok()?;
    flock(&file, FlockOperation::LockExclusive).ok()?;
    writeln!(file, "{} {}", me.pid, me.start).ok()?;
    Some(Claim { _locked: file })
}

/// Removes the folders of demos below `parent` whose process is gone.
pub fn remove(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let named = entry.file_name().to_str().is_some_and(is_name);
        let path = entry.path();
        if named
            && let Some(_locked) = abandoned(&path)
            && is_quiet(&path)
        {
            // Nobody to tell: a demo works as well beside what could not be removed.
            let _ = clear(&path);
        }
    }
}

fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|d| d.len() == 6 && d.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()))
}

/// The lock of a folder's owner when the folder is ours to remove.
fn abandoned(folder: &Path) -> Option<File> {
    let own = rustix::process::geteuid().as_raw();
    let is = fs::symlink_metadata(folder).ok()?;
    if !is.is_dir() || is.uid() != own {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(open(folder.join(OWNER), flags, Mode::empty()).ok()?);
    let is = file.metadata().ok()?;
    if !is.is_file() || is.uid() != own {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut text = String::new();
    (&mut file).take(64).read_to_string(&mut text).ok()?;
    let (pid, start) = text.trim_end().split_once(' ')?;
    let owner = Process { pid: pid.parse().ok()?, start: start.parse().ok()? };
    (!owner.is_alive()).then_some(file)
}

/// Whether the instances of a demo that was killed are gone: they drain first, and would make anew what is removed meanwhile.
fn is_quiet(folder: &Path) -> bool {
    super::pair::IDS.iter().all(|id| match File::open(folder.join("run").join(format!("{id}.lock"))) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        // It never started, or has a folder that nobody can use.
        Err(_) => true,
    })
}

/// The owner's file goes last: when something else cannot be removed, a later demo tries again.
fn clear(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == OWNER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(folder.join(OWNER))?;
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_demos_folder_whose_process_is_gone_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let me = Process::current().unwrap();
        let gone = format!("{} {}\n", me.pid, me.start + 1);
        let alive = format!("{} {}\n", me.pid, me.start);
        let make = |name: &str, owner: Option<&str>| {
            let path = parent.path().join(name);
            fs::create_dir_all(path.join("run/workers")).unwrap();
            fs::write(path.join("plant.toml"), "x").unwrap();
            if let Some(text) = owner {
                fs::write(path.join(OWNER), text).unwrap();
            }
            path
        };
        let dead = make("sensor-poll-00dead", Some(&gone));
        let others = [
            make("sensor-poll-000001", Some(&alive)),
            make("sensor-poll-000002", None),
            make("sensor-poll-000003", Some("")),
            make("sensor-poll-000004", Some("1 2 3 and more")),
            make("sensor-poll-00000", Some(&gone)),
            make("sensor-poll-backup", Some(&gone)),
            make("sensor-poll-00000G", Some(&gone)),
            make("other-000005", Some(&gone)),
        ];
        // A link is followed neither for the folder nor for its owner.
        let elsewhere = make("elsewhere", Some(&gone));
        std::os::unix::fs::symlink(&elsewhere, parent.path().join("sensor-poll-000006")).unwrap();
        let linked = make("sensor-poll-000007", None);
        std::os::unix::fs::symlink(elsewhere.join(OWNER), linked.join(OWNER)).unwrap();
        // One of another process's numbers: the lock says that it lives.
        let held = make("sensor-poll-000008", Some(&gone));
        let lock = File::open(held.join(OWNER)).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();

        remove(parent.path());
        assert!(!dead.exists());
        for path in others.iter().chain([&elsewhere, &linked, &held]) {
            assert!(path.join("plant.toml").exists(), "{}", path.display());
        }
        drop(lock);
        remove(parent.path());
        assert!(!held.exists());
        remove(Path::new("/nonexistent"));
    }

    #[test]
    fn a_claim_holds_until_it_is_dropped_with_its_process() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("sensor-poll-abc123");
        fs::create_dir(&folder).unwrap();
        let claim = claim(&folder).unwrap();
        assert!(abandoned(&folder).is_none());
        drop(claim);
        assert!(abandoned(&folder).is_none(), "this process still lives");
    }
}
