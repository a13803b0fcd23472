//! Row comparisons as conditions of an index, before 18.
//!
//! Up to 17 the planner takes `(a, b) > (x, y)` as a condition of a btree alone, and the executor
//! raises an internal error for any other access method. So the planner is shown btree's access
//! method, but only while `planner_hook` can edit the plan afterwards. In the plan this file edits
//! each row comparison among the conditions of an index that is no btree:
//! - The condition becomes `a >= x`, which the comparison implies and every executor takes. The
//!   comparison becomes a filter. So the plan is right even if nitro does not start its nodes, as
//!   with EvalPlanQual.
//! - When the executor has started a plan, the scan keys of the node are made anew from the
//!   comparison. The server's own function does that. It gets a copy of the relation's description
//!   that says "btree".
//!
//!   The filter is not evaluated then, but for those of bitmaps.
//!
//! The conditions for rechecks, from which the comparison is read, are as they were. The plan stays
//! as it is: it may be in the cache, and EXPLAIN finds the parents of a node by it.

/// Whether row comparisons can be conditions of an index of the query that is being planned; its
/// plan is looked at then.
pub fn may_compare_rows() -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    return before_18::planning();
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    true
}

/// Chains the hook that looks at plans.
pub fn install_plan_hook() {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    before_18::install();
}

