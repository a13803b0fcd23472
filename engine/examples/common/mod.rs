//! What the examples share.

use nitro_engine::{Area, Backing};
use std::ptr::NonNull;

/// A new area, never unmapped.
pub fn area(len: usize) -> Area {
    // SAFETY: a new mapping, never unmapped.
    unsafe {
        let base = libc::mmap(
            std::ptr::null_mut(),
            Area::mapped(len),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        Area::format(NonNull::new(base.cast()).unwrap(), len, 8, &Backing::MAPPED).unwrap()
    }
}

/// A number that looks random.
#[inline]
pub fn mix(i: u64) -> u64 {
    let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The processor time of this thread, in ns.
pub fn cpu() -> f64 {
    // SAFETY: fills the structure.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
        t
    };
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}
