use super::*;

/// Returns true if no process has an older token.
fn passed(barrier: Barrier<'_>, root: Ref, epoch: u64, may_hold: impl FnMut(u32) -> bool) -> bool {
    barrier.older_tokens(root, epoch, may_hold).next().is_none()
}

#[cfg(not(loom))]
mod units {
    use super::*;
    use crate::memory::area::Area;
    use crate::memory::area::tests::Mapping;
    use crate::memory::process::Process;
    use crate::memory::tokens::TokenId;
    use crate::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const ROOT: Ref = 77;

    fn attach(area: &Area, slot: u32) -> Process {
        // SAFETY: every test gives a slot to one process at a time.
        unsafe { Process::attach(*area, slot) }
    }

    /// A process that is stopped inside a section of one index does not hold up another index. A
    /// nested section does.
    #[test]
    fn sections_are_for_one_index() {
        let area = Mapping::new(1 << 20, 2);
        let (a, b) = (attach(&area, 0), attach(&area, 1));
        let stopped = a.enter_index(7);
        let k = area.close_session();
        assert_eq!(area.oldest_session(7), k);
        assert_eq!(area.oldest_session(0), k, "whoever waits for any index waits for it");
        assert!(area.oldest_session(8) > k);
        {
            let _nested = a.enter_index(8);
            assert_eq!(area.oldest_session(8), k, "in the session of the outermost section");
            assert_eq!(area.oldest_session(9), k, "it is for any index");
        }
        assert_eq!(area.oldest_session(8), k, "until that ends");
        drop(stopped);
        assert!(area.oldest_session(0) > k);
        let _any = b.enter();
        let k = area.close_session();
        assert_eq!(area.oldest_session(8), k);
    }

    #[test]
    fn a_section_holds_its_session_back() {
        let area = Mapping::new(1 << 20, 2);
        let (a, b) = (attach(&area, 0), attach(&area, 1));
        let outer = a.enter();
        let k = area.close_session();
        let inner = a.enter();
        let late = b.enter();
        assert_eq!(area.usage().active, 2);
        assert!(area.oldest_session(0) <= k);
        drop(inner);
        assert!(area.oldest_session(0) <= k, "the outer section goes on");
        drop(outer);
        assert!(area.oldest_session(0) > k, "whoever entered after the close does not matter");
        let k = area.close_session();
        assert_eq!(area.oldest_session(0), k);
        drop(late);
        assert!(area.oldest_session(0) > k);
        assert_eq!(area.usage().active, 0);
    }

    #[test]
    fn writers_and_readers_nest() {
        let area = Mapping::new(1 << 20, 1);
        let p = attach(&area, 0);
        let term = AtomicU32::new(5);
        {
            let _reader = p.enter();
            let k = area.close_session();
            {
                let writer = p.enter_writer(ROOT, &term);
                assert_eq!(writer.term(), 5);
                let _nested = p.enter();
                assert!(!area.writers_passed(ROOT, 5));
                assert!(area.writers_passed(ROOT, 4));
                assert!(area.writers_passed(ROOT + 1, 5));
                assert_eq!(area.oldest_session(0), k);
            }
            assert!(area.writers_passed(ROOT, 5));
            assert_eq!(area.oldest_session(0), k, "the reader keeps the oldest session");
        }
        assert!(area.oldest_session(0) > 1);
        let k = area.close_session();
        let writer = p.enter_writer(ROOT, &term);
        assert_eq!(area.oldest_session(0), k + 1);
        drop(writer);
        assert!(area.writers_passed(ROOT, u32::MAX));
        assert_eq!(area.usage().active, 0);
    }

