//! Checks of operator families (`amvalidate`), and properties of the access method.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use pgrx::pg_sys::{Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use crate::key::elements::strategy;
use crate::pg::catalog;
use crate::pg::compat::SUPPORT_FUNCTIONS;
use crate::pg::error::Failure;

/// Strategy numbers are btree's in every family, and so are the server's of comparisons
/// (`amtranslatecmptype`); 0 is no strategy. A family of element columns, which has no comparison
/// function, has no comparisons.
#[pg_guard]
pub unsafe extern "C-unwind" fn cmptype_to_strategy(
    comparison: u32,
    family: Oid,
) -> pg_sys::StrategyNumber {
    crate::pg::witness!();
    // SAFETY: catalogue access; the server asks inside a transaction.
    let compares = || unsafe {
        !catalog::members::<pg_sys::FormData_pg_amproc>(SysCacheIdentifier::AMPROCNUM, family)
            .is_empty()
    };
    match comparison as pg_sys::StrategyNumber {
        strategy @ 1..=strategy::LAST_OF_BTREE if compares() => strategy,
        _ => 0,
    }
}

/// Answers questions that the server cannot derive (`amproperty`). Every column can be returned,
/// unless one has an entry per element. An element column has no order. Questions about the access
/// method or a whole index are left to the server.
#[pg_guard]
pub unsafe extern "C-unwind" fn property(
    index: Oid,
    column: c_int,
    property: pg_sys::IndexAMProperty::Type,
    _name: *const c_char,
    answer: *mut bool,
    _is_null: *mut bool,
) -> bool {
    crate::pg::witness!();
    use pg_sys::IndexAMProperty::*;
    if column == 0 {
        return false;
    }
    // SAFETY: catalogue access; out parameter of the server.
    unsafe {
        match property {
            AMPROP_RETURNABLE => {
                *answer = (1..=number_of_keys(index)).all(|key| !is_element(index, key));
                true
            }
            AMPROP_ORDERABLE | AMPROP_ASC | AMPROP_DESC | AMPROP_NULLS_FIRST
            | AMPROP_NULLS_LAST
                if is_element(index, column) =>
            {
                *answer = false;
                true
            }
            _ => false,
        }
    }
}

/// Whether an operator class for `input` is one for element columns: for arrays or jsonb, without a
/// comparison function. See `key::elements::index`.
unsafe fn holds_elements(family: Oid, input: Oid) -> bool {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        (input == pg_sys::ANYARRAYOID || input == pg_sys::JSONBOID)
            && pg_sys::get_opfamily_proc(family, input, input, ORDER as i16) == Oid::INVALID
    }
}

unsafe fn is_element(index: Oid, column: c_int) -> bool {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let class = pg_sys::get_index_column_opclass(index, column);
        class != Oid::INVALID
            && holds_elements(
                pg_sys::get_opclass_family(class),
                pg_sys::get_opclass_input_type(class),
            )
    }
}

unsafe fn number_of_keys(index: Oid) -> c_int {
    // SAFETY: catalogue access by the caller's contract; the row is released after reading.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(SysCacheIdentifier::INDEXRELID as _, index.into());
        if tuple.is_null() {
            return 0;
        }
        let form: pg_sys::Form_pg_index = pg_sys::GETSTRUCT(tuple).cast();
        let n = (*form).indnkeyatts;
        pg_sys::ReleaseSysCache(tuple);
        n.into()
    }
}

