//! Reads a manifest's file: whole, bounded, and only once it is no longer being written.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    thread,
    time::Duration,
};

use worker_contract::{Fault, Protocol};

use super::{
    check,
    lines::Lines,
    model::Manifest,
    report::{LoadError, RenderedFault},
    settle::{Stamp, Waiting, stamp},
};
use crate::registry;

/// The largest manifest that is read. A hundred thousand points take about 6 MiB.
pub const MAX_BYTES: u64 = 8 << 20;

/// So often a file that changes under the reader is read again.
const ATTEMPTS: u32 = 10;
/// The pause between two of these.
const PAUSE: Duration = Duration::from_millis(30);

/// A manifest that passed every check.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What it means.
    pub manifest: Manifest,
    /// What a person should know all the same.
    pub warnings: Vec<RenderedFault>,
    /// Names the file's content, to see whether it changed: no protection against intent.
    pub digest: String,
}

/// Reads and checks a manifest against the protocols of this build. Blocks for the time of reading, and up to a third of
/// a second more where the file is being written.
///
/// # Errors
/// With everything that is wrong with the file or its content.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    load_with(path, registry::protocols())
}

/// As [`load`], for a file that may just be under way: one that changed within the last second is read once it stayed
/// unchanged for a second. For reloads, where the configuration that runs is good and there is no hurry. Blocks for
/// about three seconds at most.
///
/// # Errors
/// As [`load`], and when the file is still being written after that time.
pub fn reload(path: &Path) -> Result<Loaded, LoadError> {
    let bytes = read_settled(path)?;
    load_bytes(path, &bytes, registry::protocols())
}

/// As [`load`], against other protocols than this build's.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, protocols: &[&'static dyn Protocol]) -> Result<Loaded, LoadError> {
    let (bytes, _) = read_whole(path)?;
    load_bytes(path, &bytes, protocols)
}

/// Checks the bytes of a file. `path` only names it.
///
/// # Errors
/// With everything that is wrong with the content.
pub fn load_bytes(path: &Path, bytes: &[u8], protocols: &[&'static dyn Protocol]) -> Result<Loaded, LoadError> {
    let text = text_of(path, bytes)?;
    let lines = Lines::new(text);
    let outcome = match nul(text) {
        Some(fault) => return Err(refuse(path, &lines, vec![fault], 0, Vec::new())),
        None => check::check(text, &lines, protocols),
    };
    let Some(manifest) = outcome.manifest else {
        return Err(refuse(path, &lines, outcome.faults, outcome.more, outcome.warnings));
    };
    let digest = format!("{:08x}-{}", crc32c::crc32c(bytes), bytes.len());
    Ok(Loaded { manifest, warnings: RenderedFault::render(path, &lines, outcome.warnings), digest })
}

fn refuse(path: &Path, lines: &Lines<'_>, faults: Vec<Fault>, more: usize, warnings: Vec<Fault>) -> LoadError {
    LoadError {
        file: path.display().to_string(),
        faults: RenderedFault::render(path, lines, faults),
        warnings: RenderedFault::render(path, lines, warnings),
        more,
    }
}

/// The text, without a byte order mark.
fn text_of<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, LoadError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
    let good = std::str::from_utf8(good).unwrap_or_default();
    let bad = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
    let hint = if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        "the file is UTF-16: save it as UTF-8"
    } else {
        "save the file as UTF-8, or write this character anew"
    };
    let at = error.valid_up_to();
    let message = format!("not UTF-8: byte {} of the file is 0x{bad:02x}", at + 1);
    let fault = Fault { span: at..at, message, hint: Some(hint.to_owned()) };
    Err(refuse(path, &Lines::new(good), vec![fault], 0, Vec::new()))
}

/// A power cut leaves such bytes in a file that was being written, and no editor shows them.
fn nul(text: &str) -> Option<Fault> {
    let at = text.find('\0')?;
    let hint = "the file is damaged, as after a power cut, or is no text: restore it or write it anew";
    Some(Fault { span: at..at, message: "a NUL byte".to_owned(), hint: Some(hint.to_owned()) })
}

