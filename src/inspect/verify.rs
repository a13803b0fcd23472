//! `nitro_verify`: does an index hold what its table says, in the order its operators say?
//!
//! 1. The engine walks its blocks and checks the invariants of its structure.
//! 2. Every entry is decoded and compared with its neighbour by the operator classes: the encoding
//!    of keys is not trusted. Its TID must name the root of a HOT chain.
//! 3. With `heapallindexed`, every row that a fresh snapshot sees must have its entry.
//!
//! Writers, VACUUM and scans go on meanwhile:
//! - An entry cannot lose its line pointer between the reading and the look of step 2. A TID token
//!   is taken before a batch is read, and VACUUM recycles TIDs only when older tokens are gone.
//! - a row that 3's snapshot sees was indexed before its transaction committed, and VACUUM keeps
//!   the entries of rows that a registered snapshot may see.
//!
//! Expressions run as the table's owner under SECURITY_RESTRICTED_OPERATION; an ERROR restores the
//! caller's identity with the transaction.

use std::cmp::Ordering;
use std::ffi::c_void;

use nitro_engine::prelude::*;
use nitro_engine::{Index, KeyOrder, Process, Tid, TokenId, Walk};
use pgrx::pg_sys::{BlockNumber, Datum, Oid, Relation};
use pgrx::prelude::*;
use pgrx::{PgMemoryContexts, pg_sys};

use crate::am::deferred;
use crate::key::KeyDesc;
use crate::key::row::Keys;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::memory;
use crate::pg::owner::AsOwner;
use crate::state::directory::State;
use crate::state::given_up::{self, InUse};
use crate::state::handle::{Handle, with_order};
use crate::state::open::{self, Wrong};
use crate::state::{options, shmem};
use crate::upkeep::bring_up;

/// The work of the function, as its errors name it.
const WORK: &str = "verify";
/// Bytes for the low key of a leaf, more than most have.
const LOW_KEY: usize = 192;
const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

/// Checks an index and returns its number of entries; ERROR (SQLSTATE XX002) when it is damaged.
#[pg_extern]
fn nitro_verify(index: Oid, heapallindexed: bool) -> i64 {
    crate::pg::witness!();
    // SAFETY: a function called from SQL runs in a transaction with catalogue access.
    unsafe {
        let target = Target::open(index);
        deferred::before_read(target.index, std::ptr::null_mut());
        let handle = Handle::open(target.index);
        if handle.entry.state() != State::Ready {
            bring_up::ensure_ready(target.index, &handle);
        }
        let engine = handle.index().unwrap_or_else(|| given_up::scan_ends(target.index));
        let _used = InUse::of(engine);
        // The engine keeps the low key of every leaf.
        memory::expect(engine.stats().blocks[0] as usize * LOW_KEY);
        let entries = with_order!(handle.desc, order => {
            let mut each = |_: &[u8], _| crate::pg::wait::interrupts();
            if let Err(violation) = engine.verify(shmem::process(), order, false, &mut each) {
                target.corrupted(violation.to_string());
            }
            let entries = check_entries(&target, &handle.desc, engine);
            if heapallindexed {
                check_rows(&target, &handle.desc, engine, order);
            }
            entries
        });
        target.close();
        entries as i64
    }
}

/// The index under test and its table, open and locked, with the table owner's identity taken on.
pub(super) struct Target {
    pub(super) heap: Relation,
    pub(super) index: Relation,
    pub(super) owner: AsOwner,
}

impl Target {
    /// # Safety
    /// Inside a transaction.
    pub(super) unsafe fn open(relid: Oid) -> Target {
        // SAFETY: locks the table before its index, the usual order.
        unsafe {
            let heap_oid = pg_sys::IndexGetRelation(relid, true);
            if heap_oid == pg_sys::InvalidOid {
                open::refuse(WORK, relid, Wrong::Kind("is not an index"));
            }
            let gone = || open::refuse(WORK, relid, Wrong::Condition("was dropped".into()));
            let heap = pg_sys::try_table_open(heap_oid, LOCK);
            if heap.is_null() {
                gone();
            }
            if !compat::owns_relation(heap_oid, pg_sys::GetUserId()) {
                Failure::new(
                    PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                    format!("must be owner of table {}", compat::name(heap)),
                )
                .raise();
            }
            let owner = AsOwner::begin(heap);
            // The table was found without a lock: the index may have been dropped and its OID
            // reused.
            let index = pg_sys::try_relation_open(relid, LOCK);
            if index.is_null() || pg_sys::IndexGetRelation(relid, true) != heap_oid {
                gone();
            }
            let target = Target { heap, index, owner };
            target.check_kind(relid);
            target
        }
    }

