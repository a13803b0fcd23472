//! `x = ANY (column)` and `x < ANY (column)` as conditions of an index with an element column.
//!
//! The planner matches `operand OP ANY (array)` to an index only if the *operand* is the indexed
//! column, and asks no support function about it. The planner hook runs before the conditions of a
//! query are distributed to its tables. If the array is an indexed column, it writes the condition
//! the other way round: `column @> ARRAY[x]`, `column &> x`. Both are true for the same rows. If `=
//! ANY` is NULL (no match, but a NULL element), the other is false. So only conditions are
//! rewritten whose NULL and false mean the same: those of WHERE and ON, under AND and OR.
//!
//! No plan may get worse by it. A condition stays as it is in these cases:
//! - It could serve another relation (`x` is an indexed column there).
//! - It proves the predicate of a partial index, or is the expression of an index.
//! - Rows may be behind a security barrier: the new operators are not leakproof.

use pgrx::PgList;
use pgrx::pg_sys::{self, BoolExprType, IndexOptInfo, Node, NodeTag, Oid, PlannerInfo};

use crate::key::elements::strategy;
use crate::pg::catalog;

const CONTAINS: Oid = Oid::from_u32(pg_sys::OID_ARRAY_CONTAINS_OP);

/// An indexed array column of a table in a query.
struct Target {
    root: *mut PlannerInfo,
    column: *mut Node,
    family: Oid,
    /// Predicates of the table's partial indexes, and expressions of its indexes: conditions that
    /// imply or are them are left as they are.
    predicates: Vec<*mut Node>,
    expressions: Vec<*mut Node>,
}

type Nodes = PgList<Node>;
type Tables = PgList<pg_sys::RangeTblEntry>;

/// Rewrites the conditions of a query on an array column of an index.
///
/// # Safety
/// From a planner hook that runs before conditions are distributed; `info` must describe an index
/// of a table that `root` plans, `column` one of its columns.
pub unsafe fn rewrite_query(root: *mut PlannerInfo, info: &IndexOptInfo, column: usize) {
    // SAFETY: by contract; the planner may scribble on its copy of the query. `indextlist` has one
    // TargetEntry per column.
    unsafe {
        let query = (*root).parse;
        let columns = PgList::<pg_sys::TargetEntry>::from_pg(info.indextlist);
        if query.is_null() || (*query).jointree.is_null() || behind_barrier(root) {
            return;
        }
        let Some(entry) = columns.get_ptr(column) else { return };
        if !info.indpred.is_null() {
            let mut quals = std::ptr::null_mut();
            gather((*query).jointree.cast(), &mut quals);
            if !pg_sys::predicate_implied_by(info.indpred, quals, false) {
                return;
            }
        }
        let indexes = PgList::<IndexOptInfo>::from_pg((*info.rel).indexlist);
        let all = |list: fn(&IndexOptInfo) -> *mut pg_sys::List| {
            let lists = indexes.iter_ptr().map(|index| Nodes::from_pg(list(&*index)));
            lists.flat_map(|list| list.iter_ptr().collect::<Vec<_>>()).collect()
        };
        let target = Target {
            root,
            column: (*entry).expr.cast(),
            family: *info.opfamily.add(column),
            predicates: all(|index| index.indpred),
            expressions: all(|index| index.indexprs),
        };
        target.visit((*query).jointree.cast());
    }
}

/// Whether a row comparison is among the conditions of a query on one table.
///
/// # Safety
/// From a planner hook that runs before conditions are distributed.
pub unsafe fn compares_rows(root: *mut PlannerInfo) -> bool {
    // SAFETY: by contract.
    unsafe {
        let query = (*root).parse;
        let mut quals = std::ptr::null_mut();
        if !query.is_null() && !(*query).jointree.is_null() {
            gather((*query).jointree.cast(), &mut quals);
        }
        let compares = |node: *mut Node| (*node).type_ == NodeTag::T_RowCompareExpr;
        (*root).simple_rel_array_size == 2 && Nodes::from_pg(quals).iter_ptr().any(compares)
    }
}

/// Returns true if conditions of the query may meet rows that a policy or the condition of a
/// security barrier view hides. A condition that came into the view from outside is leakproof.
unsafe fn behind_barrier(root: *mut PlannerInfo) -> bool {
    // SAFETY: live planner structures.
    unsafe {
        let mut above = (*root).parent_root;
        while let Some(outer) = above.as_ref() {
            let tables = Tables::from_pg((*outer.parse).rtable);
            if tables.iter_ptr().any(|table| (*table).security_barrier) {
                return true;
            }
            above = outer.parent_root;
        }
        (*root).qual_security_level > 0
    }
}

