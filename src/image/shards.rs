//! The ranges of keys of which an image is made, each written to a file by a thread of its own.

use std::collections::TryReserveError;
use std::io;
use std::sync::atomic::Ordering::*;

use nitro_engine::{Cursor, Index, KeyOrder, Process};
use nitro_image::{Draft, ShardSummary};

use super::ImageState;
use super::pace::Pace;
use crate::pg::guc;
use crate::pg::wait::PATIENCE;
use crate::state::shmem;

// A key is written behind its abbreviation.
const _: () = assert!(nitro_engine::MAX_KEY_LEN + size_of::<u64>() <= nitro_image::MAX_KEY);

/// Entries that are worth a thread of their own.
const ENTRIES_PER_SHARD: u64 = 15_000;

/// The ranges that are written by a thread each.
pub struct Shards {
    cuts: Vec<Vec<u8>>,
}

impl Shards {
    /// As many as there are threads for, unless the index is small.
    pub fn cut(engine: Index) -> Shards {
        let workers = guc::BACKUP_WORKERS.get() as usize;
        let useful = engine.stats().live.div_ceil(ENTRIES_PER_SHARD) as usize;
        Shards { cuts: engine.partition(shmem::process(), workers.min(useful).max(1)) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// One of them.
    pub fn get(&self, i: usize) -> Shard<'_> {
        let lower = i.checked_sub(1).map_or(&[][..], |i| &self.cuts[i][..]);
        Shard { number: i, lower, upper: self.cuts.get(i).map(Vec::as_slice) }
    }
}

/// One range.
pub struct Shard<'a> {
    number: usize,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

/// What all threads of one image share.
pub struct Job<'a> {
    pub engine: Index,
    pub sn: u32,
    pub draft: &'a Draft<'a>,
    pub image: &'a ImageState,
    pub pace: Pace<'a>,
}

impl Job<'_> {
    /// Writes the entries of one range; `go_on` is asked again and again.
    pub fn write<O: KeyOrder>(
        &self,
        process: &Process,
        order: &O,
        shard: &Shard<'_>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<ShardSummary, String> {
        let explain = |e: io::Error| format!("could not write shard {}: {e}", shard.number);
        let mut out = self.draft.shard(shard.number as u32).map_err(explain)?;
        let mut cursor = Cursor::new(true);
        cursor.set_range(shard.lower, shard.upper, self.sn);
        let (mut written, mut taken) = (0, 0);
        let mut buffer = Vec::new();
        loop {
            if !go_on() {
                return Err("stopped".into());
            }
            let n = cursor.next_within(PATIENCE, process, self.engine, order);
            let Some(n) = n else { continue };
            if n == 0 {
                break;
            }
            for i in 0..n {
                let key = match O::MEMCMP {
                    true => cursor.key(i),
                    false => {
                        let (abbrev, key) = (cursor.abbrev(i), cursor.key(i));
                        abbreviated(abbrev, key, &mut buffer).map_err(|e| explain(e.into()))?
                    }
                };
                out.push(key, cursor.tid(i)).map_err(explain)?;
            }
            self.image.done.fetch_add(n as u64, Relaxed);
            self.image.bytes.fetch_add(out.bytes_written() - written, Relaxed);
            written = out.bytes_written();
            // A frame is as long as it will be only when it is full; meanwhile it counts uncompressed.
            let now = written + out.bytes_pending();
            self.pace.keep(now.wrapping_sub(taken), &mut go_on);
            taken = now;
        }
        self.draft.finish_shard(out).map_err(explain)
    }
}

/// What is written of a key whose order is not that of its bytes: its abbreviation comes first. Threads read
/// images, and could not ask the server for it.
fn abbreviated<'a>(
    abbrev: u64,
    key: &[u8],
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], TryReserveError> {
    buffer.clear();
    buffer.try_reserve(size_of::<u64>() + key.len())?;
    buffer.extend_from_slice(&abbrev.to_be_bytes());
    buffer.extend_from_slice(key);
    Ok(buffer)
}
