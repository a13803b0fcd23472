//! Reading catalogue rows.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_void};

use pgrx::PgList;
use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};

/// Copies of the catalogue rows with `key` as the first column of `cache`.
///
/// # Safety
/// `T` must be the fixed part of the rows of the catalogue behind `cache`; needs catalogue access.
pub unsafe fn members<T: Copy>(cache: SysCacheIdentifier::Type, key: Oid) -> Vec<T> {
    // SAFETY: the list has `n_members` members, each a live tuple until the list is released.
    unsafe {
        let none = Datum::from(0);
        let list = pg_sys::SearchSysCacheList(cache as _, 1, Datum::from(key), none, none);
        let rows = (*list)
            .members
            .as_slice((*list).n_members as usize)
            .iter()
            .map(|&member| pg_sys::GETSTRUCT(&raw mut (*member).tuple).cast::<T>().read())
            .collect();
        pg_sys::ReleaseCatCacheList(list);
        rows
    }
}

/// The nitro indexes of the current database that have storage.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn nitro_indexes() -> Vec<Oid> {
    let mut key = pg_sys::ScanKeyData::default();
    // SAFETY: by contract; fills the key.
    unsafe {
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_class_relam as i16,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::F_OIDEQ.into(),
            pg_sys::get_am_oid(c"nitro".as_ptr(), true).into(),
        );
        scan(pg_sys::RelationRelationId, &mut [key], |row| {
            let form: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(row).cast();
            ((*form).relkind as u8 == pg_sys::RELKIND_INDEX).then_some((*form).oid)
        })
    }
}

/// Returns the wanted databases, as they are now.
///
/// # Safety
/// Inside a transaction; `wanted` gets rows of `pg_database`.
pub unsafe fn databases(wanted: impl Fn(pg_sys::Form_pg_database) -> bool) -> Vec<Oid> {
    // SAFETY: by contract; a shared catalogue.
    unsafe {
        pg_sys::InvalidateCatalogSnapshot();
        scan(pg_sys::DatabaseRelationId, &mut [], |row| {
            let form: pg_sys::Form_pg_database = pg_sys::GETSTRUCT(row).cast();
            wanted(form).then_some((*form).oid)
        })
    }
}

/// The wanted rows of a catalogue.
///
/// # Safety
/// Needs access to the catalogue; `wanted` gets its rows.
unsafe fn scan<T>(
    catalogue: Oid,
    keys: &mut [pg_sys::ScanKeyData],
    wanted: impl Fn(pg_sys::HeapTuple) -> Option<T>,
) -> Vec<T> {
    let mut all = Vec::new();
    // SAFETY: by contract; a row is looked at before the next one is fetched, and an ERROR ends the
    // scan.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let table = pg_sys::table_open(catalogue, lock);
        let (n, keys) = (keys.len() as i32, keys.as_mut_ptr());
        let snapshot = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(table, pg_sys::InvalidOid, false, snapshot, n, keys);
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            all.extend(wanted(row));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, lock);
    }
    all
}

