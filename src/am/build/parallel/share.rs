//! The work of each process of a parallel build, and the state that all share.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use nitro_engine::{BuildError, Builder, Chain, ChainName, Index, KeyOrder, OutOfMemory};
use pgrx::pg_sys::{Relation, shm_toc};
use pgrx::prelude::*;

use super::super::{Collector, PHASE_LOAD, lack, progress};
use crate::am::unique::Neighbours;
use crate::key::KeyDesc;
use crate::key::buckets::{self, Splitting, Writer};
use crate::key::sort::Sorter;
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::pg::{compat, guc, memory};
use crate::state::handle::with_order;
use crate::state::nesting;
use crate::state::shmem;

/// The parts of a build's shared memory.
#[repr(u64)]
#[derive(Clone, Copy)]
pub(super) enum Part {
    Shared = 1,
    Scan,
    Splitters,
    Shards,
    Usage,
    Query,
}

/// The state that all processes of a build share.
#[repr(C)]
pub(super) struct Shared {
    pub(super) heap: pg_sys::Oid,
    pub(super) index: pg_sys::Oid,
    pub(super) concurrent: bool,
    /// Whether the scan of the table has a snapshot.
    pub(super) by_snapshot: bool,
    /// Whether keys are looked at that are equal.
    pub(super) looks: bool,
    /// The engine index.
    pub(super) root: u32,
    /// Workers that were asked for. Each has its number; that of the leader comes after theirs.
    pub(super) workers: usize,
    pub(super) shards: usize,
    pub(super) splitters: usize,
    pub(super) files: UnsafeCell<pg_sys::SharedFileSet>,
    /// For processes that wait until all have read the table.
    pub(super) waiting: UnsafeCell<pg_sys::ConditionVariable>,
    /// How many take part, the leader too; 0 as long as that is not known.
    pub(super) processes: AtomicU32,
    /// How many have read the table.
    pub(super) scanned: AtomicU32,
    /// The next shard that no process has taken.
    pub(super) next: AtomicU32,
    pub(super) rows: AtomicU64,
    pub(super) entries: AtomicU64,
    pub(super) loaded: AtomicU64,
    pub(super) broken_hot_chain: AtomicBool,
    /// The part of `rows` and of the shards that workers did.
    pub(super) rows_of_workers: AtomicU64,
    pub(super) shards_of_workers: AtomicU32,
    /// A process found no memory for the index.
    pub(super) refused: AtomicBool,
    /// and the first of them writes why.
    pub(super) lacking: AtomicBool,
    pub(super) lack: UnsafeCell<MaybeUninit<OutOfMemory>>,
}

/// The result of a shard. The process that took it writes it. It is read when all have ended.
#[repr(C)]
pub(super) struct Shard {
    first: AtomicU32,
    leaves: AtomicU32,
    entries: AtomicU64,
    done: AtomicBool,
}

/// The usage of a process, for the statistics of statements.
pub(super) type Usage = (pg_sys::BufferUsage, pg_sys::WalUsage);

/// A part of the shared memory.
pub(super) unsafe fn find<T>(toc: *mut shm_toc, part: Part) -> *mut T {
    // SAFETY: made by `Begun::new`.
    unsafe { pg_sys::shm_toc_lookup(toc, part as u64, false).cast() }
}

impl Shard {
    fn set(&self, name: ChainName) {
        self.first.store(name.first, Relaxed);
        self.leaves.store(name.leaves, Relaxed);
        self.entries.store(name.entries, Relaxed);
        self.done.store(true, Release);
    }

    /// Returns the name of its chain, if it was built.
    pub(super) fn name(&self) -> Option<ChainName> {
        let (first, leaves) = (self.first.load(Relaxed), self.leaves.load(Relaxed));
        let name = ChainName { first, leaves, entries: self.entries.load(Relaxed) };
        self.done.load(Acquire).then_some(name)
    }
}

