//! The memory of the area: a file in memory that the postmaster makes and maps, and that every
//! process of the server inherits by fork, at the same address.
//!
//! It is `nitro.reserved_memory` long. Everything that is not committed is only address space.
//! - To commit is to allocate blocks of the file. So a system call reports a lack of memory, at a
//!   moment when the user can be told. A process that touches a committed page finds it.
//! - To release is to punch a hole.
//!
//! When the server initializes its shared memory anew after a crash, the content of the file is
//! dropped. File and mapping stay, so nothing can leak and no address changes. When the last
//! process has ended, the kernel frees both.
//!
//! The file descriptor is inherited, too. Foreign code may have closed it, and got the same number
//! for a file of its own. So before each change the file is compared with the one that was made.

use std::ffi::CStr;
use std::io::Error;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use nitro_engine::{Area, Backing, Refused};
use pgrx::prelude::*;

use crate::pg::error::Failure;

/// Bytes that are committed and released at once: a huge page.
pub const GRANULE: usize = Area::GRANULE;
const PAGE: usize = 4096;

/// How an area gets its memory from the file. Safe to call in threads.
pub static BACKING: Backing = Backing { commit, release };

/// The mapping. It does not change after the postmaster has made it, so all processes have the
/// same.
struct Mapping {
    file: libc::c_int,
    /// Device and inode.
    identity: (u64, u64),
    base: usize,
    len: usize,
    pages: Pages,
}

/// The kind of pages of the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages of the kernel's pool, reserved for as much as the limit is at start.
    Huge,
    /// Pages that the kernel joins to huge pages, if its settings for shared memory let it.
    Transparent,
    /// `huge_pages = off`.
    Small,
}

impl Pages {
    /// For the log.
    pub fn describe(self) -> &'static str {
        match self {
            Pages::Huge => "huge pages",
            Pages::Transparent => "no huge pages but transparent ones",
            Pages::Small => "no huge pages",
        }
    }
}

static MAPPING: OnceLock<Mapping> = OnceLock::new();

/// Zeroed memory of `len` bytes, nothing of it committed. Called by the postmaster, or a server in
/// single-user mode, when it initializes shared memory: the first time it is made, then it is
/// emptied. Of huge pages, `limit` bytes are reserved.
pub fn fresh(len: usize, limit: usize) -> (NonNull<u8>, Pages) {
    let mapping = MAPPING.get_or_init(|| make(len, limit));
    assert!(len <= mapping.len, "settings that need a restart have changed");
    if let Err(e) = punch(mapping, 0..mapping.len) {
        failed("empty", mapping.len, &e);
    }
    (NonNull::new(mapping.base as *mut u8).expect("a mapping is not at 0"), mapping.pages)
}

/// Returns the kind of pages. `None` before the memory is made.
pub fn pages() -> Option<Pages> {
    MAPPING.get().map(|mapping| mapping.pages)
}

fn make(len: usize, limit: usize) -> Mapping {
    // SAFETY: a setting of the server, which is there.
    let wanted = unsafe {
        CStr::from_ptr(pg_sys::GetConfigOption(c"huge_pages".as_ptr(), false, false)).to_bytes()
    };
    let len = len.next_multiple_of(GRANULE);
    let limit = limit.next_multiple_of(GRANULE).min(len);
    if wanted != b"off" {
        match map(len, limit, Pages::Huge) {
            Ok(mapping) => return mapping,
            Err(e) if wanted == b"on" => failed("make huge pages for", limit, &e),
            Err(_) => (),
        }
    }
    let pages = if wanted == b"off" { Pages::Small } else { Pages::Transparent };
    map(len, limit, pages).unwrap_or_else(|e| failed("reserve addresses for", len, &e))
}

