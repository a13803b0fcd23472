//! The root of an index: its shared state outside of its nodes.

use crate::index::block_list::BlockList;
use crate::index::counters::Counters;
use crate::index::identity::Identity;
use crate::index::retired::Retired;
use crate::index::snapshots::Descriptors;
use crate::key::order::KeyOrder;
use crate::memory::allocator;
use crate::memory::allocator::BlockAllocator;
use crate::memory::area::{Area, OutOfMemory};
use crate::memory::charge::Charge;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::memory::process::{BarrierGuard, Process, WriterGuard};
use crate::node::block::{Block, EXACT, LEFTMOST};
use crate::node::empty::{first_class, init_block};
use crate::node::fresh::Fresh;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use crate::sync::lock::SpinLock;
use core::mem::offset_of;

/// The first term. Entries of a bottom-up build are older (0).
const FIRST_TERM: u32 = 1;

/// The shared state of an index, at the beginning of its first run of pages. A root is valid if it
/// is zeroed except for the fields that [`Index::create`] sets.
#[repr(C)]
pub(crate) struct Root {
    // Read by every operation, written rarely.
    pub(crate) term: AtomicU32,
    /// First leaf and first index node. They are never removed, since nodes are absorbed to the
    /// left.
    pub(crate) leaf: AtomicU32,
    pub(crate) node: AtomicU32,
    /// The flat top, 0 = none yet.
    pub(crate) top: AtomicU32,
    /// The kind of order: 0 unknown, 1 bytes, 2 comparator. The first insert sets it.
    order: AtomicU8,
    pub(crate) fillfactor: AtomicU8,
    /// See [`Index::force`].
    forms: AtomicU8,
    coin: AtomicU8,
    /// See [`Index::identity`].
    id: AtomicU64,
    /// Used after the index was given up: see `index/given_up.rs`.
    pub(crate) given_up: GivenUp,
    _to_line: [u8; 16],
    /// A hint: the last leaf, if the latest insert appended there. It has a cache line of its own.
    /// If only some inserts append, it changes all the time.
    pub(crate) last: AtomicU32,
    _pad: u32,
    pub(crate) top_state: crate::index::top_state::TopState,
    /// Blocks that the collector should visit.
    pub(crate) dirty: BlockList,
    /// Blocks that it has visited. Snapshots need dead entries of them.
    pub(crate) kept: BlockList,
    /// DEAD index nodes to which the flat top still leads.
    pub(crate) dead_nodes: BlockList,
    /// One collector at a time.
    pub(crate) collecting: SpinLock,
    pub(crate) retired: Retired,
    pub(crate) snapshots: Descriptors,
    pub(crate) counters: Counters,
    allocator: BlockAllocator,
}

// An index without entries is to cost little.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Root>() <= crate::memory::place::PAGE);

/// The place of an index on the list of those that were given up.
#[repr(C)]
pub(crate) struct GivenUp {
    /// The barrier session that was closed then.
    pub(crate) session: AtomicU64,
    pub(crate) next: AtomicU32,
    _pad: u32,
}

const OTHER_ORDER: &str = "the index is ordered otherwise, by bytes or by a comparator";

fn kind<O: KeyOrder>() -> u8 {
    if O::MEMCMP { 1 } else { 2 }
}

/// The forms of leaves, for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// Packed when they are built, and after inserts have left them, if possible.
    Best,
    /// With slots.
    Slots,
    /// Packed, and packed again when one of slots is full.
    Packed,
    /// As `Packed`, and sometimes with slots again.
    Mixed,
}

/// How an index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// How full, in percent (10 to 100), the bottom-up build and ascending inserts leave blocks.
    pub fillfactor: u8,
    /// About how long keys are, in bytes; 0 if not known.
    pub key_len_hint: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        IndexOptions { fillfactor: 90, key_len_hint: 0 }
    }
}

/// One index in an area. A plain name: copying it costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    pub(crate) area: Area,
    pub(crate) root: Ref,
}

impl Index {
    /// Creates an empty index.
    pub fn create(p: &Process, options: &IndexOptions) -> Result<Index, OutOfMemory> {
        // SAFETY: no accounts.
        unsafe { Index::create_for(p, options, &Charge::default()) }
    }

