//! Rust's memory: a lack of it fails a statement with 53200, never the server.
//!
//! A Rust allocation that fails aborts the process, and with it every session. Two things keep that away:
//! what grows with data asks first ([`reserve`], `try_reserve`) and fails, or makes do with less; and
//! everything else, which is small, is served from a [`RESERVE`] when the C library has nothing left
//! (`ulimit -v`, `vm.overcommit_memory = 2`, a cgroup without swap). Loops over data that allocate little by
//! little call [`check`], which raises the error as soon as the reserve has been touched; the reserve is
//! whole again when all of it has been freed.
//!
//! An allocator must neither unwind nor call the server, so the error cannot be raised where it happens.
//!
//! An ERROR of the server needs memory, too, where it passes through Rust: it is copied (`witness`). What is copied is as long
//! as the message and its CONTEXT are, so a process keeps [`SPARE`] addresses, which are given back first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// The allocator of this library.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const RESERVED: usize = 1 << 20;

/// What is larger has to be asked for, so that one piece does not take all.
const LARGEST: usize = 128 << 10;

/// Memory that is handed out from its beginning; nothing is used twice before all has been freed.
#[repr(align(4096))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVED]>,
    /// Held for a few instructions, by threads that found no other memory.
    locked: AtomicBool,
    used: AtomicUsize,
    pieces: AtomicUsize,
}

// SAFETY: the bytes are only handed out, each once until all are back; the counters change under the lock.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve {
    bytes: UnsafeCell::new([0; RESERVED]),
    locked: AtomicBool::new(false),
    used: AtomicUsize::new(0),
    pieces: AtomicUsize::new(0),
};

/// The reserve has been touched since [`check`] last said so.
static TOUCHED: AtomicBool = AtomicBool::new(false);

impl Reserve {
    fn locked<T>(&self, f: impl FnOnce() -> T) -> T {
        while self.locked.swap(true, Acquire) {
            std::hint::spin_loop();
        }
        let result = f();
        self.locked.store(false, Release);
        result
    }

    fn owns(&self, p: *mut u8) -> bool {
        (self.bytes.get().addr()..self.bytes.get().addr() + RESERVED).contains(&p.addr())
    }

    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST {
            return std::ptr::null_mut();
        }
        let start = self.bytes.get().cast::<u8>();
        self.locked(|| {
            let used = self.used.load(Relaxed);
            // SAFETY: within the array.
            let at = used + unsafe { start.add(used) }.align_offset(layout.align());
            match at.checked_add(layout.size()) {
                Some(end) if end <= RESERVED => {
                    self.used.store(end, Relaxed);
                    self.pieces.fetch_add(1, Relaxed);
                    TOUCHED.store(true, Relaxed);
                    // SAFETY: `at` is below `end`, which is within the array or just behind it.
                    unsafe { start.add(at) }
                }
                _ => std::ptr::null_mut(),
            }
        })
    }

    #[cold]
    fn give_back(&self) {
        self.locked(|| {
            if self.pieces.fetch_sub(1, Relaxed) == 1 {
                self.used.store(0, Relaxed);
            }
        });
    }
}

