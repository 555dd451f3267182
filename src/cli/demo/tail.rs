//! Follows the files of a journal that another process writes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// At most so many bytes of a file are read at once; the rest comes with the next look.
const MAX_READ: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Tail {
    folder: PathBuf,
    /// How far each file has been read.
    read: BTreeMap<PathBuf, u64>,
}

impl Tail {
    /// Follows the `*.jsonl` files of a folder, which need not be there yet.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, read: BTreeMap::new() }
    }

    /// Hands each whole new line to `each`, file by file in the order of their names. What cannot be read now (a file that
    /// went, a folder that is not there) is tried again at the next look.
    pub fn look(&mut self, mut each: impl FnMut(&[u8])) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        files.retain(|p| p.extension().is_some_and(|e| e == "jsonl"));
        files.sort();
        self.read.retain(|path, _| files.binary_search(path).is_ok());
        for path in files {
            let from = self.read.get(&path).copied().unwrap_or(0);
            let Ok(chunk) = read_from(&path, from) else { continue };
            let mut taken = whole_lines(&chunk, &mut each);
            if taken == 0 && chunk.len() as u64 == MAX_READ {
                // No record is that long; what it is, it must not stop the rest.
                taken = chunk.len();
            }
            self.read.insert(path, from + taken as u64);
        }
    }
}

fn read_from(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut chunk = Vec::new();
    file.take(MAX_READ).read_to_end(&mut chunk)?;
    Ok(chunk)
}

/// Hands out the lines that have their end, and says how many bytes they take. A line that is still being written waits.
fn whole_lines(chunk: &[u8], each: &mut impl FnMut(&[u8])) -> usize {
    let end = chunk.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    chunk[..end].split(|b| *b == b'\n').filter(|line| !line.is_empty()).for_each(each);
    end
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn look(tail: &mut Tail) -> Vec<String> {
        let mut lines = Vec::new();
        tail.look(|line| lines.push(String::from_utf8(line.to_vec()).unwrap()));
        lines
    }

    #[test]
    fn each_line_is_seen_once_it_is_whole_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("2.jsonl");
        let mut tail = Tail::new(folder.path().to_owned());
        assert!(look(&mut tail).is_empty());
        let mut file = File::create(path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(look(&mut tail), ["one"]);
        assert!(look(&mut tail).is_empty());
        file.write_all(b"o\n").unwrap();
        fs::write(folder.path().join("1.jsonl"), "zero\n").unwrap();
        fs::write(folder.path().join("notes.txt"), "no\n").unwrap();
        assert_eq!(look(&mut tail), ["zero", "two"]);
        fs::remove_file(folder.path().join("1.jsonl")).unwrap();
        assert!(look(&mut tail).is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut tail = Tail::new(folder.path().join("journal"));
        assert!(look(&mut tail).is_empty());
        fs::create_dir(folder.path().join("journal")).unwrap();
        fs::write(folder.path().join("journal/1.jsonl"), "one\n").unwrap();
        assert_eq!(look(&mut tail), ["one"]);
    }
}