    /// Creates an empty index and charges its memory to accounts.
    ///
    /// # Safety
    /// The accounts are in shared memory, at the same addresses in all processes of the area. They
    /// live as long as an index that is charged to them.
    pub unsafe fn create_for(
        p: &Process,
        options: &IndexOptions,
        charge: &Charge,
    ) -> Result<Index, OutOfMemory> {
        let area = p.area();
        let root =
            allocator::create_root(&area, size_of::<Root>(), offset_of!(Root, allocator), charge)?;
        let index = Index { area, root };
        match index.init(options) {
            Ok(()) => Ok(index),
            Err(e) => {
                index.allocator().destroy(&area);
                Err(e)
            }
        }
    }

    /// Makes the first leaf and the first index node. Its only separator is below every key.
    fn init(&self, options: &IndexOptions) -> Result<(), OutOfMemory> {
        let root = self.shared();
        root.id.store(self.area.new_identity(), Relaxed);
        root.term.store(FIRST_TERM, Relaxed);
        root.fillfactor.store(options.fillfactor.clamp(10, 100), Relaxed);
        let class = first_class(options.key_len_hint as usize);
        let leaf = self.fresh(class)?;
        let node = self.fresh(Class::INDEX)?;
        let (b, m) = (leaf.block(), node.block());
        init_block(b, class, 0, LEFTMOST);
        init_block(m, Class::INDEX, 1, LEFTMOST);
        let (leaf, leaf_latch) = leaf.latch();
        let (node, node_latch) = node.latch();
        b.set_parent(node);
        m.set_prefix(0, 0);
        m.set_child(0, leaf | EXACT);
        m.set_mask(node_latch.v.side(), 1);
        root.node.store(node, Release);
        root.leaf.store(leaf, Release);
        leaf_latch.release();
        node_latch.release();
        root.top_state.nodes.store(1, Relaxed);
        root.counters.leaves.store(1, Relaxed);
        Ok(())
    }

    /// Charges the memory of the index to other accounts, including the memory that it holds
    /// already.
    ///
    /// # Safety
    /// As for [`create_for`](Self::create_for).
    pub unsafe fn charge_to(&self, p: &Process, charge: &Charge) {
        self.check_area(p);
        self.allocator().charge_to(charge);
    }

    /// Opens the index at a root that another process has named.
    ///
    /// # Safety
    /// `root` came from [`Index::root`] of an index of this area that has not been destroyed.
    pub unsafe fn open(area: Area, root: u32) -> Index {
        Index { area, root }
    }

    /// Returns the root: the name by which other processes open the index.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Gives all memory of the index back to the area.
    ///
    /// # Safety
    /// No process uses the index any more: no call is under way. No walk over it
    /// ([`Prune`](crate::collect::prune::Prune), [`Sweep`](crate::collect::sweep::Sweep)) is kept:
    /// dropping one would release its pins.
    pub unsafe fn destroy(self, p: &Process) {
        self.check_area(p);
        self.allocator().destroy(&self.area);
    }

    /// Returns the current term, in which inserts and removals happen. Readers of the current state
    /// use `u32::MAX - 1`.
    pub fn term(&self) -> u32 {
        self.shared().term.load(Acquire)
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Root {
        // SAFETY: `root` names the root of an index that is not destroyed (contract of `open`);
        // all its fields are atomics valid for any bits.
        unsafe { &*self.area.at(self.root).cast::<Root>() }
    }

    #[inline]
    pub(crate) fn allocator(&self) -> &BlockAllocator {
        &self.shared().allocator
    }

    /// Ends all snapshots: a removal has no memory to keep the entries that they see.
    pub(crate) fn lose_snapshots(&self) {
        self.shared().snapshots.lose();
        self.visit_kept();
    }

    /// A snapshot has ended: the collector visits again all blocks that snapshots needed.
    pub(crate) fn visit_kept(&self) {
        let root = self.shared();
        root.dirty.splice(self.area, root.kept.take());
    }

    /// Retires a DEAD node. No other node leads to it any more.
    pub(crate) fn retire(&self, r: Ref) {
        self.shared().retired.node(self.area, r);
    }

    /// Retires a chunk that no record refers to any more.
    pub(crate) fn retire_chunk(&self, chunk: Ref) {
        self.shared().retired.chunk(self.area, chunk);
    }

    /// Retired blocks that are not free yet.
    pub(crate) fn garbage(&self) -> u32 {
        self.shared().retired.waiting()
    }

    /// Returns the numbers of leaves and of index nodes, and whether there is a flat top.
    pub(crate) fn blocks(&self) -> [u32; 3] {
        let root = self.shared();
        [
            root.counters.leaves.load(Relaxed),
            root.top_state.nodes.load(Relaxed),
            u32::from(root.top.load(Relaxed) != 0),
        ]
    }

    /// Takes a block that no other process knows.
    pub(crate) fn fresh(&self, class: Class) -> Result<Fresh<'_>, OutOfMemory> {
        Fresh::new(self.allocator(), self.area, class)
    }

