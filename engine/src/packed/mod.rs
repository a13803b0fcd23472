//! Packed leaves: the entries of a range of keys in a block, in a fraction of the memory of slots.
//!
//! Nothing here knows of versions and latches. A leaf is a slice of words. They are read one by
//! one, and a writer may be changing them. The header is copied and checked against the block
//! first. The bytes behind it may be torn. Then the values that are read are wrong, but bounded,
//! and from this block. There is no unsafe code here. The callers validate their readings.
//!
//! ```text
//!  24 u16 n   entries, <= 1024          26 u16 d   different keys
//!  28 u8  bits of a head                29 u8  bits of a TID   30 u8 of these the offset in the page
//!  31 u8  form: 0 adjacent, 1 wide, 2 scattered, 3 compared, 4 short; 16 zero-terminated
//!  32 u8  length of all keys, 0: varying            33 u8 bits of a symbol
//!  34 u8  bits of `ends`, 0: one entry per key      35 u8 bits of `tail ends`
//!  36 u16 where heads begin             38 u16 TIDs
//!  64 u64 base of heads                 72 u64 base of TIDs    80 u64 columns, a byte each
//!  88 u32 (not used)                    92 u16 where `ends`    94 u16 and tails begin
//!  96 u16 where `tail ends` begin       98 u8  first column    99 u8 how many columns
//! 100 u8  symbols of the alphabet      101 u8  (not used)              102 u8 length of the template
//! 104 low key ... template, alphabet (a bitmap of 32 bytes) | heads | TIDs | ends | tail ends | tails
//! ```
//! The first 64 bytes are those of every leaf and are not touched, except for the words with
//! entries above. Each array begins at a multiple of 8 and has room up to the next.
//!
//! * *Adjacent, scattered*: all keys have one length of at most 64 bytes and differ in at most 8
//!   columns. The other columns are in the template. The head is the number in these bytes, minus
//!   the base.
//! * *Wide*: the head is the first 8 symbols behind the shared bytes (the template). The tail is
//!   the rest. A symbol is a byte, unless each key has one zero behind the template, at its end.
//!   Then a symbol is the rank of the byte among those that occur: 4 to 7 bits. The zero is not
//!   stored. If lengths vary, symbol 0 is the end. Otherwise ranks begin with 0. Keys of varying
//!   length without this zero have everything behind the template in their tail.
//! * *Short*: keys of at most 64 bytes and of varying lengths, with at most seven bytes behind the
//!   shared ones. The head has these bytes, zeros in place of missing ones, and the number of
//!   bytes. If two keys differ only in zeros at their ends, the shorter one is lower.
//! * *Compared*: keys are in the order of a comparator. The head is the abbreviation of the key.
//!   (Without abbreviations it has no bits.) The tail is everything behind the template, in bytes
//!   or in an alphabet without an end.
//! * *TIDs*: (page << bits of the offset | offset) minus the base, in order per key.
//! * *Ends*: entries up to key k, if a key has several. *Tail ends*: symbols in tails up to key k,
//!   where lengths vary.
//!
//! Widths suffice for the whole range of the leaf if that costs next to nothing, so that inserts
//! fit.
#![forbid(unsafe_code)]

mod alphabet;
mod bits;
mod coming;
mod encode;
mod head;
mod layout;
mod leaf;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed_odd.rs"]
mod odd_tests;
mod range;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed_rearranged.rs"]
mod rearranged;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed_room.rs"]
mod room_tests;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed_runs.rs"]
mod run_tests;
mod shape;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed.rs"]
mod tests;
mod tids;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed_torn.rs"]
mod torn_tests;
mod words;

pub use bits::Draft;
pub use coming::{Bounds, Coming, Grows};
pub use encode::encode;
pub use layout::{MAX_ENTRIES, Torn};
pub use leaf::{Found, Leaf, PART, Segments};
pub use shape::{Shape, Sorted};
