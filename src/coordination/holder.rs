//! Which process holds a lock, for people: `/proc/locks`.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// The process that holds the `flock` on a file or folder. `None` when nobody does, and also where the kernel does not
/// say so: the process may be in another pid namespace, and some file systems number their devices otherwise here than
/// there. Nothing may be decided by it.
#[must_use]
pub fn holder(path: &Path) -> Option<u32> {
    let file = fs::metadata(path).ok()?;
    let locks = fs::read("/proc/locks").ok()?;
    let (dev, ino) = (file.dev(), file.ino());
    of(&String::from_utf8_lossy(&locks), rustix::fs::major(dev), rustix::fs::minor(dev), ino)
}

/// A line is `1: FLOCK  ADVISORY  WRITE 4711 08:01:131074 0 EOF`, with the device in hex. Who waits for a lock has `->`
/// after the number.
fn of(locks: &str, major: u32, minor: u32, ino: u64) -> Option<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{ino}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let held = words.next() == Some("FLOCK");
        let (pid, file) = (words.nth(2)?, words.next()?);
        // 0 and -1 stand for a process that cannot be seen from here.
        (held && file == wanted).then(|| pid.parse().ok().filter(|pid| *pid > 0)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coordination::{Attempt, CoordinationLock, FileLock};

    #[test]
    fn the_holder_is_told_from_those_who_wait_and_from_other_kinds_of_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 08:01:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 2 08:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 3 08:01:7 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 4 08:01:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 08:01:8 0 EOF\n";
        assert_eq!(of(locks, 8, 1, 7), Some(3));
        assert_eq!(of(locks, 8, 1, 8), None);
        assert_eq!(of(locks, 0x103, 1, 7), None);
        assert_eq!(of("", 8, 1, 7), None);
    }

    #[test]
    fn a_lock_of_this_process_is_told_or_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        let lock = FileLock::on_folder(dir.path());
        assert_eq!(holder(dir.path()), None);
        let Ok(Attempt::Acquired(_guard)) = lock.try_acquire() else { panic!("not free") };
        assert!(matches!(holder(dir.path()), None | Some(_)));
        if let Some(pid) = holder(dir.path()) {
            assert_eq!(pid, std::process::id());
        }
        assert_eq!(holder(&dir.path().join("none")), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9:> -]{0,40}|.{0,60}") {
            let _ = of(&text, 8, 1, 7);
        }
    }
}