    #[inline]
    pub(crate) fn block(&self, r: Ref) -> Block {
        Block::at(self.area, r)
    }

    /// Enters the barrier for this index.
    #[inline]
    pub(crate) fn enter<'a>(&self, p: &'a Process) -> BarrierGuard<'a> {
        self.check_area(p);
        p.enter_index(self.root)
    }

    #[inline]
    pub(crate) fn enter_writer<'a>(&self, p: &'a Process) -> WriterGuard<'a> {
        self.check_area(p);
        p.enter_writer(self.root, &self.shared().term)
    }

    /// Panics if the process is of another area: its sections protect only memory of its own area.
    #[inline]
    pub(crate) fn check_area(&self, p: &Process) {
        assert!(p.area().is(&self.area), "a process of another area");
    }

    /// Returns the identity of the index. It differs from that of every other index of the area,
    /// even of a destroyed one with the same root. A remembered place is kept together with it.
    #[inline]
    pub(crate) fn identity(&self) -> Identity {
        Identity { area: self.area, id: self.id() }
    }

    /// Returns its number among all indexes that the area ever had.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.shared().id.load(Relaxed)
    }

    /// Remembers how this index orders its keys, for visits without an order.
    #[inline]
    pub(crate) fn note_order<O: KeyOrder>(&self) {
        let order = &self.shared().order;
        if order.load(Relaxed) != kind::<O>() {
            let seen = order.compare_exchange(0, kind::<O>(), Relaxed, Relaxed);
            assert!(seen.is_ok() || seen == Err(kind::<O>()), "{OTHER_ORDER}");
        }
    }

    /// Panics if the entries were inserted with an order of the other kind.
    #[inline]
    pub(crate) fn check_order<O: KeyOrder>(&self) {
        let seen = self.shared().order.load(Relaxed);
        assert!(seen == kind::<O>() || seen == 0, "{OTHER_ORDER}");
    }

    /// Sets the forms that leaves get from now on.
    #[doc(hidden)]
    pub fn force(&self, forms: Forms) {
        self.shared().forms.store(forms as u8, Relaxed);
    }

    /// Returns true if leaves may be packed.
    pub(crate) fn packs(&self) -> bool {
        self.shared().forms.load(Relaxed) != Forms::Slots as u8
    }

    /// Returns true if a full leaf of slots is packed.
    pub(crate) fn packs_full(&self) -> bool {
        let forms = self.shared().forms.load(Relaxed);
        forms == Forms::Packed as u8 || forms == Forms::Mixed as u8
    }

    /// Returns true if a packed leaf must get slots now.
    pub(crate) fn unpacks(&self) -> bool {
        self.shared().forms.load(Relaxed) == Forms::Mixed as u8
            && self.shared().coin.fetch_add(37, Relaxed) < 32
    }

    /// Returns true if keys are ordered as bytes, or if there are none yet.
    pub fn is_byte_ordered(&self) -> bool {
        self.memcmp()
    }

    /// Returns true if keys are ordered as bytes, or if there are none.
    pub(crate) fn memcmp(&self) -> bool {
        self.shared().order.load(Relaxed) != 2
    }
}
