//! Entries of a jsonb document, and the entries that a condition asks for.
//!
//! Every scalar of the document is an entry, together with where it is:
//!
//! | entry | of |
//! |---|---|
//! | scalar | an element of the outermost array |
//! | `r` scalar | the document, if it is a scalar itself |
//! | `k` key | a key of the outermost object |
//! | `p` hash of the path, scalar | anything deeper; the path has the keys and the nesting of arrays |
//!
//! If a document contains another one (`@>`), it has all entries of the other one. For elements of
//! the outermost array the reverse holds, too. Deeper down the operator must recheck, because
//! entries do not tell to which of two objects a scalar belongs.

use crate::key::codec::Layout;
use crate::key::datum;
use crate::key::numeric;
use crate::pg::memory;
use crate::pg::wait;
use pgrx::pg_sys::{self, Datum, JsonbIteratorToken as Token};

/// Longer strings are represented by a hash.
const LONG: usize = 128;

const ROOT_ARRAY: u64 = 1;
const ROOT_OBJECT: u64 = 2;
const ROOT_SCALAR: u64 = 3;

/// FNV-1a: entries are compared with those of an earlier life of the server.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    bytes.iter().fold(start, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Appends a string; true if only its hash.
fn put_string(out: &mut Vec<u8>, s: &[u8]) -> bool {
    let long = s.len() > LONG;
    if long {
        out.push(b'h');
        out.extend_from_slice(&hash(0, s).to_be_bytes());
    } else {
        out.push(b'"');
        out.extend_from_slice(s);
    }
    long
}

/// Appends a scalar; true if only its hash.
///
/// # Safety
/// `v` must be a scalar that the server's iterator gave out.
unsafe fn put_scalar(out: &mut Vec<u8>, v: &pg_sys::JsonbValue) -> bool {
    // SAFETY: the type says which member of the union is set.
    unsafe {
        match v.type_ {
            pg_sys::jbvType::jbvString => return put_string(out, bytes_of(v)),
            pg_sys::jbvType::jbvNumeric => {
                out.push(b'#');
                let number = Datum::from(v.val.numeric);
                datum::with_bytes(Layout::Varlena, number, |image| numeric::put(out, image));
            }
            pg_sys::jbvType::jbvBool => out.push(if v.val.boolean { b't' } else { b'f' }),
            _ => out.push(b'z'),
        }
    }
    false
}

unsafe fn bytes_of(v: &pg_sys::JsonbValue) -> &[u8] {
    // SAFETY: a string value points to `len` bytes of the document, which outlives the value.
    unsafe { std::slice::from_raw_parts(v.val.string.val.cast(), v.val.string.len as usize) }
}

