//! The steps of a nested loop for each row: inline functions of the executor, and calls of the
//! server without a guard.
//!
//! A guard costs as much as one of these steps. So an ERROR passes over the frame of their caller,
//! as it passes over frames of the server. The caller must be called by the server, and must have
//! nothing to drop.

use std::ffi::c_void;

use pgrx::pg_sys::{
    self, Bitmapset, Datum, ExprContext, ExprState, IndexRuntimeKeyInfo, MemoryContext, PlanState,
    ProjectionInfo, ScanState, TupleTableSlot,
};

unsafe extern "C-unwind" {
    fn ExecReScan(node: *mut PlanState);
    fn ExecScanReScan(node: *mut ScanState);
    fn ReScanExprContext(context: *mut ExprContext);
    fn ExecIndexEvalRuntimeKeys(context: *mut ExprContext, keys: *mut IndexRuntimeKeyInfo, n: i32);
    // Of a type that has another name from 19 on.
    fn InstrEndLoop(instrument: *mut c_void);
    fn MemoryContextReset(context: MemoryContext);
    fn ProcessInterrupts();
    fn bms_add_member(set: *mut Bitmapset, member: i32) -> *mut Bitmapset;
    fn slot_getsomeattrs_int(slot: *mut TupleTableSlot, n: i32);
}

/// `CHECK_FOR_INTERRUPTS`
///
/// # Safety
/// As all in this file.
#[inline]
pub unsafe fn bare_interrupts() {
    // SAFETY: a flag that signal handlers set, and the server's own function.
    unsafe {
        if (&raw const pg_sys::InterruptPending).read_volatile() != 0 {
            ProcessInterrupts();
        }
    }
}

/// `ExecProcNode`
///
/// # Safety
/// As all in this file; a started node.
#[inline]
pub unsafe fn bare_next(node: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: by contract.
    unsafe {
        if !(*node).chgParam.is_null() {
            ExecReScan(node);
        }
        match (*node).ExecProcNode {
            Some(next) => next(node),
            None => std::ptr::null_mut(),
        }
    }
}

/// `ResetExprContext`
///
/// # Safety
/// As all in this file; a live context.
#[inline]
pub unsafe fn bare_reset(context: *mut ExprContext) {
    // SAFETY: by contract.
    unsafe { MemoryContextReset((*context).ecxt_per_tuple_memory) }
}

/// The value of an expression, in the memory of the context.
#[inline]
unsafe fn evaluate(
    expression: *mut ExprState,
    context: *mut ExprContext,
    isnull: *mut bool,
) -> Datum {
    // SAFETY: the node's own expression and context; on ERROR the server sets the memory context
    // back.
    unsafe {
        let previous = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*context).ecxt_per_tuple_memory;
        let value = match (*expression).evalfunc {
            Some(function) => function(expression, context, isnull),
            None => Datum::null(),
        };
        pg_sys::CurrentMemoryContext = previous;
        value
    }
}

/// `ExecQual`
///
/// # Safety
/// As all in this file; a node's condition, or null, and context.
#[inline]
pub unsafe fn bare_passes(qual: *mut ExprState, context: *mut ExprContext) -> bool {
    // SAFETY: by contract. A condition is never NULL.
    qual.is_null() || unsafe { evaluate(qual, context, &mut false) }.value() as u8 != 0
}

