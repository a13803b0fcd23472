//! Schedules of threads that are chosen and not left to chance, and whether what came of them is
//! right.
//!
//! [`pairs`]: two actors, every pair of stop points. [`random`]: two or three under shuttle, every
//! access to shared memory is a point, nodes have four entries, and the schedules are drawn.

#[cfg_attr(shuttle, allow(dead_code, reason = "the pairs use all of it"))]
mod world;

#[cfg(shuttle)]
mod random;
#[cfg(shuttle)]
use random::{progress, waiting};

#[cfg(not(shuttle))]
mod pairs;
#[cfg(not(shuttle))]
use pairs::{progress, quietly, waiting};

/// Families of schedules: each is a test, and all are passed by [`every_stop_point_is_passed`].
#[cfg(not(shuttle))]
macro_rules! families {
    ($($(#[$doc:meta])* fn $name:ident($driver:ident) $body:block)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                let $driver = super::pairs::pairs;
                $body
            }
        )*
        pub(super) fn all(driver: super::pairs::Driver) {
            $({
                let $driver = driver;
                $body
            })*
        }
    };
}

#[cfg(not(shuttle))]
mod cursors;
#[cfg(not(shuttle))]
mod filling;
#[cfg(not(shuttle))]
mod leaving;
#[cfg(not(shuttle))]
mod merging;
#[cfg(not(shuttle))]
mod moving;
#[cfg(not(shuttle))]
mod new_keys;
#[cfg(not(shuttle))]
mod packed;
#[cfg(not(shuttle))]
mod runs;
#[cfg(not(shuttle))]
mod snapshots;
#[cfg(not(shuttle))]
mod splitting;

#[cfg(not(shuttle))]
#[test]
fn packed_leaves_under_a_comparator() {
    world::COMPARED.set(true);
    packed::all(pairs::pairs);
}

#[cfg(not(shuttle))]
#[test]
fn filling_under_a_comparator() {
    world::COMPARED.set(true);
    filling::all(pairs::pairs);
}

#[cfg(not(shuttle))]
#[test]
fn every_stop_point_is_passed() {
    use crate::sync::stop::POINTS;
    use std::sync::atomic::Ordering::Relaxed;
    for all in [
        splitting::all,
        merging::all,
        filling::all,
        leaving::all,
        moving::all,
        snapshots::all,
        cursors::all,
        new_keys::all,
        packed::all,
        runs::all,
    ] {
        all(pairs::once);
    }
    let passed = |point: &usize| pairs::PASSED[*point].load(Relaxed);
    let missing: Vec<_> = (0..POINTS.len()).filter(|p| !passed(p)).map(|p| POINTS[p]).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
