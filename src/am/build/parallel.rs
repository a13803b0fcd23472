//! CREATE INDEX and REINDEX with parallel workers.
//!
//! The leader looks at a sample of the table and cuts the range of keys into shards. It and the
//! workers share a scan of the table, and each writes its entries to files, one for every shard
//! (`key::buckets`). When all have read, each takes one shard after the other, sorts it, and makes
//! a chain of leaves of it. The leader adopts the chains in order. There is no merge, and all that
//! takes long is done by all; a sample that is wrong makes shards uneven, nothing else.
//!
//! An ERROR, cancel or end of one of them ends all. The server takes a worker's ERROR to the
//! leader. The abort of the leader ends the workers, and then frees the memory
//! (`Unfinished::set_workers`). Files go with the shared memory. A lack of memory for indexes is no
//! ERROR of a worker: the leader decides about the index.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering::*;

use nitro_engine::{Chain, ChainName, Index, KeyOrder};
use pgrx::pg_sys::ParallelContext;
use pgrx::prelude::*;

mod share;

use self::share::{Part, Shard, Share, Shared, Usage, find};
use super::{Collector, Job, Outcome, PHASE_SCAN, progress, reads_by_snapshot};
use crate::key::buckets::Splitters;
use crate::key::sort::Sorter;
use crate::pg::{compat, guc, memory, wait};
use crate::state::shmem;

/// Shards for each process. A process that gets large ones takes fewer.
const SHARDS: usize = 8;
/// Each process has a file for every shard.
const MOST_SHARDS: usize = 128;
/// Blocks of the sample for each shard.
const SAMPLE: u32 = 16;

/// Builds the index together with workers. Returns `None`, and does nothing, if one process must
/// build it: workers are not wanted, not allowed or not available, or there is no memory even for
/// an empty index.
///
/// # Safety
/// The relations and the description are those of a build that begins.
pub unsafe fn build<O: KeyOrder>(job: &Job<'_>, order: &O) -> Option<Outcome> {
    // SAFETY: by contract. The shared memory is used only while the context exists.
    unsafe {
        let workers = workers(job);
        if workers == 0 {
            return None;
        }
        progress(pg_sys::PROGRESS_CREATEIDX_SUBPHASE, PHASE_SCAN);
        // Equal keys are to be in one shard, where it is seen that they are.
        let looks = (*job.info).ii_Unique;
        let shards = ((workers + 1) * SHARDS).min(MOST_SHARDS);
        let (splitters, length) = sample(job, order, shards, looks);
        let unfinished = job.create(length).ok()?;
        let begun = Begun::new(job, unfinished.index(), workers, &splitters)?;
        unfinished.set_workers(true);
        pg_sys::LaunchParallelWorkers(begun.context);
        let launched = (*begun.context).nworkers_launched as u32;
        if launched == 0 {
            begun.end();
            unfinished.set_workers(false);
            return None;
        }
        let share = Share::new((*begun.context).toc, job.heap, job.index, &job.handle.desc, order);
        let shared = share.shared;
        shared.processes.store(launched + 1, Release);
        pg_sys::ConditionVariableBroadcast(shared.waiting.get());
        share.scan(job.info);
        // One that could not be started would be awaited for ever: this is the ERROR.
        pg_sys::WaitForParallelWorkersToAttach(begun.context);
        share.wait();
        let rows = shared.rows.load(Acquire);
        progress(pg_sys::PROGRESS_CREATEIDX_TUPLES_TOTAL, rows as i64);
        share.load();
        pg_sys::WaitForParallelWorkersToFinish(begun.context);
        for worker in 0..launched as usize {
            let usage: *mut Usage = find::<Usage>((*begun.context).toc, Part::Usage).add(worker);
            pg_sys::InstrAccumParallelQuery(&raw mut (*usage).0, &raw mut (*usage).1);
        }
        (*job.info).ii_BrokenHotChain |= shared.broken_hot_chain.load(Relaxed);
        let (entries, loaded) = (shared.entries.load(Relaxed), shared.loaded.load(Relaxed));
        pgrx::debug1!(
            "nitro index \"{}\": {launched} workers read {} of {rows} rows and loaded {} of {} shards",
            compat::name(job.index),
            shared.rows_of_workers.load(Relaxed),
            shared.shards_of_workers.load(Relaxed),
            share.shards.len()
        );
        let lack = shared.refused.load(Acquire).then(|| (*shared.lack.get()).assume_init());
        let mut names = Vec::new();
        memory::reserve(&mut names, share.shards.len());
        names.extend(share.shards.iter().map_while(Shard::name));
        let complete = names.len() == share.shards.len() && entries == loaded;
        drop(share);
        begun.end();
        unfinished.set_workers(false);
        match lack {
            // Not all rows have been looked at: one process does, whether there is memory or not.
            Some(_) if looks => return None,
            Some(e) => return Some((rows as f64, Err(job.fail(e.into())))),
            None => (),
        }
        // Not an assertion of tests: an index without some of its rows is the worst that can be.
        assert!(complete, "{entries} entries were collected and {loaded} loaded");
        progress(pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, loaded as i64);
        Some((
            rows as f64,
            adopt(job, unfinished.index(), &names).map(|()| (unfinished, loaded as i64)),
        ))
    }
}

