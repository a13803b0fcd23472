//! The area: one contiguous piece of memory that every process maps, perhaps at different
//! addresses. `memory/area/pages.rs` allocates its pages.
//!
//! ```text
//! header | process slots | table of granules | pages                    | two bytes per page
//! <- committed by format ------------------> | committed when taken     | with their pages
//! ```
//! Everything inside the area is named by a [`Ref`]. The area is address space. Memory is
//! *committed* to it in granules of 2 MB when an allocation needs one. When all of a granule is
//! free, it goes back to the operating system ([`Backing`]). Memory that is not committed is never
//! read or written.
//!
//! The *limit* says how much may be committed. It can change at any time. If it falls below the
//! committed memory, no memory is handed out until enough has come back.

use crate::memory::barrier::{Announcement, Barrier, Globals};
use crate::memory::place::{PAGE, Ref, UNIT};
use core::mem::size_of;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::fmt;

mod pages;

use pages::{GRANULE, GRANULE_PAGES, Granule, Pool};

/// 2^31 units of 128 bytes.
const MAX_LEN: usize = 256 << 30;
const MAGIC: u64 = u64::from_be_bytes(*b"nitro\0ar");
const VERSION: u32 = 3;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    len: AtomicU64,
    limit: AtomicU64,
    version: AtomicU32,
    processes: AtomicU32,
    /// The pages `first .. pages` can be handed out. Those below `base_pages` are always committed.
    first: AtomicU32,
    base_pages: AtomicU32,
    pages: AtomicU32,
    /// Indexes created so far.
    indexes: AtomicU64,
    /// The first index that was given up: see `index/given_up.rs`.
    given_up: AtomicU32,
    /// The same address in all processes: see [`Area::format`].
    backing: AtomicPtr<Backing>,
    globals: Globals,
    pool: Pool,
}

/// Where the memory of an area comes from. Ranges are in bytes from its base. The functions do not
/// unwind.
#[derive(Debug)]
pub struct Backing {
    /// Makes this part readable and writable until it is released. Memory that was released, or
    /// never committed, is zeroed. If it fails, it leaves nothing committed that was not committed
    /// before.
    pub commit: fn(NonNull<u8>, Range<usize>) -> Result<(), Refused>,
    /// Releases whole granules. No process uses them any more.
    pub release: fn(NonNull<u8>, Range<usize>),
}

/// The operating system has refused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Backing {
    /// An ordinary mapping. The operating system adds memory when it is touched.
    pub const MAPPED: Backing = Backing { commit: |_, _| Ok(()), release: |_, _| () };
}

/// Shared memory with an engine in it: base address and nothing else, so it is copied freely.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    base: NonNull<u8>,
}

// SAFETY: an `Area` is an address; everything behind it that is shared is accessed through atomics
// or under the protocols of this crate, which do not care which thread runs them.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

/// Why memory cannot be used as an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaError {
    /// The base is not aligned to a page.
    Misaligned,
    /// There is no room for the header and one page.
    TooSmall,
    /// More than 256 GB.
    TooLarge,
    /// The backing refused the first pages.
    Refused,
    /// Not an area, or one of another version.
    Unrecognized,
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AreaError::Misaligned => "the area does not start at a page boundary",
            AreaError::TooSmall => "the area is too small",
            AreaError::TooLarge => "the area is larger than 256 GB",
            AreaError::Refused => "the operating system gives no memory",
            AreaError::Unrecognized => "the memory is not an area of this version",
        })
    }
}

impl std::error::Error for AreaError {}

/// The resource that is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The area has no free run of this size.
    Area,
    /// The operating system has no more memory.
    System,
    /// The index would exceed its own limit.
    Limit,
    /// The indexes of this account would exceed its limit.
    Account(usize),
}

/// There is no memory for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub requested: usize,
    /// The resource that is exhausted.
    pub lack: Lack,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfMemory { requested, lack } = self;
        match lack {
            Lack::Area => write!(f, "no free run of {requested} bytes in the area"),
            Lack::System => write!(f, "the operating system has no {requested} bytes"),
            Lack::Limit | Lack::Account(_) => write!(f, "{requested} bytes are above a limit"),
        }
    }
}

impl std::error::Error for OutOfMemory {}

