//! The description of an element column.

use super::source::{Shape, Source};
use crate::key::codec::{Codec, Layout};
use crate::key::collation;
use crate::key::column::{Column, key_codec, layout};
use crate::key::comparator::Comparator;
use crate::key::refuse::refuse;
use crate::pg::text;
use pgrx::pg_sys::{self, Oid};

/// Describes an element column: its key column and where its elements come from.
///
/// # Safety
/// `rel` must be an open index, `i` its element column; `context` as for `Comparator::new`.
pub unsafe fn describe(
    rel: pg_sys::Relation,
    i: usize,
    attr: &pg_sys::FormData_pg_attribute,
    context: impl FnOnce() -> pg_sys::MemoryContext,
) -> (Column, Source) {
    let json = Column {
        // The direction of the elements has no meaning.
        desc: false,
        nulls_first: false,
        typid: attr.atttypid,
        own_type: attr.atttypid,
        collation: Oid::INVALID,
        codec: Codec::Bytes(Layout::Varlena),
        short: false,
        comparator: None,
    };
    // SAFETY: catalogue access; `i` is a key column.
    unsafe {
        if *(*rel).rd_opcintype.add(i) == pg_sys::JSONBOID {
            return (json, Source::Json);
        }
        let collation = *(*rel).rd_indcollation.add(i);
        if !collation::is_deterministic(collation) {
            let name = text::from_pointer(pg_sys::get_collation_name(collation));
            refuse(
                format!(
                    "arrays under nondeterministic collation \"{name}\" cannot be indexed by access method \"nitro\""
                ),
                "Elements with different bytes may be equal under this collation.".into(),
                "Use a deterministic collation, or array_order_ops for comparisons of whole arrays.",
            );
        }
        let element = pg_sys::get_base_element_type(attr.atttypid);
        let cache = pg_sys::lookup_type_cache(element, pg_sys::TYPECACHE_CMP_PROC as i32);
        let compare = (*cache).cmp_proc;
        if compare == Oid::INVALID {
            let name = pg_sys::format_type_be(element);
            let name = text::from_pointer(name);
            refuse(
                format!("arrays of type {name} cannot be indexed by access method \"nitro\""),
                format!("Type {name} has no default btree operator class, and so no order."),
                "Index an expression whose elements have an ordered type.",
            );
        }
        let (length, by_value) = ((*cache).typlen, (*cache).typbyval);
        let layout = layout(element, length, by_value);
        let exact = key_codec(compare, collation, layout);
        let (codec, ordered) = match (compare.to_u32(), exact) {
            (pg_sys::F_BPCHARCMP, Codec::Raw(_)) => (Codec::Bytes(Layout::BlankPadded), false),
            (_, Codec::Raw(_)) if collation::collated(compare, collation) => {
                (Codec::Bytes(layout), false)
            }
            _ => (exact, true),
        };
        let comparator =
            matches!(codec, Codec::Raw(_)).then(|| Comparator::new(compare, collation, context()));
        let own_type = element;
        let column = Column { typid: element, own_type, collation, codec, comparator, ..json };
        (column, Source::Array(Shape::new(&*cache, ordered)))
    }
}
