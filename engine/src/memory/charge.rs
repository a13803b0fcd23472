//! The accounts that an index's memory is charged to, and their limits.
//!
//! An allocator has a limit of its own, and *accounts* that it shares with other allocators. Memory
//! is charged before it is taken from the area, and credited after it went back. Both happen under
//! the lock of the allocator. So an account never has less than its allocators hold. When no
//! allocator is locked, it has exactly that. An operation that takes nothing from the area touches
//! none of this.

use crate::memory::area::{Lack, OutOfMemory};
use crate::memory::place::PAGE;
use crate::sync::mutants::mutant;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

/// The memory that several indexes hold together, and its limit. Zeroed: both are 0.
#[repr(C)]
#[derive(Debug)]
pub struct Account {
    pub(super) used: AtomicU64,
    limit: AtomicU64,
}

impl Account {
    /// Bytes that are charged.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Sets the limit. Memory that is held stays, even above it.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// Charges for `bytes`. Returns false if too little is left. If several allocators want the
    /// last bytes, none fails whose request alone would have fit.
    fn take(&self, bytes: u64) -> bool {
        let limit = self.limit();
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= limit);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    pub(super) fn give_back(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "an account gives back what it does not have");
    }
}

/// Most accounts of an index.
pub(crate) const ACCOUNTS: usize = 2;

/// The limit of an index, and the accounts that it is charged to.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// The most bytes that the index may hold.
    pub limit: u64,
    /// Accounts that it shares with other indexes.
    pub accounts: [Option<&'static Account>; ACCOUNTS],
}

impl Default for Charge {
    fn default() -> Self {
        Charge { limit: u64::MAX, accounts: [None; ACCOUNTS] }
    }
}

impl Charge {
    /// Charges for this number of bytes, in whole pages, beyond the bytes `held`. Charges all
    /// accounts or none.
    pub(super) fn take(&self, held: u64, bytes: usize) -> Result<(), OutOfMemory> {
        let lacks = |lack| OutOfMemory { requested: bytes, lack };
        let bytes = in_pages(bytes);
        if held.saturating_add(bytes) > self.limit {
            return Err(lacks(Lack::Limit));
        }
        for (i, account) in self.accounts.iter().enumerate() {
            if account.is_some_and(|account| !account.take(bytes)) {
                self.accounts[..i].iter().flatten().for_each(|account| account.give_back(bytes));
                return Err(lacks(Lack::Account(i)));
            }
        }
        Ok(())
    }

    pub(super) fn give_back(&self, bytes: usize) {
        if !mutant!("memory that goes back is credited") {
            self.accounts.iter().flatten().for_each(|account| account.give_back(in_pages(bytes)));
        }
    }
}

fn in_pages(bytes: usize) -> u64 {
    bytes.next_multiple_of(PAGE) as u64
}

/// A [`Charge`] in shared memory. Changed under the allocator's lock.
#[repr(C)]
pub(super) struct Charged {
    limit: AtomicU64,
    accounts: [AtomicPtr<Account>; ACCOUNTS],
}

impl Charged {
    pub(super) fn load(&self) -> Charge {
        // SAFETY: null or the argument of `store`. It has this address in all processes as long as
        // it is here (`Index::create_for`).
        let account = |at: &AtomicPtr<Account>| unsafe { at.load(Relaxed).cast_const().as_ref() };
        Charge { limit: self.limit.load(Relaxed), accounts: self.accounts.each_ref().map(account) }
    }