/// Gives a node of a started plan the row comparisons that are conditions of its index.
///
/// # Safety
/// `node` is a live node of a plan that has not returned rows.
pub unsafe fn compare_rows(node: *mut pgrx::pg_sys::PlanState) {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    // SAFETY: by contract.
    unsafe {
        before_18::at_start(node);
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    let _ = node;
}

#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
mod before_18 {
    use std::cell::Cell;
    use std::ffi::{c_char, c_int};
    use std::ptr::null_mut;

    use pgrx::PgList;
    use pgrx::pg_sys::{
        self, ExprContext, IndexRuntimeKeyInfo, List, Node, NodeTag, Plan, PlanState, PlannedStmt,
        Relation, RowCompareExpr, ScanKey,
    };
    use pgrx::prelude::*;

    static mut PREVIOUS: pg_sys::planner_hook_type = None;

    thread_local! {
        /// The hook is around a planner, which has been shown btree's access method (true) or not.
        static PLANNING: Cell<Option<bool>> = const { Cell::new(None) };
    }

    pub fn planning() -> bool {
        let planning = PLANNING.get().is_some();
        if planning {
            PLANNING.set(Some(true));
        }
        planning
    }

    /// Planners call functions, which plan. This restores the state before, also after an ERROR.
    struct Outer(Option<bool>);

    impl Drop for Outer {
        fn drop(&mut self) {
            PLANNING.set(self.0);
        }
    }

    pub fn install() {
        // SAFETY: runs once, when the library is loaded.
        unsafe {
            PREVIOUS = pg_sys::planner_hook;
            pg_sys::planner_hook = Some(plan);
        }
    }

    /// `planner_hook`
    #[pg_guard]
    unsafe extern "C-unwind" fn plan(
        query: *mut pg_sys::Query,
        text: *const c_char,
        options: c_int,
        params: pg_sys::ParamListInfo,
    ) -> *mut PlannedStmt {
        crate::pg::witness!();
        // SAFETY: arguments of the server. The plan is new, and no other code has it.
        unsafe {
            let outer = Outer(PLANNING.replace(Some(false)));
            let planned = match PREVIOUS {
                Some(previous) => {
                    pg_sys::ffi::pg_guard_ffi_boundary(|| previous(query, text, options, params))
                }
                None => pg_sys::standard_planner(query, text, options, params),
            };
            let shown = PLANNING.get() == Some(true);
            drop(outer);
            if shown && !planned.is_null() {
                let subplans = PgList::<Plan>::from_pg((*planned).subplans);
                for tree in std::iter::once((*planned).planTree).chain(subplans.iter_ptr()) {
                    edit(tree);
                }
            }
            planned
        }
    }

    /// Exchanges the row comparisons of a plan; true if there were some in a bitmap, which has no
    /// filter of its own.
    unsafe fn edit(plan: *mut Plan) -> bool {
        if plan.is_null() {
            return false;
        }
        // SAFETY: live nodes of the types that their tags say.
        unsafe {
            pg_sys::check_stack_depth();
            let mut in_bitmap = edit((*plan).lefttree) | edit((*plan).righttree);
            let more = match (*plan).type_ {
                NodeTag::T_Append => (*plan.cast::<pg_sys::Append>()).appendplans,
                NodeTag::T_MergeAppend => (*plan.cast::<pg_sys::MergeAppend>()).mergeplans,
                NodeTag::T_BitmapAnd => (*plan.cast::<pg_sys::BitmapAnd>()).bitmapplans,
                NodeTag::T_BitmapOr => (*plan.cast::<pg_sys::BitmapOr>()).bitmapplans,
                NodeTag::T_CustomScan => (*plan.cast::<pg_sys::CustomScan>()).custom_plans,
                _ => null_mut(),
            };
            for child in PgList::<Plan>::from_pg(more).iter_ptr() {
                in_bitmap |= edit(child);
            }
            match (*plan).type_ {
                NodeTag::T_SubqueryScan => {
                    edit((*plan.cast::<pg_sys::SubqueryScan>()).subplan);
                }
                NodeTag::T_IndexScan => {
                    let scan = plan.cast::<pg_sys::IndexScan>();
                    for rows in exchange((*scan).indexid, (*scan).indexqual, (*scan).indexqualorig)
                    {
                        add_filter(plan, rows);
                    }
                }
                NodeTag::T_IndexOnlyScan => {
                    let scan = plan.cast::<pg_sys::IndexOnlyScan>();
                    for rows in exchange((*scan).indexid, (*scan).indexqual, (*scan).recheckqual) {
                        add_filter(plan, rows);
                    }
                }
                NodeTag::T_BitmapIndexScan => {
                    let scan = plan.cast::<pg_sys::BitmapIndexScan>();
                    let rows = exchange((*scan).indexid, (*scan).indexqual, (*scan).indexqualorig);
                    return !rows.is_empty();
                }
                NodeTag::T_BitmapAnd | NodeTag::T_BitmapOr => return in_bitmap,
                NodeTag::T_BitmapHeapScan if in_bitmap => {
                    let all = (*plan.cast::<pg_sys::BitmapHeapScan>()).bitmapqualorig;
                    for condition in PgList::<Node>::from_pg(all).iter_ptr() {
                        add_filter(plan, condition);
                    }
                }
                _ => (),
            }
            false
        }
    }

    unsafe fn add_filter(plan: *mut Plan, condition: *mut Node) {
        // SAFETY: a new plan, and a condition on the rows of its scan.
        unsafe {
            let copy = pg_sys::copyObjectImpl(condition.cast());
            (*plan).qual = pg_sys::lappend((*plan).qual, copy);
        }
    }

    /// Exchanges the row comparisons among the conditions of an index; gives them as they are for a
    /// recheck.
    unsafe fn exchange(index: pg_sys::Oid, quals: *mut List, recheck: *mut List) -> Vec<*mut Node> {
        // SAFETY: the lists go in step. The planner holds a lock on the index.
        unsafe {
            let mut quals = PgList::<Node>::from_pg(quals);
            let recheck = PgList::<Node>::from_pg(recheck);
            if !quals.iter_ptr().any(|qual| compares_rows(qual)) {
                return Vec::new();
            }
            let index = pg_sys::index_open(index, pg_sys::NoLock as pg_sys::LOCKMODE);
            let mut exchanged = Vec::new();
            for i in 0..quals.len() {
                let (Some(qual), Some(rows)) = (quals.get_ptr(i), recheck.get_ptr(i)) else {
                    break;
                };
                if compares_rows(qual)
                    && (*(*index).rd_rel).relam != pg_sys::BTREE_AM_OID
                    && let Some(first) = of_first(qual.cast(), index)
                {
                    quals.replace_ptr(i, first);
                    exchanged.push(rows);
                }
            }
            pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
            exchanged
        }
    }

    /// Returns the condition that a row comparison implies for its first member.
    unsafe fn of_first(rows: *mut RowCompareExpr, index: Relation) -> Option<*mut Node> {
        // SAFETY: a condition of this open index.
        unsafe {
            let left = PgList::<Node>::from_pg((*rows).largs).get_ptr(0)?;
            let right = PgList::<Node>::from_pg((*rows).rargs).get_ptr(0)?;
            let var = match (*left).type_ {
                NodeTag::T_RelabelType => (*left.cast::<pg_sys::RelabelType>()).arg.cast(),
                _ => left,
            };
            let column = (*var.cast::<pg_sys::Var>()).varattno as usize - 1;
            let family = *(*index).rd_opfamily.add(column);
            let operator = PgList::<pg_sys::Oid>::from_pg((*rows).opnos).get_oid(0)?;
            let (mut strategy, mut of_left, mut of_right) = Default::default();
            pg_sys::get_op_opfamily_properties(
                operator,
                family,
                false,
                &mut strategy,
                &mut of_left,
                &mut of_right,
            );
            let strategy = match strategy as u32 {
                pg_sys::BTLessStrategyNumber | pg_sys::BTLessEqualStrategyNumber => {
                    pg_sys::BTLessEqualStrategyNumber
                }
                _ => pg_sys::BTGreaterEqualStrategyNumber,
            };
            let collation = PgList::<pg_sys::Oid>::from_pg((*rows).inputcollids).get_oid(0)?;
            let operator = pg_sys::get_opfamily_member(family, of_left, of_right, strategy as i16);
            let clause = pg_sys::make_opclause(
                operator,
                pg_sys::BOOLOID,
                false,
                pg_sys::copyObjectImpl(left.cast()).cast(),
                pg_sys::copyObjectImpl(right.cast()).cast(),
                pg_sys::InvalidOid,
                collation,
            );
            pg_sys::set_opfuncid(clause.cast());
            Some(clause.cast())
        }
    }

    unsafe fn compares_rows(node: *mut Node) -> bool {
        // SAFETY: a live node.
        unsafe { (*node).type_ == NodeTag::T_RowCompareExpr }
    }

    /// The common fields of the kinds of nodes, which have other names in each kind.
    struct Keys<'a> {
        /// Null where EXPLAIN does not execute.
        index: Relation,
        /// The table among those of the query; 0 where the conditions name columns of the index.
        table: u32,
        quals: *mut List,
        recheck: *mut List,
        keys: &'a mut ScanKey,
        count: &'a mut c_int,
        runtime: &'a mut *mut IndexRuntimeKeyInfo,
        runtime_count: &'a mut c_int,
        context: &'a mut *mut ExprContext,
    }

    pub unsafe fn at_start(node: *mut PlanState) {
        // SAFETY: live nodes of the types that their tags say; no scan of a row has begun but those
        // of bitmaps, which begin anew here.
        unsafe {
            match (*node).type_ {
                NodeTag::T_IndexScanState => {
                    let state = &mut *node.cast::<pg_sys::IndexScanState>();
                    let plan = &*(*node).plan.cast::<pg_sys::IndexScan>();
                    let keys = Keys {
                        index: state.iss_RelationDesc,
                        table: plan.scan.scanrelid,
                        quals: plan.indexqual,
                        recheck: plan.indexqualorig,
                        keys: &mut state.iss_ScanKeys,
                        count: &mut state.iss_NumScanKeys,
                        runtime: &mut state.iss_RuntimeKeys,
                        runtime_count: &mut state.iss_NumRuntimeKeys,
                        context: &mut state.iss_RuntimeContext,
                    };
                    if let Some(n) = make_keys(node, keys) {
                        drop_filters(node, n);
                    }
                }
                NodeTag::T_IndexOnlyScanState => {
                    let state = &mut *node.cast::<pg_sys::IndexOnlyScanState>();
                    let plan = &*(*node).plan.cast::<pg_sys::IndexOnlyScan>();
                    let keys = Keys {
                        index: state.ioss_RelationDesc,
                        table: 0,
                        quals: plan.indexqual,
                        recheck: plan.recheckqual,
                        keys: &mut state.ioss_ScanKeys,
                        count: &mut state.ioss_NumScanKeys,
                        runtime: &mut state.ioss_RuntimeKeys,
                        runtime_count: &mut state.ioss_NumRuntimeKeys,
                        context: &mut state.ioss_RuntimeContext,
                    };
                    if let Some(n) = make_keys(node, keys) {
                        drop_filters(node, n);
                    }
                }
                NodeTag::T_BitmapIndexScanState => {
                    let state = &mut *node.cast::<pg_sys::BitmapIndexScanState>();
                    let plan = &*(*node).plan.cast::<pg_sys::BitmapIndexScan>();
                    let keys = Keys {
                        index: state.biss_RelationDesc,
                        table: plan.scan.scanrelid,
                        quals: plan.indexqual,
                        recheck: plan.indexqualorig,
                        keys: &mut state.biss_ScanKeys,
                        count: &mut state.biss_NumScanKeys,
                        runtime: &mut state.biss_RuntimeKeys,
                        runtime_count: &mut state.biss_NumRuntimeKeys,
                        context: &mut state.biss_RuntimeContext,
                    };
                    let made = make_keys(node, keys).is_some();
                    if made && state.biss_NumRuntimeKeys == 0 {
                        let (keys, count) = (state.biss_ScanKeys, state.biss_NumScanKeys);
                        pg_sys::index_rescan(state.biss_ScanDesc, keys, count, null_mut(), 0);
                    }
                }
                _ => (),
            }
        }
    }

    /// The last `n` filters of a node say what its scan keys do: it does without them if there are
    /// no others.
    unsafe fn drop_filters(node: *mut PlanState, n: usize) {
        // SAFETY: a started node.
        unsafe {
            if PgList::<Node>::from_pg((*(*node).plan).qual).len() == n {
                (*node).qual = null_mut();
            }
        }
    }

    /// Makes the scan keys of a node anew if row comparisons were exchanged in its plan: how many.
    /// None if none was, or if filters have to do for one.
    unsafe fn make_keys(node: *mut PlanState, of: Keys) -> Option<usize> {
        // SAFETY: a started node. Memory that it keeps is allocated in its own context.
        unsafe {
            let recheck = PgList::<Node>::from_pg(of.recheck);
            let mut quals = PgList::<Node>::from_pg(of.quals);
            let exchanged = quals.iter_ptr().zip(recheck.iter_ptr()).enumerate();
            let exchanged: Vec<_> = exchanged
                .filter(|&(_, (now, was))| compares_rows(was) && !compares_rows(now))
                .map(|(i, (_, was))| (i, was.cast::<RowCompareExpr>()))
                .collect();
            if exchanged.is_empty() || of.index.is_null() {
                return None;
            }
            let previous = pg_sys::MemoryContextSwitchTo((*(*node).state).es_query_cxt);
            quals = PgList::from_pg(pg_sys::list_copy(of.quals));
            let mut all = Some(exchanged.len());
            for (i, rows) in exchanged {
                match by_index(rows, of.index, of.table) {
                    Some(rows) => quals.replace_ptr(i, rows.cast()),
                    None => all = None,
                }
            }
            // The function reads the description and keeps nothing of it.
            let mut class = *(*of.index).rd_rel;
            class.relam = pg_sys::BTREE_AM_OID;
            let mut btree = *of.index;
            btree.rd_rel = &mut class;
            (*of.runtime, *of.runtime_count) = (null_mut(), 0);
            pg_sys::ExecIndexBuildScanKeys(
                node,
                &mut btree,
                quals.as_ptr(),
                false,
                of.keys,
                of.count,
                of.runtime,
                of.runtime_count,
                null_mut(),
                null_mut(),
            );
            if *of.runtime_count > 0 && of.context.is_null() {
                let own = (*node).ps_ExprContext;
                pg_sys::ExecAssignExprContext((*node).state, node);
                *of.context = (*node).ps_ExprContext;
                (*node).ps_ExprContext = own;
            }
            pg_sys::MemoryContextSwitchTo(previous);
            all
        }
    }

    /// The comparison with the columns of the index on its left side. None if they are not found:
    /// the filter does all.
    unsafe fn by_index(
        rows: *mut RowCompareExpr,
        index: Relation,
        table: u32,
    ) -> Option<*mut RowCompareExpr> {
        // SAFETY: a condition of this index, and its description.
        unsafe {
            if table == 0 {
                return Some(rows);
            }
            let copy = pg_sys::copyObjectImpl(rows.cast()).cast::<RowCompareExpr>();
            let mut members = PgList::<Node>::from_pg((*copy).largs);
            let operators = PgList::<pg_sys::Oid>::from_pg((*copy).opnos);
            let collations = PgList::<pg_sys::Oid>::from_pg((*copy).inputcollids);
            for i in 0..members.len() {
                let member = members.get_ptr(i)?;
                let column =
                    column(member, index, table, operators.get_oid(i)?, collations.get_oid(i)?)?;
                let var = pg_sys::makeVar(
                    pg_sys::INDEX_VAR,
                    column as i16 + 1,
                    pg_sys::exprType(member),
                    pg_sys::exprTypmod(member),
                    pg_sys::exprCollation(member),
                    0,
                );
                members.replace_ptr(i, var.cast());
            }
            Some(copy)
        }
    }

    /// The key column that a member of a comparison is, by the planner's rules.
    unsafe fn column(
        member: *mut Node,
        index: Relation,
        table: u32,
        operator: pg_sys::Oid,
        collation: pg_sys::Oid,
    ) -> Option<usize> {
        // SAFETY: an open index, whose arrays have an element for each key column.
        unsafe {
            let member = match (*member).type_ {
                NodeTag::T_RelabelType => (*member.cast::<pg_sys::RelabelType>()).arg.cast(),
                _ => member,
            };
            let form = &*(*index).rd_index;
            let numbers = form.indkey.values.as_slice(form.indnatts as usize);
            let expressions = pg_sys::RelationGetIndexExpressions(index);
            pg_sys::ChangeVarNodes(expressions.cast(), 1, table as c_int, 0);
            let mut expressions =
                PgList::<Node>::from_pg(expressions).iter_ptr().collect::<Vec<_>>().into_iter();
            (0..form.indnkeyatts as usize).find(|&i| {
                let same = match numbers[i] {
                    0 => expressions.next().is_some_and(|expression| {
                        let plain = match (*expression).type_ {
                            NodeTag::T_RelabelType => {
                                (*expression.cast::<pg_sys::RelabelType>()).arg.cast()
                            }
                            _ => expression,
                        };
                        pg_sys::equal(plain.cast(), member.cast())
                    }),
                    number => {
                        let var = member.cast::<pg_sys::Var>();
                        (*member).type_ == NodeTag::T_Var && (*var).varattno == number
                    }
                };
                let own = *(*index).rd_indcollation.add(i);
                same && (own == pg_sys::InvalidOid || own == collation)
                    && pg_sys::op_in_opfamily(operator, *(*index).rd_opfamily.add(i))
            })
        }
    }
}
