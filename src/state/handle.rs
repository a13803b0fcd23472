//! Handles: the key description and the directory entry of an index, as a process remembers them.
//!
//! `rd_amcache` is the validity mark. The server frees it whenever the relation is invalidated
//! (REINDEX, TRUNCATE in place, ALTER). Then the handle is made anew from the metapage. The handle
//! is reference counted: a scan that is open while its relation is invalidated keeps its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use nitro_engine::{Index, IndexOptions, OutOfMemory, Process};
use pgrx::prelude::*;

use crate::key::KeyDesc;
use crate::pg::guc::{self, Mechanism};
use crate::state::directory::{self, Entry};
use crate::state::file::{File, Table};
use crate::state::{identity, limits, refusal, shmem, temporary};

/// An open index as this process sees it.
pub struct Handle {
    /// How keys are encoded and compared.
    pub desc: KeyDesc,
    /// The shared directory entry.
    pub entry: &'static Entry,
    generation: u32,
}

/// The target of `rd_amcache`. Entry and generation are read before the handle, which lives as long
/// as they are the same.
#[derive(Clone, Copy)]
struct Mark {
    handle: *const Handle,
    entry: &'static Entry,
    generation: u32,
    /// Which settings its limits are of; see `limits`.
    settings: u64,
}

/// The handles that a mark may point to, by the OID of the index.
#[derive(Default)]
struct Handles {
    all: HashMap<u32, Rc<Handle>>,
    /// The number that was left when handles of removed indexes were last dropped.
    left: usize,
}

impl Handles {
    /// Keeps a handle. No event tells when an index goes away. So whenever the number of handles
    /// has doubled, those whose entry stands for another index are dropped. There are at most twice
    /// as many handles as indexes.
    fn keep(&mut self, relid: u32, handle: Rc<Handle>) {
        if self.all.len() >= 2 * self.left + 16 {
            self.all.retain(|_, handle| handle.entry.generation() == handle.generation);
            self.left = self.all.len();
        }
        self.all.insert(relid, handle);
    }
}

thread_local! {
    static HANDLES: RefCell<Handles> = RefCell::default();
}

impl Handle {
    /// The handle of an open index; ERROR when the library was not preloaded, the metapage is
    /// foreign or the directory is full.
    ///
    /// # Safety
    /// `index` must be open and locked.
    pub unsafe fn open(index: pg_sys::Relation) -> Rc<Handle> {
        // SAFETY: by contract.
        unsafe { Handle::try_open(index).unwrap_or_else(|| refusal::no_entry(index).raise()) }
    }

    /// As [`Handle::open`], but `None` when the directory is full: an index that the directory does
    /// not know is an unbuilt one.
    ///
    /// # Safety
    /// As `open`.
    pub unsafe fn try_open(index: pg_sys::Relation) -> Option<Rc<Handle>> {
        // SAFETY: by contract.
        unsafe { Handle::open_for(index, Table::of_index(index)) }
    }

    /// Does the same as [`Handle::try_open`], for a caller that knows the table.
    ///
    /// # Safety
    /// As `open`.
    pub unsafe fn open_for(index: pg_sys::Relation, table: Table) -> Option<Rc<Handle>> {
        // SAFETY: rd_amcache is ours: null or a mark, see `attach`. Its handle is in the table
        // below as long as the entry is of that generation.
        unsafe {
            let cached = (*index).rd_amcache.cast::<Mark>();
            if !cached.is_null() {
                let Mark { handle, entry, generation, settings } = *cached;
                // No event tells the index that its table has another file, or that settings of
                // roles have changed.
                if generation == entry.generation()
                    && entry.is_for(&table)
                    && settings == limits::current()
                {
                    Rc::increment_strong_count(handle);
                    return Some(Rc::from_raw(handle));
                }
                Handle::forget(index);
            }
            Handle::attach(index, identity::read(index), table)
        }
    }

    /// Makes the handle of an index whose incarnation is known and remembers it; `None` when the
    /// directory is full.
    ///
    /// # Safety
    /// As `open`.
    pub unsafe fn attach(
        index: pg_sys::Relation,
        incarnation: directory::Incarnation,
        table: Table,
    ) -> Option<Rc<Handle>> {
        // SAFETY: open relation; the mark is allocated where the server expects it, and the
        // table below keeps the handle alive as long as the mark says so.
        unsafe {
            let relid = (*index).rd_id.to_u32();
            let desc = KeyDesc::for_index(index);
            let terms = limits::of(index);
            let directory = directory::get();
            let entry = directory.attach(File::of(index), incarnation, relid, table, &terms)?;
            entry.unique.store(u32::from((*(*index).rd_index).indisunique), Relaxed);
            temporary::remember(index, entry);
            let generation = entry.generation();
            let handle = Rc::new(Handle { desc, entry, generation });
            Handle::forget(index);
            let mark: *mut Mark =
                pg_sys::MemoryContextAlloc((*index).rd_indexcxt, size_of::<Mark>()).cast();
            let settings = terms.seen;
            mark.write(Mark { handle: Rc::as_ptr(&handle), entry, generation, settings });
            HANDLES.with_borrow_mut(|handles| handles.keep(relid, handle.clone()));
            (*index).rd_amcache = mark.cast();
            Some(handle)
        }
    }

