//! Eight bytes of each key, from a place on before which all keys are the same: what is a number there is read without its
//! key.

use super::bits::mask;
use super::layout::Form;
use super::{Leaf, PART};
use crate::mutants::mutant;
use core::ops::Range;

/// How they are put together of a head.
#[derive(Clone, Copy, Default)]
pub struct Eights {
    /// The bytes that all keys share, the first one the highest.
    shared: u64,
    /// Of a head without its lowest bits, which belong to what is behind, those that belong here, and how far up.
    down: u32,
    head: u64,
    up: u32,
}

impl Leaf<'_> {
    /// How to read the eight bytes from byte `at` of each key on, the first one the highest; behind the end of a key there is
    /// anything. None: not all bytes before are the same, or those that differ are not neighbours, or not in the heads. To
    /// be validated by the caller.
    pub fn eights_at(&self, at: usize) -> Option<Eights> {
        let l = &self.layout;
        let eight = self.words.big_endian(l.template() + at);
        match l.form {
            Form::Adjacent | Form::Scattered => {
                let within = (0..l.ncolumns).take_while(|&i| l.column(i) < at + 8).count();
                let Some(last) = within.checked_sub(1) else {
                    return Some(Eights { shared: eight, ..Eights::default() });
                };
                let (from, to) = (l.column(0), l.column(last) + 1);
                let shares = from >= at || mutant!("eights begin behind what keys share");
                if !shares || to - from != within {
                    return None;
                }
                let (down, up) = (8 * (l.ncolumns - within) as u32, 8 * (at + 8 - to) as u32);
                let head = mask(8 * within);
                Some(Eights { shared: eight & !(head << up), down, head, up })
            }
            Form::Wide if self.alphabet.is_none() => {
                // Eight bytes of what is behind the template are in the head, zeros where the key has ended.
                let shares = l.tlen.checked_sub(at)?.min(8);
                let head = mask(64 - 8 * shares);
                Some(Eights { shared: eight & !head, down: 8 * shares as u32 % 64, head, up: 0 })
            }
            _ => None,
        }
    }

    /// These bytes of at most [`PART`] ranks. To be validated by the caller.
    pub fn eights(&self, how: Eights, ranks: Range<usize>, out: &mut [u64; PART]) {
        let Eights { shared, down, head, up } = how;
        let base = self.layout.kbase;
        let of = |number: u64| shared | (base.wrapping_add(number) >> down & head) << up;
        self.spread(ranks, out, of);
    }
}
