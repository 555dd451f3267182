//! The journal's files, read from outside and without the product's own reader.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Command,
};

use super::process::{Device, binary};

/// The segments in the order of their records.
pub fn segments(device: &Device) -> Vec<PathBuf> {
    let entries = fs::read_dir(device.state().join("journal")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect();
    paths.sort();
    paths
}

/// Bytes of all segments.
pub fn bytes(device: &Device) -> u64 {
    segments(device).iter().filter_map(|p| fs::metadata(p).ok()).map(|m| m.len()).sum()
}

/// The newest segment's first record and epoch.
pub fn newest(device: &Device) -> Option<(u64, u64)> {
    let path = segments(device).pop()?;
    let (first, epoch) = path.file_stem()?.to_str()?.split_once('-')?;
    Some((first.parse().ok()?, epoch.split('.').next()?.parse().ok()?))
}

/// True once a whole reading is in the files.
pub fn has_reading(device: &Device) -> bool {
    segments(device).iter().any(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.split_inclusive(|b| *b == b'\n').any(|l| l.ends_with(b"\n") && is_reading(l))
    })
}

fn is_reading(line: &[u8]) -> bool {
    memchr::memmem::find(line, b"\"kind\":\"reading\"").is_some()
}

/// Every line, its newline included.
pub fn lines(device: &Device, mut take: impl FnMut(&[u8])) {
    for path in segments(device) {
        let Ok(file) = File::open(path) else { continue };
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            take(&line);
            line.clear();
        }
    }
}

/// A record's number.
pub fn seq(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// The number of the newest whole record in the files.
pub fn last_seq(device: &Device) -> Option<u64> {
    segments(device).iter().rev().find_map(|path| {
        let bytes = fs::read(path).ok()?;
        let whole = bytes.get(..memchr::memrchr(b'\n', &bytes)?)?;
        whole.rsplit(|b| *b == b'\n').find_map(seq)
    })
}

/// What stands behind `"key":"` up to the next quote.
pub fn text<'l>(line: &'l [u8], key: &str) -> Option<&'l str> {
    let wanted = format!("\"{key}\":\"");
    let at = memchr::memmem::find(line, wanted.as_bytes())? + wanted.len();
    let end = line[at..].iter().position(|b| *b == b'"')?;
    std::str::from_utf8(&line[at..at + end]).ok()
}

/// How many readings each station has, by its id.
pub fn readings(device: &Device) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    lines(device, |line| {
        if let Some(station) = text(line, "station").filter(|_| is_reading(line)) {
            match counts.get_mut(station) {
                Some(n) => *n += 1,
                None => {
                    counts.insert(station.to_owned(), 1);
                }
            }
        }
    });
    counts
}

/// The segments as they were at a moment: of each its length up to its last whole line, and a checksum of that.
#[derive(Debug, Default)]
pub struct Kept(BTreeMap<PathBuf, (u64, u32)>);

impl Kept {
    /// Takes in what came since. The part that was known before is read again, and must be there as it was: gives how many
    /// segments it is not in.
    pub fn check_and_take(&mut self, device: &Device) -> usize {
        let mut lost = 0;
        for (path, (len, crc)) in &self.0 {
            lost += usize::from(checksum(path, *len) != Some(*crc));
        }
        // Only the newest two can have changed.
        let paths = segments(device);
        for path in &paths[paths.len().saturating_sub(2)..] {
            let len = whole_lines(path).unwrap_or(0);
            if let Some(crc) = checksum(path, len) {
                self.0.insert(path.clone(), (len, crc));
            }
        }
        // Sealed ones were compared often enough.
        while self.0.len() > 4 {
            self.0.pop_first();
        }
        lost
    }
}

fn checksum(path: &Path, len: u64) -> Option<u32> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(len).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == len).then(|| crc32c::crc32c(&bytes))
}

fn whole_lines(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    let from = len.saturating_sub(1 << 20);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut tail = Vec::new();
    file.take(len - from).read_to_end(&mut tail).ok()?;
    Some(memchr::memrchr(b'\n', &tail).map_or(0, |at| from + at as u64 + 1))
}

/// What `journal verify` says, in one line, and whether it is content.
pub fn verify(device: &Device) -> (bool, String) {
    let out = Command::new(binary()).args(["journal", "verify", "--state-dir"]).arg(device.state()).output();
    let out = out.expect("the binary starts");
    let text = String::from_utf8_lossy(&out.stdout).trim().replace('\n', "; ");
    (out.status.success(), text)
}