    /// Drops the validity mark.
    ///
    /// # Safety
    /// As `open`.
    pub unsafe fn forget(index: pg_sys::Relation) {
        // SAFETY: rd_amcache is null or our palloc'd cell.
        unsafe {
            if !(*index).rd_amcache.is_null() {
                pg_sys::pfree((*index).rd_amcache);
                (*index).rd_amcache = std::ptr::null_mut();
            }
        }
    }

    /// Which of its users the entry stood for when the handle was made.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The engine index, as long as inserts publish; see [`Entry::index`].
    #[inline]
    pub fn index(&self) -> Option<Index> {
        self.entry.index(shmem::process())
    }

    /// Returns the engine index, if scans may read it: it is READY, or a follower keeps it up to
    /// date.
    #[inline]
    pub fn readable_index(&self) -> Option<Index> {
        self.entry.readable_index(shmem::process())
    }

    /// Returns the engine index, if it is READY. It has every row whose insert came here before.
    #[inline]
    pub fn ready_index(&self) -> Option<Index> {
        self.entry.ready_index(shmem::process())
    }
}

/// An engine index that no directory entry has yet. An ERROR that unwinds past it frees it. So does
/// the exit of a process that does not unwind. If parallel workers fill it, the abort ends these
/// first and then frees it.
pub struct Unfinished(Index);

thread_local! {
    /// Roots of the unfinished indexes of this process, and whether workers fill them.
    static UNFINISHED: RefCell<Vec<(u32, bool)>> = const { RefCell::new(Vec::new()) };
}

impl Unfinished {
    /// Takes charge of a new index.
    pub fn new(index: Index) -> Unfinished {
        debug_assert_eq!(directory::get().owners(index.root()), 0, "a root has one owner");
        UNFINISHED.with_borrow_mut(|all| all.push((index.root(), false)));
        Unfinished(index)
    }

    /// The index.
    pub fn index(&self) -> Index {
        self.0
    }

    /// It is finished, and the caller's.
    pub fn done(self) -> Index {
        let index = self.0;
        self.forget();
        std::mem::forget(self);
        index
    }

    fn forget(&self) {
        UNFINISHED.with_borrow_mut(|all| all.retain(|&(root, _)| root != self.0.root()));
    }

    /// From now on parallel workers fill it, or have ended.
    pub fn set_workers(&self, workers: bool) {
        UNFINISHED.with_borrow_mut(|all| {
            let mine = all.iter_mut().find(|(root, _)| *root == self.0.root());
            mine.expect("it is unfinished").1 = workers;
        });
    }

    fn has_workers(&self) -> bool {
        UNFINISHED.with_borrow(|all| all.contains(&(self.0.root(), true)))
    }

    /// Frees those that an ERROR has left to the abort of its (sub)transaction. Where that aborts
    /// inside of a build, as code of an index may do, the workers are still there.
    pub fn abandon_left(process: &Process) {
        Unfinished::abandon(process, |workers| workers);
    }

    /// Frees all unfinished indexes of a process that ends. Its threads have ended.
    pub fn abandon_all(process: &Process) {
        Unfinished::abandon(process, |_| true);
    }

    fn abandon(process: &Process, which: impl Fn(bool) -> bool) {
        // SAFETY: looks at a list of this process.
        let active = unsafe { pg_sys::ParallelContextActive() };
        let goes = |workers| which(workers) && !(workers && active);
        let gone = UNFINISHED.with_borrow_mut(|all| {
            let (gone, kept) = all.iter().partition(|(_, workers)| goes(*workers));
            *all = kept;
            let gone: Vec<(u32, bool)> = gone;
            gone
        });
        for (root, _) in gone {
            // SAFETY: only this process knew the index, and workers that have ended.
            unsafe { Index::open(process.area(), root).destroy(process) };
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let holds = guc::holds(Mechanism::Unfinished);
        if self.has_workers() && holds {
            return;
        }
        self.forget();
        if !holds {
            return;
        }
        // SAFETY: only this process ever knew the index.
        unsafe { self.0.destroy(shmem::process()) };
    }
}

impl Handle {
    /// An engine index that this one may get, and whose memory is charged to its tenants.
    pub fn create(&self, options: &IndexOptions) -> Result<Unfinished, OutOfMemory> {
        // SAFETY: tenants are in shared memory, at one address for ever, and not free while
        // charged.
        let engine = unsafe { Index::create_for(shmem::process(), options, &self.entry.charge())? };
        Ok(Unfinished::new(engine))
    }
}

/// Runs `$body` with `$order` bound to the order of the index' keys: byte order, or the comparator
/// of its columns. One expansion per order, so that the byte order is compiled in.
macro_rules! with_order {
    ($desc:expr, $order:ident => $body:expr) => {
        if $desc.is_memcmp() {
            let $order = &nitro_engine::Memcmp;
            $body
        } else {
            let $order = &$crate::key::KeyRef(&$desc);
            $body
        }
    };
}
pub(crate) use with_order;
