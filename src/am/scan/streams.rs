//! Rows of an index with an element column: they have many entries, and conditions that several
//! entries of a row fulfil together.
//!
//! Each group of elements (see `key::elements`) is a stream of entries. With one group its TIDs are
//! the answer. With several groups a row must be in all. The streams are read in turn until the
//! shortest ends, which costs about the rarest condition times their number. Its rows are the
//! candidates. Each further stream is read on as long as that is cheaper than looking up the
//! candidates one by one.
//!
//! While a row's entries are being published, some are found and others are not. The row belongs to
//! a statement that has not ended, so no MVCC snapshot sees it. A constraint check reads with a
//! dirty snapshot. It begins after the last entry of its own row is published. So of two writers
//! one sees all entries of the other.

use std::cell::RefCell;

use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Index, MOST_OF_LEAF, Process, Rest, Tid};

use pgrx::pg_sys::IndexScanDesc;
use pgrx::prelude::*;

use super::tids;
use crate::am::quals::{Plan, Range};
use crate::am::work::Work;
use crate::key::KeyDesc;
use crate::key::columns::MOST;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::memory;
use crate::pg::wait::PATIENCE;
use crate::state::handle::with_order;

/// Entries that can be read in the time of one look-up.
const PROBE: usize = 16;
/// Combinations of values up to which candidates are looked up.
const PROBED_KEYS: usize = 4;

/// The source of all streams of a scan.
pub struct Reader<'a> {
    pub desc: &'a KeyDesc,
    pub process: &'a Process,
    pub engine: Index,
    /// The scan's term.
    pub sn: u32,
    pub work: &'a Work,
    /// The rest of a leaf on its way to a stream. Allocated when a leaf first has more entries than
    /// a batch.
    pub rest: RefCell<Option<Box<[Tid; MOST_OF_LEAF]>>>,
}

/// The entries of one group, in index order.
struct Stream {
    plan: Plan,
    at: Vec<usize>,
    range: Range,
    cursor: Cursor,
    /// Where the last entry that failed a filter says to go on.
    target: Option<Vec<u8>>,
    /// TIDs that were read and not taken yet.
    tids: Vec<Tid>,
}

impl Stream {
    /// The streams of a plan, at least one.
    fn all(reader: &Reader, plan: &mut Plan) -> Vec<Stream> {
        let mut streams = Vec::new();
        for part in plan.by_group(reader.desc) {
            crate::pg::wait::interrupts();
            memory::check();
            memory::reserve(&mut streams, 1);
            streams.push(Stream::new(reader, part));
        }
        streams
    }

    fn new(reader: &Reader, plan: Plan) -> Stream {
        let mut stream = Stream {
            at: Vec::new(),
            range: Range::default(),
            cursor: Cursor::new(plan.has_filters()),
            target: None,
            tids: Vec::new(),
            plan,
        };
        stream.plan.first(&mut stream.at, true);
        stream.open(reader);
        stream
    }

    fn open(&mut self, reader: &Reader) {
        self.plan.range(&self.at, &mut self.range);
        self.cursor.set_range(&self.range.lower, self.range.upper(), reader.sn);
        self.target = None;
    }

    /// Reads some more entries; false at the end.
    fn more(&mut self, reader: &Reader) -> bool {
        loop {
            crate::pg::wait::interrupts();
            memory::check();
            if let Some(target) = self.target.take() {
                self.cursor.jump(&target);
            }
            let n = with_order!(reader.desc, order =>
                self.cursor.next_within(PATIENCE, reader.process, reader.engine, order));
            let Some(n) = n else { continue };
            reader.work.add(n);
            if n == 0 {
                let beyond = self.cursor.beyond();
                if !self.plan.advance(reader.desc, &mut self.at, beyond, true) {
                    return false;
                }
                self.open(reader);
                continue;
            }
            memory::reserve(&mut self.tids, n);
            if !self.plan.has_filters() {
                self.tids.extend_from_slice(self.cursor.tids());
                return true;
            }
            let before = self.tids.len();
            for i in 0..n {
                if self.plan.passes(reader.desc, self.cursor.key(i)) {
                    self.tids.push(self.cursor.tid(i));
                }
            }
            // As in a scan: where some pass the next ones are read.
            if self.tids.len() == before {
                let (ends, mut target) = ([0, n - 1].map(|i| self.cursor.key(i)), Vec::new());
                let jumps = self.plan.target(reader.desc, ends, true, &mut target);
                self.target = jumps.then_some(target);
            }
            return true;
        }
    }

