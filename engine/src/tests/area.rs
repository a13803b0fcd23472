use super::*;
use crate::memory::place::UNITS_PER_PAGE;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;

/// An area over anonymous memory, unmapped when dropped.
pub(crate) struct Mapping {
    area: Area,
    len: usize,
}

impl Mapping {
    pub(crate) fn new(len: usize, processes: u32) -> Mapping {
        Mapping::on(len, processes, &Backing::MAPPED)
    }

    /// Makes an area whose uncommitted memory cannot be touched.
    pub(crate) fn strict(len: usize, processes: u32) -> Mapping {
        Mapping::on(len, processes, &STRICT)
    }

    fn on(len: usize, processes: u32, backing: &'static Backing) -> Mapping {
        let base = map(Area::mapped(len));
        // SAFETY: fresh zeroed pages, mapped until the value is dropped.
        unsafe {
            if core::ptr::eq(backing, &STRICT) {
                libc::mprotect(base.as_ptr().cast(), Area::mapped(len), libc::PROT_NONE);
            }
            let area = Area::format(base, len, processes, backing).unwrap();
            Mapping { area, len: Area::mapped(len) }
        }
    }

    /// All of its bytes.
    pub(crate) fn save(&self) -> Vec<u8> {
        // SAFETY: mapped with this length; nobody writes to it meanwhile.
        unsafe { core::slice::from_raw_parts(self.area.base.as_ptr(), self.len) }.to_vec()
    }

    /// Restores saved content. No process uses the area.
    pub(crate) fn restore(&self, saved: &[u8]) {
        assert_eq!(saved.len(), self.len);
        // SAFETY: mapped with this length, and another memory than `saved`.
        unsafe { self.area.base.as_ptr().copy_from_nonoverlapping(saved.as_ptr(), self.len) };
    }

    /// Maps the same area at another address, as another process would see it.
    pub(crate) fn alias(&self) -> Mapping {
        // SAFETY: a second mapping of shared memory, whose old size of 0 says that the first stays.
        let base = unsafe {
            libc::mremap(self.area.base.as_ptr().cast(), 0, self.len, libc::MREMAP_MAYMOVE)
        };
        assert!(base != libc::MAP_FAILED);
        // SAFETY: mapped until the value is dropped.
        let area = unsafe { Area::attach(NonNull::new(base.cast()).unwrap()) }.unwrap();
        Mapping { area, len: self.len }
    }
}

impl Deref for Mapping {
    type Target = Area;
    fn deref(&self) -> &Area {
        &self.area
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length.
        unsafe { libc::munmap(self.area.base.as_ptr().cast(), self.len) };
    }
}

// Granules that may still be committed in this thread.
thread_local!(static LEFT_HERE: Cell<usize> = const { Cell::new(usize::MAX) });

/// Uncommitted memory cannot be touched, and released memory loses its content.
static STRICT: Backing = Backing {
    commit: |base, range| {
        let granules = range.len() / GRANULE;
        let left = LEFT_HERE.get().checked_sub(granules).ok_or(Refused)?;
        LEFT_HERE.set(left);
        protect(base, range, libc::PROT_READ | libc::PROT_WRITE);
        Ok(())
    },
    release: |base, range| {
        assert!(range.start.is_multiple_of(GRANULE) && range.end.is_multiple_of(GRANULE));
        // SAFETY: a part of a mapping of these tests that the area does not use.
        let rc = unsafe {
            libc::madvise(base.as_ptr().add(range.start).cast(), range.len(), libc::MADV_REMOVE)
        };
        assert_eq!(rc, 0);
        protect(base, range, libc::PROT_NONE);
    },
};

fn protect(base: NonNull<u8>, range: Range<usize>, how: i32) {
    let start = range.start / PAGE * PAGE;
    let len = range.end.next_multiple_of(PAGE) - start;
    // SAFETY: a part of a mapping of these tests.
    let rc = unsafe { libc::mprotect(base.as_ptr().add(start).cast(), len, how) };
    assert_eq!(rc, 0);
}

