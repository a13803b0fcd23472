//! A model of a standby whose index follows the replayed WAL, up to promotion and after it.
//!
//! It has one heap block with two TIDs and one index. A WAL record is written and replayed in one
//! step: replay waits only for snapshots. `Standby::properties` asks of every reachable state:
//! - No scan misses a row that its snapshot sees, once it reads.
//! - No scan finds a row by the key of another row.
//! - No index-only scan returns an entry whose row its snapshot does not see.
//! - After promotion no entry leads to a free TID or to another row, and no row is missing.
//! - The reverse map knows every entry of a followed index.
//! - The applier is a process that lives.
//!
//! # The rules
//!
//! The code has to keep these rules. Each rule names the defects ([`Break`]) that are planted to
//! break it. The checker finds a wrong answer for each of them.
//!
//! ## Words
//! - `decoded`, of a database: the follower has classified all records that end at or before it.
//! - The state word of an index. *Pending* is a bit of it: the follower may have work for the
//!   index. The model calls an index that is not pending *idle*.
//! - `reflects`, of an index: an LSN that only rises. `Falls`
//! - **R**, the LSN that an index reflects: in state FOLLOWING and idle, the greater one of
//!   `decoded` and `reflects`. In every other case `reflects` alone. A process that wants R loads
//!   `decoded` first, then the state word. `LoadsState`, `Retired`
//! - `applier`, of an index: the process that may change it. The process' exit clears it. `Applier`
//! - The main index and the reverse map, from TID to keys. Every entry of the main index is in the
//!   reverse map: an insert changes the reverse map first, a removal changes it last. `Reverse`,
//!   `ReverseFirst`
//!
//! ## Actions of records
//! - **row** (TID): a record that begins a life of a TID. Every life has such a record. `Lives`
//! - **gone** (block): a prune or VACUUM record. `Gone`
//! - **look** (block): row for all TIDs of the block, and gone. It may stand for any other action.
//! - No record needs an action for truncation: `gone` named each TID of the pages before. `Cut`
//!
//! ## Follower, in its loop
//! 1. It reads the replay position `to`, and classifies the records after its own `position`. Work
//!    goes to the set `next`.
//! 2. For an idle index with new work it stores `reflects` := R and makes the index pending. Only
//!    then it stores `decoded` := max(`decoded`, `to`). `Order`
//! 3. It becomes the applier. If the set `current` is empty, `next` becomes `current`, complete up
//!    to `position`. `ReflectsDecoded`
//! 4. It reads the number of blocks, after 3 and once per transaction. A block behind the end has
//!    no rows. `Blocks`
//! 5. Action row: it wants the key of the last member of the chain that is not dead to every
//!    snapshot on this server. It copies that under the page's lock, then removes what it does not
//!    want and inserts what it wants. `Horizon`
//! 6. A row that cannot be evaluated stays in `current` as long as it is neither live nor dead to
//!    every snapshot. The index stays pending, and `reflects` does not pass the row. `LeftOut`,
//!    `DeletedLeftOut`, `Listed`
//! 7. Action gone: it removes the entries of TIDs that are no roots. LP_DEAD is no root.
//!    `DeadRoots`
//! 8. When `current` is empty it stores `reflects` := max(`reflects`, `to` of `current`). The index
//!    becomes idle only if `next` is empty and `position` has reached `decoded`. `IdleEarly`
//! 9. A new follower begins at `reflects` of each pending index, otherwise at `decoded`. It may
//!    begin earlier: repeating is harmless. `Restart`
//! 10. *Retire* changes the state to GIVEN UP. The memory stays as long as scans read it. `Reclaim`
//!
//! ## Builder
//! 1. It begins when the index is `indisready` on this server. `Creation`
//! 2. It changes BARE to SORTING. The follower sees that at the head of its loop: it stores
//!    `reflects` := `decoded`, and collects all later actions as *look*.
//! 3. The builder waits for that. Then it reads the number of blocks, then the blocks. `WalkFirst`
//! 4. It waits for rows as the follower does in rule 6.
//! 5. It changes SORTING to FOLLOWING, pending, with both maps. It never goes to CATCHING UP, even
//!    if recovery ends meanwhile. `Builder`
//! 6. It ends, with the state BARE, when it sees that recovery is over.
//!
//! ## Scan
//! 1. It takes its snapshot, and then reads its bound L, the replay position. `BoundFirst`
//! 2. It reads a FOLLOWING index when R >= L, and a READY index at once. `Bound`
//! 3. Only a snapshot that was taken during recovery may read a FOLLOWING index. `NewSnapshots`
//! 4. A snapshot from during recovery uses an index only if it sees the row in `pg_index`.
//!    `OldSnapshots`
//! 5. An index-only scan reads the state and R before it copies entries. If the state was READY
//!    then, its token counts. Otherwise a bit of the visibility map counts only if the LSN of the
//!    map's page is at or before that R. That holds as long as the scan has these entries. `Map`,
//!    `MapLate`, `Batch`
//!
//! ## Promotion
//! 1. Inserts leave an index alone that is SORTING or FOLLOWING. So does bulk delete, which looks
//!    at the state under the build lock. The takeover reads the prune records of the TIDs that
//!    VACUUM has collected. `VacuumUnlocked`, `DeadRoots`
//! 2. The process that needs the index takes it over. It takes the build lock and becomes the
//!    applier of the index. `Beside`
//! 3. It stores `reflects` := R, which it calls `from`, and makes the index pending. It reads the
//!    end of the WAL and classifies the records from `from` to there.
//! 4. For *gone* and *look* it looks at the blocks as the follower does, and evaluates nothing. It
//!    keeps the entries of other rows in these blocks. `TakeoverEmpties`
//! 5. It reads the end of the WAL again. For each row in the records from `from` to there it
//!    removes all entries of the TID. `TakeoverOnce`, `TakeoverLooks`
//! 6. It changes the state to CATCHING UP, and frees the reverse map. `TakeoverFirst`
//! 7. It reads the end of the WAL once more, and inserts the rows of all blocks that changed after
//!    `from`. Then the index is READY.
//!
//! # What is atomic here and is not in the code
//! - A record and its change of the page. All code here acts on the page under its lock.
//! - A commit, without an LSN of its own. It becomes visible before the replay position moves, so
//!   no rule may rely on the LSN of a commit.
//! - A delete and its commit. The deleter in progress only clears the bit of the map.
//! - Snapshot and bound, and R and the copied entry. Any time between them only adds waiting.
//! - Classification, a look at one block, and one change of one map.
//!
//! # What is left out
//! Files that are exchanged, locks, memory, owners and images. There is one table, so a follower
//! that reads again for another table is the one that begins earlier (`Size::repeats`).

