//! Indexes that were given up while other processes may still be inside. Their memory goes back to
//! the area when all have left.
//!
//! A list of the area runs through their roots. So giving an index up allocates nothing, never
//! fails, and waits for no process. (A process inside may be in a comparison function that waits
//! for a lock of this process.)
//!
//! Each index remembers the barrier session that was closed after the index had been unlinked. It
//! is due when no process is in that session or an older one, for any index. (A process that began
//! a section for another index may have found the root of this one.)
//!
//! A process that looks takes the whole list and puts back the indexes that are not due. If two
//! look at once, one finds fewer indexes or none. The next look finds the rest.

use crate::index::root::Index;
use crate::memory::area::Area;
use crate::memory::process::Process;
use crate::sync::mutants::mutant;
use core::sync::atomic::Ordering::*;

/// Gives all memory of the index back to the area as soon as no process is inside.
///
/// # Safety
/// The index has been unlinked: a process that enters the barrier from now on cannot find it. No
/// walk over it ([`Prune`](crate::collect::prune::Prune), [`Sweep`](crate::collect::sweep::Sweep))
/// is kept.
pub unsafe fn destroy_later(index: Index, p: &Process) {
    index.check_area(p);
    let area = index.area;
    index.shared().given_up.session.store(area.close_session(), Relaxed);
    push(&index);
    destroy_due(&area);
}

fn push(index: &Index) {
    let head = index.area.given_up();
    let mut next = head.load(Relaxed);
    // An exchange fails only if that of another process did not.
    loop {
        index.shared().given_up.next.store(next, Relaxed);
        match head.compare_exchange_weak(next, index.root, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => next = now,
        }
    }
}

/// Frees the indexes that were given up and that no process can be inside any more. Returns true if
/// others are left.
pub fn destroy_due(area: &Area) -> bool {
    let head = area.given_up();
    if head.load(Relaxed) == 0 {
        return false;
    }
    // Ends: a list grows at its head, which was taken.
    let mut at = head.swap(0, Acquire);
    let oldest = area.oldest_session(0);
    let mut left = false;
    while at != 0 {
        let index = Index { area: *area, root: at };
        let given_up = &index.shared().given_up;
        at = given_up.next.load(Relaxed);
        let due = oldest > given_up.session.load(Relaxed);
        if due || mutant!("an index that is given up waits for the barrier") {
            index.allocator().destroy(area);
        } else {
            push(&index);
            left = true;
        }
    }
    left
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::index::root::IndexOptions;
    use crate::key::order::Memcmp;
    use crate::memory::area::tests::Mapping;
    use crate::prelude::*;

    fn filled(p: &Process) -> Index {
        let index = Index::create(p, &IndexOptions::default()).unwrap();
        for i in 0..2000u64 {
            index.insert(p, &Memcmp, &i.to_be_bytes(), i).unwrap();
        }
        index
    }

    #[test]
    fn memory_waits_for_who_is_inside() {
        let area = Mapping::new(16 << 20, 2);
        // SAFETY: each slot is used once.
        let (p, other) = unsafe { (Process::attach(*area, 0), Process::attach(*area, 1)) };
        let before = area.usage().used;
        let (first, second) = (filled(&p), filled(&p));
        let (both, one) = (area.usage().used, (area.usage().used - before) / 2);
        // For an index that is neither of them.
        let inside = other.enter_index(7);
        // SAFETY: no other process knows these indexes.
        unsafe { destroy_later(first, &p) };
        assert_eq!(area.usage().used, both);
        assert!(destroy_due(&area));
        let nested = other.enter();
        drop(inside);
        assert!(destroy_due(&area), "the outermost section goes on");
        drop(nested);
        let inside = other.enter();
        // SAFETY: as above.
        unsafe { destroy_later(second, &p) };
        assert_eq!(area.usage().used, before + one, "who entered later holds up what came later");
        drop(inside);
        assert!(!destroy_due(&area));
        assert_eq!(area.usage().used, before);
    }

    #[test]
    fn a_full_area_takes_what_is_due() {
        let area = Mapping::new(1 << 20, 2);
        // SAFETY: each slot is used once.
        let (p, other) = unsafe { (Process::attach(*area, 0), Process::attach(*area, 1)) };
        let (small, large) = (filled(&p), filled(&p));
        let mut i = 0u64;
        while large.insert(&p, &Memcmp, &i.to_be_bytes(), i + 10_000).is_ok() {
            i += 1;
        }
        let inside = other.enter();
        // SAFETY: no other process knows the index.
        unsafe { destroy_later(large, &p) };
        drop(inside);
        // Far more than its own blocks have free.
        for j in 0..i {
            small.insert(&p, &Memcmp, &j.to_be_bytes(), j + 10_000).unwrap();
        }
    }

    #[test]
    fn many_give_up_and_look() {
        let area = Mapping::new(64 << 20, 4);
        let before = area.usage().used;
        std::thread::scope(|scope| {
            for slot in 0..4 {
                let area = *area;
                scope.spawn(move || {
                    // SAFETY: a slot of its own.
                    let p = unsafe { Process::attach(area, slot) };
                    for _ in 0..200 {
                        let index = filled(&p);
                        let inside = p.enter();
                        // SAFETY: no other process knows the index.
                        unsafe { destroy_later(index, &p) };
                        destroy_due(&area);
                        index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
                        drop(inside);
                        destroy_due(&area);
                    }
                });
            }
        });
        assert!(!destroy_due(&area));
        assert_eq!(area.usage().used, before);
    }
}