    pub(super) fn store(&self, charge: &Charge) {
        self.limit.store(charge.limit, Relaxed);
        for (at, account) in self.accounts.iter().zip(charge.accounts) {
            at.store(account.map_or(core::ptr::null(), core::ptr::from_ref).cast_mut(), Relaxed);
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::index::given_up;
    use crate::index::root::{Index, IndexOptions};
    use crate::key::order::Memcmp;
    use crate::memory::area::tests::Mapping;
    use crate::memory::process::Process;
    use crate::prelude::*;
    use crate::scan::cursor::Cursor;
    use crate::tree::insert::InsertError;

    fn account(limit: u64) -> &'static Account {
        Box::leak(Box::new(Account { used: AtomicU64::new(0), limit: AtomicU64::new(limit) }))
    }

    fn create(p: &Process, charge: Charge) -> Result<Index, OutOfMemory> {
        // SAFETY: accounts of these tests are never freed, and all threads are of one process.
        unsafe { Index::create_for(p, &IndexOptions::default(), &charge) }
    }

    /// Inserts until a resource is exhausted. Returns the next key, and the resource.
    fn fill(p: &Process, index: &Index, from: u64) -> (u64, Lack) {
        for i in from.. {
            match index.insert(
                p,
                &Memcmp,
                &(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes(),
                i,
            ) {
                Ok(_) => (),
                Err(InsertError::OutOfMemory(e)) => return (i, e.lack),
                Err(e) => panic!("{e}"),
            }
        }
        unreachable!()
    }

    #[test]
    fn each_limit_is_kept_and_named() {
        let area = Mapping::new(16 << 20, 1);
        // SAFETY: its only slot.
        let p = unsafe { Process::attach(*area, 0) };
        let (first, second) = (account(3 << 20), account(2 << 20));
        let refused = create(&p, Charge { limit: 4096, ..Charge::default() });
        assert_eq!(refused.err().map(|e| e.lack), Some(Lack::Limit));
        let with = |limit, accounts| create(&p, Charge { limit, accounts }).unwrap();
        let alone = with(1 << 20, [Some(first), Some(second)]);
        assert_eq!(fill(&p, &alone, 0).1, Lack::Limit);
        assert!(alone.stats().bytes <= 1 << 20 && alone.stats().bytes > 900 << 10);
        let shared = with(u64::MAX, [Some(first), Some(second)]);
        assert_eq!(fill(&p, &shared, 0).1, Lack::Account(1));
        assert_eq!(second.used(), (alone.stats().bytes + shared.stats().bytes) as u64);
        let other = with(u64::MAX, [Some(first), None]);
        assert_eq!(fill(&p, &other, 0).1, Lack::Account(0));
        assert!(first.used() <= 3 << 20 && second.used() <= 2 << 20);
        let free = with(u64::MAX, [None, None]);
        assert_eq!(fill(&p, &free, 0).1, Lack::Area);
        for index in [alone, shared, other, free] {
            // SAFETY: no other process knows it.
            unsafe { index.destroy(&p) };
        }
        assert_eq!((first.used(), second.used()), (0, 0));
    }

    #[test]
    fn what_fails_is_not_charged() {
        let area = Mapping::new(4 << 20, 1);
        // SAFETY: its only slot.
        let p = unsafe { Process::attach(*area, 0) };
        let (large, small) = (account(u64::MAX), account(4096));
        let charge = |accounts| Charge { accounts, ..Charge::default() };
        assert!(create(&p, charge([Some(large), Some(small)])).is_err());
        assert_eq!((large.used(), small.used()), (0, 0));
        let index = create(&p, charge([Some(large), None])).unwrap();
        assert_eq!(fill(&p, &index, 0).1, Lack::Area);
        assert_eq!(large.used(), index.stats().bytes as u64);
    }

    #[test]
    fn a_lowered_limit_stops_growth_alone() {
        let area = Mapping::new(16 << 20, 1);
        // SAFETY: its only slot.
        let p = unsafe { Process::attach(*area, 0) };
        let shared = account(4 << 20);
        let accounts = [None, Some(shared)];
        let index = create(&p, Charge { accounts, ..Charge::default() }).unwrap();
        let (n, _) = fill(&p, &index, 0);
        shared.set_limit(1 << 20);
        let mut cursor = Cursor::new(true);
        cursor.set_range(&[], None, index.term());
        let mut read = 0;
        loop {
            match cursor.next(&p, index, &Memcmp) {
                0 => break,
                len => {
                    read += len as u64;
                    let all: Vec<u16> = (0..len as u16).collect();
                    cursor.remove(&p, index, &all);
                }
            }
        }
        assert_eq!(read, n);
        while index.collect(&p, 1000) == Some(1000) {}
        for _ in 0..4 {
            index.collect(&p, 1000);
        }
        assert!(shared.used() < 1 << 20, "what is free is credited: {}", shared.used());
        assert_eq!(shared.used(), index.stats().bytes as u64);
        assert!(fill(&p, &index, n).0 > n, "there is room below the limit again");
        // SAFETY: no other process knows it.
        unsafe { given_up::destroy_later(index, &p) };
        assert_eq!(shared.used(), 0);
    }

    #[test]
    fn another_owner_takes_the_charge_over() {
        let area = Mapping::new(16 << 20, 1);
        // SAFETY: its only slot.
        let p = unsafe { Process::attach(*area, 0) };
        let (old, new) = (account(2 << 20), account(1 << 20));
        let charge = |owner| Charge { accounts: [None, Some(owner)], ..Charge::default() };
        let index = create(&p, charge(old)).unwrap();
        fill(&p, &index, 0);
        let bytes = index.stats().bytes as u64;
        // SAFETY: as in `create`.
        unsafe { index.charge_to(&p, &charge(new)) };
        assert_eq!((old.used(), new.used()), (0, bytes));
        // SAFETY: as in `create`.
        unsafe { index.charge_to(&p, &charge(new)) };
        assert_eq!(new.used(), bytes, "the same");
        // SAFETY: no other process knows it.
        unsafe { index.destroy(&p) };
        assert_eq!(new.used(), 0);
    }

    #[test]
    fn the_share_of_one_is_not_taken_by_another() {
        let area = Mapping::new(32 << 20, 4);
        let (storm, calm) = (account(3 << 20), account(3 << 20));
        let before = area.usage().used;
        std::thread::scope(|scope| {
            for slot in 0..4u32 {
                let area = *area;
                scope.spawn(move || {
                    // SAFETY: a slot of its own.
                    let p = unsafe { Process::attach(area, slot) };
                    let owner = if slot == 0 { calm } else { storm };
                    for round in 0..8 {
                        let accounts = [Some(owner), None];
                        let Ok(index) = create(&p, Charge { accounts, ..Charge::default() }) else {
                            assert_ne!(slot, 0);
                            continue;
                        };
                        if slot == 0 {
                            for i in 0..20_000u64 {
                                index.insert(&p, &Memcmp, &i.to_be_bytes(), i).unwrap();
                            }
                        } else {
                            assert_eq!(fill(&p, &index, round).1, Lack::Account(0));
                        }
                        assert!(owner.used() <= owner.limit());
                        // SAFETY: no other process knows it.
                        unsafe { index.destroy(&p) };
                    }
                });
            }
        });
        assert_eq!((storm.used(), calm.used(), area.usage().used), (0, 0, before));
    }
}