    #[test]
    fn unwinding_leaves_the_section() {
        let area = Mapping::new(1 << 20, 1);
        let p = attach(&area, 0);
        let term = AtomicU32::new(1);
        let _outer = p.enter();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _writer = p.enter_writer(ROOT, &term);
            let _reader = p.enter();
            panic!("comparator");
        }));
        assert!(unwound.is_err());
        assert!(area.writers_passed(ROOT, 1));
        assert!(p.is_inside());
        assert_eq!(area.usage().active, 1);
    }

    #[test]
    fn abandoned_guards_are_void() {
        let area = Mapping::new(1 << 20, 1);
        let p = attach(&area, 0);
        let term = AtomicU32::new(1);
        let (reader, writer) = (p.enter(), p.enter_writer(ROOT, &term));
        let token = p.open_token(7);
        // SAFETY: nothing is under way.
        unsafe { p.abandon() };
        assert_eq!(area.usage().active, 0);
        assert!(area.writers_passed(ROOT, 1));
        let (_reader, _writer) = (p.enter(), p.enter_writer(ROOT, &term));
        drop((reader, writer));
        assert_eq!(area.usage().active, 1, "guards from before do not end the new section");
        assert!(!area.writers_passed(ROOT, 1));
        assert!(!passed(area.barrier(), 7, area.token_fence(), |_| true), "tokens stay");
        p.close_token(token);
    }

    #[test]
    fn attaching_resets_the_slot() {
        let area = Mapping::new(1 << 20, 1);
        let killed = attach(&area, 0);
        let term = AtomicU32::new(1);
        killed.open_token(7);
        std::mem::forget(killed.enter());
        std::mem::forget(killed.enter_writer(ROOT, &term));
        std::mem::forget(killed);
        let k = area.close_session();
        assert!(area.oldest_session(0) <= k);
        let p = attach(&area, 0);
        assert!(area.oldest_session(0) > k && area.writers_passed(ROOT, 1));
        assert!(passed(area.barrier(), 7, area.token_fence(), |_| true));
        drop(p);
    }

    #[test]
    fn closed_tokens_stay_closed() {
        let area = Mapping::new(1 << 20, 1);
        let p = attach(&area, 0);
        let old = p.open_token(7);
        p.close_all_tokens();
        let new = p.open_token(7);
        p.close_token(old);
        assert!(!p.renew_token(old), "it is not open");
        let fence = area.token_fence();
        assert!(
            !passed(area.barrier(), 7, fence, |_| true),
            "closing the old one again leaves the new one"
        );
        p.close_token(new);
        p.close_token(new);
        assert!(passed(area.barrier(), 7, fence, |_| true));
    }

    #[test]
    fn tokens_of_other_indexes_do_not_count() {
        let area = Mapping::new(1 << 20, 1);
        let p = attach(&area, 0);
        let other = p.open_token(8);
        let fence = area.token_fence();
        assert!(passed(area.barrier(), 7, fence, |_| true));
        assert!(!passed(area.barrier(), 8, fence, |_| true));
        assert!(!passed(area.barrier(), 0, fence, |_| true), "whichever");
        assert!(passed(area.barrier(), 0, fence, |_| false), "has nothing to do with it");
        let own = p.open_token(7);
        assert!(passed(area.barrier(), 9, fence, |_| true), "each has a place");
        assert!(!passed(area.barrier(), 7, fence, |_| true), "as old as the oldest of all");
        let more: Vec<TokenId> = (100..107).map(|root| p.open_token(root)).collect();
        assert!(!passed(area.barrier(), 9, fence, |_| true), "nobody knows which");
        assert!(!passed(area.barrier(), 9, fence, |slot| slot == 0), "may be this one");
        assert!(passed(area.barrier(), 9, fence, |slot| slot != 0), "cannot be this one");
        more.into_iter().for_each(|token| p.close_token(token));
        assert!(passed(area.barrier(), 9, fence, |_| true), "none for further ones any more");
        p.close_token(other);
        assert!(passed(area.barrier(), 8, area.token_fence(), |_| true));
        assert!(passed(area.barrier(), 7, fence, |_| true), "the one that is open is newer");
        assert!(!passed(area.barrier(), 7, area.token_fence(), |_| true));
        let again = p.open_token(7);
        p.close_token(own);
        assert!(!passed(area.barrier(), 7, area.token_fence(), |_| true), "one of two");
        p.close_token(again);
        p.open_token(8);
        assert!(passed(area.barrier(), 7, area.token_fence(), |_| true));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open,
        Renew(usize),
        Close(usize),
        Fence,
    }

    proptest! {
        #![proptest_config(crate::seeds::of("proptest-regressions/barrier.txt"))]
        #[test]
        fn the_slot_shows_the_oldest_token(steps in prop::collection::vec(prop_oneof![
            Just(Step::Open),
            any::<usize>().prop_map(Step::Renew),
            any::<usize>().prop_map(Step::Close),
            Just(Step::Fence),
        ], 1..200)) {
            let area = Mapping::new(1 << 20, 1);
            let p = attach(&area, 0);
            let (mut model, mut epoch): (Vec<(TokenId, u64)>, u64) = (Vec::new(), 1);
            for step in steps {
                match step {
                    Step::Open => model.push((p.open_token(7), epoch)),
                    Step::Renew(i) if !model.is_empty() => {
                        let i = i % model.len();
                        prop_assert!(p.renew_token(model[i].0));
                        model[i].1 = epoch;
                    }
                    Step::Close(i) if !model.is_empty() => {
                        p.close_token(model.swap_remove(i % model.len()).0);
                    }
                    Step::Fence => {
                        epoch = area.token_fence();
                        prop_assert_eq!(passed(area.barrier(), 7, epoch, |_| true), model.is_empty());
                    }
                    _ => {}
                }
                let oldest = model.iter().map(|&(_, epoch)| epoch).min().unwrap_or(0);
                prop_assert_eq!(p.announcement().token.load(Relaxed), oldest);
            }
        }
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p nitro-engine --release --lib model`
#[cfg(loom)]
pub(crate) mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    pub(crate) struct World {
        globals: Globals,
        slots: [Announcement; 1],
        /// Whether the node is still linked, or the entry still in the index.
        linked: AtomicU32,
        /// The memory, or the TID: loom fails when reuse is not ordered behind every visit.
        node: UnsafeCell<bool>,
        pub(crate) term: AtomicU32,
        published: AtomicU32,
    }

    impl World {
        pub(crate) fn new() -> Arc<World> {
            Arc::new(World {
                globals: Globals { session: AtomicU64::new(1), epoch: AtomicU64::new(1) },
                slots: [Announcement {
                    session: AtomicU64::new(0),
                    within: AtomicU64::new(0),
                    writer: AtomicU64::new(0),
                    token: AtomicU64::new(0),
                    scopes: [0; PLACES + 1].map(AtomicU64::new),
                }],
                linked: AtomicU32::new(1),
                node: UnsafeCell::new(true),
                term: AtomicU32::new(1),
                published: AtomicU32::new(0),
            })
        }

        fn barrier(&self) -> Barrier<'_> {
            Barrier { globals: &self.globals, slots: &self.slots }
        }

        /// Runs the act of a writer, in a section, under its term.
        pub(crate) fn write(&self, act: impl FnOnce(u32)) {
            let term = || self.term.load(Acquire);
            act(self.slots[0].enter_writer(&self.globals, true, 7, term));
            self.slots[0].leave_writer();
            self.slots[0].leave();
        }

        /// Returns whether all writers of this term and of earlier terms have ended.
        pub(crate) fn writers_passed(&self, sn: u32) -> bool {
            self.barrier().writers_passed(7, sn)
        }

        /// Whether the node is found.
        fn find(&self) -> bool {
            self.linked.load(Relaxed) == 1
        }

        fn use_if(&self, found: bool) {
            if found {
                // SAFETY: loom checks that nobody writes meanwhile.
                self.node.with(|node| assert!(unsafe { *node }, "used after reuse"));
            }
        }

        /// Acts as the collector: unlinks the node, and reuses it if no process can read it any
        /// more. Returns the closed session.
        fn collect(&self) -> u64 {
            self.linked.store(0, Relaxed);
            let k = self.barrier().close_session();
            if self.barrier().oldest_session(0) > k {
                self.reuse();
            }
            k
        }

        fn reuse(&self) {
            // SAFETY: loom checks that nobody reads meanwhile.
            self.node.with_mut(|node| unsafe { *node = false });
        }
    }

    // SAFETY: loom checks every access to `node`.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    #[test]
    fn nothing_reachable_is_reused() {
        loom::model(|| {
            let world = World::new();
            let reader = thread::spawn({
                let world = world.clone();
                move || {
                    for _ in 0..2 {
                        world.slots[0].enter(&world.globals, 0);
                        world.use_if(world.find());
                        world.slots[0].leave();
                    }
                }
            });
            let k = world.collect();
            reader.join().unwrap();
            assert!(world.barrier().oldest_session(0) > k, "everybody has left");
        });
    }

    /// Found in one section, used in the next.
    #[test]
    fn nothing_under_a_finger_is_reused() {
        loom::model(|| {
            let world = World::new();
            let reader = thread::spawn({
                let world = world.clone();
                move || {
                    let slot = &world.slots[0];
                    slot.enter(&world.globals, 0);
                    let found = world.find();
                    let session = slot.session.load(Relaxed);
                    slot.leave();
                    slot.enter(&world.globals, 0);
                    world.use_if(found && world.globals.is_open(session));
                    slot.leave();
                }
            });
            world.collect();
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_snapshot_sees_all_of_its_terms() {
        loom::model(|| {
            let world = World::new();
            let writer = thread::spawn({
                let world = world.clone();
                move || world.write(|born| world.published.store(born, Relaxed))
            });
            let sn = world.term.fetch_add(1, AcqRel);
            if world.writers_passed(sn) {
                let first = world.published.load(Relaxed);
                writer.join().unwrap();
                let last = world.published.load(Relaxed);
                assert_eq!(first == sn, last == sn, "an entry appeared in an open snapshot");
            } else {
                writer.join().unwrap();
            }
            assert!(world.writers_passed(u32::MAX));
        });
    }

    /// A process with two scans. The second token opens while the first is open, the first closes,
    /// the second is renewed. Every read happens under a token that its slot shows.
    #[test]
    fn no_tid_is_reused_under_a_token() {
        loom::model(|| {
            let world = World::new();
            let scan = thread::spawn({
                let world = world.clone();
                move || {
                    let slot = &world.slots[0];
                    let epoch = || world.globals.epoch.load(Acquire);
                    let mut tokens = Tokens::default();
                    let (first, place) = tokens.open(7, epoch());
                    slot.show_tokens(&tokens, Some(place));
                    let found_by_first = world.find();
                    let (second, place) = tokens.open(7, epoch());
                    slot.show_tokens(&tokens, Some(place));
                    world.use_if(found_by_first);
                    let place = tokens.close(first);
                    slot.show_tokens(&tokens, place);
                    world.use_if(world.find());
                    assert!(tokens.renew(second, epoch()));
                    slot.show_tokens(&tokens, None);
                    world.use_if(world.find());
                    let place = tokens.close(second);
                    slot.show_tokens(&tokens, place);
                }
            });
            world.linked.store(0, Relaxed);
            let fence = world.barrier().token_fence();
            if passed(world.barrier(), 7, fence, |_| true) {
                world.reuse();
            }
            scan.join().unwrap();
            assert!(passed(world.barrier(), 7, fence, |_| true));
        });
    }

    /// A process that has a token for another index and takes one for this index, too, then one for
    /// this index alone.
    #[test]
    fn no_tid_is_reused_beside_a_token_for_another_index() {
        loom::model(|| {
            let world = World::new();
            let scan = thread::spawn({
                let world = world.clone();
                move || {
                    let slot = &world.slots[0];
                    let epoch = || world.globals.epoch.load(Acquire);
                    let mut tokens = Tokens::default();
                    let (other, place) = tokens.open(8, epoch());
                    slot.show_tokens(&tokens, Some(place));
                    let (own, place) = tokens.open(7, epoch());
                    slot.show_tokens(&tokens, Some(place));
                    world.use_if(world.find());
                    for token in [own, other] {
                        let place = tokens.close(token);
                        slot.show_tokens(&tokens, place);
                    }
                    let (own, place) = tokens.open(7, epoch());
                    slot.show_tokens(&tokens, Some(place));
                    world.use_if(world.find());
                    let place = tokens.close(own);
                    slot.show_tokens(&tokens, place);
                }
            });
            world.linked.store(0, Relaxed);
            let fence = world.barrier().token_fence();
            if passed(world.barrier(), 7, fence, |_| true) {
                world.reuse();
            }
            scan.join().unwrap();
            assert!(passed(world.barrier(), 7, fence, |_| true));
        });
    }
}
