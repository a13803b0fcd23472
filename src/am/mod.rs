//! The index access method: the handler, and one file per callback family.

use pgrx::prelude::*;
use pgrx::{AllocatedByRust, PgBox, pg_sys};

use crate::key::elements::strategy;
use crate::pg::compat;
use crate::state::options;

pub mod aggregate;
mod build;
mod cost;
pub mod deferred;
mod described;
mod index_only;
mod insert;
pub mod intervals;
mod joins;
mod nodes;
mod publish;
pub mod quals;
mod rows;
mod scan;
mod spans;
pub mod statements;
mod stock;
mod token;
mod tuple;
mod unique;
mod vacuum;
mod validate;
mod visibility;
mod whole;
mod work;

pub use cost::{describes_nitro, reads_one_key};
pub use scan::work;

/// Makes known what runs in plans.
pub fn install_hooks() {
    nodes::install_hooks();
    token::install_hooks();
    statements::install_hooks();
    aggregate::register();
}

/// `nitro_handler(internal) returns index_am_handler`. Trivial on purpose: the planner of 18 calls
/// it for many operator lookups.
#[pg_extern]
fn nitro_handler(_fcinfo: pg_sys::FunctionCallInfo) -> PgBox<pg_sys::IndexAmRoutine> {
    crate::pg::witness!();
    compat::routine(routine)
}

fn routine() -> PgBox<pg_sys::IndexAmRoutine, AllocatedByRust> {
    // SAFETY: allocates a zeroed node of the right size with its tag set.
    let mut am =
        unsafe { PgBox::<pg_sys::IndexAmRoutine>::alloc_node(pg_sys::NodeTag::T_IndexAmRoutine) };
    am.amstrategies = strategy::LAST;
    am.amsupport = compat::SUPPORT_FUNCTIONS;
    am.amoptsprocnum = 5;
    am.amcanorder = true;
    am.amcanbackward = true;
    am.amcanunique = compat::MAY_BE_UNIQUE;
    am.amcanmulticol = true;
    am.amoptionalkey = true;
    am.amsearcharray = true;
    am.amsearchnulls = true;
    am.amclusterable = true;
    am.amcaninclude = true;
    am.amcanparallel = true;
    am.amusemaintenanceworkmem = false;
    // Not `amtranslatestrategy`, nor consistent equality or ordering. With these nitro's families
    // would define the operators of every query, beside btree's, even on tables without nitro
    // indexes. As before 18, btree's families do that alone.
    compat::answer_planner(&mut am, described::tree_height, validate::cmptype_to_strategy);
    compat::build_in_parallel(&mut am);
    // The walk of ambulkdelete uses no maintenance_work_mem and may run in a parallel worker.
    am.amparallelvacuumoptions = (pg_sys::VACUUM_OPTION_PARALLEL_BULKDEL
        | pg_sys::VACUUM_OPTION_PARALLEL_COND_CLEANUP) as u8;
    am.ambuild = Some(build::build);
    am.ambuildempty = Some(build::build_empty);
    am.aminsert = Some(insert::insert);
    am.ambulkdelete = Some(vacuum::bulk_delete);
    am.amvacuumcleanup = Some(vacuum::cleanup);
    am.amcanreturn = Some(described::can_return);
    am.amcostestimate = Some(cost::estimate);
    am.amoptions = Some(options::parse);
    am.amproperty = Some(validate::property);
    am.ambuildphasename = Some(build::phase_name);
    am.amvalidate = Some(validate::validate);
    am.ambeginscan = Some(scan::begin);
    am.amrescan = Some(scan::rescan);
    am.amgettuple = Some(scan::get_tuple);
    am.amgetbitmap = Some(scan::bitmap::get_bitmap);
    am.amendscan = Some(scan::end);
    am.amestimateparallelscan = Some(compat::parallel_memory_of::<{ scan::parallel::SIZE }>);
    am.aminitparallelscan = Some(scan::parallel::init);
    am.amparallelrescan = Some(scan::parallel::restart);
    am.ammarkpos = Some(scan::marks::mark);
    am.amrestrpos = Some(scan::marks::restore);
    am
}
