use super::*;
use crate::AreaUsage;
use crate::memory::area::tests::Mapping;
use crate::memory::class::LARGE;
use crate::sync::atomic::AtomicU64;
use proptest::prelude::*;
use std::collections::HashMap;

/// An allocator in a root of its own.
fn new_allocator(area: &Area) -> &BlockAllocator {
    allocator_at(
        area,
        create_root(area, size_of::<BlockAllocator>() + 100, 64, &Charge::default()).unwrap(),
    )
}

fn allocator_at(area: &Area, root: Ref) -> &BlockAllocator {
    // SAFETY: the callers create all roots with an allocator there.
    unsafe { &*area.at(root).add(64).cast() }
}

fn word(area: &Area, r: Ref, offset: usize) -> &AtomicU64 {
    // SAFETY: an aligned word inside a block of the test.
    unsafe { &*area.at(r).add(offset).cast() }
}

fn classes() -> impl Iterator<Item = Class> {
    (0..CLASSES as u8).map(|code| Class::from_code(code).unwrap())
}

/// Checks that the counts are those of the blocks.
fn audit(area: &Area, allocator: &BlockAllocator) {
    for (class, size) in allocator.classes.iter().zip(SIZES) {
        let in_service = class.open.iter(area).chain(class.idle.iter(area));
        let free: u32 = in_service.map(|at| extent(area, at).unused()).sum();
        assert_eq!(class.free.load(Relaxed), free, "blocks of {size}");
    }
    let closed = allocator.closed.iter(area).map(|at| extent(area, at));
    let shut: u64 = closed.map(|e| u64::from(e.unused()) * SIZES[e.class()] as u64).sum();
    assert_eq!(allocator.shut.load(Relaxed), shut);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u8),
    Free(usize),
    AllocSpan(usize),
    FreeSpan(usize),
    Release,
    Close,
    BeginRound,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CLASSES as u8).prop_map(Step::Alloc),
        3 => any::<usize>().prop_map(Step::Free),
        1 => (0usize..100_000).prop_map(Step::AllocSpan),
        1 => any::<usize>().prop_map(Step::FreeSpan),
        1 => Just(Step::Release),
        1 => Just(Step::Close),
        1 => Just(Step::BeginRound),
    ]
}

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/allocator.txt"))]
    #[test]
    fn blocks_and_spans(steps in prop::collection::vec(step(), 1..300)) {
        let area = Mapping::strict(4 << 20, 1);
        let start = area.usage();
        let other = new_allocator(&area);
        let allocator = new_allocator(&area);
        let mut blocks: Vec<(Ref, Class)> = Vec::new();
        let mut spans: Vec<(Ref, usize)> = Vec::new();
        // Version of every block ever seen, and the epoch: counts on through reuse in that epoch.
        let mut versions: HashMap<Ref, (u64, u64)> = HashMap::new();
        for step in steps {
            match step {
                Step::Alloc(code) => {
                    let class = Class::from_code(code).unwrap();
                    let Ok(r) = allocator.alloc(&area, class) else { continue };
                    let version = word(&area, r, 0).load(Relaxed);
                    let seen = versions.get(&r);
                    if let Some(&(_, seen)) = seen.filter(|(epoch, _)| *epoch == allocator.epoch()) {
                        prop_assert_eq!(version, seen);
                    } else if seen.is_none_or(|&(_, seen)| seen != version) {
                        for offset in (0..64).step_by(8) {
                            prop_assert_eq!(word(&area, r, offset).load(Relaxed), 0, "not zeroed");
                        }
                    }
                    // SAFETY: the block is ours.
                    unsafe { area.at(r).add(8).write_bytes(0xff, class.size() - 8) };
                    word(&area, r, 0).store(version + 1, Relaxed);
                    versions.insert(r, (allocator.epoch(), version + 1));
                    let (from, to) = (r as usize * UNIT, r as usize * UNIT + class.size());
                    let apart = |at: Ref, len: usize| at as usize * UNIT >= to || at as usize * UNIT + len <= from;
                    prop_assert!(blocks.iter().all(|&(at, class)| apart(at, class.size())));
                    prop_assert!(spans.iter().all(|&(at, bytes)| apart(at, bytes)));
                    blocks.push((r, class));
                }
                Step::Free(pick) if !blocks.is_empty() => {
                    let (r, class) = blocks.swap_remove(pick % blocks.len());
                    prop_assert_eq!(word(&area, r, class.size() - 8).load(Relaxed), u64::MAX);
                    allocator.free(&area, r);
                }
                Step::AllocSpan(bytes) => {
                    let Ok(r) = allocator.alloc_span(&area, bytes) else { continue };
                    // SAFETY: the span is ours.
                    unsafe { area.at(r).write_bytes(0xff, bytes) };
                    spans.push((r, bytes));
                }
                Step::FreeSpan(pick) if !spans.is_empty() => {
                    let (r, bytes) = spans.swap_remove(pick % spans.len());
                    allocator.free_span(&area, r, bytes);
                }
                Step::Close => drop(allocator.close_sparse(&area, true)),
                Step::BeginRound => allocator.begin_round(&area),
                Step::Release => {
                    allocator.release(&area);
                    prop_assert!(!allocator.is_leaving());
                }
                _ => {}
            }
            prop_assert_eq!(area.usage().used - start.used, allocator.bytes() + other.bytes());
            audit(&area, allocator);
        }
        allocator.destroy(&area);
        prop_assert_eq!(area.usage().used - start.used, other.bytes());
        other.destroy(&area);
        let AreaUsage { session, oldest_session, .. } = area.usage();
        prop_assert_eq!(area.usage(), AreaUsage { session, oldest_session, ..start });
    }
}