/// One process of a build.
pub(super) struct Share<'a, O: KeyOrder> {
    pub(super) shared: &'a Shared,
    scan: pg_sys::ParallelTableScanDesc,
    pub(super) shards: &'a [Shard],
    splitting: Splitting<'a, O>,
    heap: Relation,
    index: Relation,
    desc: &'a KeyDesc,
    order: &'a O,
    /// The leader has no number of a worker.
    leads: bool,
    number: usize,
}

impl<'a, O: KeyOrder> Share<'a, O> {
    /// # Safety
    /// The relations of the build to which the shared memory belongs, which stays as long as this.
    pub(super) unsafe fn new(
        toc: *mut shm_toc,
        heap: Relation,
        index: Relation,
        desc: &'a KeyDesc,
        order: &'a O,
    ) -> Self {
        // SAFETY: by contract; the parts have these types and sizes, and change by atomics alone.
        unsafe {
            let shared = &*find::<Shared>(toc, Part::Shared);
            let splitters =
                std::slice::from_raw_parts(find(toc, Part::Splitters), shared.splitters);
            let worker = pg_sys::ParallelWorkerNumber;
            Share {
                shared,
                scan: find(toc, Part::Scan),
                shards: std::slice::from_raw_parts(find(toc, Part::Shards), shared.shards),
                splitting: Splitting::new(order, splitters),
                heap,
                index,
                desc,
                order,
                leads: worker < 0,
                number: usize::try_from(worker).unwrap_or(shared.workers),
            }
        }
    }

    fn files(&self) -> *mut pg_sys::FileSet {
        // SAFETY: made before there was a worker; the server locks what in it changes.
        unsafe { &raw mut (*self.shared.files.get()).fs }
    }

    /// Reads what comes to this process of the table.
    pub(super) unsafe fn scan(&self, info: *mut pg_sys::IndexInfo) {
        stop::at(Point::ShareBegun);
        let shared = self.shared;
        let mut entries = 0;
        // SAFETY: by the contract of `new`; numbers differ, and the set stays as long as the shared
        // memory.
        let rows = unsafe {
            let mut writer = Writer::new(self.files(), self.number, self.shards.len());
            let mut put = |key: &[u8], tid| {
                writer.put(self.splitting.of(key, tid), key, tid);
                entries += 1;
            };
            let scan = compat::begin_parallel_scan(self.heap, self.scan);
            let mut collector = Collector::new(self.desc, self.index, &mut put);
            let rows = collector.scan(self.heap, info, shared.by_snapshot, self.leads, scan) as u64;
            writer.finish();
            shared.broken_hot_chain.fetch_or((*info).ii_BrokenHotChain, Relaxed);
            rows
        };
        shared.rows.fetch_add(rows, Relaxed);
        shared.entries.fetch_add(entries, Relaxed);
        if !self.leads {
            shared.rows_of_workers.fetch_add(rows, Relaxed);
        }
        stop::at(Point::ShareScanned);
        shared.scanned.fetch_add(1, AcqRel);
        // SAFETY: initialized.
        unsafe { pg_sys::ConditionVariableBroadcast(shared.waiting.get()) };
    }

    /// Waits until all have.
    pub(super) fn wait(&self) {
        let shared = self.shared;
        // SAFETY: initialized. The first sleep only adds this process to the processes that are
        // woken.
        unsafe {
            loop {
                let processes = shared.processes.load(Acquire);
                if processes != 0 && shared.scanned.load(Acquire) == processes {
                    break;
                }
                wait::sleep_on(Wait::ParallelBuild, shared.waiting.get());
            }
            pg_sys::ConditionVariableCancelSleep();
        }
    }

    /// Builds shards as long as there are any.
    pub(super) unsafe fn load(&self) {
        let shared = self.shared;
        if self.leads {
            progress(pg_sys::PROGRESS_CREATEIDX_SUBPHASE, PHASE_LOAD);
        }
        while !shared.refused.load(Relaxed) {
            let number = shared.next.fetch_add(1, Relaxed) as usize;
            let Some(shard) = self.shards.get(number) else { break };
            // SAFETY: all have written their files, and this shard is ours; open relations.
            unsafe {
                match self.build(number).map_err(|e| lack(e, self.index, self.desc)) {
                    Ok(chain) => shard.set(chain.name()),
                    Err(e) => {
                        if !shared.lacking.swap(true, Relaxed) {
                            (*shared.lack.get()).write(e);
                            shared.refused.store(true, Release);
                        }
                        break;
                    }
                }
            }
            if !self.leads {
                shared.shards_of_workers.fetch_add(1, Relaxed);
            }
        }
    }