/// Checks the operator family of an operator class (`amvalidate`). It reports faults by INFO.
#[pg_guard]
pub unsafe extern "C-unwind" fn validate(class: Oid) -> bool {
    crate::pg::witness!();
    // SAFETY: catalogue access inside a transaction; cached tuples are released below, or by abort.
    unsafe {
        let tuple =
            pg_sys::SearchSysCache1(SysCacheIdentifier::CLAOID as _, pg_sys::Datum::from(class));
        if tuple.is_null() {
            error!("cache lookup failed for operator class {}", class.to_u32());
        }
        let form: pg_sys::Form_pg_opclass = pg_sys::GETSTRUCT(tuple).cast();
        let mut check = Check::of_family((*form).opcfamily);
        check.elements = holds_elements((*form).opcfamily, (*form).opcintype);
        check.documents = (*form).opcintype == pg_sys::JSONBOID;
        let class_name = text((*form).opcname.data.as_ptr());
        let input = (*form).opcintype;
        pg_sys::ReleaseSysCache(tuple);
        check.functions();
        check.operators();
        if !check.elements {
            check.completeness(&class_name, input);
        }
        check.good
    }
}

unsafe extern "C-unwind" {
    // access/amvalidate.h, the same in 15-19.
    fn check_amproc_signature(
        function: Oid,
        result: Oid,
        exact: bool,
        min_args: c_int,
        max_args: c_int,
        ...
    ) -> bool;
    fn check_amop_signature(operator: Oid, result: Oid, left: Oid, right: Oid) -> bool;
    fn check_amoptsproc_signature(function: Oid) -> bool;
}

/// Operators and support functions for one pair of types, as sets of numbers.
#[derive(Default)]
struct Group {
    operators: u32,
    functions: u32,
}

struct Check {
    family: Oid,
    name: String,
    groups: BTreeMap<(u32, u32), Group>,
    /// An operator class for element columns.
    elements: bool,
    /// Of documents, not of arrays.
    documents: bool,
    good: bool,
}

const ORDER: u16 = 1;
const IN_RANGE: u16 = 3;

impl Check {
    unsafe fn of_family(family: Oid) -> Check {
        // SAFETY: catalogue access by the caller's contract.
        unsafe {
            let tuple = pg_sys::SearchSysCache1(
                SysCacheIdentifier::OPFAMILYOID as _,
                pg_sys::Datum::from(family),
            );
            if tuple.is_null() {
                error!("cache lookup failed for operator family {}", family.to_u32());
            }
            let form: pg_sys::Form_pg_opfamily = pg_sys::GETSTRUCT(tuple).cast();
            let name = text((*form).opfname.data.as_ptr());
            pg_sys::ReleaseSysCache(tuple);
            Check {
                family,
                name,
                groups: BTreeMap::new(),
                elements: false,
                documents: false,
                good: true,
            }
        }
    }

    fn complain(&mut self, what: String) {
        self.good = false;
        let message = format!("operator family \"{}\" of access method nitro {what}", self.name);
        inform(message);
    }

    fn group(&mut self, left: Oid, right: Oid) -> &mut Group {
        self.groups.entry((left.to_u32(), right.to_u32())).or_default()
    }

    unsafe fn functions(&mut self) {
        // SAFETY: catalogue access by the caller's contract.
        unsafe {
            for form in catalog::members::<pg_sys::FormData_pg_amproc>(
                SysCacheIdentifier::AMPROCNUM,
                self.family,
            ) {
                let number = form.amprocnum as u16;
                let fits = (1..=SUPPORT_FUNCTIONS).contains(&number);
                if fits {
                    self.group(form.amproclefttype, form.amprocrighttype).functions |= 1 << number;
                }
                if fits && signature_fits(&form) {
                    continue;
                }
                let function = text(pg_sys::format_procedure(form.amproc));
                self.complain(if fits {
                    format!("contains function {function} with wrong signature for support number {number}")
                } else {
                    format!("contains function {function} with invalid support number {number}")
                });
            }
        }
    }

