//! Looking inside: views, and the comparison of an index with its table.

mod estimate;
mod explain;
mod feed;
mod followers;
mod names;
mod ready;
mod rows;
mod twin;
mod verify;
mod verify_images;
mod views;
mod wait_for;

pub use explain::install_hooks;
