//! The little of a file system that images need, as a trait: tests put a disk behind it that
//! crashes, fills up and fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for a lock. Its holder writes and syncs one file of a few hundred kilobytes.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two attempts to lock: about the time of a sync.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A file system.
///
/// A file's content is durable after [`sync`](Disk::sync) of the file. A folder's names are durable
/// after [`sync_dir`](Disk::sync_dir) of the folder. A crash before that may lose, or keep, any of
/// it. A rename is atomic.
pub trait Disk: Sync {
    /// A file being written.
    type File: Write + Send;
    /// A file being read.
    type Input: Read + Seek + Send;
    /// A lock, held until it is dropped or its process ends.
    type Lock;

    /// Makes a folder; an error if there is one.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Opens an empty file for writing; one that exists is emptied.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Makes the contents of a file durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name in its folder, replacing the file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; [`IsADirectory`](io::ErrorKind::IsADirectory) if it is none.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in any order; names that are not text left out.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading, and says how long it is.
    fn open(&self, path: &Path) -> io::Result<(Self::Input, u64)>;
    /// Locks a folder against all other locks of it, in any process. Waits for a bounded time, then
    /// fails with [`WouldBlock`](io::ErrorKind::WouldBlock). A file system that has no locks for
    /// folders fails with [`Unsupported`](io::ErrorKind::Unsupported).
    fn lock(&self, path: &Path) -> io::Result<Self::Lock>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// A file of the machine that is being written. The device begins with every piece at once. So the
/// sync at the end is short, and other syncs on this device wait less for it.
#[derive(Debug)]
pub struct Spread(File);

impl Write for Spread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.0.write(bytes)?;
        // Names the whole file. Clean pages and pages under way are left alone. It waits for
        // nothing and takes no error away from the sync. SAFETY: an open file; no memory is
        // involved.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::sync_file_range(self.0.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Opens a regular file, and refuses anything else. Any user with write access to the folder may
/// have put a pipe or a device there, and reading it would wait.
fn regular(path: &Path, options: &mut OpenOptions) -> io::Result<(File, u64)> {
    let opened = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let checked = opened.and_then(|file| {
        let metadata = file.metadata()?;
        match metadata.is_file() {
            true => Ok((file, metadata.len())),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
    });
    checked.map_err(about(path))
}

fn folder(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)
}

/// An error with the path that it is about; its kind stays.
fn about(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Disk for RealDisk {
    type File = Spread;
    type Input = File;
    type Lock = File;

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path).map_err(about(path))
    }

    fn create(&self, path: &Path) -> io::Result<Spread> {
        let create = regular(path, OpenOptions::new().write(true).create(true).truncate(true));
        create.map(|(file, _)| Spread(file))
    }

    fn sync(&self, file: &Spread) -> io::Result<()> {
        file.0.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        folder(path).and_then(|folder| folder.sync_all()).map_err(about(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to).map_err(about(from))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(about(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path).map_err(about(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(about(path))? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        regular(path, OpenOptions::new().read(true))
    }

    fn lock(&self, path: &Path) -> io::Result<File> {
        let folder = folder(path).map_err(about(path))?;
        let begun = Instant::now();
        loop {
            // SAFETY: an open file; no memory is involved.
            if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(folder);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EWOULDBLOCK | libc::EINTR) if begun.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                // NFS locks nothing that is not open for writing.
                Some(libc::EBADF | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP) => {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, error));
                }
                _ => return Err(about(path)(error)),
            }
        }
    }
}