fn map(len: usize) -> NonNull<u8> {
    // SAFETY: a new mapping.
    let base = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert!(base != libc::MAP_FAILED);
    NonNull::new(base.cast()).unwrap()
}

/// Fills a run so that an overlap, or a free list link written into it, shows.
fn fill(area: &Area, r: Ref, bytes: usize) {
    // SAFETY: the run was just allocated.
    unsafe { area.at(r).write_bytes((r / UNITS_PER_PAGE) as u8 | 1, bytes) };
}

fn check(area: &Area, r: Ref, bytes: usize) {
    // SAFETY: the run is still allocated.
    let run = unsafe { core::slice::from_raw_parts(area.at(r), bytes) };
    assert!(run.iter().all(|&byte| byte == (r / UNITS_PER_PAGE) as u8 | 1));
}

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/area.txt"))]
    #[test]
    fn runs_never_overlap_and_coalesce(
        pages in 20usize..4000,
        steps in prop::collection::vec((any::<bool>(), any::<usize>(), 1usize..80_000), 1..120),
        large in 1usize..40,

    ) {
        let area = Mapping::strict(pages * PAGE + 123, 3);
        let (start, blocks) = (area.usage(), area.free_blocks());
        let mut runs: BTreeMap<Ref, usize> = BTreeMap::new();
        for (alloc, pick, bytes) in steps {
            let bytes = if pick % 16 == 0 { bytes * large } else { bytes };
            if alloc {
                let largest = area.usage().largest_free;
                match area.alloc_pages(bytes) {
                    Ok(r) => {
                        let end = r as usize * UNIT + bytes;
                        prop_assert!(end <= pages * PAGE);
                        let before = runs.range(..r).next_back();
                        prop_assert!(before.is_none_or(|(&b, &len)| b as usize * UNIT + len <= r as usize * UNIT));
                        prop_assert!(runs.range(r..).next().is_none_or(|(&a, _)| end <= a as usize * UNIT));
                        fill(&area, r, bytes);
                        runs.insert(r, bytes);
                    }
                    Err(e) => {
                        prop_assert_eq!(e.requested, bytes);
                        prop_assert!(bytes.div_ceil(PAGE).next_power_of_two() * PAGE > largest);
                        prop_assert_eq!(e.lack, Lack::Area);
                    }
                }
            } else if let Some((&r, &bytes)) = runs.iter().nth(pick % runs.len().max(1)) {
                check(&area, r, bytes);
                runs.remove(&r);
                area.free_pages(r, bytes);
            }
            let usage = area.usage();
            let used: usize = runs.values().map(|bytes| bytes.next_multiple_of(PAGE)).sum();
            prop_assert_eq!(usage.used, used);
            prop_assert_eq!(usage.total, usage.used + usage.free + usage.overhead);
            prop_assert_eq!(usage.overhead, start.overhead);
            area.free_blocks();
        }
        for (r, bytes) in runs {
            check(&area, r, bytes);
            area.free_pages(r, bytes);
        }
        prop_assert_eq!(area.usage(), start);
        prop_assert_eq!(area.free_blocks(), blocks);
    }
}

#[test]
fn a_large_area_is_touched_lazily() {
    let len = 100 << 30;
    let area = Mapping::new(len, 100);
    let usage = area.usage();
    assert_eq!(usage.total, len);
    assert_eq!(usage.largest_free, 32 << 30);
    let mut resident = vec![0u8; len / PAGE];
    // SAFETY: asks about the mapping; the vector has one byte per page.
    let rc = unsafe { libc::mincore(area.base.as_ptr().cast(), len, resident.as_mut_ptr().cast()) };
    assert_eq!(rc, 0);
    let touched = resident.iter().filter(|&&byte| byte & 1 == 1).count();
    // Transparent huge pages may turn each touch into 2 MB.
    assert!(touched < 60 * 512, "{touched} pages");
    let run = area.alloc_pages(5 << 30).unwrap();
    assert_eq!(area.usage().used, 5 << 30);
    area.free_pages(run, 5 << 30);
    assert_eq!(area.usage(), usage);
}

