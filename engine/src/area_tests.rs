use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Deref;

/// An area over anonymous memory, unmapped when dropped.
pub(crate) struct Mapping {
    area: Area,
    len: usize,
}

impl Mapping {
    pub(crate) fn new(len: usize, processes: u32) -> Mapping {
        let base = map(len);
        // SAFETY: fresh zeroed pages, mapped until the value is dropped.
        let area = unsafe { Area::format(base, len, processes) }.unwrap();
        Mapping { area, len }
    }

    /// All of its bytes.
    pub(crate) fn save(&self) -> Vec<u8> {
        // SAFETY: mapped with this length; nobody writes to it meanwhile.
        unsafe { core::slice::from_raw_parts(self.area.base.as_ptr(), self.len) }.to_vec()
    }

    /// Everything is as it was saved. Nobody uses the area.
    pub(crate) fn restore(&self, saved: &[u8]) {
        assert_eq!(saved.len(), self.len);
        // SAFETY: mapped with this length, and another memory than `saved`.
        unsafe { self.area.base.as_ptr().copy_from_nonoverlapping(saved.as_ptr(), self.len) };
    }

    /// The same area at another address, as another process would see it.
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

/// The free blocks: (page, order), and that lists, bytes, bits and count agree about them.
fn free_blocks(area: &Area) -> BTreeMap<u32, u32> {
    let header = area.header();
    let (first, pages) = (header.first.load(Relaxed), header.pages.load(Relaxed));
    let marked: BTreeMap<u32, u32> = (first..pages)
        .filter_map(|page| match area.meta(page).load(Relaxed) {
            0 => None,
            byte => Some((page, u32::from(byte) - 1)),
        })
        .collect();
    let mut listed = BTreeMap::new();
    for order in 0..ORDERS as u32 {
        let mut page = header.buddy.head[order as usize].load(Relaxed);
        assert_eq!(page != 0, header.buddy.nonempty.load(Relaxed) >> order & 1 == 1);
        let mut prev = 0;
        while page != 0 {
            assert_eq!(area.link(page).prev.load(Relaxed), prev);
            assert!(page.is_multiple_of(1 << order));
            listed.insert(page, order);
            prev = page;
            page = area.link(page).next.load(Relaxed);
        }
    }
    assert_eq!(marked, listed);
    let total: u32 = marked.values().map(|order| 1 << order).sum();
    assert_eq!(total, header.buddy.free_pages.load(Relaxed));
    marked
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
    #[test]
    fn runs_never_overlap_and_coalesce(
        pages in 20usize..400,
        steps in prop::collection::vec((any::<bool>(), any::<usize>(), 1usize..80_000), 1..120),
    ) {
        let area = Mapping::new(pages * PAGE + 123, 3);
        let (start, blocks) = (area.usage(), free_blocks(&area));
        let mut runs: BTreeMap<Ref, usize> = BTreeMap::new();
        for (alloc, pick, bytes) in steps {
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
            free_blocks(&area);
        }
        for (r, bytes) in runs {
            check(&area, r, bytes);
            area.free_pages(r, bytes);
        }
        prop_assert_eq!(area.usage(), start);
        prop_assert_eq!(free_blocks(&area), blocks);
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
        assert_eq!(area.alloc_pages(bytes), Err(OutOfMemory { requested: bytes }));
    }
}

#[test]
fn bad_memory_is_refused() {
    let base = map(16 * PAGE);
    // SAFETY: zeroed pages; a failing call leaves them alone.
    unsafe {
        let odd = NonNull::new(base.as_ptr().add(64)).unwrap();
        assert_eq!(Area::format(odd, PAGE, 1).err(), Some(AreaError::Misaligned));
        assert_eq!(Area::attach(odd).err(), Some(AreaError::Misaligned));
        assert_eq!(Area::attach(base).err(), Some(AreaError::Unrecognized));
        assert_eq!(Area::format(base, 0, 1).err(), Some(AreaError::TooSmall));
        assert_eq!(Area::format(base, 16 * PAGE, 1000).err(), Some(AreaError::TooSmall));
        assert_eq!(Area::format(base, MAX_LEN + 1, 1).err(), Some(AreaError::TooLarge));
        let area = Area::format(base, 16 * PAGE, 4).unwrap();
        assert_eq!(Area::attach(base).unwrap().usage(), area.usage());
        libc::munmap(base.as_ptr().cast(), 16 * PAGE);
    }
}