    unsafe fn check_kind(&self, relid: Oid) {
        // SAFETY: open relations.
        unsafe {
            if !options::is_nitro(self.index) {
                open::refuse(WORK, relid, Wrong::Kind("is not a nitro index"));
            }
            if (*(*self.index).rd_rel).relkind as u8 == pg_sys::RELKIND_PARTITIONED_INDEX {
                open::refuse(
                    WORK,
                    relid,
                    Wrong::Kind("is a partitioned index; verify the indexes of its partitions"),
                );
            }
            if !(*(*self.index).rd_index).indisvalid {
                open::refuse(WORK, relid, Wrong::Condition("is not valid".into()));
            }
            let class = (*self.index).rd_rel;
            if (*class).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP
                && !(*self.index).rd_islocaltemp
            {
                open::refuse(
                    WORK,
                    relid,
                    Wrong::Condition("belongs to a temporary table of another session".into()),
                );
            }
            if pg_sys::RecoveryInProgress() {
                open::refuse(
                    WORK,
                    relid,
                    Wrong::Condition("cannot be verified during recovery".into()),
                );
            }
        }
    }

    /// # Safety
    /// Once, with nothing of the relations in use.
    pub(super) unsafe fn close(self) {
        // SAFETY: the reverse of `open`.
        unsafe {
            self.owner.end();
            pg_sys::index_close(self.index, LOCK);
            pg_sys::table_close(self.heap, LOCK);
        }
    }

    fn corrupted(&self, detail: String) -> ! {
        // SAFETY: open relation. VACUUM removes nothing any more from one that was given up
        // meanwhile.
        let name = unsafe {
            if Handle::open(self.index).entry.state() == State::GivenUp {
                given_up::scan_ends(self.index);
            }
            compat::name(self.index)
        };
        Failure::new(
            PgSqlErrorCode::ERRCODE_INDEX_CORRUPTED,
            format!("nitro index \"{name}\" is damaged"),
        )
        .detail(detail)
        .hint("REINDEX rebuilds the index from its table.")
        .raise()
    }
}

/// A TID token that is given back when this goes out of scope, also by an ERROR.
struct Token<'p>(&'p Process, TokenId);

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.0.close_token(self.1);
    }
}

unsafe fn check_entries(target: &Target, desc: &KeyDesc, engine: Index) -> u64 {
    let process = shmem::process();
    let token = Token(process, process.open_token(engine.root()));
    let mut heap = HeapBlocks::new(target.heap);
    // SAFETY: open relations, in the memory of this call.
    let mut neighbours = unsafe { Neighbours::new(target.index, desc) };
    let mut walk = Walk::new(process, engine, engine.term());
    let mut entries = 0;
    loop {
        crate::pg::wait::interrupts();
        assert!(process.renew_token(token.1), "open as long as this runs");
        if !walk.next_leaf() {
            return entries;
        }
        for i in 0..walk.len() {
            memory::check();
            let (key, tid) = (walk.key(i), walk.tid(i));
            // SAFETY: the key belongs to the index that `desc` describes; open relations.
            let problem = unsafe { neighbours.check(key, tid).or_else(|| heap.check(tid)) };
            if let Some(what) = problem {
                target.corrupted(format!("The entry for heap tuple {} {what}.", show(tid)));
            }
        }
        entries += walk.len() as u64;
    }
}

/// `(block,offset)`, as SQL shows a ctid.
pub(super) fn show(tid: Tid) -> String {
    format!("({},{})", tid >> 16, tid & 0xffff)
}

/// Compares each entry with the one before it, by the comparison functions of the operator classes.
struct Neighbours<'a> {
    index: Relation,
    desc: &'a KeyDesc,
    /// Comparison functions of the key columns. They are not the server's own copies. A function
    /// may come back to a verification of its index, and must not use the state of its outer call.
    functions: Vec<*mut pg_sys::FmgrInfo>,
    previous: Option<(Vec<u8>, Tid)>,
    rows: [Row; 2],
}

/// A decoded entry and the memory it lives in.
struct Row {
    memory: PgMemoryContexts,
    values: Vec<Datum>,
    isnull: Vec<bool>,
}

impl Row {
    fn new(columns: usize) -> Row {
        Row {
            memory: PgMemoryContexts::new("nitro_verify entry"),
            values: vec![Datum::from(0); columns],
            isnull: vec![true; columns],
        }
    }
}

