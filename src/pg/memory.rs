//! Rust's memory: a lack of it fails a statement with 53200, never the server.
//!
//! A Rust allocation that fails aborts the process, and with it every session. Two mechanisms
//! prevent that:
//! - Memory that grows with data is requested first ([`reserve`], `try_reserve`). The request
//!   fails, or the code does with less.
//! - All other allocations are small. When the C library has no memory left (`ulimit -v`,
//!   `vm.overcommit_memory = 2`, a cgroup without swap), they get memory of a [`RESERVE`].
//!
//! Loops over data that allocate little by little call [`check`]. It raises the error as soon as
//! the reserve has been touched. The reserve is whole again when all of it has been freed.
//!
//! An allocator must neither unwind nor call the server, so the error cannot be raised where it
//! happens.
//!
//! An ERROR of the server needs memory, too, where it passes through Rust: it is copied
//! (`witness`). The copy is as long as the message and its CONTEXT. So a process keeps [`SPARE`]
//! addresses, which are given back first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// The allocator of this library.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const RESERVED: usize = 1 << 20;

/// The largest piece of the reserve in bytes. Larger memory must be requested first, so that one
/// piece does not take all.
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

// SAFETY: the bytes are only handed out, each once until all are back; the counters change under
// the lock.
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

// SAFETY: the memory is the C library's, or a piece of the reserve that has no other owner.
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
        // SAFETY: `size` is one that the caller may ask for; the old piece stays until it is
        // copied.
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

/// Addresses that this process can do without, or null. They are never touched: they are a part of
/// the promised memory, to be given back when there is no other. The largest block that a memory
/// context insists on is 1 MB.
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

/// Makes some memory free. If the system has no more, it gives the spare addresses back. It calls
/// no function of the server.
pub fn make_room() {
    match spare() {
        none if none.is_null() => unmap(SPARE.swap(std::ptr::null_mut(), Relaxed)),
        some => unmap(some),
    }
}

/// Panics once, while there is enough memory. The first ERROR of a thread registers a destructor.
/// The C library takes memory of its own for that, and aborts the process if there is none.
/// Children inherit the registration of their parent.
pub fn install() {
    nitro_engine::on_no_memory(no_memory);
    keep_spare();
    drop(std::panic::catch_unwind(|| std::panic::panic_any(())));
}

thread_local! {
    /// This thread is beside the server's own.
    static BESIDE: Cell<bool> = const { Cell::new(false) };
}

/// Lets a lack of memory end this thread, without calling the server.
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

/// Lets the capacity of a vector be in huge pages, if the system has them on request. A vector that
/// is filled once from its beginning to its end takes a page fault for each page.
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

/// Returns true if this number of bytes is free.
#[cfg(not(test))]
pub fn is_there(bytes: usize) -> bool {
    std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(bytes).is_ok()
}

/// Raises an ERROR unless this number of bytes is free. For code that takes them piece by piece and
/// cannot fail.
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

/// Unit tests run without a server, and cannot link the functions that raise its errors.
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