/// The use of an area, and the state of its barrier. `total == overhead + used + free`. If more is
/// in use than the limit allows, `free` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaUsage {
    /// The limit.
    pub total: usize,
    /// Length of the area: the largest limit.
    pub reserved: usize,
    /// Taken from the operating system.
    pub committed: usize,
    /// Held by indexes.
    pub used: usize,
    /// Header, process slots, table of granules, and the rest behind the last granule.
    pub overhead: usize,
    /// Free.
    pub free: usize,
    /// The largest run that can be allocated now.
    pub largest_free: usize,
    /// The open barrier session.
    pub session: u64,
    /// The oldest session that a process is in. The open session if no process is inside.
    pub oldest_session: u64,
    /// Processes inside the barrier.
    pub active: usize,
}

impl Area {
    /// Bytes that are committed and released together: 2 MB. The rest of an area behind its last
    /// whole granule is not used.
    pub const GRANULE: usize = GRANULE;

    /// Returns the bytes of address space that an area of `len` bytes needs: its pages, and two
    /// more bytes for each page.
    pub fn mapped(len: usize) -> usize {
        let pages = len.div_ceil(PAGE);
        (pages + pages.div_ceil(GRANULE_PAGES as usize).div_ceil(PAGE / pages::BYTES)) * PAGE
    }

    /// Makes an area for `processes` accessors out of zeroed memory. Its limit is `len`.
    ///
    /// # Safety
    /// `base .. base + mapped(len)` is address space. Where `backing` commits it, it becomes zeroed
    /// memory, valid for reads and writes. It is accessed only through the area. All processes that
    /// attach were forked from one that has this library. So the functions of `backing` have the
    /// same addresses in them.
    pub unsafe fn format(
        base: NonNull<u8>,
        len: usize,
        processes: u32,
        backing: &'static Backing,
    ) -> Result<Area, AreaError> {
        if !base.as_ptr().addr().is_multiple_of(PAGE) {
            return Err(AreaError::Misaligned);
        }
        if len > MAX_LEN {
            return Err(AreaError::TooLarge);
        }
        let granules = len.div_ceil(GRANULE);
        let fixed = Self::table_offset(processes) + granules * size_of::<Granule>();
        let first = fixed.div_ceil(PAGE);
        // The granules of the fixed part are committed for ever; of the others there are only whole
        // ones.
        let base_pages = (fixed.div_ceil(GRANULE) * GRANULE_PAGES as usize).min(len / PAGE);
        if first >= base_pages {
            return Err(AreaError::TooSmall);
        }
        let pages = base_pages.max(len / GRANULE * GRANULE_PAGES as usize);
        let bytes = len.next_multiple_of(PAGE);
        let base_granules = fixed.div_ceil(GRANULE);
        for part in [0..base_pages * PAGE, bytes..bytes + base_granules * pages::BYTES] {
            (backing.commit)(base, part).map_err(|Refused| AreaError::Refused)?;
        }
        let area = Area { base };
        let header = area.header();
        header.len.store(len as u64, Relaxed);
        header.version.store(VERSION, Relaxed);
        header.processes.store(processes, Relaxed);
        header.first.store(first as u32, Relaxed);
        header.base_pages.store(base_pages as u32, Relaxed);
        header.pages.store(pages as u32, Relaxed);
        header.backing.store(core::ptr::from_ref(backing).cast_mut(), Relaxed);
        header.globals.init();
        area.set_limit(len);
        area.init_pool();
        header.magic.store(MAGIC, Release);
        Ok(area)
    }

    /// Attaches to an area that another process or thread has formatted.
    ///
    /// # Safety
    /// `base` is a mapping of memory on which `format` succeeded, valid as long as the area is
    /// used.
    pub unsafe fn attach(base: NonNull<u8>) -> Result<Area, AreaError> {
        if !base.as_ptr().addr().is_multiple_of(PAGE) {
            return Err(AreaError::Misaligned);
        }
        let area = Area { base };
        let header = area.header();
        if header.magic.load(Acquire) != MAGIC || header.version.load(Relaxed) != VERSION {
            return Err(AreaError::Unrecognized);
        }
        Ok(area)
    }

