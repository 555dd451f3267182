//! The few file operations that the journal writes with, behind a trait so that tests can make each of them fail.

use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Operations on names.
pub trait Disk: Send {
    /// Creates a file that must not exist.
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Creates a file, or empties the one that is there.
    fn replace(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file that exists, for repair.
    fn open(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Puts a file in the place of another.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a folder and those above it, where they are missing.
    fn make_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Makes names in a folder durable.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Which file a path names at present; `None` for none.
    fn identity(&mut self, path: &Path) -> io::Result<Option<Identity>> {
        match std::fs::symlink_metadata(path) {
            Ok(meta) => Ok(Some(Identity::of(&meta))),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Device and inode: one file, as long as it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// Operations on an open file.
pub trait DiskFile: Send {
    /// Writes some or all of `bytes` at a place; how many.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts the file.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes content durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Which file it is.
    fn identity(&self) -> io::Result<Identity>;
}

/// The kernel's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        open_with(OpenOptions::new().write(true).create_new(true), path)
    }

    fn replace(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        open_with(OpenOptions::new().write(true).create(true).truncate(true), path)
    }

    fn open(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        open_with(OpenOptions::new().write(true), path)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        // As the other folders of the gateway: for its user and group.
        DirBuilder::new().recursive(true).mode(0o750).create(path)
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<Box<dyn DiskFile>> {
    Ok(Box::new(SystemFile(options.mode(0o640).open(path)?)))
}

struct SystemFile(File);

impl DiskFile for SystemFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn identity(&self) -> io::Result<Identity> {
        self.0.metadata().map(|meta| Identity::of(&meta))
    }
}

/// Writes all of `bytes`, through short writes and interruptions.
pub(super) fn write_all(file: &mut dyn DiskFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Replaces a small file whole: whoever reads it, after whatever end of this process or of the power, finds the old
/// content or the new.
pub(super) fn replace_whole(disk: &mut dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let temporary = path.with_extension("tmp");
    let mut file = disk.replace(&temporary)?;
    write_all(&mut *file, bytes, 0)?;
    file.sync()?;
    drop(file);
    disk.rename(&temporary, path)?;
    disk.sync_dir(folder)
}