/// `ExecProject`
///
/// # Safety
/// As all in this file; a node's projection.
#[inline]
pub unsafe fn bare_project(projection: *mut ProjectionInfo) -> *mut TupleTableSlot {
    // SAFETY: by contract; the expression writes a value for each column of its slot.
    unsafe {
        let state = &raw mut (*projection).pi_state;
        let slot = (*state).resultslot;
        bare_clear(slot);
        // Since 18 an expression that only writes into its slot says that it has no value by that.
        let isnull = if cfg!(any(feature = "pg15", feature = "pg16", feature = "pg17")) {
            &raw mut (*state).resnull
        } else {
            std::ptr::null_mut()
        };
        evaluate(state, (*projection).pi_exprContext, isnull);
        (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
        (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as i16;
        slot
    }
}

#[inline]
unsafe fn bare_clear(slot: *mut TupleTableSlot) {
    // SAFETY: every kind of slot can be cleared.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
    }
}

/// The kind of slot in which a copy of a node's rows owns what it points to, and pins nothing.
/// Expressions make no difference between it and the node's.
///
/// # Safety
/// A started node.
pub unsafe fn kind_of_copies(node: *mut PlanState) -> *const pg_sys::TupleTableSlotOps {
    // SAFETY: by contract.
    unsafe {
        let mut fixed = false;
        let kind = pg_sys::ExecGetResultSlotOps(node, &mut fixed);
        if !fixed {
            return &raw const pg_sys::TTSOpsVirtual;
        }
        let pinning = std::ptr::eq(kind, &raw const pg_sys::TTSOpsBufferHeapTuple);
        if pinning { &raw const pg_sys::TTSOpsHeapTuple } else { kind }
    }
}

/// Copies a row into a slot of [`kind_of_copies`]; says how many bytes its varying part takes.
///
/// # Safety
/// As all in this file; slots with the same columns.
#[inline]
pub unsafe fn bare_copy(to: *mut TupleTableSlot, from: *mut TupleTableSlot) -> usize {
    // SAFETY: by contract; what the kinds of slots begin with.
    unsafe {
        let kind = (*to).tts_ops;
        if let Some(copy) = (*kind).copyslot {
            copy(to, from);
        }
        if std::ptr::eq(kind, &raw const pg_sys::TTSOpsMinimalTuple) {
            if let Some(tuple) = (*to.cast::<pg_sys::MinimalTupleTableSlot>()).mintuple.as_ref() {
                return tuple.t_len as usize;
            }
        } else if std::ptr::eq(kind, &raw const pg_sys::TTSOpsHeapTuple) {
            if let Some(tuple) = (*to.cast::<pg_sys::HeapTupleTableSlot>()).tuple.as_ref() {
                return tuple.t_len as usize;
            }
        } else if std::ptr::eq(kind, &raw const pg_sys::TTSOpsVirtual) {
            let data = (*to.cast::<pg_sys::VirtualTupleTableSlot>()).data;
            if !data.is_null() {
                return pg_sys::heap_compute_data_size(
                    (*to).tts_tupleDescriptor,
                    (*to).tts_values,
                    (*to).tts_isnull,
                );
            }
        }
        0
    }
}

/// Sets the parameters that the inner side of a nested loop takes from an outer row.
///
/// # Safety
/// As all in this file; the node's list and context, and a row of its outer side.
#[inline]
pub unsafe fn bare_params(
    params: *mut pg_sys::List,
    context: *mut ExprContext,
    row: *mut TupleTableSlot,
) {
    // SAFETY: by contract: a list of NestLoopParam, whose values are columns of the row.
    unsafe {
        for i in 0..length(params) {
            let param = (*(*params).elements.add(i)).ptr_value.cast::<pg_sys::NestLoopParam>();
            let column = i32::from((*(*param).paramval).varattno);
            if i32::from((*row).tts_nvalid) < column {
                slot_getsomeattrs_int(row, column);
            }
            let value = (*context).ecxt_param_exec_vals.add((*param).paramno as usize);
            (*value).value = *(*row).tts_values.add(column as usize - 1);
            (*value).isnull = *(*row).tts_isnull.add(column as usize - 1);
        }
    }
}

/// Starts the inner side of a nested loop again, as the server does, when [`bare_params`] has been
/// called.
///
/// # Safety
/// As all in this file; the list of the node, and its inner side.
pub unsafe fn bare_rescan(params: *mut pg_sys::List, inner: *mut PlanState) {
    // SAFETY: by contract.
    unsafe {
        for i in 0..length(params) {
            let param = (*(*params).elements.add(i)).ptr_value.cast::<pg_sys::NestLoopParam>();
            (*inner).chgParam = bms_add_member((*inner).chgParam, (*param).paramno);
        }
        ExecReScan(inner);
    }
}

/// Does the part of [`bare_rescan`] that a plain scan of an index needs if its access method needs
/// no keys.
///
/// # Safety
/// As all in this file; a started scan of an index, without children, init plans and subplans.
#[inline]
pub unsafe fn bare_restart(node: *mut ScanState) {
    // SAFETY: by contract.
    unsafe {
        if !(*node).ps.instrument.is_null() {
            InstrEndLoop((*node).ps.instrument.cast());
        }
        ReScanExprContext((*node).ps.ps_ExprContext);
        ExecScanReScan(node);
    }
}

/// Evaluates run-time keys.
///
/// # Safety
/// As all in this file; what a scan of an index has.
#[inline]
pub unsafe fn bare_runtime_keys(context: *mut ExprContext, keys: *mut IndexRuntimeKeyInfo, n: i32) {
    // SAFETY: by contract.
    unsafe {
        bare_reset(context);
        ExecIndexEvalRuntimeKeys(context, keys, n);
    }
}

fn length(list: *mut pg_sys::List) -> usize {
    // SAFETY: null, or a live list.
    unsafe { list.as_ref() }.map_or(0, |list| list.length as usize)
}
