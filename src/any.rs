//! `x = ANY (column)` and `x < ANY (column)` as conditions of an index with an element column.
//!
//! The planner matches `operand OP ANY (array)` to an index only if the *operand* is the indexed column,
//! and asks no support function about it. So the planner hook, which runs before the conditions of a
//! query are distributed to its tables, writes those whose array is an indexed column the other way
//! round: `column @> ARRAY[x]`, `column &> x`. Both are true for the same rows; where `= ANY` is NULL
//! (no match, but a NULL element) the other is false, so only conditions are rewritten whose NULL and
//! false mean the same: those of WHERE and ON, under AND and OR.

use pgrx::PgList;
use pgrx::pg_sys::{self, BoolExprType, IndexOptInfo, Node, NodeTag, Oid, PlannerInfo};

use crate::am::strategy;

const CONTAINS: Oid = Oid::from_u32(pg_sys::OID_ARRAY_CONTAINS_OP);

/// An indexed array column of a table in a query.
struct Target {
    root: *mut PlannerInfo,
    column: *mut Node,
    family: Oid,
    /// Predicates of the table's partial indexes: conditions that imply them are left as they are.
    predicates: Vec<*mut Node>,
}

/// Rewrites the conditions of a query on an array column of an index.
///
/// # Safety
/// From a planner hook that runs before conditions are distributed; `info` must describe an index of a
/// table that `root` plans, `column` one of its columns.
pub unsafe fn rewrite_query(root: *mut PlannerInfo, info: &IndexOptInfo, column: usize) {
    // SAFETY: by contract; the planner may scribble on its copy of the query. `indextlist` has one
    // TargetEntry per column.
    unsafe {
        let query = (*root).parse;
        let columns = PgList::<pg_sys::TargetEntry>::from_pg(info.indextlist);
        // With row security: a rewritten condition is not leakproof, and would have to wait for others.
        if (*root).qual_security_level > 0 || query.is_null() || (*query).jointree.is_null() {
            return;
        }
        let Some(entry) = columns.get_ptr(column) else { return };
        let indexes = PgList::<IndexOptInfo>::from_pg((*info.rel).indexlist);
        let predicates = indexes
            .iter_ptr()
            .flat_map(|index| {
                PgList::<Node>::from_pg((*index).indpred).iter_ptr().collect::<Vec<_>>()
            })
            .collect();
        let family = *info.opfamily.add(column);
        let target = Target { root, column: (*entry).expr.cast(), family, predicates };
        target.visit((*query).jointree.cast());
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
            if !(*any).useOr
                || !pg_sys::equal(without_relabel(array).cast(), self.column.cast())
                || pg_sys::contain_volatile_functions(x)
                || self.predicates.iter().any(|&p| pg_sys::equal(p.cast(), any.cast()))
            {
                return None;
            }
            let arrays = pg_sys::exprType(array);
            let element = pg_sys::get_base_element_type(arrays);
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
                    (CONTAINS, array_of(self.root, x, arrays, element))
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
            Some(condition.cast())
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

/// `ARRAY[x]`, folded if x is a constant.
unsafe fn array_of(root: *mut PlannerInfo, x: *mut Node, arrays: Oid, element: Oid) -> *mut Node {
    // SAFETY: a new node of the current memory context, which is the planner's.
    unsafe {
        let array = pg_sys::palloc0(size_of::<pg_sys::ArrayExpr>()).cast::<pg_sys::ArrayExpr>();
        (*array).xpr.type_ = NodeTag::T_ArrayExpr;
        (*array).array_typeid = pg_sys::getBaseType(arrays);
        (*array).array_collid = pg_sys::get_typcollation(element);
        (*array).element_typeid = element;
        (*array).elements = pg_sys::lappend(std::ptr::null_mut(), x.cast());
        (*array).location = -1;
        pg_sys::eval_const_expressions(root, array.cast())
    }
}

unsafe fn without_relabel(mut node: *mut Node) -> *mut Node {
    // SAFETY: an expression of the query.
    unsafe {
        while (*node).type_ == NodeTag::T_RelabelType {
            node = (*node.cast::<pg_sys::RelabelType>()).arg.cast();
        }
        node
    }
}
