//! The ids of the device: made once, kept for good.
//!
//! `node_id` is who the device is upstream, `journal_id` names its journal. Images carry neither: a node id comes from
//! the machine's own id where it has one, so that a device whose flash was wiped is the same device again, and is random
//! elsewhere. A journal id is always random, since a new journal starts its numbers anew.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::{
    draft,
    file::{FileLock, LockError},
};

/// How long to wait for another process that makes the same id.
const WAIT: Duration = Duration::from_secs(5);
/// Hashed with the machine id, which is confidential and must not go upstream as it is (machine-id(5)).
const TWIST: &[u8] = b"sensor-poll node_id 1";
const MACHINE_ID: &str = "/etc/machine-id";
/// Hex digits of an id.
const DIGITS: usize = 32;

/// An id, and what a person should know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// 32 hex digits, or what an operator wrote into the file: up to 64 letters, digits, `-`, `_`, `.`.
    pub id: String,
    /// Why the file had to be made anew, when it was there but was no id.
    pub notice: Option<String>,
}

/// Why there is no id.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file is there and cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The id's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not there and cannot be made (a read-only or full disk). [`derived_node_id`] may still give one.
    #[error("cannot make {}; is the state folder writable?", path.display())]
    Make {
        /// The id's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process makes it and does not finish.
    #[error("cannot lock the making of ids")]
    Lock(#[source] LockError),
    /// The kernel gives no random bytes.
    #[error("cannot read /dev/urandom")]
    Random(#[source] io::Error),
}

/// The device's id upstream, from `STATE_DIR/node_id`; made when it is not there.
///
/// # Errors
/// See [`IdentityError`]. With a disk that cannot be written, [`IdentityError::Make`]: the caller decides.
pub fn node_id(state_dir: &Path) -> Result<Identity, IdentityError> {
    once(state_dir, "node_id", || derived_node_id().map_or_else(random, Ok))
}

/// The journal's id, from `STATE_DIR/journal_id`; made when it is not there.
///
/// # Errors
/// As [`node_id`].
pub fn journal_id(state_dir: &Path) -> Result<Identity, IdentityError> {
    once(state_dir, "journal_id", random)
}

/// The node id that this machine's own id gives; `None` where it has none.
#[must_use]
pub fn derived_node_id() -> Option<String> {
    derive(&fs::read_to_string(MACHINE_ID).ok()?)
}

/// `None` for what images ship instead of an id: nothing, `uninitialized`, or anything that is not 32 hex digits.
fn derive(machine_id: &str) -> Option<String> {
    let id = machine_id.trim().to_ascii_lowercase();
    let whole = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) && id.bytes().any(|b| b != b'0');
    whole.then(|| hex(&Sha256::new().chain_update(TWIST).chain_update(id.as_bytes()).finalize()[..DIGITS / 2]))
}

fn random() -> Result<String, IdentityError> {
    let mut bytes = [0; DIGITS / 2];
    File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).map_err(IdentityError::Random)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn once(
    folder: &Path,
    name: &str,
    make: impl FnOnce() -> Result<String, IdentityError>,
) -> Result<Identity, IdentityError> {
    let path = folder.join(name);
    if let Found::Id(id) = read(&path)? {
        return Ok(Identity { id, notice: None });
    }
    // Two instances may start at once on a new device: one makes it, the other reads it.
    let lock = FileLock::new(folder.join("identity.lock")).acquire_within(WAIT).map_err(|e| match e {
        LockError::Open { source, .. } => IdentityError::Make { path: path.clone(), source },
        other => IdentityError::Lock(other),
    })?;
    let notice = match read(&path)? {
        Found::Id(id) => return Ok(Identity { id, notice: None }),
        Found::Nothing => None,
        Found::Garbage => Some(format!("{} held no id and was made anew", path.display())),
    };
    let id = make()?;
    write(folder, &path, &id).map_err(|source| IdentityError::Make { path, source })?;
    drop(lock);
    Ok(Identity { id, notice })
}

enum Found {
    Id(String),
    Nothing,
    Garbage,
}

fn read(path: &Path) -> Result<Found, IdentityError> {
    let mut text = Vec::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(source) => return Err(IdentityError::Read { path: path.to_owned(), source }),
    };
    // No more than an id and its line end can count.
    file.take(128).read_to_end(&mut text).map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
    let id = String::from_utf8_lossy(&text).trim().to_owned();
    let valid = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    Ok(if valid { Found::Id(id) } else { Found::Garbage })
}

fn write(folder: &Path, path: &Path, id: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = draft(&new)?;
    file.write_all(format!("{id}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_machine_id_gives_the_same_node_id_for_ever_and_is_not_shown() {
        let id = derive("0123456789abcdef0123456789abcdef\n").unwrap();
        assert_eq!(id, "ee50f914a2ef6131d5fb1711eca80418");
        assert_ne!(Some(id), derive("0123456789abcdef0123456789abcdee\n"));
    }

    #[test]
    fn what_an_image_ships_is_no_machine_id() {
        for text in ["", "\n", "uninitialized\n", "00000000000000000000000000000000\n", "0123", "g".repeat(32).as_str()]
        {
            assert_eq!(derive(text), None, "{text:?}");
        }
    }

    #[test]
    fn ids_are_made_once_and_by_one_of_many() {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = thread::scope(|s| {
            let all: Vec<_> = (0..8).map(|_| s.spawn(|| journal_id(dir.path()).unwrap().id)).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == DIGITS), "{ids:?}");
        assert_eq!(node_id(dir.path()).unwrap(), node_id(dir.path()).unwrap());
        assert_ne!(node_id(dir.path()).unwrap().id, ids[0]);
    }

    #[test]
    fn what_an_operator_wrote_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("node_id"), "skid-7.plant\n").unwrap();
        assert_eq!(node_id(dir.path()).unwrap().id, "skid-7.plant");
    }

    #[test]
    fn an_empty_or_garbled_file_is_made_anew_and_told() {
        let dir = tempfile::tempdir().unwrap();
        for garbage in [&b""[..], &[0; 4096], b"two words"] {
            fs::write(dir.path().join("journal_id"), garbage).unwrap();
            let made = journal_id(dir.path()).unwrap();
            assert!(made.notice.is_some());
            assert_eq!(journal_id(dir.path()).unwrap(), Identity { id: made.id, notice: None });
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_a_typed_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(node_id(&dir.path().join("none")), Err(IdentityError::Make { .. })));
    }
}
