//! EXPLAIN with options of extensions, which there are from 18 on.

use pgrx::pg_sys;
use std::ffi::CStr;

/// The output of an EXPLAIN.
pub struct Explanation(*mut pg_sys::ExplainState);

/// Explains one node of a plan.
pub type Explain = unsafe fn(*mut pg_sys::PlanState, &Explanation);

impl Explanation {
    /// A line, or a field, with a text that is the server's or ASCII.
    pub fn text(&self, label: &CStr, value: &CStr) {
        // SAFETY: made by the hook below for the time of its call.
        unsafe { pg_sys::ExplainPropertyText(label.as_ptr(), value.as_ptr(), self.0) }
    }

    /// A line, or a field, with a number.
    pub fn number(&self, label: &CStr, unit: Option<&CStr>, value: i64) {
        let unit = unit.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: as above.
        unsafe { pg_sys::ExplainPropertyInteger(label.as_ptr(), unit, value, self.0) }
    }
}

/// Gives EXPLAIN an option of the extension's name, by which each node is explained.
///
/// # Safety
/// Once, when the library is loaded. `explain` gets live nodes, also of plans that are not run.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
pub unsafe fn explain_option(_explain: Explain) {}

#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
pub use with_options::explain_option;

#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
mod with_options {
    use crate::pg::compat::explain::{Explain, Explanation};
    use pgrx::pg_sys::{self, ExplainState};
    use pgrx::prelude::*;
    use std::ffi::{CStr, c_char};
    use std::sync::OnceLock;

    const NAME: &CStr = c"nitro";
    static EXPLAIN: OnceLock<Explain> = OnceLock::new();
    static mut PREVIOUS: pg_sys::explain_per_node_hook_type = None;

    /// Gives EXPLAIN an option of the extension's name, by which each node is explained.
    ///
    /// # Safety
    /// Once, when the library is loaded. `explain` gets live nodes, also of plans that are not run.
    pub unsafe fn explain_option(explain: Explain) {
        EXPLAIN.get_or_init(|| explain);
        // SAFETY: plain globals; children of the postmaster inherit them. The name is static.
        unsafe {
            #[cfg(not(feature = "pg19"))]
            pg_sys::RegisterExtensionExplainOption(NAME.as_ptr(), Some(choose));
            #[cfg(feature = "pg19")]
            pg_sys::RegisterExtensionExplainOption(NAME.as_ptr(), Some(choose), Some(check));
            PREVIOUS = pg_sys::explain_per_node_hook;
            pg_sys::explain_per_node_hook = Some(on_node);
        }
    }

    /// Whether a setting of another extension may name the option with this value.
    #[cfg(feature = "pg19")]
    #[pg_guard]
    unsafe extern "C-unwind" fn check(
        option: *const c_char,
        value: *const c_char,
        kind: pg_sys::NodeTag,
    ) -> bool {
        crate::pg::witness!();
        // SAFETY: what the server passes.
        unsafe { pg_sys::GUCCheckBooleanExplainOption(option, value, kind) }
    }

    /// `EXPLAIN (NITRO [on | off])`
    #[pg_guard]
    unsafe extern "C-unwind" fn choose(
        state: *mut ExplainState,
        option: *mut pg_sys::DefElem,
        _parse: *mut pg_sys::ParseState,
    ) {
        crate::pg::witness!();
        // SAFETY: the server's option and state. The kept pointer is a mark, never followed.
        unsafe {
            let mark =
                if pg_sys::defGetBoolean(option) { state.cast() } else { std::ptr::null_mut() };
            pg_sys::SetExplainExtensionState(
                state,
                pg_sys::GetExplainExtensionId(NAME.as_ptr()),
                mark,
            );
        }
    }

    /// `explain_per_node_hook`
    #[pg_guard]
    unsafe extern "C-unwind" fn on_node(
        node: *mut pg_sys::PlanState,
        ancestors: *mut pg_sys::List,
        relationship: *const c_char,
        plan_name: *const c_char,
        state: *mut ExplainState,
    ) {
        crate::pg::witness!();
        // SAFETY: what the server passes goes on to both.
        unsafe {
            if let Some(previous) = PREVIOUS {
                previous(node, ancestors, relationship, plan_name, state);
            }
            let own = pg_sys::GetExplainExtensionId(NAME.as_ptr());
            if !pg_sys::GetExplainExtensionState(state, own).is_null()
                && let Some(explain) = EXPLAIN.get()
            {
                explain(node, &Explanation(state));
            }
        }
    }
}