#[test]
fn threads_own_their_blocks() {
    const THREADS: u64 = 4;
    let area = Mapping::new(64 << 20, 1);
    let start = area.usage();
    let root =
        create_root(&area, size_of::<BlockAllocator>() + 100, 64, &Charge::default()).unwrap();
    let allocator = allocator_at(&area, root);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let area = area.alias();
            scope.spawn(move || {
                let allocator = allocator_at(&area, root);
                let (mut held, mut random) = (Vec::new(), thread);
                for _ in 0..60_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if held.len() < 40 && random & 1 == 0 {
                        let class = [Class::LEAF[0], Class::INDEX][(random >> 8) as usize & 1];
                        let r = allocator.alloc(&area, class).unwrap();
                        // The second word is the link while free. The third names the owner.
                        assert_eq!(word(&area, r, 16).swap(thread, Relaxed), 0, "owned twice");
                        held.push((r, class));
                    } else if !held.is_empty() {
                        let (r, _) = held.swap_remove((random >> 16) as usize % held.len());
                        assert_eq!(word(&area, r, 16).swap(0, Relaxed), thread);
                        allocator.free(&area, r);
                    }
                    if random.is_multiple_of(512) {
                        let r = allocator.alloc_span(&area, 10_000).unwrap();
                        allocator.free_span(&area, r, 10_000);
                    }
                }
                for (r, _) in held {
                    assert_eq!(word(&area, r, 16).swap(0, Relaxed), thread);
                    allocator.free(&area, r);
                }
            });
        }
    });
    // Freed blocks were reused: never more than what the threads held at once, plus growth.
    assert!(allocator.bytes() < 4 << 20, "{}", allocator.bytes());
    allocator.destroy(&area);
    assert_eq!(area.usage(), start);
}

