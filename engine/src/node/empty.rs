//! Empty nodes: their class and their header.

use super::block::{Block, LEAF_KEYS, NODE_KEYS, SLOTS};
use crate::memory::class::Class;

/// Returns the class of a new leaf for keys of this usual length.
pub(crate) fn first_class(key_len: usize) -> Class {
    match key_len {
        0 => Class::LEAF[2],
        1..=9 => Class::LEAF[0],
        n => leaf_class(n * 48),
    }
}

/// Returns the smallest class of leaves whose key area has this number of bytes, or the largest
/// class.
pub(crate) fn leaf_class(key_area: usize) -> Class {
    let fits = Class::LEAF.iter().find(|class| class.size() - LEAF_KEYS >= key_area);
    *fits.unwrap_or(&Class::LEAF[Class::LEAF.len() - 1])
}

/// Makes a block that no other process knows an empty node.
pub(crate) fn init_block(b: Block, class: Class, level: u8, flags: u8) {
    let key_area = if level == 0 { LEAF_KEYS } else { NODE_KEYS };
    b.set_class(class);
    b.set_level(level);
    b.init_flags(flags);
    b.set_next(0);
    b.set_prev(0);
    b.set_high(u64::MAX);
    b.set_link(0);
    b.set_max_born(0);
    b.set_low_off(key_area as u16);
    b.set_low_len(0);
    b.set_keys_top(key_area as u16);
    b.set_ndead(0);
    b.set_skip(0);
    b.set_parent(0);
    for side in 0..2 {
        b.set_mask(side, 0);
        b.set_perm(side, &[0; SLOTS]);
    }
}
