//! nitro-engine, in one anonymous shared mapping as in a server.

use crate::engine::{Engine, GROUP};
use nitro_engine::{Area, Backing, Builder, Cursor, Index, IndexOptions, Memcmp, Process};
use std::ptr::NonNull;

/// What readers of the present ask for.
const CURRENT: u32 = u32::MAX - 1;

/// Keys of 8 bytes, big endian; with `MARKER` 9 bytes: as the access method stores large integers.
pub struct Nitro<const MARKER: bool> {
    process: Process,
    index: Index,
    cursor: Cursor,
    /// The last to be dropped: leaving the process slot still writes there.
    _room: Room,
}

struct Room {
    at: NonNull<u8>,
    len: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, whose users have gone.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

struct Bytes {
    bytes: [u8; 9],
    from: usize,
}

impl Bytes {
    #[inline]
    fn get(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

#[inline]
fn encode<const MARKER: bool>(key: u64) -> Bytes {
    let mut bytes = [0xc8; 9];
    bytes[1..].copy_from_slice(&key.to_be_bytes());
    Bytes { bytes, from: usize::from(!MARKER) }
}

impl Room {
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

impl<const MARKER: bool> Engine for Nitro<MARKER> {
    fn new(n: u64) -> Self {
        let len = (n as usize * 80 + (64 << 20)).next_multiple_of(2 << 20);
        let room = Room::new(Area::mapped(len));
        // SAFETY: a zeroed, page-aligned mapping of the length that such an area needs.
        let area = unsafe { Area::format(room.at, len, 8, &Backing::MAPPED) }.expect("an area");
        // SAFETY: the only user of the area.
        let process = unsafe { Process::attach(area, 0) };
        let options = IndexOptions { fillfactor: 100, key_len_hint: 8 + u32::from(MARKER) };
        let index = Index::create(&process, &options).expect("room for the root");
        Nitro { process, index, cursor: Cursor::new(false), _room: room }
    }

    #[inline]
    fn insert(&mut self, key: u64, tid: u64) {
        let key = encode::<MARKER>(key);
        self.index.insert(&self.process, &Memcmp, key.get(), tid).expect("room for the entry");
    }

    /// By a cursor over the range of one key, as a scan of the access method does it.
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        let key = encode::<MARKER>(key);
        let mut above = [0; 10];
        let above = &mut above[..=key.get().len()];
        above[..key.get().len()].copy_from_slice(key.get());
        self.cursor.set_range(key.get(), Some(above), CURRENT);
        let n = self.cursor.next(&self.process, self.index, &Memcmp);
        (n > 0).then(|| self.cursor.tid(0))
    }

    #[inline]
    fn get_group(&mut self, keys: &[u64; GROUP]) -> usize {
        let keys = keys.map(encode::<MARKER>);
        let keys: [&[u8]; GROUP] = std::array::from_fn(|i| keys[i].get());
        let mut found = 0;
        self.index.lookup_batch(&self.process, &Memcmp, &keys, &mut |_, _| found += 1);
        found
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
            sum = (0..batch).fold(sum, |sum, i| sum.wrapping_add(self.cursor.tid(i)));
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
    fn seek(&mut self, key: u64, n: usize) -> u64 {
        let key = encode::<MARKER>(key);
        self.cursor.set_range(key.get(), None, CURRENT);
        let (mut seen, mut sum) = (0, 0u64);
        while seen < n {
            let batch = self.cursor.next(&self.process, self.index, &Memcmp).min(n - seen);
            if batch == 0 {
                break;
            }
            seen += batch;
            sum = (0..batch).fold(sum, |sum, i| sum.wrapping_add(self.cursor.tid(i)));
        }
        sum
    }

    fn build(sorted: &[(u64, u64)]) -> Option<Self> {
        let e = Self::new(sorted.len() as u64);
        let mut builder = Builder::new(&e.process, e.index);
        for &(key, tid) in sorted {
            builder.push(&Memcmp, encode::<MARKER>(key).get(), tid).expect("sorted entries");
        }
        let chain = builder.finish().expect("room for the last nodes");
        e.index.adopt(&e.process, vec![chain]).expect("an empty index");
        Some(e)
    }
}
