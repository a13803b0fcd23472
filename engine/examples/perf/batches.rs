//! Entries that are inserted in batches, sorted, beside inserts one by one.

use crate::common::mix;
use crate::{entries, print_density, tid, time};
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Index, IndexOptions, Memcmp, Process, Sorted, Tid, adopt};

/// Rows whose entries are inserted together, sorted.
struct Batch {
    /// Keys, one behind the other.
    bytes: Vec<u8>,
    list: Vec<(u32, u32, Tid)>,
}

impl Sorted for Batch {
    fn len(&self) -> usize {
        self.list.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        let (start, len, _) = self.list[i];
        &self.bytes[start as usize..][..len as usize]
    }
    fn tid(&self, i: usize) -> Tid {
        self.list[i].2
    }
}

impl Batch {
    fn push(&mut self, key: &[u8], tid: Tid) {
        self.list.push((self.bytes.len() as u32, key.len() as u32, tid));
        self.bytes.extend_from_slice(key);
    }

    /// Sorts and inserts all.
    fn insert(&mut self, p: &Process, ix: Index) {
        let Batch { bytes, list } = self;
        let key = |&(start, len, _): &(u32, u32, Tid)| &bytes[start as usize..][..len as usize];
        list.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.2.cmp(&b.2)));
        let mut at = 0;
        while at < self.list.len() {
            at = ix.insert_sorted(p, &Memcmp, self, at, ix.term()).unwrap().unwrap();
        }
        self.bytes.clear();
        self.list.clear();
    }
}

/// A quarter more entries, in batches of several sizes, into an index just built; and all of them
/// into an empty one.
pub fn batches(p: &Process, name: &str, n: u64, key: &dyn Fn(u64, &mut Vec<u8>)) {
    println!("--- batches, {name}");
    let mut k = Vec::new();
    let all = entries(n, key);
    for what in ["new keys", "second versions", "from empty"] {
        for size in [1, 256, 4096, 65536, n / 4] {
            let ix = Index::create(p, &IndexOptions { fillfactor: 90, key_len_hint: 0 }).unwrap();
            if what != "from empty" {
                let mut builder = Builder::new(p, ix);
                all.iter().for_each(|(key, tid)| builder.push(&Memcmp, key, *tid).unwrap());
                adopt(&ix, p, vec![builder.finish().unwrap()]).unwrap();
            }
            let rows = if what == "from empty" { 0..n } else { n..n + n / 4 };
            let mut batch = Batch { bytes: Vec::new(), list: Vec::new() };
            time(&format!("{what}, {size}"), rows.end - rows.start, || {
                for i in rows {
                    key(if what == "second versions" { mix(i) % n } else { i }, &mut k);
                    if size == 1 {
                        ix.insert(p, &Memcmp, &k, tid(i)).unwrap();
                        continue;
                    }
                    batch.push(&k, tid(i));
                    if batch.len() as u64 == size {
                        batch.insert(p, ix);
                    }
                }
                batch.insert(p, ix);
            });
            print_density(&ix);
            // SAFETY: no other process uses it.
            unsafe { ix.destroy(p) };
        }
    }
}