impl<'a> Neighbours<'a> {
    /// # Safety
    /// `index` must be open, `desc` its description; neither it nor the current memory context may
    /// go before.
    unsafe fn new(index: Relation, desc: &'a KeyDesc) -> Neighbours<'a> {
        let columns = desc.columns.len();
        // SAFETY: support function 1 of an open index; the copy has no state, and lives in the
        // current context.
        let copy = |column: usize| unsafe {
            let info = pg_sys::palloc(size_of::<pg_sys::FmgrInfo>()).cast();
            let function = pg_sys::index_getprocinfo(index, column as i16 + 1, 1);
            pg_sys::fmgr_info_copy(info, function, pg_sys::CurrentMemoryContext);
            info
        };
        let scalar = |&column: &usize| !desc.is_element(column);
        let functions = (0..desc.nkeys)
            .map(|column| Some(column).filter(scalar).map_or(std::ptr::null_mut(), copy))
            .collect();
        let rows = [Row::new(columns), Row::new(columns)];
        Neighbours { index, desc, functions, previous: None, rows }
    }

    /// # Safety
    /// `key` must be a key of the index.
    unsafe fn check(&mut self, key: &[u8], tid: Tid) -> Option<String> {
        let [before, now] = &mut self.rows;
        std::mem::swap(before, now);
        let Row { memory, values, isnull } = now;
        // SAFETY: the row's memory holds nothing but the row before last.
        unsafe {
            memory.reset();
            memory.switch_to(|_| self.desc.decode(key, values, isnull));
        }
        let problem = match &self.previous {
            None => None,
            Some((previous, previous_tid)) if previous == key => (*previous_tid >= tid)
                .then_some("repeats an entry or is out of order among equal keys"),
            Some((previous, _)) => {
                // SAFETY: both rows were decoded from keys of this index.
                unsafe { self.compare(previous, key) }.is_gt().then_some("is out of order")
            }
        };
        let (previous, previous_tid) = self.previous.get_or_insert_default();
        let problem =
            problem.map(|what| format!("{what} (it follows heap tuple {})", show(*previous_tid)));
        previous.clear();
        memory::append(previous, key);
        *previous_tid = tid;
        problem
    }

    /// # Safety
    /// Both rows must have been decoded.
    unsafe fn compare(&self, previous: &[u8], key: &[u8]) -> Ordering {
        let [a, b] = &self.rows;
        for (i, column) in self.desc.columns[..self.desc.nkeys].iter().enumerate() {
            if self.desc.is_element(i) {
                // Not decoded, and strings are in byte order whatever their operators say.
                let segment = |key| self.desc.split(key, i + 1).last().unwrap_or_default();
                match self.desc.compare_segment(i, segment(previous), segment(key)) {
                    Ordering::Equal => continue,
                    order => return order,
                }
            }
            let order = match (a.isnull[i], b.isnull[i]) {
                (true, true) => Ordering::Equal,
                (true, false) if column.nulls_first => Ordering::Less,
                (true, false) => Ordering::Greater,
                (false, true) if column.nulls_first => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    // SAFETY: support function 1 of an open index takes two values of the column.
                    let result = unsafe {
                        pg_sys::FunctionCall2Coll(
                            self.functions[i],
                            *(*self.index).rd_indcollation.add(i),
                            a.values[i],
                            b.values[i],
                        )
                    };
                    let order = (result.value() as i32).cmp(&0);
                    if column.desc { order.reverse() } else { order }
                }
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// The heap blocks to which TIDs lead.
pub(super) struct HeapBlocks {
    heap: Relation,
    /// Known number of blocks; grows while we look.
    blocks: BlockNumber,
}

impl HeapBlocks {
    /// Nothing is known of the table yet.
    pub(super) fn new(heap: Relation) -> HeapBlocks {
        HeapBlocks { heap, blocks: 0 }
    }

    /// Returns the fault of a TID. A TID token from before the entry was read keeps VACUUM from
    /// causing one meanwhile.
    ///
    /// # Safety
    /// The heap must be open.
    pub(super) unsafe fn check(&mut self, tid: Tid) -> Option<String> {
        let (block, offset) = ((tid >> 16) as BlockNumber, tid as pg_sys::OffsetNumber);
        // SAFETY: the page is looked at under its share lock; nothing in between can fail.
        unsafe {
            if block >= self.blocks {
                self.blocks = compat::blocks(self.heap);
                if block >= self.blocks {
                    return Some(format!("points behind block {} of the table", self.blocks));
                }
            }
            let buffer = pg_sys::ReadBuffer(self.heap, block);
            compat::lock_shared(buffer);
            let page = pg_sys::BufferGetPage(buffer);
            let problem = if offset == 0 || offset > pg_sys::PageGetMaxOffsetNumber(page) {
                Some("points behind the last item of its page")
            } else {
                let item = *pg_sys::PageGetItemId(page, offset);
                match item.lp_flags() {
                    pg_sys::LP_UNUSED => Some("points to an unused item"),
                    pg_sys::LP_NORMAL => {
                        let header: pg_sys::HeapTupleHeader =
                            page.add(item.lp_off() as usize).cast();
                        (u32::from((*header).t_infomask2) & pg_sys::HEAP_ONLY_TUPLE != 0)
                            .then_some("points to a heap-only tuple")
                    }
                    _ => None,
                }
            };
            pg_sys::UnlockReleaseBuffer(buffer);
            problem.map(str::to_owned)
        }
    }
}

/// A registered snapshot; an ERROR unregisters it with its resource owner.
unsafe fn check_rows<O: KeyOrder>(target: &Target, desc: &KeyDesc, engine: Index, order: &O) {
    // SAFETY: open relations; the scan ends before the snapshot is given back.
    unsafe {
        let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot());
        refuse_old_snapshot(target, snapshot);
        let info = pg_sys::BuildIndexInfo(target.index);
        // An MVCC scan that finds nothing wrong with concurrent writers, and checks no constraint.
        (*info).ii_Concurrent = true;
        (*info).ii_Unique = false;
        (*info).ii_ExclusionOps = std::ptr::null_mut();
        (*info).ii_ExclusionProcs = std::ptr::null_mut();
        (*info).ii_ExclusionStrats = std::ptr::null_mut();
        let mut rows = Rows {
            target,
            desc,
            engine,
            order,
            keys: Keys::default(),
            memory: PgMemoryContexts::new("nitro_verify row"),
        };
        let scan = pg_sys::table_beginscan_strat(
            target.heap,
            snapshot,
            0,
            std::ptr::null_mut(),
            true,
            true,
        );
        pg_sys::table_index_build_scan(
            target.heap,
            target.index,
            info,
            true,
            false,
            Some(check_row::<O>),
            (&raw mut rows).cast(),
            scan,
        );
        pg_sys::UnregisterSnapshot(snapshot);
    }
}

/// Refuses a transaction snapshot older than the index. It may see rows by keys that broken HOT
/// chains no longer have. The planner refuses the index to it, too.
unsafe fn refuse_old_snapshot(target: &Target, snapshot: pg_sys::Snapshot) {
    // SAFETY: `rd_indextuple` is the pg_index row of an open index.
    unsafe {
        if pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32
            && (*(*target.index).rd_index).indcheckxmin
            && !pg_sys::TransactionIdPrecedes(
                compat::tuple_xmin((*(*target.index).rd_indextuple).t_data),
                (*snapshot).xmin,
            )
        {
            Failure::new(
                PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
                format!(
                    "nitro index \"{}\" cannot be verified using a transaction snapshot",
                    compat::name(target.index)
                ),
            )
            .raise();
        }
    }
}

struct Rows<'a, O: KeyOrder> {
    target: &'a Target,
    desc: &'a KeyDesc,
    engine: Index,
    order: &'a O,
    keys: Keys,
    memory: PgMemoryContexts,
}

#[pg_guard]
unsafe extern "C-unwind" fn check_row<O: KeyOrder>(
    _index: Relation,
    tid: pg_sys::ItemPointer,
    values: *mut Datum,
    isnull: *mut bool,
    _alive: bool,
    rows: *mut c_void,
) {
    crate::pg::witness!();
    // SAFETY: `rows` is what `check_rows` passed; the rest comes from the server's scan.
    unsafe {
        let rows = &mut *rows.cast::<Rows<'_, O>>();
        let (desc, keys) = (rows.desc, &mut rows.keys);
        rows.memory.reset();
        rows.memory.switch_to(|_| keys.set(desc, values, isnull));
        let tid = compat::tid_to_u64(&*tid);
        for key in rows.keys.iter() {
            if !rows.engine.contains(shmem::process(), rows.order, key, tid) {
                let what = if desc.element.is_some() { "for one of its elements" } else { "" };
                let text = format!("Heap tuple {} has no entry {what}", show(tid));
                rows.target.corrupted(format!("{}.", text.trim_end()));
            }
        }
    }
}