    /// Reads more entries, and the rest of the leaf of the last ones. For a reader of one stream
    /// alone, which needs all of them.
    fn more_of_leaf(&mut self, reader: &Reader) -> bool {
        if !self.more(reader) {
            return false;
        }
        if self.plan.has_filters() || self.cursor.len() < MOST {
            return true;
        }
        let mut tids = reader.rest.borrow_mut();
        let tids = tids.get_or_insert_with(|| Box::new([0; MOST_OF_LEAF]));
        let mut rest = Rest { tids, segments: None };
        let n = with_order!(reader.desc, order =>
            self.cursor.rest_of_leaf(true, &[], reader.process, reader.engine, order, &mut rest));
        reader.work.add(n);
        memory::reserve(&mut self.tids, n);
        self.tids.extend_from_slice(&tids[..n]);
        true
    }

    /// Reads the stream to its end. The same TID may come more than once.
    fn drain(&mut self, reader: &Reader, mut f: impl FnMut(&[Tid])) {
        loop {
            f(&self.tids);
            self.tids.clear();
            if !self.more_of_leaf(reader) {
                return;
            }
        }
    }

    /// Keeps the candidates that are in this stream.
    fn retain(mut self, reader: &Reader, candidates: &mut Vec<Tid>) {
        let mut found = Vec::new();
        memory::resize(&mut found, candidates.len(), false);
        let keys = match reader.desc.is_memcmp() {
            true => self.plan.keys(reader.desc, PROBED_KEYS),
            false => None,
        };
        let enough = keys.as_ref().map_or(usize::MAX, |keys| candidates.len() * keys.len() * PROBE);
        let (mut read, mut ended) = (0, false);
        while !ended && read < enough {
            tids::mark(&self.tids, candidates, &mut found);
            read += self.tids.len();
            self.tids.clear();
            ended = !self.more(reader);
        }
        let keys = keys.filter(|_| !ended).unwrap_or_default();
        let mut i = 0;
        candidates.retain(|tid| {
            if i % 1024 == 0 {
                crate::pg::wait::interrupts();
            }
            i += 1;
            found[i - 1]
                || keys.iter().any(|key| {
                    reader.engine.contains(reader.process, &nitro_engine::Memcmp, key, *tid)
                })
        });
    }
}

/// The TIDs that are in all streams, sorted. The streams come back if more than `limit` TIDs would
/// have to be held.
fn intersection(
    reader: &Reader,
    mut streams: Vec<Stream>,
    limit: usize,
) -> Result<Vec<Tid>, Vec<Stream>> {
    let rarest = 'rarest: loop {
        for (i, stream) in streams.iter_mut().enumerate() {
            if !stream.more(reader) {
                break 'rarest i;
            }
        }
        if streams.iter().map(|stream| stream.tids.len()).sum::<usize>() > limit {
            return Err(streams);
        }
    };
    let mut candidates = streams.swap_remove(rarest).tids;
    tids::sort(&mut candidates);
    for stream in streams {
        stream.retain(reader, &mut candidates);
    }
    Ok(candidates)
}

