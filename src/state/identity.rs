//! The identity of an index: the metapage, the only page of the main fork.
//!
//! The directory finds an index by (database OID, incarnation). An incarnation is 128 random bits
//! that every build writes. File numbers do not identify an index. ALTER ... SET TABLESPACE and
//! CREATE DATABASE copy files without calling nitro. A crash resets an unlogged index to its init
//! fork. An unknown incarnation is an index that was not built in this server's memory yet.
//!
//! The init fork has incarnation 0, "never built". A process that meets it in a main fork assigns
//! another one.
//!
//! Behind that the page has the *marks* of the latest images: a random number for each, written and
//! logged before the image appears. WAL replay makes the page part of the history of this data
//! directory. So a mark proves that the WAL up to it belongs to this directory. That holds even if
//! the directory is a backup, a standby or a copy, and even if that WAL is gone. An image that was
//! put here from elsewhere has no mark.

use pgrx::prelude::*;

use crate::pg::compat;
use crate::pg::error::Failure;
use crate::state::directory::Incarnation;

const MAGIC: u32 = 0x4e69_7472; // "Nitr"
/// Version of the metapage format.
const VERSION: u32 = 1;

#[repr(C)]
struct Metapage {
    magic: u32,
    version: u32,
    incarnation: [u64; 2],
}

/// Number of images whose marks are kept.
const MARKS: usize = 100;

/// The marks behind the head of the metapage, the latest one first, 0 for none. A page without
/// marks is zeroed there.
type Marks = [u64; MARKS];

/// 128 random bits, never 0.
fn random() -> Incarnation {
    let mut bytes = [0u8; 16];
    // SAFETY: fills exactly the buffer that is passed.
    let strong = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    if !strong {
        Failure::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, "could not generate random values")
            .raise();
    }
    Incarnation::from_ne_bytes(bytes) | 1
}

unsafe fn contents(buffer: pg_sys::Buffer) -> *mut Metapage {
    // SAFETY: callers hold a pin and a lock on the buffer.
    unsafe { pg_sys::PageGetContents(pg_sys::BufferGetPage(buffer)).cast() }
}

/// Writes the metapage of a new, empty fork and returns its incarnation (0 for an init fork).
///
/// A crash before the WAL record leaves a file of zero or one empty pages that belongs to an
/// aborted transaction. The page is logged even for an unlogged index' init fork.
///
/// # Safety
/// `index` must be open with a lock that allows building it; the fork must be empty.
pub unsafe fn create(index: pg_sys::Relation, fork: pg_sys::ForkNumber::Type) -> Incarnation {
    let incarnation = if fork == pg_sys::ForkNumber::INIT_FORKNUM { 0 } else { random() };
    // SAFETY: extends the fork by one page that no other process knows. Page writes happen between
    // START_CRIT_SECTION and END_CRIT_SECTION, where nothing can fail.
    unsafe {
        let buffer = pg_sys::ReadBufferExtended(
            index,
            fork,
            pg_sys::InvalidBlockNumber,
            pg_sys::ReadBufferMode::RBM_NORMAL,
            std::ptr::null_mut(),
        );
        compat::lock_exclusive(buffer);
        let logged = fork == pg_sys::ForkNumber::INIT_FORKNUM || compat::relation_needs_wal(index);
        pg_sys::CritSectionCount += 1;
        let page = pg_sys::BufferGetPage(buffer);
        pg_sys::PageInit(page, pg_sys::BLCKSZ as usize, 0);
        let meta = contents(buffer);
        meta.write(Metapage {
            magic: MAGIC,
            version: VERSION,
            incarnation: [incarnation as u64, (incarnation >> 64) as u64],
        });
        // Full-page images leave out the hole between lower and upper.
        let header: pg_sys::PageHeader = page.cast();
        (*header).pd_lower = (meta.add(1).addr() - page.addr()) as u16;
        pg_sys::MarkBufferDirty(buffer);
        if logged {
            pg_sys::log_newpage_buffer(buffer, true);
        }
        pg_sys::CritSectionCount -= 1;
        pg_sys::UnlockReleaseBuffer(buffer);
    }
    incarnation
}