/// Reads the file in one state: what changes while it is read is read again, so often and no more.
fn read_whole(path: &Path) -> Result<(Vec<u8>, Stamp), LoadError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        if let Some(whole) = read_once(path)? {
            return Ok(whole);
        }
    }
    let message = "the file keeps changing while it is read";
    Err(LoadError::of_file(path, message, "write it under another name, then rename it into place"))
}

/// Reads the file in the state in which it counts as whole.
fn read_settled(path: &Path) -> Result<Vec<u8>, LoadError> {
    let mut waiting = Waiting::begin();
    while let Some(settled) = waiting.wait(path).map_err(|error| cannot_read(path, &error))? {
        let (bytes, read) = read_whole(path)?;
        if read == settled {
            return Ok(bytes);
        }
    }
    let message = "the manifest is still being written: it keeps changing";
    Err(LoadError::of_file(path, message, "reload again once it is complete, or rename a complete file into place"))
}

/// `None` when the file changed meanwhile.
fn read_once(path: &Path) -> Result<Option<(Vec<u8>, Stamp)>, LoadError> {
    let cannot = |error: io::Error| cannot_read(path, &error);
    // Without O_NONBLOCK opening a FIFO would wait for its writer.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    let before = file.metadata().map_err(cannot)?;
    if before.is_dir() {
        return Err(LoadError::of_file(path, "cannot read the manifest: it is a directory", "name the file in it"));
    }
    if !before.is_file() {
        let hint = "name a regular file: a reload reads it again";
        return Err(LoadError::of_file(path, "cannot read the manifest: it is not a regular file", hint));
    }
    if before.size() > MAX_BYTES {
        return Err(too_large(path, before.size()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(before.size()).unwrap_or_default().saturating_add(1));
    file.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    let after = file.metadata().map_err(cannot)?;
    // A rename meanwhile does no harm: what was opened is whole, and whoever renamed says so by a reload.
    let same = stamp(&before) == stamp(&after) && bytes.len() as u64 == after.size();
    Ok(same.then(|| (bytes, stamp(&after))))
}

fn too_large(path: &Path, size: u64) -> LoadError {
    let message =
        format!("the manifest has {size} bytes; at most {MAX_BYTES} bytes ({} MiB) are read", MAX_BYTES >> 20);
    LoadError::of_file(path, message, "check that this is the manifest; share very large plants out among gateways")
}

fn cannot_read(path: &Path, error: &io::Error) -> LoadError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the path given as --manifest",
        io::ErrorKind::PermissionDenied => "let the user that runs sensor-poll read the file and enter its folders",
        _ => "check the path and the disk below it",
    };
    LoadError::of_file(path, format!("cannot read the manifest: {error}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settle::{LEFT_ALONE, PATIENCE};

    fn write(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plant.toml");
        std::fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    fn refused(bytes: &[u8]) -> RenderedFault {
        let (_folder, path) = write(bytes);
        load_with(&path, &[]).unwrap_err().faults.remove(0)
    }

    const EMPTY: &[u8] = b"format_version = \"1\"\n[facility]\nid = \"p\"\n";

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_the_reason_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let missing = load_with(&folder.path().join("none.toml"), &[]).unwrap_err();
        assert!(missing.faults[0].message.contains("No such file"), "{missing}");
        assert!(missing.faults[0].hint.is_some());
        let directory = load_with(folder.path(), &[]).unwrap_err();
        assert!(directory.faults[0].message.contains("directory"), "{directory}");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let fifo = load_with(&fifo, &[]).unwrap_err();
        assert!(fifo.faults[0].message.contains("not a regular file"), "{fifo}");
        let endless = load_with(Path::new("/dev/zero"), &[]).unwrap_err();
        assert!(endless.faults[0].message.contains("not a regular file"), "{endless}");
    }

    #[test]
    fn a_file_past_the_limit_is_refused_before_it_is_read() {
        let (_folder, path) = write(b"");
        File::options().write(true).open(&path).unwrap().set_len(10 << 20).unwrap();
        let error = load_with(&path, &[]).unwrap_err();
        assert!(error.faults[0].message.contains("10485760 bytes; at most 8388608 bytes (8 MiB)"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_text_are_told_with_their_place() {
        let latin = refused(b"# \xc3\xa9t\xc3\xa9\nunit = \"\xb0C\"\n");
        assert_eq!((latin.line, latin.column), (2, 9));
        assert!(latin.message.contains("byte 17 of the file is 0xb0"), "{latin}");
        assert!(refused(b"\xff\xfef\x00").hint.unwrap().contains("UTF-16"));
        let nul = refused(b"a = 1\nb\0\0\0");
        assert_eq!((nul.line, nul.column), (2, 2));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let (_folder, path) = write(&[b"\xef\xbb\xbf", EMPTY].concat());
        assert!(load_with(&path, &[]).is_ok());
        let fault = refused(b"\xef\xbb\xbfx = 1\n");
        assert_eq!((fault.line, fault.column), (1, 1));
    }

    #[test]
    fn the_digest_follows_the_content() {
        let of = |bytes: &[u8]| load_bytes(Path::new("p"), bytes, &[]).unwrap().digest;
        assert_eq!(of(EMPTY), of(EMPTY));
        assert_ne!(of(EMPTY), of(&[EMPTY, b"\n"].concat()));
    }

    #[test]
    fn a_file_that_is_replaced_all_the_time_is_read_as_one_of_its_versions() {
        let (folder, path) = write(EMPTY);
        let other = [EMPTY, b"name = \"other\"\n"].concat();
        let stop = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let versions = [EMPTY, &other];
                for version in versions.iter().cycle() {
                    let next = folder.path().join("next");
                    std::fs::write(&next, version).unwrap();
                    std::fs::rename(&next, &path).unwrap();
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..200 {
                let (bytes, _) = read_whole(&path).unwrap();
                assert!(bytes == EMPTY || bytes == other);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn a_reload_waits_for_the_second_half_of_a_file_however_valid_the_first_is() {
        // The cut is where the first half is a manifest by itself.
        let whole = [EMPTY, b"name = \"the second half\"\n"].concat();
        thread::scope(|scope| {
            for pause in [20, 150, 300, 500] {
                let whole = &whole;
                scope.spawn(move || {
                    let (_folder, path) = write(EMPTY);
                    let settled = thread::scope(|scope| {
                        scope.spawn(|| {
                            thread::sleep(Duration::from_millis(pause));
                            std::fs::write(&path, whole).unwrap();
                        });
                        read_settled(&path).unwrap()
                    });
                    assert_eq!(&settled, whole, "halves {pause} ms apart");
                });
            }
        });
    }

    #[test]
    fn a_reload_takes_an_old_file_at_once_and_one_from_the_future_soon() {
        let hour = Duration::from_secs(3600);
        let read_after = |modified: std::time::SystemTime| {
            let (_folder, path) = write(EMPTY);
            File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
            let start = std::time::Instant::now();
            assert_eq!(read_settled(&path).unwrap(), EMPTY);
            start.elapsed()
        };
        let now = std::time::SystemTime::now();
        assert!(read_after(now - hour) < Duration::from_millis(500));
        let waited = read_after(now + hour);
        assert!(waited >= LEFT_ALONE && waited < PATIENCE, "{waited:?}");
    }

    #[test]
    fn a_file_that_is_written_without_end_is_refused_in_time() {
        let (_folder, path) = write(EMPTY);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let start = std::time::Instant::now();
        let refused = thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    std::fs::write(&path, [EMPTY, format!("# {n}\n").as_bytes()].concat()).unwrap();
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let refused = read_settled(&path);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            refused
        });
        assert!(refused.unwrap_err().faults[0].message.contains("still being written"));
        assert!(start.elapsed() < PATIENCE + Duration::from_secs(1));
    }
}
