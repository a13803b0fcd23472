//! How many rows an operator on elements selects (the operators' RESTRICT function).
//!
//! ANALYZE keeps the most common elements of an array column with their frequencies, and how many
//! distinct elements an array has. Each common element is tried; all others are taken to be like
//! them.
//!
//! The operator that asks may be one of any role. It sees elements of the table only if the role
//! may read them all, or if it is leakproof. They must also be the elements of its argument.

use pgrx::fcinfo::pg_getarg_datum_raw;
use pgrx::pg_sys::{self, AttStatsSlot, Datum, FunctionCallInfo, Oid, VariableStatData};
use pgrx::prelude::*;

/// Without statistics: as for a range of values with two bounds (selfuncs.h).
const DEFAULT: f64 = 0.005;
/// Fewer common elements say nothing about the others.
const ENOUGH: usize = 10;

#[pg_extern]
fn nitro_any_sel(fcinfo: FunctionCallInfo) -> f64 {
    crate::pg::witness!();
    // SAFETY: declared with the arguments of a restriction estimator; statistics are released.
    unsafe {
        let root = pg_getarg_datum_raw(fcinfo, 0).cast_mut_ptr::<pg_sys::PlannerInfo>();
        let operator = Oid::from(pg_getarg_datum_raw(fcinfo, 1).value() as u32);
        let args = pg_getarg_datum_raw(fcinfo, 2).cast_mut_ptr::<pg_sys::List>();
        let relid = pg_getarg_datum_raw(fcinfo, 3).value() as i32;
        let mut column = VariableStatData::default();
        let (mut other, mut on_left) = (std::ptr::null_mut(), false);
        if !pg_sys::get_restriction_variable(
            root,
            args,
            relid,
            &mut column,
            &mut other,
            &mut on_left,
        ) {
            return DEFAULT;
        }
        let mut selectivity = DEFAULT;
        if on_left && (*other).type_ == pg_sys::NodeTag::T_Const {
            let constant = &*other.cast::<pg_sys::Const>();
            if constant.constisnull {
                selectivity = 0.0;
            } else if !column.statsTuple.is_null()
                && pg_sys::statistic_proc_security_check(&mut column, pg_sys::get_opcode(operator))
            {
                let condition = Condition {
                    operator,
                    collation: (*fcinfo).fncollation,
                    argument: constant.constvalue,
                };
                let element = pg_sys::get_base_element_type(column.vartype);
                selectivity = condition.estimate(column.statsTuple, element).unwrap_or(DEFAULT);
            }
        }
        if !column.statsTuple.is_null()
            && let Some(free) = column.freefunc
        {
            free(column.statsTuple);
        }
        selectivity.clamp(0.0, 1.0)
    }
}

struct Condition {
    operator: Oid,
    collation: Oid,
    argument: Datum,
}

impl Condition {
    /// # Safety
    /// `statistics` must be a row of pg_statistic for a value that the operator takes; `element` is
    /// the type of its elements, if it is an array.
    unsafe fn estimate(&self, statistics: pg_sys::HeapTuple, element: Oid) -> Option<f64> {
        // SAFETY: by contract; slots are freed after reading.
        unsafe {
            let row = pg_sys::GETSTRUCT(statistics).cast::<pg_sys::FormData_pg_statistic>();
            let not_null = 1.0 - f64::from((*row).stanullfrac);
            let elements = average_elements(statistics)?;
            let mut common = AttStatsSlot::default();
            if !pg_sys::get_attstatsslot(
                &mut common,
                statistics,
                pg_sys::STATISTIC_KIND_MCELEM as i32,
                pg_sys::InvalidOid,
                (pg_sys::ATTSTATSSLOT_VALUES | pg_sys::ATTSTATSSLOT_NUMBERS) as i32,
            ) {
                return None;
            }
            // A tsvector has common elements, too.
            if common.valuetype != element {
                pg_sys::free_attstatsslot(&mut common);
                return None;
            }
            // Three more numbers follow the frequencies.
            let n = (common.nvalues as usize).min(common.nnumbers as usize);
            let (mut without, mut covered, mut matching) = (1.0, 0.0, 0);
            for i in 0..n {
                let frequency = f64::from(*common.numbers.add(i));
                covered += frequency;
                if self.holds(*common.values.add(i), common.valuetype) {
                    without *= 1.0 - frequency.clamp(0.0, 1.0);
                    matching += 1;
                }
            }
            pg_sys::free_attstatsslot(&mut common);
            let share = if n >= ENOUGH { matching as f64 / n as f64 } else { DEFAULT };
            let rest = (elements - covered).max(0.0);
            without *= (1.0 - share).powf(rest);
            Some(not_null * (1.0 - without))
        }
    }

    /// Whether the operator is true for an array of this element alone.
    unsafe fn holds(&self, element: Datum, kind: Oid) -> bool {
        // SAFETY: an element of the type; the operator takes its arrays.
        unsafe {
            let (mut length, mut by_value, mut align) = (0i16, false, 0);
            pg_sys::get_typlenbyvalalign(kind, &mut length, &mut by_value, &mut align);
            let mut element = element;
            let array =
                pg_sys::construct_array(&mut element, 1, kind, length.into(), by_value, align);
            let function = pg_sys::get_opcode(self.operator);
            pg_sys::OidFunctionCall2Coll(
                function,
                self.collation,
                Datum::from(array),
                self.argument,
            )
            .value()
                != 0
        }
    }
}

/// The average number of distinct elements.
unsafe fn average_elements(statistics: pg_sys::HeapTuple) -> Option<f64> {
    // SAFETY: a row of pg_statistic by the caller's contract; the average is the slot's last
    // number.
    unsafe {
        let mut counts = AttStatsSlot::default();
        if !pg_sys::get_attstatsslot(
            &mut counts,
            statistics,
            pg_sys::STATISTIC_KIND_DECHIST as i32,
            pg_sys::InvalidOid,
            pg_sys::ATTSTATSSLOT_NUMBERS as i32,
        ) {
            return None;
        }
        let n = counts.nnumbers as usize;
        let average = (n > 0).then(|| f64::from(*counts.numbers.add(n - 1)));
        pg_sys::free_attstatsslot(&mut counts);
        average
    }
}
