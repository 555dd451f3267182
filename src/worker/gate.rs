//! The locks of the physical resources behind a connection: without them there is no I/O, so that no two processes of the
//! device ever talk to one endpoint at once.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use worker_contract::{DriverError, Reason, Resource};

use crate::coordination::{Attempt, CoordinationLock, FileGuard, FileLock};

/// The locks of one connection, shared by its lanes and held as long as any of them lives.
#[derive(Debug)]
pub struct Gate {
    wanted: Vec<(Resource, PathBuf)>,
    held: Mutex<Vec<FileGuard>>,
}

impl Gate {
    /// The gate of a connection whose locks lie in `dir`. Takes nothing yet.
    #[must_use]
    pub fn new(dir: &Path, resources: &[Resource]) -> Self {
        let wanted = resources.iter().map(|r| (r.clone(), dir.join(file_name(r)))).collect();
        Self { wanted, held: Mutex::new(Vec::new()) }
    }

    /// Takes what is not held yet, without waiting.
    ///
    /// # Errors
    /// When another process holds one, which passes, or when the lock file cannot be used.
    pub fn pass(&self) -> Result<(), DriverError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((resource, path)) = self.wanted.get(held.len()) {
            let lock = FileLock::new(path)
                .try_acquire()
                .map_err(|e| DriverError::reconnect(Reason::Disconnected, format!("lock of {}: {e}", resource.0)))?;
            match lock {
                Attempt::Acquired(lock) => held.push(lock),
                Attempt::Held => {
                    let detail = format!("{} is in use by another process, which holds {}", resource.0, path.display());
                    return Err(DriverError::reconnect(Reason::Disconnected, detail));
                }
            }
        }
        Ok(())
    }
}

/// A file name for any resource: readable, and made unique by a checksum where characters had to give way.
fn file_name(resource: &Resource) -> String {
    let mut name = String::from("resource-");
    for c in resource.0.chars().take(100) {
        name.push(if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' });
    }
    // Writing into a string does not fail.
    let _ = write!(name, "-{:08x}.lock", crc32c::crc32c(resource.0.as_bytes()));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_in_use_is_told_and_passes_once_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let resources = [Resource("tcp:192.0.2.1:502".into())];
        let (first, second) = (Gate::new(dir.path(), &resources), Gate::new(dir.path(), &resources));
        first.pass().unwrap();
        first.pass().unwrap();
        let refused = second.pass().unwrap_err();
        assert!(refused.detail.contains("in use by another process"), "{refused}");
        drop(first);
        second.pass().unwrap();
    }

    #[test]
    fn names_of_different_resources_differ() {
        assert_ne!(file_name(&Resource("a/b".into())), file_name(&Resource("a:b".into())));
    }
}