/// The rows of a plan, each once. Takes the plan's groups.
pub fn rows(reader: &Reader, plan: &mut Plan) -> Vec<Tid> {
    let mut streams = Stream::all(reader, plan);
    let [only] = &mut streams[..] else {
        return intersection(reader, streams, usize::MAX).unwrap_or_default();
    };
    let mut rows = Vec::new();
    only.drain(reader, |tids| {
        memory::reserve(&mut rows, tids.len());
        rows.extend_from_slice(tids);
    });
    tids::sort(&mut rows);
    rows
}

/// Gives the rows of a plan away, each once, some at a time. False, and none was: more than `limit`
/// would have to be held. Takes the plan's groups.
pub fn each(reader: &Reader, plan: &mut Plan, limit: usize, mut f: impl FnMut(&[Tid])) -> bool {
    let mut streams = Stream::all(reader, plan);
    let [only] = &mut streams[..] else {
        let rows = intersection(reader, streams, limit);
        return rows.map(|rows| f(&rows)).is_ok();
    };
    // The entries of one key are of as many rows, in order.
    let one_key = !only.plan.has_filters()
        && reader.desc.is_memcmp()
        && only.plan.keys(reader.desc, 1).is_some();
    if one_key {
        only.drain(reader, f);
        return true;
    }
    while only.more_of_leaf(reader) {
        if only.tids.len() > limit {
            return false;
        }
    }
    tids::sort(&mut only.tids);
    f(&only.tids);
    true
}

/// Adds the rows of a plan before `end` to a bitmap, which keeps each once. Returns how many were
/// added. Takes the plan's groups.
///
/// # Safety
/// `bitmap` must be a live bitmap.
pub unsafe fn fill(
    reader: &Reader,
    plan: &mut Plan,
    bitmap: *mut pg_sys::TIDBitmap,
    end: Tid,
) -> i64 {
    let lossy = plan.lossy;
    let mut total = 0;
    let mut buffer = Vec::new();
    // SAFETY: by contract; bitmaps of our own are freed, by abort if an ERROR comes.
    unsafe {
        let mut add = |to, tids: &[Tid]| {
            buffer.clear();
            memory::reserve(&mut buffer, tids.len());
            let before_end = tids.iter().filter(|&&tid| tid < end);
            buffer.extend(before_end.map(|&tid| compat::u64_to_tid(tid)));
            pg_sys::tbm_add_tuples(to, buffer.as_mut_ptr(), buffer.len() as i32, lossy);
            total += buffer.len() as i64;
        };
        let mut streams = Stream::all(reader, plan);
        if let [only] = &mut streams[..] {
            only.drain(reader, |tids| add(bitmap, tids));
            return total;
        }
        let bytes = pg_sys::work_mem as usize * 1024;
        match intersection(reader, streams, bytes / size_of::<Tid>()) {
            Ok(rows) => rows.chunks(tids::STEP).for_each(|tids| {
                crate::pg::wait::interrupts();
                add(bitmap, tids);
            }),
            Err(streams) => {
                // Too many to hold: bitmaps become coarse instead of large.
                let mut common: *mut pg_sys::TIDBitmap = std::ptr::null_mut();
                for mut stream in streams {
                    let one = compat::tbm_create(bytes);
                    stream.drain(reader, |tids| add(one, tids));
                    if common.is_null() {
                        common = one;
                    } else {
                        pg_sys::tbm_intersect(common, one);
                        pg_sys::tbm_free(one);
                    }
                }
                pg_sys::tbm_union(bitmap, common);
                pg_sys::tbm_free(common);
            }
        }
    }
    total
}

/// CLUSTER alone reads rows of every age by an index. It would find those of an element column in
/// no order.
pub(super) unsafe fn refuse_cluster(scan: IndexScanDesc) {
    // SAFETY: the server's descriptor.
    unsafe {
        let snapshot = (*scan).xs_snapshot;
        if !snapshot.is_null() && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_ANY {
            let name = compat::name((*scan).indexRelation);
            Failure::new(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("cannot cluster on index \"{name}\""),
            )
            .detail(
                "The index has an entry for each element of a row, so it defines no order of rows.",
            )
            .raise();
        }
    }
}
