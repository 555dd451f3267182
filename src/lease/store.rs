//! Where the record lies.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
};

use super::record::{Record, RecordError, SIZE};

/// How often a torn record is read again: a reader may meet a writer half-way.
const READS: u32 = 3;

/// Holds the record. A trait so that tests can have one that fails.
pub trait Store: Send {
    /// The record; `None` when there is none.
    ///
    /// # Errors
    /// When there is something else, or it cannot be read. That is no free lease.
    fn read(&mut self) -> Result<Option<Record>, RecordError>;

    /// Writes the record, by one call once the file is open.
    ///
    /// # Errors
    /// When it could not be written as a whole.
    fn write(&mut self, record: &Record) -> io::Result<()>;

    /// Checks that what is written can be read by others: somebody may have removed or overwritten the file. The next
    /// write mends that.
    fn check(&mut self);
}

/// The record in a file, rewritten in place.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    file: Option<File>,
}

impl FileStore {
    /// A record at a path. Opens nothing yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None }
    }

    fn open(&self) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o640).open(&self.path)?;
        // What lies there may be foreign, and longer.
        if file.metadata()?.len() > SIZE as u64 {
            file.set_len(SIZE as u64)?;
        }
        Ok(file)
    }

    fn read_once(&self) -> Result<Option<Record>, RecordError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(RecordError::Io(e.to_string())),
        };
        let mut bytes = [0; SIZE + 1];
        let length = file.read_at(&mut bytes, 0).map_err(|e| RecordError::Io(e.to_string()))?;
        Record::decode(&bytes[..length]).map(Some)
    }
}

impl Store for FileStore {
    fn read(&mut self) -> Result<Option<Record>, RecordError> {
        let mut last = self.read_once();
        for _ in 1..READS {
            if last != Err(RecordError::Torn) {
                break;
            }
            last = self.read_once();
        }
        last
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        // One call; a short write counts as none, and the next one opens anew.
        match file.write_at(&record.encode(), 0)? {
            SIZE => self.file = Some(file),
            short => return Err(io::Error::new(io::ErrorKind::WriteZero, format!("only {short} of {SIZE} bytes"))),
        }
        Ok(())
    }

    fn check(&mut self) {
        let same = match (self.file.as_ref().map(File::metadata), fs::metadata(&self.path)) {
            (Some(Ok(ours)), Ok(theirs)) => {
                ours.ino() == theirs.ino() && ours.dev() == theirs.dev() && ours.len() <= SIZE as u64
            }
            _ => false,
        };
        if !same {
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::sample, *};

    #[test]
    fn a_record_is_written_in_place_over_whatever_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let mut store = FileStore::new(&path);
        assert_eq!(store.read(), Ok(None));
        fs::write(&path, [b'x'; 4000]).unwrap();
        assert!(matches!(store.read(), Err(RecordError::Length { .. })));
        store.write(&sample()).unwrap();
        assert_eq!(store.read(), Ok(Some(sample())));
        let inode = fs::metadata(&path).unwrap().ino();
        store.write(&Record { epoch: 8, ..sample() }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64);
    }

    #[test]
    fn a_removed_file_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::new(dir.path().join("lease"));
        store.write(&sample()).unwrap();
        fs::remove_file(dir.path().join("lease")).unwrap();
        store.write(&sample()).unwrap();
        assert_eq!(store.read(), Ok(None));
        store.check();
        store.write(&sample()).unwrap();
        assert_eq!(store.read(), Ok(Some(sample())));
    }

    #[test]
    fn what_is_no_file_is_an_error_and_no_panic() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::new(dir.path());
        assert!(matches!(store.read(), Err(RecordError::Io(_))));
        assert!(store.write(&sample()).is_err());
    }
}