fn map(len: usize, limit: usize, pages: Pages) -> Result<Mapping, Error> {
    let huge = pages == Pages::Huge;
    let flags = libc::MFD_CLOEXEC | if huge { libc::MFD_HUGETLB | libc::MFD_HUGE_2MB } else { 0 };
    let checked = |rc: libc::c_int| if rc < 0 { Err(Error::last_os_error()) } else { Ok(rc) };
    // Its content is never executed. Kernels since 6.3 can be set to refuse files without that flag
    // (`vm.memfd_noexec`). Older kernels do not know it. SAFETY: the name is a constant.
    let create = |more| checked(unsafe { libc::memfd_create(c"nitro".as_ptr(), flags | more) });
    // SAFETY: system calls on their own results. Each mapping replaces a part of the first one,
    // which no other code uses.
    unsafe {
        let file = create(libc::MFD_NOEXEC_SEAL).or_else(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => create(0),
            _ => Err(e),
        })?;
        let mapped = (|| {
            checked(libc::ftruncate(file, len as libc::off_t))?;
            let identity = identity(file)?;
            let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let room = libc::mmap(null_mut(), len + GRANULE, libc::PROT_NONE, none, -1, 0);
            if room == libc::MAP_FAILED {
                return Err(Error::last_os_error());
            }
            // Huge pages want addresses that are multiples of theirs.
            let base = room.byte_add(room.align_offset(GRANULE));
            let before = base.addr() - room.addr();
            if before > 0 {
                libc::munmap(room, before);
            }
            libc::munmap(base.byte_add(len), GRANULE - before);
            // Huge pages of a mapping without NORESERVE are taken out of the pool at once, or it
            // fails.
            let reserved = if huge { limit } else { 0 };
            for (part, reserve) in [(0..reserved, 0), (reserved..len, libc::MAP_NORESERVE)] {
                let how = libc::MAP_SHARED | libc::MAP_FIXED | reserve;
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let at = base.byte_add(part.start);
                let offset = part.start as libc::off_t;
                if !part.is_empty()
                    && libc::mmap(at, part.len(), access, how, file, offset) == libc::MAP_FAILED
                {
                    let e = Error::last_os_error();
                    libc::munmap(base, len);
                    return Err(e);
                }
            }
            if pages == Pages::Transparent {
                libc::madvise(base, len, libc::MADV_HUGEPAGE);
            }
            // A core file would have all of it, and writing it would touch memory that is not
            // committed.
            libc::madvise(base, len, libc::MADV_DONTDUMP);
            Ok(Mapping { file, identity, base: base.addr(), len, pages })
        })();
        if mapped.is_err() {
            libc::close(file);
        }
        mapped
    }
}

fn failed(what: &str, bytes: usize, e: &Error) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
        format!("could not {what} {} MB of nitro's memory: {e}", bytes >> 20),
    )
    .hint("Check \"huge_pages\", \"nitro.max_memory\" and \"nitro.reserved_memory\", and the limits of the process (ulimit -v).")
    .raise()
}

fn identity(file: libc::c_int) -> Result<(u64, u64), Error> {
    // SAFETY: zeroed is a valid `stat`, which the call fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(file, &raw mut stat) {
            0 => Ok((stat.st_dev, stat.st_ino)),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// Changes blocks of the file. A signal ends the system call without effect. A process that often
/// gets signals might never finish. So signals wait.
fn change(mapping: &Mapping, how: libc::c_int, part: Range<usize>) -> Result<(), Error> {
    if identity(mapping.file)? != mapping.identity {
        return Err(Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: signal sets are filled before they are used; the file is the one that was made, and
    // only the part that the caller has is changed.
    unsafe {
        let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let (start, len) = (part.start as libc::off_t, part.len() as libc::off_t);
        let done = loop {
            match libc::fallocate(mapping.file, how, start, len) {
                0 => break Ok(()),
                _ => match Error::last_os_error() {
                    e if e.raw_os_error() == Some(libc::EINTR) => continue,
                    e => break Err(e),
                },
            }
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        done
    }
}

fn punch(mapping: &Mapping, part: Range<usize>) -> Result<(), Error> {
    change(mapping, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, part)
}

fn commit(_: NonNull<u8>, part: Range<usize>) -> Result<(), Refused> {
    let mapping = MAPPING.get().ok_or(Refused)?;
    #[cfg(debug_assertions)]
    if crate::pg::fault::commit() {
        return Err(Refused);
    }
    let page = if mapping.pages == Pages::Huge { GRANULE } else { PAGE };
    let part = part.start / page * page..part.end.next_multiple_of(page).min(mapping.len);
    // The kernel makes transparent huge pages when memory is touched, not when blocks are
    // allocated. This call touches the memory, and a failure raises no signal. The call below does
    // the rest, or refuses it.
    let granules = part.start.is_multiple_of(GRANULE) && part.end.is_multiple_of(GRANULE);
    if granules && mapping.pages == Pages::Transparent {
        let at = (mapping.base + part.start) as *mut libc::c_void;
        // SAFETY: a part of the mapping; its content stays.
        unsafe { libc::madvise(at, part.len(), libc::MADV_POPULATE_WRITE) };
    }
    change(mapping, 0, part.clone()).map_err(|_| {
        // Of whole granules nothing was committed before; other parts the call leaves as they were.
        if granules {
            let _ = punch(mapping, part);
        }
        Refused
    })
}

fn release(_: NonNull<u8>, part: Range<usize>) {
    // If that fails the memory stays with the file, and is there when it is committed again.
    if let Some(mapping) = MAPPING.get() {
        let _ = punch(mapping, part);
    }
}