/// Returns the value of a setting by `ALTER DATABASE` or `ALTER ROLE ... SET`: for a database and a
/// role together, for one of them if the other is invalid, or for all.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn setting(database: Oid, role: Oid, name: &CStr) -> Option<CString> {
    let key = |column: u32, oid: Oid| {
        let mut key = pg_sys::ScanKeyData::default();
        // SAFETY: fills the key.
        unsafe {
            pg_sys::ScanKeyInit(
                &mut key,
                column as i16,
                pg_sys::BTEqualStrategyNumber as u16,
                pg_sys::F_OIDEQ.into(),
                oid.into(),
            );
        }
        key
    };
    let mut keys = [
        key(pg_sys::Anum_pg_db_role_setting_setdatabase, database),
        key(pg_sys::Anum_pg_db_role_setting_setrole, role),
    ];
    // SAFETY: the catalogue has three columns, the last an array of texts. Values of a row are
    // copied before the scan ends. An ERROR on the way ends it, too.
    unsafe {
        // Shared memory may tell of a change before invalidation messages come.
        pg_sys::InvalidateCatalogSnapshot();
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let table = pg_sys::table_open(pg_sys::DbRoleSettingRelationId, lock);
        let scan = pg_sys::systable_beginscan(
            table,
            pg_sys::DbRoleSettingDatidRolidIndexId.into(),
            true,
            std::ptr::null_mut(),
            keys.len() as i32,
            keys.as_mut_ptr(),
        );
        let row = pg_sys::systable_getnext(scan);
        let mut found = None;
        if !row.is_null() {
            let (mut values, mut nulls) = ([Datum::from(0); 3], [false; 3]);
            pg_sys::heap_deform_tuple(
                row,
                (*table).rd_att,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
            if !nulls[2] {
                found = value_of(values[2], name.to_bytes());
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, lock);
        found
    }
}

/// The value of a setting in an array of texts as "name=value", in whatever encoding.
unsafe fn value_of(array: Datum, name: &[u8]) -> Option<CString> {
    // SAFETY: the caller's array of texts, detoasted. The server returns the number of elements.
    unsafe {
        let array: *mut pg_sys::ArrayType = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        let (mut lines, mut nulls, mut n) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        let align = pg_sys::TYPALIGN_INT as core::ffi::c_char;
        pg_sys::deconstruct_array(
            array,
            pg_sys::TEXTOID,
            -1,
            false,
            align,
            &mut lines,
            &mut nulls,
            &mut n,
        );
        (0..n as usize).filter(|&i| !*nulls.add(i)).find_map(|i| {
            let line = pg_sys::text_to_cstring((*lines.add(i)).cast_mut_ptr());
            let line = CStr::from_ptr(line).to_bytes();
            let (set, value) = line.split_at(line.iter().position(|&byte| byte == b'=')?);
            set.eq_ignore_ascii_case(name).then(|| CString::new(&value[1..]).ok())?
        })
    }
}

/// Whether an index has a predicate, by its catalogue row. The server's `RelationGetIndexPredicate`
/// would fold the predicate, and run functions of the index' owner with the rights of the caller.
///
/// # Safety
/// `index` must be open.
pub unsafe fn is_partial(index: pg_sys::Relation) -> bool {
    // SAFETY: by contract.
    unsafe { has(index, pg_sys::Anum_pg_index_indpred) }
}

/// Whether an index has expressions or a predicate, by its catalogue row.
///
/// # Safety
/// As [`is_partial`].
pub unsafe fn has_clauses(index: pg_sys::Relation) -> bool {
    // SAFETY: by contract.
    unsafe { has(index, pg_sys::Anum_pg_index_indexprs) || is_partial(index) }
}

/// Whether the `pg_index` row of an index has a value in a column that may be NULL. Calls nothing:
/// each plan asks.
///
/// # Safety
/// `index` must be open.
unsafe fn has(index: pg_sys::Relation, column: u32) -> bool {
    // SAFETY: an open index has its row. Its bits say which columns are not NULL, if one is.
    unsafe {
        let row = (*(*index).rd_indextuple).t_data;
        let bit = column as usize - 1;
        let all = u32::from((*row).t_infomask) & pg_sys::HEAP_HASNULL == 0;
        all || *(*row).t_bits.as_ptr().add(bit / 8) >> (bit % 8) & 1 != 0
    }
}

/// Whether a table is neither partitioned, foreign nor inherited from, and no index has this column
/// or an expression.
///
/// # Safety
/// The caller must hold a lock on the table.
pub unsafe fn is_plain_and_unindexed(table: Oid, column: i16) -> bool {
    // SAFETY: open and locked by contract; the list and the rows of the cache are copies or
    // released.
    unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let form = &*(*relation).rd_rel;
        let plain =
            matches!(form.relkind as u8, pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW)
                && !form.relhassubclass;
        let indexes = PgList::<c_void>::from_pg(pg_sys::RelationGetIndexList(relation));
        let free = plain && indexes.iter_oid().all(|index| !has_column(index, column));
        pg_sys::relation_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        free
    }
}