// SAFETY: the memory is the C library's, or a piece of the reserve that nobody else has.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let p = if injected() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } };
        if p.is_null() { RESERVE.take(layout) } else { p }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if RESERVE.owns(p) {
            return RESERVE.give_back();
        }
        // SAFETY: by the caller's contract, and not ours.
        unsafe { System.dealloc(p, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !RESERVE.owns(p) && !injected() {
            // SAFETY: by the caller's contract, and not ours.
            let moved = unsafe { System.realloc(p, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: `size` is one that the caller may ask for; the old piece stays until it is copied.
        unsafe {
            let wanted = Layout::from_size_align_unchecked(size, layout.align());
            let new = if RESERVE.owns(p) { self.alloc(wanted) } else { RESERVE.take(wanted) };
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(p, new, layout.size().min(size));
                self.dealloc(p, layout);
            }
            new
        }
    }
}

/// Addresses that this process can do without, or null. Never touched: a part of what the system has promised, which others
/// get when there is nothing else. The largest block that a memory context insists on is 1 MB.
static SPARE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
const SPARED: usize = (1 << 20) + (256 << 10);

/// New addresses, or null.
fn spare() -> *mut libc::c_void {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    match unsafe { libc::mmap(std::ptr::null_mut(), SPARED, access, kind, -1, 0) } {
        libc::MAP_FAILED => std::ptr::null_mut(),
        new => new,
    }
}

fn unmap(spare: *mut libc::c_void) {
    if !spare.is_null() {
        // SAFETY: a mapping of `spare`, which its callers have taken from where it was kept.
        unsafe { libc::munmap(spare, SPARED) };
    }
}

/// Has spare addresses again, if there are any. At the end of transactions.
pub fn keep_spare() {
    if SPARE.load(Relaxed).is_null() {
        SPARE.store(spare(), Relaxed);
    }
}

/// Sees to it that there is some memory: if the system has no more, what was spared. It calls nothing of the server.
pub fn make_room() {
    match spare() {
        none if none.is_null() => unmap(SPARE.swap(std::ptr::null_mut(), Relaxed)),
        some => unmap(some),
    }
}

/// Panics once, when there is plenty. The first ERROR of a thread registers a destructor for where it was
/// raised; the C library takes memory of its own for that, and aborts the process if there is none. Children
/// inherit what their parent has registered.
pub fn install() {
    nitro_engine::on_no_memory(no_memory);
    keep_spare();
    drop(std::panic::catch_unwind(|| std::panic::panic_any(())));
}

thread_local! {
    /// This thread is beside the server's own.
    static BESIDE: Cell<bool> = const { Cell::new(false) };
}

/// What this thread finds no memory for ends it and calls nothing of the server.
pub fn beside_the_server() {
    BESIDE.set(true);
}

/// The engine has no memory for a copy of a key.
fn no_memory(bytes: usize) -> ! {
    if BESIDE.get() {
        std::panic::resume_unwind(Box::new(()));
    }
    out_of_memory(bytes)
}

/// Appends bytes, with room for one more, or an ERROR.
#[inline]
#[track_caller]
pub fn append(vec: &mut Vec<u8>, bytes: &[u8]) {
    reserve(vec, bytes.len() + 1);
    vec.extend_from_slice(bytes);
}

/// Room for `more` elements, or an ERROR.
#[inline]
#[track_caller]
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.try_reserve(more).is_err() {
        out_of_memory((vec.len() + more).saturating_mul(size_of::<T>()));
    }
}

/// `Vec::resize`, or an ERROR.
#[inline]
#[track_caller]
pub fn resize<T: Clone>(vec: &mut Vec<T>, length: usize, value: T) {
    let more = length.saturating_sub(vec.len());
    reserve(vec, more);
    vec.resize(length, value);
}

/// What a vector has room for may be in large pages, if the system has such for who asks: what is filled once from its beginning
/// to its end takes a fault for each page.
pub fn in_large_pages<T>(vec: &Vec<T>) {
    const PAGE: usize = 2 << 20;
    let start = vec.as_ptr().addr().next_multiple_of(PAGE);
    let end = (vec.as_ptr().addr() + vec.capacity() * size_of::<T>()) / PAGE * PAGE;
    if start < end {
        // SAFETY: of whole pages inside the vector's memory; their content stays.
        unsafe {
            libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_HUGEPAGE)
        };
    }
}

/// Whether there are so many bytes.
#[cfg(not(test))]
pub fn is_there(bytes: usize) -> bool {
    std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(bytes).is_ok()
}

/// An ERROR unless there are so many bytes: for code that takes them piece by piece and cannot fail.
#[track_caller]
pub fn expect(bytes: usize) {
    let mut all: Vec<u8> = Vec::new();
    reserve(&mut all, bytes);
    // Not to be optimised away.
    std::hint::black_box(&mut all);
}

/// An ERROR if memory has run out since the last call. In every loop over data that allocates.
#[inline]
#[track_caller]
pub fn check() {
    if TOUCHED.load(Relaxed) {
        TOUCHED.store(false, Relaxed);
        out_of_memory(0);
    }
}

/// What is tested without a server cannot be linked with what raises its errors.
#[cfg(test)]
pub fn out_of_memory(bytes: usize) -> ! {
    panic!("out of memory: {bytes} bytes")
}

/// The ERROR for memory that the operating system does not give.
#[cfg(not(test))]
#[cold]
#[track_caller]
pub fn out_of_memory(bytes: usize) -> ! {
    use crate::pg::error::Failure;
    TOUCHED.store(false, Relaxed);
    let failure = Failure::new(pgrx::PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY, "out of memory");
    match bytes {
        0 => failure.detail("The operating system gives this process no more memory."),
        n => failure.detail(format!("Failed on request of size {n}.")),
    }
    .raise()
}

/// Whether a test wants this allocation to fail.
#[inline]
fn injected() -> bool {
    #[cfg(debug_assertions)]
    return crate::pg::fault::allocation();
    #[cfg(not(debug_assertions))]
    false
}
