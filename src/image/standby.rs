//! Images that a standby makes of the indexes that it follows, and uses after a restart.
//!
//! A standby writes no WAL, so its images have no mark. Other facts prove them.
//!
//! *Making an image.* LSN B is the position that the index reflects, read before the first entry.
//! LSN E is the end of the record at which recovery is, read after the last entry.
//! - The image has every entry whose block has no record after B (D3). At B the index was equal to
//!   its table. The follower changes entries of a block only because of a record, or because the
//!   page has changed, which leaves a record after B, too.
//! - No entry, and no lack of one, comes from WAL after E. The follower looks at pages, and
//!   recovery had changed these pages before E was read.
//!
//! *Using an image.* Only a server in recovery uses it, when recovery has replayed E. The WAL at E
//! must be of the image's timeline in the history of the server. A history that branched off before
//! E has another timeline there. A server that is no standby could have lost the WAL before E
//! without a new timeline, so it uses no image of a standby.
//!
//! *Old snapshots.* The image lacks rows that were dead to all snapshots of their server. The
//! transaction that ended the row has committed before E. After a restart a snapshot may be
//! taken before recovery comes to E, and it sees the row. So the index is not readable before all
//! snapshots have ended that were taken before then, and all transactions that imported one.

use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant, SystemTime};

use nitro_engine::Index;
use nitro_image::Manifest;
use pgrx::pg_sys;

use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use crate::pg::wait::{self, Wait};
use crate::state::directory::Entry;
use crate::state::shmem;

/// How long a load waits until recovery has come to the end of the image. After that the table is
/// read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether there is an image of an index that a standby made.
pub fn has_one(entry: &Entry) -> bool {
    newest(entry).is_some()
}

/// The newest image of an index that a standby made.
fn newest(entry: &Entry) -> Option<Manifest> {
    let all = super::manifests(entry.database(), entry.incarnation());
    all.into_iter().find(Manifest::is_of_standby)
}

/// Takes B, and returns the term up to which entries are written. `None` if no follower keeps this
/// engine index up to date any more.
pub(super) fn begin(entry: &Entry, engine: Index, manifest: &mut Manifest) -> Option<u32> {
    manifest.lsn = entry.reflects.load(Acquire);
    manifest.taken = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as i64);
    // Read after B: this engine index reflects B.
    is_followed(entry, engine).then(|| engine.term())
}

/// Takes E. The error says why there is no image.
pub(super) fn end(
    entry: &Entry,
    engine: Index,
    manifest: &mut Manifest,
) -> Result<(), &'static str> {
    // SAFETY: reads shared state.
    if !unsafe { pg_sys::RecoveryInProgress() } || !is_followed(entry, engine) {
        return Err("the index is not kept up to date by this standby");
    }
    manifest.mark = 0;
    (manifest.end, manifest.timeline) = compat::replaying();
    Ok(())
}

fn is_followed(entry: &Entry, engine: Index) -> bool {
    let followed = entry.followed(shmem::process());
    followed.is_some_and(|both| both.main().root() == engine.root())
}

/// Waits until recovery has replayed the WAL of the newest image.
pub fn await_replay(entry: &Entry) {
    let Some(manifest) = newest(entry) else { return };
    let begun = Instant::now();
    wait::until(Wait::ImageRead, || {
        // SAFETY: reads shared state.
        let recovery = unsafe { pg_sys::RecoveryInProgress() };
        !recovery || crate::feed::readable_end() >= manifest.end || begun.elapsed() >= PATIENCE
    });
}

/// Whether the history of this standby has the WAL of an image. The error says why not. The caller
/// knows that recovery has come to the end of that WAL.
///
/// # Safety
/// Inside a transaction.
pub(super) unsafe fn check(manifest: &Manifest) -> Result<(), String> {
    if !guc::holds(Mechanism::StandbyHistory) {
        return Ok(());
    }
    // SAFETY: reads shared state; by contract.
    unsafe {
        if !pg_sys::RecoveryInProgress() {
            return Err("it was made while this server was a standby".into());
        }
        // `end` is behind the last byte that counts.
        if compat::timeline_at(manifest.end - 1) != manifest.timeline {
            return Err("the server has left the timeline of its WAL before its end".into());
        }
    }
    Ok(())
}
