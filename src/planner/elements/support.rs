//! Calls of `nitro_any_less` and the like become the operators, which the planner finds in an
//! index.
//!
//! The functions have names that can be called; the operators are what an operator class has. Both
//! are in one schema, in which a stranger may be allowed to create others. So an operator is looked
//! up by its name *and* exactly its types: there is only one of these.

use std::ffi::CStr;

use pgrx::PgList;
use pgrx::datum::Internal;
use pgrx::fcinfo::pg_getarg_datum_raw;
use pgrx::pg_sys::{
    self, ANYCOMPATIBLEARRAYOID, ANYCOMPATIBLEOID, ANYCOMPATIBLERANGEOID, Datum, FunctionCallInfo,
    Node, NodeTag, Oid, SysCacheIdentifier, TEXTARRAYOID, TEXTOID,
};
use pgrx::prelude::*;

use super::rewrite;

/// Functions, and the operators in their places: name, left and right type.
const OPERATORS: [(&CStr, &CStr, Oid, Oid); 5] = [
    (c"nitro_any_less", c"&<", ANYCOMPATIBLEARRAYOID, ANYCOMPATIBLEOID),
    (c"nitro_any_greater", c"&>", ANYCOMPATIBLEARRAYOID, ANYCOMPATIBLEOID),
    (c"nitro_any_between", c"&<>", ANYCOMPATIBLEARRAYOID, ANYCOMPATIBLEARRAYOID),
    (c"nitro_any_in", c"&<@", ANYCOMPATIBLEARRAYOID, ANYCOMPATIBLERANGEOID),
    (c"nitro_any_prefix", c"&^@", TEXTARRAYOID, TEXTOID),
];

/// Support function of the functions above. Returns a null pointer for a request that it does not
/// know: the call stays as it is.
#[pg_extern]
fn nitro_any_support(fcinfo: FunctionCallInfo) -> Internal {
    crate::pg::witness!();
    // SAFETY: the server calls it with a request, a node whose tag says which one.
    unsafe {
        let request =
            pg_getarg_datum_raw(fcinfo, 0).cast_mut_ptr::<pg_sys::SupportRequestSimplify>();
        let simplify = (*request).type_ == NodeTag::T_SupportRequestSimplify;
        let operation = simplify.then(|| operation((*request).root, (*request).fcall)).flatten();
        Internal::from(Some(Datum::from(operation.unwrap_or(std::ptr::null_mut()))))
    }
}

/// Makes the operation in the place of a call.
unsafe fn operation(
    root: *mut pg_sys::PlannerInfo,
    call: *const pg_sys::FuncExpr,
) -> Option<*mut Node> {
    // SAFETY: an expression that the planner simplifies; catalogue look-ups.
    unsafe {
        let function = pg_sys::get_func_name((*call).funcid);
        if function.is_null() {
            return None;
        }
        let (_, name, left, right) =
            *OPERATORS.iter().find(|(own, ..)| *own == CStr::from_ptr(function))?;
        let operator = operator(name, left, right, pg_sys::get_func_namespace((*call).funcid))?;
        let args = PgList::<Node>::from_pg((*call).args);
        let elements = args.get_ptr(0)?;
        let other = match args.get_ptr(2) {
            None => args.get_ptr(1)?,
            Some(high) => {
                let arrays = pg_sys::exprType(elements);
                let bounds = [args.get_ptr(1)?, high];
                rewrite::array_of(root, &bounds, arrays, pg_sys::get_base_element_type(arrays))
            }
        };
        let operation = pg_sys::make_opclause(
            operator,
            pg_sys::BOOLOID,
            false,
            elements.cast(),
            other.cast(),
            Oid::INVALID,
            (*call).inputcollid,
        );
        pg_sys::set_opfuncid(operation.cast());
        Some(operation.cast())
    }
}

/// Finds the operator of exactly this name, types and schema.
unsafe fn operator(name: &CStr, left: Oid, right: Oid, schema: Oid) -> Option<Oid> {
    // SAFETY: catalogue access inside the planner; the row is released after reading.
    unsafe {
        let row = pg_sys::SearchSysCache4(
            SysCacheIdentifier::OPERNAMENSP as _,
            Datum::from(name.as_ptr()),
            left.into(),
            right.into(),
            schema.into(),
        );
        if row.is_null() {
            return None;
        }
        let found = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_operator>()).oid;
        pg_sys::ReleaseSysCache(row);
        Some(found)
    }
}