/// One step of a walk through a document.
enum Step<'a> {
    /// A key of the outermost object.
    Key(&'a [u8]),
    /// A scalar in a container with this path.
    Scalar(u64, &'a pg_sys::JsonbValue),
    /// An array or object that is not the outermost.
    Nested,
}

/// Walks through a document; returns the path of the outermost container.
unsafe fn walk(document: Datum, mut visit: impl FnMut(Step)) -> u64 {
    // SAFETY: a jsonb by the caller's contract. Its iterator frees itself at the end; if `visit`
    // unwinds, it stays with its memory context, as does the copy.
    unsafe {
        let image = document.cast_mut_ptr::<pg_sys::varlena>();
        let flat = pg_sys::pg_detoast_datum(image);
        let mut iterator = pg_sys::JsonbIteratorInit(&raw mut (*flat.cast::<pg_sys::Jsonb>()).root);
        let mut value = std::mem::MaybeUninit::<pg_sys::JsonbValue>::zeroed().assume_init();
        // Of each open container: its own path, and the path of the value that comes next.
        let mut open: Vec<(u64, u64)> = Vec::new();
        let mut root = ROOT_ARRAY;
        loop {
            wait::interrupts();
            let token = pg_sys::JsonbIteratorNext(&mut iterator, &mut value, false);
            match token {
                Token::WJB_BEGIN_ARRAY | Token::WJB_BEGIN_OBJECT => {
                    let array = token == Token::WJB_BEGIN_ARRAY;
                    let path = match open.last() {
                        Some(&(_, here)) => {
                            visit(Step::Nested);
                            hash(here, if array { b"[" } else { b"{" })
                        }
                        None => {
                            root = match array {
                                true if value.val.array.rawScalar => ROOT_SCALAR,
                                true => ROOT_ARRAY,
                                false => ROOT_OBJECT,
                            };
                            root
                        }
                    };
                    open.push((path, path));
                }
                Token::WJB_END_ARRAY | Token::WJB_END_OBJECT => drop(open.pop()),
                Token::WJB_KEY => {
                    let outermost = open.len() == 1;
                    if let Some((container, next)) = open.last_mut() {
                        let key = bytes_of(&value);
                        *next = hash(*container, key);
                        if outermost {
                            visit(Step::Key(key));
                        }
                    }
                }
                Token::WJB_VALUE | Token::WJB_ELEM => {
                    if let Some(&(_, path)) = open.last() {
                        visit(Step::Scalar(path, &value));
                    }
                }
                _ => break,
            }
        }
        if flat != image {
            pg_sys::pfree(flat.cast());
        }
        root
    }
}

/// Appends the entry of a scalar; true if only its hash.
unsafe fn put_entry(out: &mut Vec<u8>, path: u64, v: &pg_sys::JsonbValue) -> bool {
    match path {
        ROOT_ARRAY => (),
        ROOT_SCALAR => out.push(b'r'),
        _ => {
            out.push(b'p');
            out.extend_from_slice(&path.to_be_bytes());
        }
    }
    // SAFETY: by the caller's contract.
    unsafe { put_scalar(out, v) }
}

/// Calls `f` with every entry of a document; the same may come more than once.
///
/// # Safety
/// `document` must be a jsonb.
pub unsafe fn entries(document: Datum, f: &mut dyn FnMut(&[u8])) {
    let mut entry = Vec::new();
    // SAFETY: by contract.
    unsafe {
        walk(document, |step| {
            entry.clear();
            match step {
                Step::Key(key) => {
                    entry.push(b'k');
                    put_string(&mut entry, key);
                }
                Step::Scalar(path, v) => drop(put_entry(&mut entry, path, v)),
                Step::Nested => return,
            }
            f(&entry);
        })
    };
}

/// The entries that a condition asks for: at least one of each group.
#[derive(Default)]
pub struct Wanted {
    /// Alternatives.
    pub groups: Vec<Vec<Vec<u8>>>,
    /// The operator has to look at the document, too.
    pub recheck: bool,
}

/// `document @> part`
///
/// # Safety
/// `part` must be a jsonb.
pub unsafe fn containment(part: Datum) -> Wanted {
    let mut wanted = Wanted::default();
    // SAFETY: by contract.
    unsafe {
        let root = walk(part, |step| match step {
            Step::Scalar(path, v) => {
                let mut entry = Vec::new();
                wanted.recheck |= put_entry(&mut entry, path, v);
                let mut group = vec![entry];
                if path == ROOT_SCALAR {
                    // An array contains the scalars that it has as elements.
                    let mut element = Vec::new();
                    put_entry(&mut element, ROOT_ARRAY, v);
                    group.push(element);
                }
                memory::check();
                memory::reserve(&mut wanted.groups, 1);
                wanted.groups.push(group);
            }
            Step::Nested => wanted.recheck = true,
            Step::Key(_) => (),
        });
        wanted.recheck |= root == ROOT_OBJECT || wanted.groups.is_empty();
    }
    wanted
}

/// `document ? string`: the alternatives, and whether the operator has to look again.
///
/// # Safety
/// `string` must be a text.
pub unsafe fn existence(string: Datum) -> (Vec<Vec<u8>>, bool) {
    let mut recheck = false;
    // SAFETY: by contract.
    let group = unsafe {
        datum::with_bytes(Layout::Varlena, string, |s| {
            [&b""[..], b"k", b"r"].map(|place| {
                let mut entry = place.to_vec();
                recheck |= put_string(&mut entry, s);
                entry
            })
        })
    };
    (group.into(), recheck)
}