/// Appends all conditions under a node of the join tree to a list.
unsafe fn gather(item: *mut Node, list: &mut *mut pg_sys::List) {
    // SAFETY: the tag says what the node is; conditions are lists at this stage.
    unsafe {
        match (*item).type_ {
            NodeTag::T_FromExpr => {
                let from = item.cast::<pg_sys::FromExpr>();
                for item in Nodes::from_pg((*from).fromlist).iter_ptr() {
                    gather(item, list);
                }
                *list = pg_sys::list_concat(*list, (*from).quals.cast());
            }
            NodeTag::T_JoinExpr => {
                let join = item.cast::<pg_sys::JoinExpr>();
                gather((*join).larg, list);
                gather((*join).rarg, list);
                *list = pg_sys::list_concat(*list, (*join).quals.cast());
            }
            _ => (),
        }
    }
}

impl Target {
    unsafe fn visit(&self, item: *mut Node) {
        // SAFETY: the tag says what the node is; conditions are lists at this stage.
        unsafe {
            match (*item).type_ {
                NodeTag::T_FromExpr => {
                    let from = item.cast::<pg_sys::FromExpr>();
                    for item in PgList::<Node>::from_pg((*from).fromlist).iter_ptr() {
                        self.visit(item);
                    }
                    self.list((*from).quals.cast());
                }
                NodeTag::T_JoinExpr => {
                    let join = item.cast::<pg_sys::JoinExpr>();
                    self.visit((*join).larg);
                    self.visit((*join).rarg);
                    self.list((*join).quals.cast());
                }
                _ => (),
            }
        }
    }

    /// Rewrites the members of a list in place.
    unsafe fn list(&self, list: *mut pg_sys::List) {
        // SAFETY: null or a list of nodes.
        unsafe {
            if list.is_null() || (*list).type_ != NodeTag::T_List {
                return;
            }
            for i in 0..(*list).length as usize {
                let cell = (*list).elements.add(i);
                let node = (*cell).ptr_value.cast::<Node>();
                match (*node).type_ {
                    NodeTag::T_ScalarArrayOpExpr => {
                        if let Some(other) = self.condition(node.cast()) {
                            (*cell).ptr_value = other.cast();
                        }
                    }
                    NodeTag::T_BoolExpr => {
                        let formula = node.cast::<pg_sys::BoolExpr>();
                        if (*formula).boolop != BoolExprType::NOT_EXPR {
                            self.list((*formula).args);
                        }
                    }
                    _ => (),
                }
            }
        }
    }

    /// The condition that the index can answer, if there is one.
    unsafe fn condition(&self, any: *mut pg_sys::ScalarArrayOpExpr) -> Option<*mut Node> {
        // SAFETY: an expression of the query; look-ups in the catalogue.
        unsafe {
            let args = PgList::<Node>::from_pg((*any).args);
            let (x, array) = (args.get_ptr(0)?, args.get_ptr(1)?);
            let (plain, coerced) = without_relabel(array);
            if !(*any).useOr
                || !pg_sys::equal(plain.cast(), self.column.cast())
                || pg_sys::contain_volatile_functions(x)
                || self.serves_others(x)
                || self.expressions.iter().any(|&e| pg_sys::equal(e.cast(), any.cast()))
            {
                return None;
            }
            // Of elements that are only called by another name, the index has the name of its own.
            let array = if coerced { plain } else { array };
            let arrays = pg_sys::exprType(array);
            let element = pg_sys::get_base_element_type(arrays);
            let x = renamed(x, element)?;
            let cache = pg_sys::lookup_type_cache(element, pg_sys::TYPECACHE_BTREE_OPFAMILY as i32);
            let (mut btree, mut left, mut right) = (0, Oid::INVALID, Oid::INVALID);
            if element == Oid::INVALID
                || pg_sys::exprType(x) != element
                || !pg_sys::op_in_opfamily((*any).opno, (*cache).btree_opf)
            {
                return None;
            }
            pg_sys::get_op_opfamily_properties(
                (*any).opno,
                (*cache).btree_opf,
                false,
                &mut btree,
                &mut left,
                &mut right,
            );
            if (left, right) != ((*cache).btree_opintype, (*cache).btree_opintype) {
                return None;
            }
            let (operator, argument) = match btree as u32 {
                pg_sys::BTEqualStrategyNumber => {
                    (CONTAINS, array_of(self.root, &[x], arrays, element))
                }
                // x < e for an element e: e > x.
                pg_sys::BTLessStrategyNumber => (self.operator(strategy::ANY_GREATER)?, x),
                pg_sys::BTLessEqualStrategyNumber => {
                    (self.operator(strategy::ANY_GREATER_EQUAL)?, x)
                }
                pg_sys::BTGreaterEqualStrategyNumber => {
                    (self.operator(strategy::ANY_LESS_EQUAL)?, x)
                }
                _ => (self.operator(strategy::ANY_LESS)?, x),
            };
            let condition = pg_sys::make_opclause(
                operator,
                pg_sys::BOOLOID,
                false,
                array.cast(),
                argument.cast(),
                Oid::INVALID,
                (*any).inputcollid,
            );
            pg_sys::set_opfuncid(condition.cast());
            let proves = |condition: *mut Node, predicate: *mut Node| {
                let one = |node: *mut Node| pg_sys::lappend(std::ptr::null_mut(), node.cast());
                pg_sys::predicate_implied_by(one(predicate), one(condition), false)
            };
            let loses = |&p: &*mut Node| proves(any.cast(), p) && !proves(condition.cast(), p);
            (!self.predicates.iter().any(loses)).then_some(condition.cast())
        }
    }

