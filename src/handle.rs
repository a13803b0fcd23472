//! What a process remembers of an index: its key description and its directory entry.
//!
//! `rd_amcache` is the validity mark: the server frees it whenever the relation is invalidated
//! (REINDEX, TRUNCATE in place, ALTER), and then the handle is made anew from the metapage. The handle
//! itself is reference counted, so a scan that is open while its relation is invalidated keeps its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;

use nitro_engine::{Index, Process};
use pgrx::prelude::*;

use crate::directory::{self, Entry};
use crate::key::KeyDesc;
use crate::{compat, identity, shmem, temporary};

/// An open index as this process sees it.
pub struct Handle {
    /// How keys are encoded and compared.
    pub desc: KeyDesc,
    /// The shared directory entry.
    pub entry: &'static Entry,
    generation: u32,
}

thread_local! {
    static HANDLES: RefCell<HashMap<u32, Rc<Handle>>> = RefCell::default();
}

/// A relation's name, for messages.
///
/// # Safety
/// `rel` must be an open relation.
pub unsafe fn name(rel: pg_sys::Relation) -> String {
    // SAFETY: rd_rel is valid and relname nul-terminated in every open relation.
    unsafe { CStr::from_ptr((*(*rel).rd_rel).relname.data.as_ptr()) }.to_string_lossy().into_owned()
}

impl Handle {
    /// The handle of an open index; ERROR when the library was not preloaded, the metapage is
    /// foreign or the directory is full.
    ///
    /// # Safety
    /// `index` must be open and locked.
    pub unsafe fn open(index: pg_sys::Relation) -> Rc<Handle> {
        // SAFETY: by contract.
        unsafe { Handle::try_open(index) }.unwrap_or_else(|| directory::full())
    }

    /// As [`Handle::open`], but `None` when the directory is full: an index that the directory does
    /// not know is an unbuilt one.
    ///
    /// # Safety
    /// As `open`.
    pub unsafe fn try_open(index: pg_sys::Relation) -> Option<Rc<Handle>> {
        // SAFETY: rd_amcache is ours: null or a pointer to a live handle, see `attach`.
        unsafe {
            let cached = (*index).rd_amcache.cast::<*const Handle>();
            if !cached.is_null() {
                let handle = *cached;
                if (*handle).generation == (*handle).entry.generation() {
                    Rc::increment_strong_count(handle);
                    return Some(Rc::from_raw(handle));
                }
                Handle::forget(index);
            }
            Handle::attach(index, identity::read(index))
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
    ) -> Option<Rc<Handle>> {
        // SAFETY: open relation; the cache cell is allocated where the server expects it, and the
        // table below keeps the handle alive as long as the cell may point to it.
        unsafe {
            let relid = (*index).rd_id.to_u32();
            let desc = KeyDesc::for_index(index);
            let entry = shmem::directory().attach(compat::locator(index), incarnation, relid)?;
            temporary::remember(index, entry);
            let handle = Rc::new(Handle { desc, entry, generation: entry.generation() });
            Handle::forget(index);
            let cell = pg_sys::MemoryContextAlloc((*index).rd_indexcxt, size_of::<*const Handle>())
                .cast::<*const Handle>();
            cell.write(Rc::as_ptr(&handle));
            HANDLES.with_borrow_mut(|all| all.insert(relid, handle.clone()));
            (*index).rd_amcache = cell.cast();
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

    /// The engine index, if the entry has one.
    #[inline]
    pub fn index(&self) -> Option<Index> {
        self.entry.index(shmem::process())
    }
}

/// An engine index that no directory entry knows yet: an ERROR that unwinds past it frees it, and so
/// does the exit of a process that does not unwind.
pub struct Unfinished(Index);

thread_local! {
    /// Roots of the unfinished indexes of this process.
    static UNFINISHED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl Unfinished {
    /// Takes charge of a new index.
    pub fn new(index: Index) -> Unfinished {
        UNFINISHED.with_borrow_mut(|all| all.push(index.root()));
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
        UNFINISHED.with_borrow_mut(|all| all.retain(|&root| root != self.0.root()));
    }

    /// Frees all unfinished indexes of a process that ends. Its threads have ended.
    pub fn abandon_all(process: &Process) {
        for root in UNFINISHED.with_borrow_mut(std::mem::take) {
            // SAFETY: only this process knew the index.
            unsafe { Index::open(process.area(), root).destroy(process) };
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.forget();
        // SAFETY: only this process ever knew the index.
        unsafe { self.0.destroy(shmem::process()) };
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