#[test]
fn a_full_area_serves_to_the_last_page() {
    let area = Mapping::new(8 << 20, 1);
    let start = area.usage();
    let allocator = new_allocator(&area);
    let class = Class::LEAF[0];
    let mut blocks = 0;
    let error = loop {
        match allocator.alloc(&area, class) {
            Ok(_) => blocks += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(error.requested, PAGE);
    assert_eq!(area.usage().free, 0);
    assert!(blocks * class.size() * 100 > start.free * 96, "{blocks} blocks");
    allocator.destroy(&area);
    assert_eq!(area.usage(), start);
}

#[test]
fn a_new_allocator_is_small() {
    let area = Mapping::new(1 << 20, 1);
    let allocator = new_allocator(&area);
    allocator.alloc(&area, Class::LEAF[0]).unwrap();
    allocator.alloc(&area, Class::INDEX).unwrap();
    assert_eq!(allocator.bytes(), 3 * PAGE);
}

#[test]
fn extents_grow_and_waste_little() {
    for class in classes() {
        let (mut held, mut waste) = (0, 0);
        for _ in 0..300 {
            let bytes = extent_size(class.size(), held);
            assert!(bytes >= EXTENT_HEADER + class.size() && bytes.is_multiple_of(PAGE));
            assert!(bytes <= MAX_EXTENT + 3 * PAGE);
            held += bytes;
            waste += (bytes - EXTENT_HEADER) % class.size();
        }
        assert!(held > 64 << 20 && waste * 50 < held, "{class:?}: {waste} of {held}");
    }
}

#[test]
fn chunk_classes() {
    assert_eq!(Class::chunk(0).unwrap().size(), 128);
    assert_eq!(Class::chunk(512).unwrap().size(), 512);
    assert_eq!(Class::chunk(513).unwrap().size(), 640);
    assert_eq!(Class::chunk(16384).unwrap().size(), 16384);
    let largest = Class::LARGEST.size();
    assert_eq!(EXTENT_HEADER + largest, MAX_EXTENT_PAGES * PAGE);
    assert_eq!(Class::chunk(largest).unwrap().size(), largest);
    assert_eq!(Class::chunk(largest + 1), None);
    assert_eq!(Class::chunk(usize::MAX), None);
    for bytes in 193..=largest {
        let size = Class::chunk(bytes).unwrap().size();
        assert!(size >= bytes && size * 3 <= bytes.next_multiple_of(64) * 4, "{bytes} in {size}");
    }
    // One of them costs its pages and no more.
    for class in
        (0..LARGE.len()).filter_map(|i| Class::from_code((CLASSES - LARGE.len() + i) as u8))
    {
        assert_eq!(extent_size(class.size(), 0), EXTENT_HEADER + class.size());
    }
    assert_eq!(Class::LEAF[11].size(), 16384);
    assert_eq!(Class::INDEX.size(), 1024);
    assert_eq!(Class::from_code(CLASSES as u8), None);
    assert!(classes().all(|class| Class::from_code(class.code()) == Some(class)));
}

/// An extent that was closed and became idle serves again like any other: it is on one list at a
/// time.
#[test]
fn a_closed_extent_serves_again() {
    let area = Mapping::new(4 << 20, 1);
    let allocator = new_allocator(&area);
    let class = Class::LEAF[0];
    let mut blocks: Vec<Ref> = (0..100).map(|_| allocator.alloc(&area, class).unwrap()).collect();
    let freed = blocks.iter().step_by(2);
    freed.for_each(|&r| allocator.free(&area, r));
    blocks = blocks.into_iter().skip(1).step_by(2).collect();
    let class_state = &allocator.classes[class.code() as usize];
    allocator.begin_round(&area);
    let at = allocator.close_sparse(&area, true).unwrap();
    blocks.retain(|&r| {
        let stays = area.extent_of(r) != at;
        if !stays {
            allocator.free(&area, r);
        }
        stays
    });
    // Nothing else has room any more.
    let again = loop {
        let r = allocator.alloc(&area, class).unwrap();
        if area.extent_of(r) == at {
            break r;
        }
        blocks.push(r);
    };
    allocator.free(&area, again);
    assert!(class_state.open.iter(&area).all(|open| open != at), "idle, and still open");
    allocator.release(&area);
    blocks.extend((0..100).map(|_| allocator.alloc(&area, class).unwrap()));
    blocks.sort_unstable();
    assert!(
        blocks.is_sorted_by(|a, b| b - a >= (class.size() / UNIT) as u32),
        "a block has two owners"
    );
}

/// A node that moves gets no new memory, though the area has some.
#[test]
fn a_moved_node_gets_no_new_memory() {
    let area = Mapping::new(4 << 20, 1);
    let allocator = new_allocator(&area);
    let class = Class::LEAF[0];
    assert_eq!(allocator.alloc_among(&area, class), None);
    let first = allocator.alloc(&area, class).unwrap();
    let bytes = allocator.bytes();
    let among = std::iter::from_fn(|| allocator.alloc_among(&area, class)).count() as u32;
    assert_eq!(among + 1, extent(&area, area.extent_of(first)).blocks());
    let idle = allocator.alloc(&area, class).unwrap();
    assert_ne!(area.extent_of(idle), area.extent_of(first));
    let more = allocator.bytes();
    assert!(more > bytes);
    allocator.free(&area, idle);
    let among = std::iter::from_fn(|| allocator.alloc_among(&area, class)).count() as u32;
    assert_eq!(among, extent(&area, area.extent_of(idle)).blocks());
    assert_eq!(allocator.bytes(), more);
}

/// The class was larger, and in the only extent that is left is little: that goes to a small one.
#[test]
fn a_small_extent_for_what_is_left() {
    for class in [Class::LEAF[0], Class::INDEX] {
        let area = Mapping::new(16 << 20, 1);
        let allocator = new_allocator(&area);
        let blocks: Vec<Ref> = (0..2000).map(|_| allocator.alloc(&area, class).unwrap()).collect();
        let at = area.extent_of(blocks[1999]);
        let (left, gone): (Vec<Ref>, Vec<Ref>) =
            blocks.into_iter().partition(|&r| area.extent_of(r) == at);
        gone.into_iter().for_each(|r| allocator.free(&area, r));
        let few = left.len().min(extent(&area, at).blocks() as usize / 3);
        left[few..].iter().for_each(|&r| allocator.free(&area, r));
        allocator.release(&area);
        let held = allocator.bytes();
        allocator.begin_round(&area);
        assert_eq!(allocator.close_sparse(&area, true), Some(at));
        let small = allocator.bytes() - held;
        assert!(small < few * class.size() + 2 * PAGE, "{small} bytes for {few} blocks");
        assert!((0..few).all(|_| allocator.alloc_among(&area, class).is_some()));
        left[..few].iter().for_each(|&r| allocator.free(&area, r));
        allocator.release(&area);
        assert!(allocator.bytes() < held / 2 + small);
    }
}

/// Extents that were filled last are in front, however many there are. Sparse ones are behind them.
#[test]
fn a_sparse_extent_is_found_behind_full_ones() {
    let area = Mapping::new(64 << 20, 1);
    let allocator = new_allocator(&area);
    let class = Class::LEAF[0];
    let mut extents: Vec<Vec<Ref>> = Vec::new();
    for _ in 0..20_000 {
        let r = allocator.alloc(&area, class).unwrap();
        match extents.last_mut() {
            Some(blocks) if area.extent_of(blocks[0]) == area.extent_of(r) => blocks.push(r),
            _ => extents.push(vec![r]),
        }
    }
    let sparse = extents.split_off(extents.len() - 10);
    sparse.iter().flatten().step_by(2).for_each(|&r| allocator.free(&area, r));
    let full = extents.iter().filter(|blocks| blocks.len() > 32);
    assert!(full.clone().count() > 40);
    full.for_each(|blocks| allocator.free(&area, blocks[0]));
    allocator.begin_round(&area);
    let closed = allocator.close_sparse(&area, true).unwrap();
    assert!(sparse.iter().any(|blocks| area.extent_of(blocks[0]) == closed));
}
