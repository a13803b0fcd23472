//! Tests of images: what is written is read, what is damaged is refused, and whenever the machine
//! stops, there is an image left that was committed.

mod carried;
mod collected;
mod content;
mod crash;
mod faults;
mod manifest;
mod mutate;
mod race;
mod rng;
mod shard;
mod sim;
mod store;
