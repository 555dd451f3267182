//! For tests: a disk that fails where it is told to, and batches whose values name them.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::Value as Json;
use worker_contract::{Reading, Value};

use super::{
    Batch, Entry, StationNames,
    disk::{Disk, DiskFile, Identity, SystemDisk},
    fault::{Fault, What},
    reader::{Item, Start, walk},
};
use crate::clock::Wall;

/// How a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// At once, with this error.
    Errno(i32),
    /// A write does half of its work first; anything else fails.
    Short(i32),
    /// A sync loses what was written since the one before; anything else fails.
    LosesPages,
}

#[derive(Debug)]
struct Plan {
    steps: usize,
    fail: Range<usize>,
    kind: Kind,
    log: Vec<&'static str>,
}

/// The real disk, but for the steps that it fails.
#[derive(Debug, Clone)]
pub(super) struct FaultyDisk(Arc<Mutex<Plan>>);

impl FaultyDisk {
    pub(super) fn new(fail: Range<usize>, kind: Kind) -> Self {
        Self(Arc::new(Mutex::new(Plan { steps: 0, fail, kind, log: Vec::new() })))
    }

    pub(super) fn healthy() -> Self {
        Self::new(0..0, Kind::Errno(nix::libc::EIO))
    }

    pub(super) fn fail_from_now_on(&self, kind: Kind) {
        let mut plan = self.0.lock().unwrap();
        plan.fail = plan.steps..usize::MAX;
        plan.kind = kind;
    }

    pub(super) fn heal(&self) {
        self.0.lock().unwrap().fail = 0..0;
    }

    /// Steps so far.
    pub(super) fn log(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().log.clone()
    }

    /// Counts a step; the way in which it fails, if it does.
    fn step(&self, name: &'static str) -> Option<Kind> {
        let mut plan = self.0.lock().unwrap();
        let step = plan.steps;
        plan.steps += 1;
        plan.log.push(name);
        plan.fail.contains(&step).then_some(plan.kind)
    }

    fn check(&self, name: &'static str) -> io::Result<()> {
        self.step(name).map_or(Ok(()), |kind| Err(kind.error()))
    }

    fn wrap(&self, path: &Path, file: io::Result<Box<dyn DiskFile>>) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(FaultyFile { disk: self.clone(), path: path.to_owned(), file: file?, synced: 0, end: 0 }))
    }
}

impl Kind {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Errno(errno) | Self::Short(errno) => errno,
            Self::LosesPages => nix::libc::EIO,
        })
    }
}

impl Disk for FaultyDisk {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.check("create")?;
        self.wrap(path, SystemDisk.create(path))
    }
    fn replace(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.check("replace")?;
        self.wrap(path, SystemDisk.replace(path))
    }
    fn open(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.check("open")?;
        self.wrap(path, SystemDisk.open(path))
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.check("remove")?;
        SystemDisk.remove(path)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.check("rename")?;
        SystemDisk.rename(from, to)
    }
    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        self.check("make_dir")?;
        SystemDisk.make_dir(path)
    }
    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let _ = path;
        self.check("sync_dir")
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    synced: u64,
    end: u64,
}

impl DiskFile for FaultyFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let len = match self.disk.step("write") {
            None => bytes.len(),
            // At least a byte, so that the writer comes back and meets the next failure.
            Some(Kind::Short(_)) if bytes.len() > 1 => bytes.len() / 2,
            Some(kind) => return Err(kind.error()),
        };
        self.end = offset + len as u64;
        self.file.write_at(&bytes[..len], offset)
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.disk.check("truncate")?;
        self.end = len;
        self.file.truncate(len)
    }
    fn sync(&mut self) -> io::Result<()> {
        if let Some(kind) = self.disk.step("sync") {
            if kind == Kind::LosesPages && self.end > self.synced {
                let lost = vec![0; usize::try_from(self.end - self.synced).unwrap() * 2 / 3];
                std::os::unix::fs::FileExt::write_all_at(
                    &std::fs::OpenOptions::new().write(true).open(&self.path)?,
                    &lost,
                    self.synced,
                )?;
            }
            return Err(kind.error());
        }
        // Nothing here survives a power cut anyway, and thousands of cases would wait for the real one.
        self.synced = self.end;
        Ok(())
    }
    fn identity(&self) -> io::Result<Identity> {
        self.file.identity()
    }
}

/// A batch of source 7: readings with the values `from` to `to`, exclusive; its number is `to`.
pub(super) fn batch(from: u64, to: u64) -> Batch {
    let station = Arc::new(StationNames::new("boiler", [("temperature", Some("°C"))]));
    let readings = (from..to).map(|v| Reading { point: 0, value: Some(Value::from(v)), reason: None }).collect();
    let ts = Wall(1_796_040_000_123_456);
    Batch { source: 7, up_to: to, entries: vec![Entry::Readings { station, ts, readings }], urgent: false }
}

/// What a journal holds.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The values of its readings, in order.
    pub(super) values: Vec<u64>,
    /// The names of its events.
    pub(super) events: Vec<String>,
    /// The numbers of its records.
    pub(super) seqs: Vec<u64>,
    pub(super) faults: Vec<Fault>,
    /// What its segments end in that is no record.
    pub(super) tails: Vec<Fault>,
}

impl Content {
    pub(super) fn read(state_dir: &Path) -> Self {
        let mut out = Self::default();
        walk(state_dir, Start::Beginning, &mut |item| {
            match item {
                Item::Record { record, .. } => {
                    let json: Json = serde_json::from_slice(record.line).unwrap();
                    out.seqs.extend(record.seq);
                    out.values.extend(json["value"].as_u64());
                    out.events.extend(json["event"].as_str().map(str::to_owned));
                }
                Item::Fault(fault) => out.faults.push(fault),
                Item::End(end) => out.tails.extend(end.tail),
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        out
    }

    /// Numbers rise by one from 1.
    pub(super) fn has_no_gap(&self) -> bool {
        self.seqs.iter().copied().eq(1..=self.seqs.len() as u64)
    }

    /// True when no fault tells of a record that was committed.
    pub(super) fn only_leftovers(&self) -> bool {
        self.faults.iter().all(|f| matches!(f.what, What::Superseded { .. } | What::Damaged { .. }))
    }
}