/// Returns how many workers the server allows. Returns 0 in two further cases. Equal keys of a
/// unique index can have different bytes: they would not be in one shard. A comparison function is
/// not parallel safe: the server checks only expressions and predicates.
unsafe fn workers(job: &Job<'_>) -> usize {
    let Job { heap, index, info, handle } = *job;
    // SAFETY: open relations; the support functions are those of its key columns.
    unsafe {
        let is_safe = |column: usize, function: u16| {
            let function = pg_sys::index_getprocid(index, column as i16, function);
            function == pg_sys::InvalidOid
                || pg_sys::func_parallel(function) == pg_sys::PROPARALLEL_SAFE as c_char
        };
        let alone = (*info).ii_Unique && !handle.desc.keys_begin_with_bytes()
            // Where there is nothing to read, 15 and 16 are not asked whether they want workers:
            // for a TRUNCATE they do not.
            || super::is_empty(heap)
            || !(1..=handle.desc.nkeys)
                .all(|column| (1..=compat::SUPPORT_FUNCTIONS).all(|f| is_safe(column, f)));
        if alone { 0 } else { compat::build_workers(heap, index, info).max(0) as usize }
    }
}

/// Returns splitters for about this number of shards, and the average length of keys, from the rows
/// of some blocks. They are read as the whole table is: code of the index runs for no other rows.
/// `together`: equal keys are in one shard.
unsafe fn sample<O: KeyOrder>(
    job: &Job<'_>,
    order: &O,
    shards: usize,
    together: bool,
) -> (Splitters, u32) {
    let Job { heap, index, info, handle } = *job;
    let mut sorter = Sorter::new(&handle.desc, order, guc::maintenance_work_mem());
    // SAFETY: open relations, and the description of the index; the collector outlives the scans.
    unsafe {
        let blocks = compat::blocks(heap);
        let shards = shards as u32;
        let looked_at = (blocks / 16).clamp(shards, SAMPLE * shards).min(blocks);
        let mut put = |key: &[u8], tid| sorter.push(key, tid);
        let mut collector = Collector::new(&handle.desc, index, &mut put);
        for i in 0..looked_at {
            wait::interrupts();
            let block = (u64::from(blocks) * u64::from(i) / u64::from(looked_at)) as u32;
            pg_sys::table_index_build_range_scan(
                heap,
                index,
                info,
                false,
                false,
                false,
                block,
                1,
                Some(super::collect),
                (&raw mut collector).cast(),
                std::ptr::null_mut(),
            );
        }
    }
    let (length, entries) = (sorter.average_key_length(), sorter.entries());
    let mut splitters = Splitters::default();
    let (mut at, mut shard) = (0, 1);
    sorter.drain(|key, tid| {
        if at == entries * shard / shards as u64 {
            match together {
                // Below all that begin so.
                true => splitters.add(handle.desc.key_columns(key), 0),
                false => splitters.add(key, tid),
            }
            // Few entries make few shards.
            while at == entries * shard / shards as u64 && shard < shards as u64 {
                shard += 1;
            }
        }
        at += 1;
    });
    (splitters, length)
}

/// Makes the chains that the processes have built the content of the index.
unsafe fn adopt(
    job: &Job<'_>,
    engine: Index,
    names: &[ChainName],
) -> Result<(), super::LeftUnbuilt> {
    let mut chains = Vec::new();
    memory::reserve(&mut chains, names.len());
    // SAFETY: each was built for this index by a process that has ended, and is opened once.
    let all = names.iter().try_for_each(|&name| unsafe {
        chains.push(Chain::open(engine, name)?);
        Ok(())
    });
    let adopted = all.and_then(|()| nitro_engine::adopt(&engine, shmem::process(), chains));
    // SAFETY: open relations; the unfinished index is there.
    adopted.map_err(|e| unsafe { job.fail(e) })
}

