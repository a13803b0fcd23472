//! The parts of an image. A thread of its own writes each to a file.
//!
//! A thread goes from leaf to leaf as they are linked. It compares no keys. So an image has all
//! entries even if the order of the keys has changed since they came, and no code of users runs.

use std::collections::TryReserveError;
use std::io;
use std::sync::atomic::Ordering::*;

use nitro_engine::prelude::*;
use nitro_engine::{Boundary, Cut, Index, Process, Walk};
use nitro_image::{Draft, ShardSummary};

use super::ImageState;
use super::pace::Pace;
use crate::pg::guc;
use crate::state::shmem;

// A key is written behind its abbreviation.
const _: () = assert!(nitro_engine::MAX_KEY_LEN + size_of::<u64>() <= nitro_image::MAX_KEY);

/// Entries that are worth a thread of their own.
const ENTRIES_PER_SHARD: u64 = 15_000;

/// Where an index is cut into the parts that are written by a thread each.
pub struct Shards {
    cuts: Vec<Cut<'static>>,
}

impl Shards {
    /// As many parts as there are threads for, unless the index is small.
    pub fn cut(engine: Index) -> Shards {
        let workers = guc::BACKUP_WORKERS.get() as usize;
        let useful = engine.stats().live.div_ceil(ENTRIES_PER_SHARD) as usize;
        Shards { cuts: nitro_engine::cuts(&engine, shmem::process(), workers.min(useful).max(1)) }
    }

    /// The parts, for any thread.
    pub fn all(&self) -> Vec<Shard<'_>> {
        let boundary = |i: usize| self.cuts.get(i).map(Cut::boundary);
        (0..=self.cuts.len())
            .map(|i| {
                let from = i.checked_sub(1).and_then(boundary);
                Shard { number: i, from, to: boundary(i) }
            })
            .collect()
    }
}

/// One part.
pub struct Shard<'a> {
    number: usize,
    from: Option<Boundary<'a>>,
    to: Option<Boundary<'a>>,
}

/// The state that all threads of one image share.
pub struct Job<'a> {
    pub engine: Index,
    pub sn: u32,
    /// Keys are written behind their abbreviations: their order is not that of their bytes.
    pub abbreviated: bool,
    pub draft: &'a Draft<'a>,
    pub image: &'a ImageState,
    pub pace: Pace<'a>,
}

impl Job<'_> {
    /// Writes the entries of one part; `go_on` is asked again and again.
    pub fn write<'a>(
        &self,
        process: &'a Process,
        shard: &Shard<'a>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<ShardSummary, String> {
        let explain = |e: io::Error| format!("could not write shard {}: {e}", shard.number);
        let mut out = self.draft.shard(shard.number as u32).map_err(explain)?;
        let mut walk = Walk::between(process, self.engine, self.sn, shard.from, shard.to);
        let (mut written, mut taken) = (0, 0);
        let mut buffer = Vec::new();
        loop {
            if !go_on() {
                return Err("stopped".into());
            }
            if !walk.next_leaf() {
                break;
            }
            let n = walk.len();
            for i in 0..n {
                let key = match self.abbreviated {
                    false => walk.key(i),
                    true => abbreviated(walk.abbrev(i), walk.key(i), &mut buffer)
                        .map_err(|e| explain(e.into()))?,
                };
                out.push(key, walk.tid(i)).map_err(explain)?;
            }
            self.image.done.fetch_add(n as u64, Relaxed);
            self.image.bytes.fetch_add(out.bytes_written() - written, Relaxed);
            written = out.bytes_written();
            // A frame is as long as it will be only when it is full; meanwhile it counts
            // uncompressed. What an older image has counts, too: to look at it takes the processor
            // as long.
            let now = written + out.bytes_carried() + out.bytes_pending();
            self.pace.keep(now.wrapping_sub(taken), &mut go_on);
            taken = now;
        }
        self.draft.finish_shard(out).map_err(explain)
    }
}

/// Returns the written bytes of a key whose order is not that of its bytes: its abbreviation comes
/// first. The threads that read images could not ask the server for it.
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