#[test]
fn absurd_requests_fail() {
    let area = Mapping::new(1 << 20, 1);
    for bytes in [2 << 20, 1 << 40, usize::MAX] {
        assert_eq!(
            area.alloc_pages(bytes),
            Err(OutOfMemory { requested: bytes, lack: Lack::Area })
        );
    }
}

#[test]
fn bad_memory_is_refused() {
    let base = map(17 * PAGE);
    // SAFETY: zeroed pages; a failing call leaves them alone.
    unsafe {
        let odd = NonNull::new(base.as_ptr().add(64)).unwrap();
        assert_eq!(Area::format(odd, PAGE, 1, &Backing::MAPPED).err(), Some(AreaError::Misaligned));
        assert_eq!(Area::attach(odd).err(), Some(AreaError::Misaligned));
        assert_eq!(Area::attach(base).err(), Some(AreaError::Unrecognized));
        assert_eq!(Area::format(base, 0, 1, &Backing::MAPPED).err(), Some(AreaError::TooSmall));
        assert_eq!(
            Area::format(base, 16 * PAGE, 1000, &Backing::MAPPED).err(),
            Some(AreaError::TooSmall)
        );
        assert_eq!(
            Area::format(base, MAX_LEN + 1, 1, &Backing::MAPPED).err(),
            Some(AreaError::TooLarge)
        );
        let area = Area::format(base, 16 * PAGE, 4, &Backing::MAPPED).unwrap();
        assert_eq!(Area::attach(base).unwrap().usage(), area.usage());
        libc::munmap(base.as_ptr().cast(), 17 * PAGE);
    }
}

/// Runs of one page in each granule, but the first.
fn one_page_each(area: &Area) -> Vec<Ref> {
    let mut all: Vec<Ref> = core::iter::from_fn(|| area.alloc_pages(PAGE).ok()).collect();
    all.sort_unstable();
    let (kept, given): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|&r| (r / UNITS_PER_PAGE) % GRANULE_PAGES == 7 && r as usize * UNIT > GRANULE);
    given.into_iter().for_each(|r| area.free_pages(r, PAGE));
    kept
}

#[test]
fn the_limit_changes() {
    let area = Mapping::strict(64 << 20, 1);
    let start = area.usage();
    assert_eq!((start.total, start.reserved, start.committed), (64 << 20, 64 << 20, GRANULE));
    area.set_limit(8 << 20);
    let low = area.usage();
    assert_eq!((low.total, low.free), (8 << 20, (8 << 20) - low.overhead));
    let small: Vec<Ref> = core::iter::from_fn(|| area.alloc_pages(PAGE).ok()).collect();
    assert_eq!(small.len() * PAGE, low.free);
    area.set_limit(16 << 20);
    let more = area.alloc_pages(4 << 20).unwrap();
    fill(&area, more, 4 << 20);
    // Below what is in use: nothing is lost, and nothing is handed out, not even what comes back.
    area.set_limit(6 << 20);
    check(&area, more, 4 << 20);
    let usage = area.usage();
    assert_eq!((usage.total, usage.free, usage.largest_free), (6 << 20, 0, 0));
    assert!(area.alloc_pages(PAGE).is_err());
    area.free_pages(small[0], PAGE);
    assert!(area.alloc_pages(PAGE).is_err());
    area.free_pages(more, 4 << 20);
    assert!(area.alloc_pages(PAGE).is_err());
    area.set_limit(usize::MAX);
    let usage = area.usage();
    assert_eq!((usage.total, usage.committed), (64 << 20, 8 << 20));
    assert_eq!(usage.total, usage.used + usage.free + usage.overhead);
    area.alloc_pages(32 << 20).unwrap();
}