/// The incarnation of an existing index.
///
/// # Safety
/// `index` must be open and locked.
pub unsafe fn read(index: pg_sys::Relation) -> Incarnation {
    // SAFETY: block 0 exists in every index that `create` made; shared lock while reading.
    unsafe {
        let buffer = pg_sys::ReadBuffer(index, 0);
        compat::lock_shared(buffer);
        let meta = contents(buffer).read();
        pg_sys::UnlockReleaseBuffer(buffer);
        if meta.magic != MAGIC || meta.version != VERSION {
            foreign(index, &meta);
        }
        match join(meta.incarnation) {
            0 => assign(index),
            incarnation => incarnation,
        }
    }
}

/// The marks of a metapage.
unsafe fn marks(buffer: pg_sys::Buffer) -> *mut Marks {
    // SAFETY: callers hold a pin and a lock on the buffer; behind the head, aligned as it, is room.
    unsafe { contents(buffer).add(1).cast() }
}

/// Marks that everything up to here has happened before an image: the mark, and where its record
/// ends. `None` if the index is not in this file any more.
///
/// A crash before the record is flushed takes the mark away, and the image never appears. An image
/// that fails afterwards leaves a mark without an image.
///
/// # Safety
/// Inside a transaction, outside of recovery; a lock must keep the permanent index where it is.
pub unsafe fn mark(
    file: &compat::Locator,
    incarnation: Incarnation,
) -> Option<(u64, pg_sys::XLogRecPtr)> {
    let mark = random() as u64;
    // SAFETY: exclusive lock; page writes happen in a critical section, where nothing can fail. An
    // ERROR before it releases pin and lock.
    unsafe {
        let buffer = compat::read_block_of(file, 0);
        compat::lock_exclusive(buffer);
        let meta = contents(buffer);
        let ours = (*meta).magic == MAGIC && join((*meta).incarnation) == incarnation;
        let end = ours.then(|| {
            pg_sys::CritSectionCount += 1;
            let all = marks(buffer);
            (*all).copy_within(..MARKS - 1, 1);
            (*all)[0] = mark;
            let page = pg_sys::BufferGetPage(buffer);
            let header: pg_sys::PageHeader = page.cast();
            (*header).pd_lower = (all.add(1).addr() - page.addr()) as u16;
            pg_sys::MarkBufferDirty(buffer);
            let end = compat::log_page_quietly(buffer);
            pg_sys::CritSectionCount -= 1;
            end
        });
        pg_sys::UnlockReleaseBuffer(buffer);
        end.map(|end| (mark, end))
    }
}

/// Whether an image has been made of this index, in the history of this data directory, with this
/// mark.
///
/// # Safety
/// `index` must be open and locked.
pub unsafe fn has_mark(index: pg_sys::Relation, mark: u64) -> bool {
    // SAFETY: block 0 exists in every index that `create` made; shared lock while reading.
    unsafe {
        let buffer = pg_sys::ReadBuffer(index, 0);
        compat::lock_shared(buffer);
        let known = mark != 0 && (*marks(buffer)).contains(&mark);
        pg_sys::UnlockReleaseBuffer(buffer);
        known
    }
}

fn join(halves: [u64; 2]) -> Incarnation {
    Incarnation::from(halves[0]) | Incarnation::from(halves[1]) << 64
}

/// Gives a main fork that was reset from its init fork an incarnation of its own. Not logged: only
/// unlogged relations are reset, and the next reset brings 0 back.
unsafe fn assign(index: pg_sys::Relation) -> Incarnation {
    // SAFETY: exclusive lock. The first process has assigned one.
    unsafe {
        let buffer = pg_sys::ReadBuffer(index, 0);
        compat::lock_exclusive(buffer);
        let meta = contents(buffer);
        if join((*meta).incarnation) == 0 {
            let fresh = random();
            (*meta).incarnation = [fresh as u64, (fresh >> 64) as u64];
            pg_sys::MarkBufferDirty(buffer);
        }
        let incarnation = join((*meta).incarnation);
        pg_sys::UnlockReleaseBuffer(buffer);
        incarnation
    }
}

#[cold]
unsafe fn foreign(index: pg_sys::Relation, meta: &Metapage) -> ! {
    // SAFETY: open relation by the caller's contract.
    let name = unsafe { compat::name(index) };
    if meta.magic == MAGIC {
        Failure::new(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("index \"{name}\" was written by another version of nitro"),
        )
        .detail(format!("Its format is {}, this library reads {VERSION}.", meta.version))
        .hint("REINDEX the index.")
        .raise()
    }
    Failure::new(
        PgSqlErrorCode::ERRCODE_INDEX_CORRUPTED,
        format!("index \"{name}\" is not a nitro index"),
    )
    .hint("REINDEX the index.")
    .raise()
}
