//! A model of the protocol by which an index survives a crash: small enough that every order of
//! events is looked at.
//!
//! One heap block with two TIDs, and around it everybody who takes part: writers, VACUUM in its two
//! passes, a reader with a TID in hand, who makes images, who loads them. Each is a handful of
//! atomic steps, and between any two of them anything else may happen: a cancel, a row that cannot
//! be indexed, an image that cannot be read just now, a crash that loses memory and any part of the
//! WAL that was not flushed. docs/durability.md says which function of the code is which step.
//!
//! Three things are asked of every state that can be reached (`Protocol::properties`):
//! - no row is missing from a ready index;
//! - no entry outlives its TID, in an index that takes part in anything;
//! - nobody has a TID in hand that was given to another row.
//!
//! What keeps these true can be switched off, one mechanism at a time (`Break`): the checker then
//! has to find the way to a wrong answer. A mechanism without which nothing is found would be one
//! that the model does not contain.
//!
//! What is atomic here and is not in the code, and why it may be:
//! - A heap page changes together with its WAL record: whoever looks at the page or its LSN and
//!   acts on it does so under the page's lock.
//! - A transaction gets its ID when it inserts. One that had it longer only looks at its page more
//!   often.
//! - B is read and published at once, and so is X: between the two only rows later than B come.
//! - An image is written at the last moment of its writing. What is in the index all the time since
//!   the snapshot is in it, what came later is not, and what went meanwhile may be or not.
//! - VACUUM does not wait for a load; it may always run out of patience.
//! - A commit need not be flushed, and how much of the WAL has reached the disk without being asked
//!   to is for each crash to choose (`heap::Heap`).
//!
//! Not in the model: what needs a second block (truncation, new pages), a HOT chain, another
//! timeline, WAL that was flushed and is lost, and the order of memory accesses (the code's are
//! sequentially consistent where it counts).
//!
//! The module `standby` is a model of its own: an index on a server that replays WAL.

#![cfg(test)]

mod backup;
mod check;
mod crash;
mod heap;
mod loader;
mod protocol;
mod standby;
mod state;
mod tests;
mod vacuum;
mod writer;