#[test]
fn granules_are_released_when_they_are_free() {
    let area = Mapping::strict(16 << 20, 1);
    let start = area.usage();
    let kept = one_page_each(&area);
    assert_eq!((kept.len(), area.usage().committed), (7, 16 << 20));
    for (i, &r) in kept.iter().enumerate() {
        area.free_pages(r, PAGE);
        assert_eq!(area.usage().committed, (16 << 20) - (i + 1) * GRANULE);
    }
    assert_eq!(area.usage(), start);
    // A run that is no multiple of a granule leaves its last one to others.
    let run = area.alloc_pages(3 * GRANULE - 5 * PAGE).unwrap();
    fill(&area, run, 3 * GRANULE - 5 * PAGE);
    assert_eq!(area.usage().committed, 4 * GRANULE);
    area.free_pages(run, 3 * GRANULE - 5 * PAGE);
    assert_eq!(area.usage(), start);
}

/// Whichever granule is refused: the caller is told, and nothing has changed.
#[test]
fn memory_is_refused() {
    for left in 0..7 {
        let area = Mapping::strict(16 << 20, 1);
        LEFT_HERE.set(left);
        let taken: Vec<Ref> = core::iter::from_fn(|| match area.alloc_pages(100 * PAGE) {
            Ok(r) => Some(r),
            Err(e) => {
                assert_eq!(e.lack, Lack::System);
                None
            }
        })
        .collect();
        taken.iter().for_each(|&r| fill(&area, r, 100 * PAGE));
        let usage = area.usage();
        assert_eq!((usage.used, usage.committed), (taken.len() * 100 * PAGE, (left + 1) * GRANULE));
        assert_eq!(usage.total, usage.used + usage.free + usage.overhead);
        LEFT_HERE.set(usize::MAX);
        fill(&area, area.alloc_pages(100 * PAGE).unwrap(), 100 * PAGE);
        taken.iter().for_each(|&r| check(&area, r, 100 * PAGE));
    }
}

/// A load comes and goes. The memory that stays gathers in few granules.
#[test]
fn full_granules_are_taken_first() {
    let area = Mapping::strict(256 << 20, 1);
    let mut random = 1u32;
    let mut pick = |n: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % n
    };
    let bytes = 12 * PAGE;
    let mut held: Vec<Ref> = Vec::new();
    for round in 0..100 {
        let many = if round == 0 { 600 } else { 120 };
        while held.len() < many {
            held.push(area.alloc_pages(bytes).unwrap());
        }
        while held.len() > 100 {
            area.free_pages(held.swap_remove(pick(held.len())), bytes);
        }
    }
    let committed = area.usage().committed;
    assert!(committed <= 22 << 20, "{committed} bytes");
    area.free_blocks();
}

/// An allocation without memory gets memory that another process is about to release, or has left
/// over in a granule.
#[test]
fn an_allocation_waits_for_granules_that_move() {
    static SLOW: Backing = Backing {
        commit: |_, _| {
            std::thread::sleep(core::time::Duration::from_micros(200));
            Ok(())
        },
        release: |_, _| std::thread::sleep(core::time::Duration::from_micros(200)),
    };
    // A single granule. Each thread wants a part of it.
    let area = Mapping::on(2 * GRANULE, 1, &SLOW);
    area.set_limit(GRANULE);
    let first: Vec<Ref> = core::iter::from_fn(|| area.alloc_pages(PAGE).ok()).collect();
    area.set_limit(2 * GRANULE);
    let start = area.usage();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let area = area.alias();
            scope.spawn(move || {
                for _ in 0..200 {
                    let r = area.alloc_pages(100 * PAGE).expect("there is room for all");
                    area.free_pages(r, 100 * PAGE);
                }
            });
        }
    });
    assert_eq!(area.usage(), start);
    first.into_iter().for_each(|r| area.free_pages(r, PAGE));
}