    /// Returns how the area is used at this moment.
    pub fn usage(&self) -> AreaUsage {
        let held = self.holding();
        let header = self.header();
        let total = header.limit.load(Relaxed) as usize;
        let overhead = total.saturating_sub(held.capacity * PAGE) + self.first() as usize * PAGE;
        let barrier = self.barrier();
        AreaUsage {
            total,
            reserved: header.len.load(Relaxed) as usize,
            committed: held.committed * PAGE,
            used: held.used * PAGE,
            overhead,
            free: held.free * PAGE,
            largest_free: held.largest_free * PAGE,
            session: barrier.current_session(),
            oldest_session: barrier.oldest_session(0),
            active: barrier.active(),
        }
    }

    /// Limits the committed memory to this number of bytes, rounded to 2 MB, at most to the length.
    pub fn set_limit(&self, bytes: usize) {
        let len = self.header().len.load(Relaxed);
        self.header().limit.store(len.min(bytes as u64), Relaxed);
    }

    /// Returns a number that no other index of this area has or had.
    pub(crate) fn new_identity(&self) -> u64 {
        self.header().indexes.fetch_add(1, Relaxed) + 1
    }

    /// The first word of the list of indexes that were given up.
    pub(crate) fn given_up(&self) -> &AtomicU32 {
        &self.header().given_up
    }

    /// Returns true if it is the same memory, at the same address.
    #[inline]
    pub(crate) fn is(&self, other: &Area) -> bool {
        self.base == other.base
    }

    /// The address of `r` in this process.
    #[inline]
    pub(crate) fn at(&self, r: Ref) -> *mut u8 {
        self.base.as_ptr().wrapping_add(r as usize * UNIT)
    }

    /// The barrier's shared state.
    #[inline]
    pub(crate) fn barrier(&self) -> Barrier<'_> {
        let header = self.header();
        let count = header.processes.load(Relaxed) as usize;
        // SAFETY: the slots follow the header, were zeroed by the caller of `format` (a zeroed slot
        // is a valid one) and are only accessed through their atomics.
        let slots = unsafe {
            core::slice::from_raw_parts(self.base.as_ptr().add(size_of::<Header>()).cast(), count)
        };
        Barrier { globals: &header.globals, slots }
    }

    /// Begins a new token epoch, and returns it. The caller has taken TIDs out of an index. When
    /// [`older_tokens`](Self::older_tokens) finds none for this epoch, no process holds one of
    /// these TIDs any more.
    pub fn token_fence(&self) -> u64 {
        self.barrier().token_fence()
    }

    /// Returns the slots of processes with a TID token for the index at `root` (0: any index) that
    /// was taken before `fence` began, and was neither closed nor renewed since.
    ///
    /// A process may have tokens for more indexes than it shows. `may_hold` tells for its slot
    /// whether this index can be among them. It must say yes if the process has had a token since
    /// before `fence` and still uses it.
    pub fn older_tokens(
        &self,
        root: u32,
        fence: u64,
        may_hold: impl FnMut(u32) -> bool,
    ) -> impl Iterator<Item = u32> {
        self.barrier().older_tokens(root, fence, may_hold)
    }

    /// Closes the open session k, and returns it. Memory that was unlinked before may be reused
    /// when `oldest_session(root) > k`.
    pub(crate) fn close_session(&self) -> u64 {
        self.barrier().close_session()
    }

    /// Returns the oldest session that a process is in for the index at `root` (0: for any index).
    /// If there is none, returns the open session.
    pub(crate) fn oldest_session(&self, root: Ref) -> u64 {
        self.barrier().oldest_session(root)
    }

    /// Returns true if no process writes to the index at `root` under a term <= `sn`, now or later.
    /// The caller has raised the term of the index above `sn`.
    pub(crate) fn writers_passed(&self, root: Ref, sn: u32) -> bool {
        self.barrier().writers_passed(root, sn)
    }

    fn table_offset(processes: u32) -> usize {
        size_of::<Header>() + processes as usize * size_of::<Announcement>()
    }

    fn first(&self) -> u32 {
        self.header().first.load(Relaxed)
    }

    fn header(&self) -> &Header {
        // SAFETY: the area starts with its header, all of whose fields are atomics valid for any
        // bits; the memory outlives the area by the contract of `format` and `attach`.
        unsafe { self.base.cast().as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/area.rs"]
pub(crate) mod tests;