mod builder;
mod canonical;
mod follower;
mod promoted;
mod protocol;
mod reader;
mod replay;
mod state;
mod tests;

/// A mechanism that can be switched off: the checker then has to find a wrong answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Break {
    /// The main index gets an entry before the reverse map.
    Reverse,
    /// The reverse map loses an entry before the main index.
    ReverseFirst,
    /// A scan waits for nothing.
    Bound,
    /// A scan reads its bound before it takes its snapshot.
    BoundFirst,
    /// `decoded` is stored before the index is pending.
    Order,
    /// A scan loads the state word before `decoded`.
    LoadsState,
    /// Every bit of the visibility map counts.
    Map,
    /// R is read when the bit is read, not before the entry is copied.
    MapLate,
    /// An entry that was copied during recovery is judged by its token once the index is READY.
    Batch,
    /// The follower takes rows for dead that snapshots of this server see.
    Horizon,
    /// Snapshots that are older than the index use it.
    OldSnapshots,
    /// The builder begins while transactions run that do not know the index.
    Creation,
    /// Bulk delete does not wait for the build lock.
    VacuumUnlocked,
    /// The takeover publishes before it has removed anything.
    TakeoverFirst,
    /// The takeover does not read the end of the WAL again after it has looked at the blocks.
    TakeoverOnce,
    /// The takeover handles the action row as it handles look.
    TakeoverLooks,
    /// The takeover removes all entries of blocks that changed.
    TakeoverEmpties,
    /// The takeover does not wait for the applier.
    Beside,
    /// The second life of a TID leads to no action.
    Lives,
    /// Prune and VACUUM records lead to no action.
    Gone,
    /// LP_DEAD counts as a root.
    DeadRoots,
    /// Truncation is an action of its own: all entries of the blocks go.
    Cut,
    /// The number of blocks is read in the first transaction only.
    Blocks,
    /// A row in progress that cannot be evaluated is left out.
    LeftOut,
    /// A row in progress is left out and listed. It is looked at again when its transaction has
    /// ended.
    Listed,
    /// A deleted row that cannot be evaluated is left out, though a snapshot may see it.
    DeletedLeftOut,
    /// A builder that ends after promotion ends as one outside of recovery: in CATCHING UP.
    Builder,
    /// An index that was retired while idle reflects all that is decoded later.
    Retired,
    /// The memory of a retired index goes while a scan reads it.
    Reclaim,
    /// A new follower begins at `decoded` though an index is pending.
    Restart,
    /// A set of work counts as complete up to `decoded`.
    ReflectsDecoded,
    /// `reflects` falls when a follower reads again.
    Falls,
    /// An index becomes idle before a follower that reads again has reached `decoded`.
    IdleEarly,
    /// The builder reads the block before the follower collects.
    WalkFirst,
    /// A follower that dies remains the applier.
    Applier,
    /// A snapshot from after promotion reads a FOLLOWING index.
    NewSnapshots,
}
