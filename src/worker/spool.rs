//! What a worker leaves behind when it goes with readings that are not committed: a file in the run folder that the next
//! leader takes over.
//!
//! `workers/KEY.SESSION.spool`, frames as on the wire: the [`VERSION`], a [`Header`], then the packed
//! [`FromWorker::Readings`] as they were sent. Written under another name and renamed, so it is whole or not there. The run
//! folder is volatile: a spool outlives processes, not a power cut.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::wire::{self, FromWorker, MAX_FRAME, Readings, VERSION, WireError};

/// A spool is no larger than an outbox and its header.
const MAX_BYTES: u64 = 64 << 20;
const ENDING: &str = "spool";

/// Why a spool cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The file cannot be used.
    #[error("cannot {what} the spool {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The content is none.
    #[error("{} is no spool of this build: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What the readings are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Names the worker's process, as the supervisor gave it.
    pub session: u64,
    /// The stations behind the handles.
    pub stations: HashMap<u32, SpoolStation>,
}

/// A station behind a handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolStation {
    /// Its id.
    pub id: String,
    /// Its points, see [`worker_contract::config::names_digest`].
    pub names: u64,
}

/// A spool that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Spool {
    /// What the readings are of.
    pub header: Header,
    /// The readings, by their numbers.
    pub batches: Vec<Readings>,
}

/// The bytes of a spool.
///
/// # Errors
/// Never for plain data.
pub fn encode(header: &Header, frames: impl IntoIterator<Item = Bytes>) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    let first = [wire::pack(&VERSION)?, wire::pack(header)?];
    for frame in first.into_iter().chain(frames) {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes)
}

/// What the bytes of a spool say.
///
/// # Errors
/// What is wrong with them.
pub fn decode(mut bytes: &[u8]) -> Result<Spool, String> {
    let mut next = || -> Result<Option<&[u8]>, String> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or("it ends within a length")?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(format!("a frame of {length} bytes"));
        }
        let frame = rest.get(..length).ok_or("it ends within a frame")?;
        bytes = &rest[length..];
        Ok(Some(frame))
    };
    let version: u32 = unpack(next()?.ok_or("it is empty")?)?;
    if version != VERSION {
        return Err(format!("version {version}"));
    }
    let header = unpack(next()?.ok_or("it has no header")?)?;
    let mut batches = Vec::new();
    while let Some(frame) = next()? {
        match unpack(frame)? {
            FromWorker::Readings(readings) => batches.push(readings),
            _ => return Err("a frame that holds no readings".to_owned()),
        }
    }
    Ok(Spool { header, batches })
}

fn unpack<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Result<T, String> {
    rmp_serde::from_slice(frame).map_err(|e| e.to_string())
}

/// Leaves a spool in the folder of the workers.
///
/// # Errors
/// When the folder takes no file.
pub fn write(dir: &Path, key: &str, session: u64, bytes: &[u8]) -> Result<PathBuf, SpoolError> {
    let path = dir.join(format!("{key}.{session:016x}.{ENDING}"));
    let half = path.with_extension("half");
    let failed = |source| SpoolError::File { what: "write", path: path.clone(), source };
    fs::write(&half, bytes).map_err(failed)?;
    fs::rename(&half, &path).map_err(failed)?;
    Ok(path)
}

/// The spools in the folder of the workers: those of a key, or all.
///
/// # Errors
/// When the folder cannot be listed.
pub fn list(dir: &Path, key: Option<&str>) -> Result<Vec<PathBuf>, SpoolError> {
    let failed = |source| SpoolError::File { what: "look for", path: dir.to_owned(), source };
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        // No worker was ever here.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if key_of(&path).is_some_and(|of| key.is_none_or(|k| k == of)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The worker whose spool a path names.
#[must_use]
pub fn key_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?.strip_suffix('.')?;
    let (key, session) = name.rsplit_once('.')?;
    (session.len() == 16 && session.bytes().all(|b| b.is_ascii_hexdigit())).then_some(key)
}

/// Reads a spool.
///
/// # Errors
/// When it cannot be read, or is none.
pub fn read(path: &Path) -> Result<Spool, SpoolError> {
    let failed = |source| SpoolError::File { what: "read", path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_BYTES {
        return Err(SpoolError::Content { path: path.to_owned(), why: format!("it has {length} bytes") });
    }
    let bytes = fs::read(path).map_err(failed)?;
    decode(&bytes).map_err(|why| SpoolError::Content { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use worker_contract::{Reading, Value};

    use super::*;

    fn spool() -> Spool {
        let station = SpoolStation { id: "boiler".into(), names: 7 };
        let reading = Reading { point: 1, value: Some(Value::F32(21.5)), reason: None };
        let batch = |first| Readings { first, handle: 3, ts: 5, readings: vec![reading.clone(), reading.clone()] };
        Spool {
            header: Header { session: 99, stations: HashMap::from([(3, station)]) },
            batches: vec![batch(1), batch(3)],
        }
    }

    fn bytes(spool: &Spool) -> Vec<u8> {
        let frames = spool.batches.iter().map(|b| wire::pack(&FromWorker::Readings(b.clone())).unwrap());
        encode(&spool.header, frames).unwrap()
    }

    #[test]
    fn a_spool_is_read_as_it_was_written_and_found_by_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "modbus.skid", 99, &bytes(&spool())).unwrap();
        assert_eq!(key_of(&path), Some("modbus.skid"));
        assert_eq!(list(dir.path(), Some("modbus.skid")).unwrap(), std::slice::from_ref(&path));
        assert_eq!(list(dir.path(), Some("modbus")).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(list(dir.path(), None).unwrap(), std::slice::from_ref(&path));
        assert_eq!(read(&path).unwrap(), spool());
    }

    #[test]
    fn files_of_other_names_are_left_alone() {
        for name in ["modbus.lock", "modbus.spool", "modbus.12.spool", "modbus.0000000000000063.half"] {
            assert_eq!(key_of(Path::new(name)), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_a_cut_one_is_no_spool(cut in 1_usize..100, noise in prop::collection::vec(any::<u8>(), 0..64)) {
            let whole = bytes(&spool());
            let _ = decode(&noise);
            let cut = &whole[..whole.len().saturating_sub(cut)];
            // A cut between two frames is a spool of fewer readings, which a rename never leaves.
            if let Ok(part) = decode(cut) {
                prop_assert!(part.batches.len() < 2);
            }
        }
    }
}
