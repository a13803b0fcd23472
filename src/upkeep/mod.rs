//! Bringing indexes up and keeping them so: the walk over the heap, and the background processes.

mod alarms;
pub mod bring_up;
mod builder;
pub mod follow;
pub mod keeper;
pub mod pack;
pub mod standby;
pub mod worker;

use nitro_engine::Process;

use crate::image;
use crate::state::claim;

/// Cleans up when a process ends, however it ends.
pub fn at_exit(process: &Process) {
    keeper::at_exit();
    follow::at_exit();
    image::backup::abandon(process);
    claim::abandon();
}