    unsafe fn operators(&mut self) {
        // SAFETY: catalogue access by the caller's contract.
        unsafe {
            for form in catalog::members::<pg_sys::FormData_pg_amop>(
                SysCacheIdentifier::AMOPSTRATEGY,
                self.family,
            ) {
                let operator = || text(pg_sys::format_operator(form.amopopr));
                let strategy = form.amopstrategy as u16;
                let fits = match self.elements {
                    true => strategy::range(self.documents),
                    false => 1..=strategy::LAST_OF_BTREE,
                };
                if fits.contains(&strategy) {
                    self.group(form.amoplefttype, form.amoprighttype).operators |= 1 << strategy;
                } else {
                    self.complain(format!(
                        "contains operator {} with invalid strategy number {strategy}",
                        operator()
                    ));
                }
                if form.amoppurpose as u8 != pg_sys::AMOP_SEARCH
                    || form.amopsortfamily != pg_sys::InvalidOid
                {
                    self.complain(format!(
                        "contains invalid ORDER BY specification for operator {}",
                        operator()
                    ));
                }
                let (left, right) = (form.amoplefttype, form.amoprighttype);
                if !pg_guard_ffi_boundary(|| {
                    check_amop_signature(form.amopopr, pg_sys::BOOLOID, left, right)
                }) {
                    self.complain(format!("contains operator {} with wrong signature", operator()));
                }
            }
        }
    }

    /// Checks that every pair of types has all operators and a comparison function. Every
    /// combination of the family's types should exist, because the planner derives conditions
    /// across types.
    unsafe fn completeness(&mut self, class: &str, input: Oid) {
        let all_strategies = (1..=strategy::LAST_OF_BTREE).fold(0, |set, s| set | 1 << s);
        let mut types = BTreeSet::new();
        let (mut pairs, mut has_class) = (0, false);
        for (&(left, right), group) in &std::mem::take(&mut self.groups) {
            if group.operators == 0 && group.functions == 1 << IN_RANGE {
                // An in_range function may have an offset type that the family does not index.
                continue;
            }
            pairs += 1;
            has_class |= left == input.to_u32() && right == left;
            types.extend([left, right]);
            let missing = [
                (group.operators != all_strategies, "operator(s)"),
                (group.functions & 1 << ORDER == 0, "support function"),
            ];
            for (_, what) in missing.iter().filter(|m| m.0) {
                // SAFETY: catalogue access by the caller's contract.
                let [left, right] =
                    [left, right].map(|t| unsafe { text(pg_sys::format_type_be(Oid::from(t))) });
                self.complain(format!("is missing {what} for types {left} and {right}"));
            }
        }
        if !has_class {
            self.good = false;
            inform(format!(
                "operator class \"{class}\" of access method nitro is missing operator(s)"
            ));
        }
        if pairs != types.len() * types.len() {
            self.complain("is missing cross-type operator(s)".into());
        }
    }
}

/// Whether a support function has the signature of its number, which is btree's.
unsafe fn signature_fits(form: &pg_sys::FormData_pg_amproc) -> bool {
    let function = form.amproc;
    let (left, right) = (form.amproclefttype.to_u32(), form.amprocrighttype.to_u32());
    let [bool, oid, internal] =
        [pg_sys::BOOLOID, pg_sys::OIDOID, pg_sys::INTERNALOID].map(Oid::to_u32);
    // SAFETY: catalogue access by the caller's contract; as many variadic arguments as announced.
    unsafe {
        pg_guard_ffi_boundary(|| match form.amprocnum {
            1 => check_amproc_signature(function, pg_sys::INT4OID, true, 2, 2, left, right),
            3 => check_amproc_signature(
                function,
                pg_sys::BOOLOID,
                true,
                5,
                5,
                left,
                left,
                right,
                bool,
                bool,
            ),
            4 => check_amproc_signature(function, pg_sys::BOOLOID, true, 1, 1, oid),
            5 => check_amoptsproc_signature(function),
            // Sort support and skip support.
            _ => check_amproc_signature(function, pg_sys::VOIDOID, true, 1, 1, internal),
        })
    }
}

unsafe fn text(s: *const c_char) -> String {
    // SAFETY: a nul-terminated string of the server.
    unsafe { crate::pg::text::from_pointer(s) }
}

fn inform(message: String) {
    Failure::new(PgSqlErrorCode::ERRCODE_INVALID_OBJECT_DEFINITION, message).inform();
}
