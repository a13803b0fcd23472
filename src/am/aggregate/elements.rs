//! Rows that are counted by an index with an element column, which hands up none: its scans make
//! bitmaps.
//!
//! The child is a real Bitmap Heap Scan over one Bitmap Index Scan, made and started by the server.
//! If the index decides, its rows are counted as those of an index-only scan: a block that is
//! all-visible is not read. The token is held from before the first entry is read until the last
//! bit is read. Without it VACUUM could remove a row and set the bit in between. (The server gave
//! up index-only bitmap scans for this reason.) If the index does not decide, the child is run row
//! by row.

use pgrx::pg_sys::{self, BitmapHeapScanState, BitmapIndexScanState, NodeTag, PlanState};

use super::run::Run;
use crate::am::scan;
use crate::am::{stock, visibility::VisibilityMap};
use crate::pg::compat;
use crate::pg::stop::{self, Point};
use crate::state::options;

/// Whether a child is of the kind that is counted here.
///
/// # Safety
/// A live node.
pub unsafe fn is_of(child: *mut PlanState) -> bool {
    // SAFETY: by contract.
    unsafe { (*child).type_ == NodeTag::T_BitmapHeapScanState }
}

/// The descriptor of its index.
///
/// # Safety
/// A live node that `is_of` the kind.
pub unsafe fn descriptor(child: *mut PlanState) -> pg_sys::IndexScanDesc {
    // SAFETY: by contract; the planner offers it over one Bitmap Index Scan.
    unsafe { (*(*child).lefttree.cast::<BitmapIndexScanState>()).biss_ScanDesc }
}

/// Counts all rows of the child.
///
/// # Safety
/// A started node that `is_of` the kind.
pub unsafe fn count(child: *mut PlanState, run: &mut Run) {
    // SAFETY: by contract.
    unsafe {
        if !(*child).chgParam.is_null() {
            pg_sys::ExecReScan(child);
        }
        run.groups.count(0);
        if !is_exact(child) || !count_direct(child, run) {
            while !compat::is_end(compat::exec_proc_node((*child).ExecProcNode, child)) {
                run.groups.count(1);
            }
        }
        run.end();
    }
}

/// Whether its rows are those that the index has and the snapshot sees, and it may be asked for
/// them.
unsafe fn is_exact(child: *mut PlanState) -> bool {
    // SAFETY: live nodes of the types that their tags say.
    unsafe {
        let (node, below) = (child.cast::<BitmapHeapScanState>(), (*child).lefttree);
        if below.is_null() || (*below).type_ != NodeTag::T_BitmapIndexScanState {
            return false;
        }
        let index = below.cast::<BitmapIndexScanState>();
        (*child).qual.is_null()
            && (*(*child).state).es_epq_active.is_null()
            && stock::is_allowed((*(*child).state).es_snapshot)
            && !(*index).biss_ScanDesc.is_null()
            && (*index).biss_NumArrayKeys == 0
            && options::is_nitro((*index).biss_RelationDesc)
            && compat::is_heap((*node).ss.ss_currentRelation)
    }
}

/// Counts without reading rows of all-visible blocks. Returns false, and counts nothing, if the
/// index does not decide, or has more rows than may be held.
unsafe fn count_direct(child: *mut PlanState, run: &mut Run) -> bool {
    // SAFETY: as `is_exact` has seen.
    unsafe {
        let heap = (*child.cast::<BitmapHeapScanState>()).ss.ss_currentRelation;
        let below = (*child).lefttree;
        let index = below.cast::<BitmapIndexScanState>();
        if !(*below).chgParam.is_null()
            || (*index).biss_NumRuntimeKeys != 0 && !(*index).biss_RuntimeKeysReady
        {
            pg_sys::ExecReScan(below);
        }
        let instruments = [(*child).instrument, (*below).instrument];
        for of in instruments {
            if !of.is_null() {
                pg_sys::InstrStartNode(of);
            }
        }
        let scan = (*index).biss_ScanDesc;
        let own = scan::state(scan);
        // An ERROR leaves it behind; its pins are the resource owner's.
        let mut map: VisibilityMap = std::mem::take(&mut own.visibility);
        let (mut entries, mut rows) = (0, 0);
        let counted = own.each_row(scan, most_rows(), |trust, tids| {
            stop::at(Point::AggregateAdds);
            for tids in tids.chunks(PART) {
                crate::pg::wait::interrupts();
                let mut seen = 0;
                let visible = |_, some: u64| seen += u64::from(some.count_ones());
                run.queue.sift(&mut map, heap, 0, (tids, trust), |_| None, visible);
                run.groups.count(seen);
                (entries, rows) = (entries + tids.len(), rows + seen);
                if run.queue.is_full(&run.groups) {
                    rows += flush(child, heap, run);
                }
            }
        });
        scan::state(scan).visibility = map;
        if counted {
            rows += flush(child, heap, run);
            compat::count_index_tuples((*scan).indexRelation, entries as i64);
        }
        for (of, rows) in instruments.into_iter().zip([rows as f64, entries as f64]) {
            if !of.is_null() {
                pg_sys::InstrStopNode(of, rows);
            }
        }
        counted
    }
}

/// Returns how many rows of more than one key may be held, to count each once. They must fit
/// `work_mem`, and a list may grow to twice its length.
pub fn most_rows() -> usize {
    // SAFETY: a plain global.
    unsafe { pg_sys::work_mem as usize * 1024 / 2 / size_of::<u64>() }
}

/// Rows between two looks at interrupts.
const PART: usize = 1 << 12;

/// Looks for the rows of the queue in the table; says how many are visible.
unsafe fn flush(child: *mut PlanState, heap: pg_sys::Relation, run: &mut Run) -> u64 {
    // SAFETY: an open table, under a snapshot of MVCC.
    unsafe {
        if run.queue.is_empty() {
            return 0;
        }
        stop::at(Point::AggregateLooks);
        let (_, seen) = run.queue.flush(heap, (*(*child).state).es_snapshot, &mut run.groups);
        compat::count_heap_fetches((*descriptor(child)).indexRelation, seen as i64);
        seen
    }
}