/// Whether an index has a column of its table, or an expression.
unsafe fn has_column(index: Oid, column: i16) -> bool {
    // SAFETY: catalogue access by the caller's contract; the row is released after reading.
    unsafe {
        let row = pg_sys::SearchSysCache1(SysCacheIdentifier::INDEXRELID as _, index.into());
        if row.is_null() {
            return true;
        }
        let form: pg_sys::Form_pg_index = pg_sys::GETSTRUCT(row).cast();
        let columns = (*form).indkey.values.as_slice((*form).indnatts as usize);
        let found = columns.iter().any(|&c| c == column || c == 0);
        pg_sys::ReleaseSysCache(row);
        found
    }
}

/// The collations by which a type compares its parts: of the fields of a row, the bounds of a
/// range, the elements of an array.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn collations_of(typid: Oid, found: &mut BTreeSet<u32>) {
    let (mut open, mut seen) = (vec![typid], BTreeSet::new());
    while let Some(typid) = open.pop() {
        // SAFETY: catalogue look-ups of an existing type, whose parts exist, too; entries of the
        // type cache are never freed.
        unsafe {
            let typid = pg_sys::getBaseType(typid);
            if !seen.insert(typid.to_u32()) {
                continue;
            }
            found.insert(pg_sys::get_typcollation(typid).to_u32());
            match pg_sys::get_typtype(typid) as u8 {
                pg_sys::TYPTYPE_COMPOSITE => {
                    for field in pgrx::PgTupleDesc::for_composite_type_by_oid(typid)
                        .iter()
                        .flat_map(|row| row.iter())
                    {
                        if !field.attisdropped {
                            found.insert(field.attcollation.to_u32());
                            open.push(field.atttypid);
                        }
                    }
                }
                pg_sys::TYPTYPE_RANGE => {
                    let range =
                        pg_sys::lookup_type_cache(typid, pg_sys::TYPECACHE_RANGE_INFO as i32);
                    found.insert((*range).rng_collation.to_u32());
                    open.push((*(*range).rngelemtype).type_id);
                }
                pg_sys::TYPTYPE_MULTIRANGE => open.push(pg_sys::get_multirange_range(typid)),
                _ => open
                    .extend(Some(pg_sys::get_element_type(typid)).filter(|&e| e != Oid::INVALID)),
            }
        }
    }
}

/// Whether Citus keeps the rows of a table in shards, on this server or others: whether its own
/// catalogue lists the table.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn is_distributed(table: Oid) -> bool {
    let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: by contract. Citus' catalogue is in pg_catalog, where no other role creates tables.
    // It is read as a table of rows and not by a query, so no code of users runs. Its columns are
    // checked first.
    unsafe {
        let schema = Oid::from(pg_sys::PG_CATALOG_NAMESPACE);
        let relid = pg_sys::get_relname_relid(c"pg_dist_partition".as_ptr(), schema);
        let column = pg_sys::get_attnum(relid, c"logicalrelid".as_ptr());
        if column <= 0
            || pg_sys::get_rel_relkind(relid) as u8 != pg_sys::RELKIND_RELATION
            || pg_sys::get_atttype(relid, column) != pg_sys::REGCLASSOID
        {
            return false;
        }
        let list = pg_sys::try_relation_open(relid, lock);
        if list.is_null() {
            return false;
        }
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            column,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::F_OIDEQ.into(),
            table.into(),
        );
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(list, Oid::INVALID, false, none, 1, &mut key);
        let found = !pg_sys::systable_getnext(scan).is_null();
        pg_sys::systable_endscan(scan);
        pg_sys::relation_close(list, lock);
        found
    }
}