    /// Whether a condition on `x` may be of use to another relation: an index, a TID scan,
    /// partitions, whatever a foreign server has.
    unsafe fn serves_others(&self, x: *mut Node) -> bool {
        // SAFETY: an expression of the query; the planner holds a lock on each of its tables.
        unsafe {
            let flags = pg_sys::PVC_RECURSE_AGGREGATES
                | pg_sys::PVC_RECURSE_WINDOWFUNCS
                | pg_sys::PVC_RECURSE_PLACEHOLDERS;
            let tables = Tables::from_pg((*(*self.root).parse).rtable);
            let columns = PgList::<pg_sys::Var>::from_pg(pg_sys::pull_var_clause(x, flags as i32));
            columns.iter_ptr().any(|column| {
                let place = usize::try_from((*column).varno - 1).unwrap_or(usize::MAX);
                let Some(table) = tables.get_ptr(place) else { return true };
                match (*table).rtekind {
                    pg_sys::RTEKind::RTE_RELATION => {
                        (*column).varattno <= 0
                            || !catalog::is_plain_and_unindexed((*table).relid, (*column).varattno)
                    }
                    pg_sys::RTEKind::RTE_FUNCTION | pg_sys::RTEKind::RTE_VALUES => false,
                    _ => true,
                }
            })
        }
    }

    unsafe fn operator(&self, strategy: u16) -> Option<Oid> {
        // SAFETY: catalogue access inside the planner.
        let operator = unsafe {
            pg_sys::get_opfamily_member(
                self.family,
                pg_sys::ANYCOMPATIBLEARRAYOID,
                pg_sys::ANYCOMPATIBLEOID,
                strategy as i16,
            )
        };
        (operator != Oid::INVALID).then_some(operator)
    }
}

/// Makes an array of these values, folded if they are constants.
///
/// # Safety
/// The values must be expressions of the type `element`, and `arrays` its array type or a domain
/// over that. `root` may be null.
pub unsafe fn array_of(
    root: *mut PlannerInfo,
    values: &[*mut Node],
    arrays: Oid,
    element: Oid,
) -> *mut Node {
    // SAFETY: a new node of the current memory context, which is the planner's.
    unsafe {
        let array = pg_sys::palloc0(size_of::<pg_sys::ArrayExpr>()).cast::<pg_sys::ArrayExpr>();
        (*array).xpr.type_ = NodeTag::T_ArrayExpr;
        (*array).array_typeid = pg_sys::getBaseType(arrays);
        (*array).array_collid = pg_sys::get_typcollation(element);
        (*array).element_typeid = element;
        for &value in values {
            (*array).elements = pg_sys::lappend((*array).elements, value.cast());
        }
        (*array).location = -1;
        pg_sys::eval_const_expressions(root, array.cast())
    }
}

/// An expression without changes of the name of its type, and whether they were of its elements.
unsafe fn without_relabel(mut node: *mut Node) -> (*mut Node, bool) {
    // SAFETY: an expression of the query.
    unsafe {
        let mut coerced = false;
        loop {
            node = match (*node).type_ {
                NodeTag::T_RelabelType => (*node.cast::<pg_sys::RelabelType>()).arg.cast(),
                NodeTag::T_ArrayCoerceExpr => {
                    let coercion = node.cast::<pg_sys::ArrayCoerceExpr>();
                    let (element, changed) = without_relabel((*coercion).elemexpr.cast());
                    if changed || (*element).type_ != NodeTag::T_CaseTestExpr {
                        return (node, coerced);
                    }
                    coerced = true;
                    (*coercion).arg.cast()
                }
                _ => return (node, coerced),
            }
        }
    }
}

/// A value under another name of its type: that of a domain over it, or one that has the same
/// values.
unsafe fn renamed(x: *mut Node, name: Oid) -> Option<*mut Node> {
    // SAFETY: an expression of the query; a new node of the planner's memory context.
    unsafe {
        let (from, to) = (pg_sys::exprType(x), pg_sys::getBaseType(name));
        if from == name {
            return Some(x);
        }
        if from != to && !pg_sys::IsBinaryCoercible(from, to) {
            return None;
        }
        let format = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
        let label = pg_sys::makeRelabelType(x.cast(), name, -1, pg_sys::exprCollation(x), format);
        Some(label.cast())
    }
}