/// Parallel mode with the shared memory of a build. An ERROR leaves both to the abort.
struct Begun {
    context: *mut ParallelContext,
    /// By which the table is read; null: the scan looks at all rows.
    snapshot: pg_sys::Snapshot,
}

impl Begun {
    /// `None` if there is no shared memory.
    unsafe fn new(
        job: &Job<'_>,
        engine: Index,
        workers: usize,
        splitters: &Splitters,
    ) -> Option<Begun> {
        // SAFETY: what the server documents (README.parallel), in its order; each part is made as
        // large as it is.
        unsafe {
            // After the sample: its code may have deleted rows that older snapshots show.
            let by_snapshot = reads_by_snapshot(job.heap, job.info);
            pg_sys::EnterParallelMode();
            let (library, function) = (c"nitro".as_ptr(), c"nitro_build_worker".as_ptr());
            let context = pg_sys::CreateParallelContext(library, function, workers as i32);
            let snapshot = match by_snapshot {
                true => pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot()),
                false => &raw mut pg_sys::SnapshotAnyData,
            };
            let begun = Begun {
                context,
                snapshot: if by_snapshot { snapshot } else { std::ptr::null_mut() },
            };
            let (splitters, shards) = (splitters.bytes(), splitters.buckets());
            let query = match pg_sys::debug_query_string {
                text if text.is_null() => c"",
                text => CStr::from_ptr(text),
            };
            let parts = [
                (Part::Shared, size_of::<Shared>()),
                (Part::Scan, pg_sys::table_parallelscan_estimate(job.heap, snapshot)),
                (Part::Splitters, splitters.len().max(1)),
                (Part::Shards, size_of::<Shard>() * shards),
                (Part::Usage, size_of::<Usage>() * workers),
                (Part::Query, query.count_bytes() + 1),
            ];
            for (_, size) in parts {
                let size = size.next_multiple_of(pg_sys::ALIGNOF_BUFFER as usize);
                let estimator = &mut (*context).estimator;
                estimator.space_for_chunks = pg_sys::add_size(estimator.space_for_chunks, size);
                estimator.number_of_keys = pg_sys::add_size(estimator.number_of_keys, 1);
            }
            pg_sys::InitializeParallelDSM(context);
            if (*context).seg.is_null() {
                begun.end();
                return None;
            }
            let toc = (*context).toc;
            for (part, size) in parts {
                let memory = pg_sys::shm_toc_allocate(toc, size);
                memory.cast::<u8>().write_bytes(0, size);
                pg_sys::shm_toc_insert(toc, part as u64, memory);
            }
            let scan: pg_sys::ParallelTableScanDesc = find(toc, Part::Scan);
            pg_sys::table_parallelscan_initialize(job.heap, scan, snapshot);
            find::<u8>(toc, Part::Splitters).copy_from(splitters.as_ptr(), splitters.len());
            find::<c_char>(toc, Part::Query).copy_from(query.as_ptr(), query.count_bytes());
            let shared: *mut Shared = find(toc, Part::Shared);
            (*shared).heap = (*job.heap).rd_id;
            (*shared).index = (*job.index).rd_id;
            (*shared).concurrent = (*job.info).ii_Concurrent;
            (*shared).by_snapshot = by_snapshot;
            (*shared).looks = (*job.info).ii_Unique;
            (*shared).root = engine.root();
            (*shared).workers = workers;
            (*shared).shards = shards;
            (*shared).splitters = splitters.len();
            pg_sys::SharedFileSetInit((*shared).files.get(), (*context).seg);
            pg_sys::ConditionVariableInit((*shared).waiting.get());
            Some(begun)
        }
    }

    /// All workers have ended, or there was none.
    unsafe fn end(self) {
        // SAFETY: no process uses the context or the shared memory any more.
        unsafe {
            if !self.snapshot.is_null() {
                pg_sys::UnregisterSnapshot(self.snapshot);
            }
            pg_sys::DestroyParallelContext(self.context);
            pg_sys::ExitParallelMode();
        }
    }
}