    /// Sorts a shard and makes leaves of it.
    unsafe fn build(&self, number: usize) -> Result<Chain, BuildError> {
        const STEP: u64 = 1 << 16;
        let shared = self.shared;
        // All processes of the build share its memory.
        let budget = guc::maintenance_work_mem() / shared.processes.load(Relaxed) as usize;
        let mut sorter = Sorter::new(self.desc, self.order, budget);
        let process = shmem::process();
        // SAFETY: by contract; the root is that of the leader's index, which is there until the
        // workers have ended.
        let engine = unsafe {
            let put = |key: &[u8], tid| sorter.push(key, tid);
            buckets::read(self.files(), shared.workers + 1, number, put);
            Index::open(process.area(), shared.root)
        };
        stop::at(Point::ShareSorted);
        let mut builder = Builder::new(process, engine);
        let mut n = 0;
        let tell = |n| {
            let loaded = shared.loaded.fetch_add(n, Relaxed) + n;
            if self.leads {
                progress(pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, loaded as i64);
            }
        };
        // SAFETY: open relations.
        let neighbours = || unsafe { Neighbours::new(self.heap, self.index, self.desc) };
        let mut neighbours = shared.looks.then(neighbours);
        sorter.try_drain::<BuildError>(|key, tid| {
            if let Some(neighbours) = &mut neighbours {
                // SAFETY: in the transaction of the build; the builder holds nothing between two
                // calls.
                unsafe { neighbours.add(key, tid) };
            }
            builder.push(self.order, key, tid)?;
            memory::check();
            n += 1;
            if n == STEP {
                wait::interrupts();
                tell(std::mem::take(&mut n));
            }
            Ok(())
        })?;
        tell(n);
        builder.finish()
    }
}

/// Entry point of a worker.
///
/// # Safety
/// Called by the server in a parallel worker whose context was made by `Begun::new`.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nitro_build_worker(
    segment: *mut pg_sys::dsm_segment,
    toc: *mut shm_toc,
) {
    crate::pg::witness!();
    nesting::help();
    // SAFETY: by contract. The leader has these locks, so they are had at once.
    unsafe {
        pg_sys::debug_query_string = find(toc, Part::Query);
        let running = pg_sys::BackendState::STATE_RUNNING;
        pg_sys::pgstat_report_activity(running, pg_sys::debug_query_string);
        let shared = &*find::<Shared>(toc, Part::Shared);
        let (table_lock, index_lock) = match shared.concurrent {
            true => (pg_sys::ShareUpdateExclusiveLock, pg_sys::RowExclusiveLock),
            false => (pg_sys::ShareLock, pg_sys::AccessExclusiveLock),
        };
        let heap = pg_sys::table_open(shared.heap, table_lock as i32);
        let index = pg_sys::index_open(shared.index, index_lock as i32);
        pg_sys::SharedFileSetAttach(shared.files.get(), segment);
        let info = pg_sys::BuildIndexInfo(index);
        (*info).ii_Concurrent = shared.concurrent;
        let desc = KeyDesc::for_index(index);
        pg_sys::InstrStartParallelQuery();
        with_order!(desc, order => {
            let share = Share::new(toc, heap, index, &desc, order);
            share.scan(info);
            share.wait();
            share.load();
        });
        let usage = find::<Usage>(toc, Part::Usage).add(pg_sys::ParallelWorkerNumber as usize);
        pg_sys::InstrEndParallelQuery(&raw mut (*usage).0, &raw mut (*usage).1);
        pg_sys::index_close(index, index_lock as i32);
        pg_sys::table_close(heap, table_lock as i32);
    }
}
