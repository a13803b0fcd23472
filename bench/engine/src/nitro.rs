//! nitro-engine, in one anonymous shared mapping as in a server.

use crate::engine::{Engine, Thread};
use crate::keys::Key;
use nitro_engine::prelude::*;
use nitro_engine::{
    Area, Backing, Builder, Cursor, Index, IndexOptions, Memcmp, Process, Sweep, Swept,
};
use std::ptr::NonNull;

/// What readers of the present ask for.
const CURRENT: u32 = u32::MAX - 1;

/// Bytes of a key.
const LONGEST: usize = 128;

pub struct Nitro {
    area: Area,
    index: Index,
    /// The last to be dropped: leaving a process slot still writes there.
    _room: Room,
}

/// A process of the area.
pub struct Attached {
    process: Process,
    index: Index,
    cursor: Cursor,
}

/// The mapping of an area.
pub struct Room {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: a shared one gives nothing away.
unsafe impl Sync for Room {}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, whose users have gone.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

impl Room {
    /// An area for so many processes, and where it is. It is used only as long as that lives.
    pub fn with_area(len: usize, processes: u32) -> (Area, Room) {
        let room = Room::new(Area::mapped(len));
        // SAFETY: a zeroed, page-aligned mapping of the length that such an area needs.
        let area = unsafe { Area::format(room.at, len, processes, &Backing::MAPPED) };
        (area.expect("an area"), room)
    }

    /// A zeroed mapping that takes memory when it is touched: shared, as in a server. With `HUGE=1`
    /// private and in huge pages, which the kernel seldom gives to shared memory.
    fn new(len: usize) -> Room {
        use libc::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
        let sharing = if crate::huge_pages() { MAP_PRIVATE } else { MAP_SHARED };
        let flags = sharing | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: a new mapping.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), len, PROT_READ | PROT_WRITE, flags, -1, 0) };
        assert!(map != libc::MAP_FAILED, "no room for {len} bytes");
        if crate::huge_pages() {
            // SAFETY: the mapping just made.
            let failed = unsafe { libc::madvise(map, len, libc::MADV_HUGEPAGE) };
            assert!(failed == 0, "the kernel has no huge pages");
        }
        Room { at: NonNull::new(map.cast()).expect("not null"), len }
    }
}

/// Threads that use one area.
const THREADS: u32 = 16;

impl<K: Key> Engine<K> for Nitro {
    type Thread<'a> = Attached;

    fn new(n: u64) -> Self {
        let key_len = K::of(0).bytes().as_ref().len();
        let len = (n as usize * (80 + 2 * (key_len - 8)) + (64 << 20)).next_multiple_of(2 << 20);
        let (area, room) = Room::with_area(len, THREADS);
        // SAFETY: the only user of the area.
        let process = unsafe { Process::attach(area, 0) };
        let options = IndexOptions { fillfactor: 100, key_len_hint: key_len as u32 };
        let index = Index::create(&process, &options).expect("room for the root");
        Nitro { area, index, _room: room }
    }

    fn thread(&self, number: u32) -> Attached {
        assert!(number < THREADS);
        // SAFETY: of the threads none has the number of another.
        let process = unsafe { Process::attach(self.area, number) };
        Attached { process, index: self.index, cursor: Cursor::new(false) }
    }

    fn build(sorted: &[(K, u64)]) -> Option<Self> {
        let e = <Self as Engine<K>>::new(sorted.len() as u64);
        let Attached { process, index, .. } = Engine::<K>::thread(&e, 0);
        let mut builder = Builder::new(&process, index);
        for (key, tid) in sorted {
            builder.push(&Memcmp, key.bytes().as_ref(), *tid).expect("sorted entries");
        }
        let chain = builder.finish().expect("room for the last nodes");
        nitro_engine::adopt(&index, &process, vec![chain]).expect("an empty index");
        drop(process);
        Some(e)
    }
}

impl Attached {
    /// Sum of what the cursor has.
    fn sum(&self, n: usize) -> u64 {
        (0..n).fold(0, |sum, i| sum.wrapping_add(self.cursor.tid(i)))
    }
}

impl<K: Key> Thread<K> for Attached {
    #[inline]
    fn insert(&mut self, key: K, tid: u64) {
        let key = key.bytes();
        self.index.insert(&self.process, &Memcmp, key.as_ref(), tid).expect("room for the entry");
    }

    /// By a cursor over the range of one key, as a scan of the access method does it.
    #[inline]
    fn get(&mut self, key: &K) -> Option<u64> {
        let key = key.bytes();
        let key = key.as_ref();
        let mut above = [0; LONGEST + 1];
        above[..key.len()].copy_from_slice(key);
        self.cursor.set_range(key, Some(&above[..=key.len()]), CURRENT);
        let n = self.cursor.next(&self.process, self.index, &Memcmp);
        (n > 0).then(|| self.cursor.tid(0))
    }

    fn scan(&mut self) -> (u64, u64) {
        self.cursor.set_range(&[], None, CURRENT);
        let (mut n, mut sum) = (0, 0u64);
        loop {
            let batch = self.cursor.next(&self.process, self.index, &Memcmp);
            if batch == 0 {
                return (n, sum);
            }
            n += batch as u64;
            sum = sum.wrapping_add(self.sum(batch));
        }
    }

    fn scan_back(&mut self) -> (u64, u64) {
        self.cursor.set_range(&[], None, CURRENT);
        let (mut n, mut sum) = (0, 0u64);
        loop {
            let batch = self.cursor.prev(&self.process, self.index, &Memcmp);
            if batch == 0 {
                return (n, sum);
            }
            n += batch as u64;
            sum = (0..batch).rev().fold(sum, |sum, i| sum.wrapping_add(self.cursor.tid(i)));
        }
    }

    #[inline]
    fn seek(&mut self, key: &K, n: usize) -> u64 {
        self.cursor.set_range(key.bytes().as_ref(), None, CURRENT);
        let (mut seen, mut sum) = (0, 0u64);
        while seen < n {
            let batch = self.cursor.next(&self.process, self.index, &Memcmp).min(n - seen);
            if batch == 0 {
                break;
            }
            seen += batch;
            sum = sum.wrapping_add(self.sum(batch));
        }
        sum
    }

    fn pack(&mut self) -> bool {
        let mut sweep = Sweep::new(&self.process, self.index);
        while sweep.next_leaves(1000) == Swept::More {}
        self.index.collect_in_steps(&self.process, 1000, || ());
        true
    }
}
