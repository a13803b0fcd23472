//! Mechanisms that answers depend on, each with a switch: so that tests see the answers go wrong
//! without it.

use pgrx::{GucSetting, PostgresGucEnum};

/// The mechanism that `nitro.debug_break` switches off.
pub(super) static BREAK: GucSetting<Mechanism> = GucSetting::<Mechanism>::new(Mechanism::None);

/// Whether a mechanism works: no test has switched it off. Unit tests have no settings.
pub fn holds(mechanism: Mechanism) -> bool {
    cfg!(test) || BREAK.get() != mechanism
}

/// The mechanisms. A doc says what holds; the setting's value names the switch.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum Mechanism {
    /// No mechanism: all hold.
    #[name = c"none"]
    None,
    /// Inserts that began before an image look at their page (D3).
    #[name = c"straddlers"]
    Straddlers,
    /// Entries of changed blocks are not loaded from images (D5).
    #[name = c"filter"]
    Filter,
    /// Changed blocks are read again (D5).
    #[name = c"reread"]
    Reread,
    /// VACUUM forgets images that could still be loaded (D2b).
    #[name = c"forget"]
    Forget,
    /// Pages without an LSN count as changed.
    #[name = c"new_pages"]
    NewPages,
    /// An image is taken only if state, history and definition of its index fit (D4).
    #[name = c"manifest"]
    Manifest,
    /// Scans on a standby wait for the follower.
    #[name = c"follow_bound"]
    FollowBound,
    /// A follower looks at freed line pointers.
    #[name = c"follow_gone"]
    FollowGone,
    /// An image of a standby is not used where the server has left its timeline.
    #[name = c"standby_history"]
    StandbyHistory,
    /// An index that a standby loads from an image waits for the end of older snapshots.
    #[name = c"standby_snapshots"]
    StandbySnapshots,
    /// On a standby a bit of the visibility map counts only up to an LSN.
    #[name = c"follow_map"]
    FollowMap,
    /// The state of the index when an entry was copied decides which bits count.
    #[name = c"follow_batch"]
    FollowBatch,
    /// A process that takes an index over after a promotion removes entries of rows that are gone.
    #[name = c"follow_takeover"]
    FollowTakeover,
    /// A process that takes an index over after a promotion reads the end of the WAL again.
    #[name = c"follow_once"]
    FollowOnce,
    /// The last member of a HOT chain that is not dead gives the key.
    #[name = c"chains"]
    Chains,
    /// Images are made of complete indexes only (D3).
    #[name = c"half_images"]
    WholeImages,
    /// The WAL is flushed before it is read (D5).
    #[name = c"flush"]
    Flush,
    /// A walk that was interrupted goes on where it was.
    #[name = c"progress"]
    Progress,
    /// The deadlock detector sees a process that waits for a walk (D7).
    #[name = c"deadlocks"]
    Deadlocks,
    /// VACUUM waits for a walk over the table (D2b).
    #[name = c"walks"]
    Walks,
    /// The WAL of the time in which an image was read is read, too (D5).
    #[name = c"tail"]
    Tail,
    /// Index code runs as the owner of the table (D7).
    #[name = c"owner"]
    Owner,
    /// An image takes its LSN before it reads the next transaction ID (D3).
    #[name = c"x_first"]
    LsnFirst,
    /// An image publishes its LSN before its snapshot (D3).
    #[name = c"late_lsn"]
    EarlyLsn,
    /// An image has the LSN that it published (D3).
    #[name = c"second_lsn"]
    OneLsn,
    /// Parts of a parallel scan have an end.
    #[name = c"parts"]
    Parts,
    /// A build that fails frees its memory.
    #[name = c"unfinished"]
    Unfinished,
    /// A file is another one after its database was moved (D5).
    #[name = c"moves"]
    Moves,
    /// A scan whose index was given up ends where VACUUM does not wait for it (D2b).
    #[name = c"given_up"]
    GivenUp,
    /// One process at a time inserts a key into a unique index.
    #[name = c"key_locks"]
    KeyLocks,
    /// An insert into a unique index looks again for keys that came meanwhile.
    #[name = c"key_again"]
    KeyAgain,
    /// An insert into a unique index waits for transactions that have the key.
    #[name = c"key_waits"]
    KeyWaits,
    /// An insert into a unique index waits until the index is READY.
    #[name = c"key_ready"]
    KeyReady,
    /// VACUUM waits for an insert that looks at the rows with a key (D2b).
    #[name = c"key_tokens"]
    KeyTokens,
    /// VACUUM waits for scans that have TIDs in hand (D2b).
    #[name = c"tokens"]
    Tokens,
    /// Images are made of valid indexes only.
    #[name = c"invalid"]
    ValidIndexes,
    /// No image is loaded over a time with `wal_level = minimal` (D5).
    #[name = c"wal_level"]
    WalLevel,
    /// An image is taken only if its table has the same file (D4).
    #[name = c"table_file"]
    TableFile,
    /// Pages are asked only where the slot's history lets them tell of missing WAL (D5).
    #[name = c"pages"]
    Pages,
    /// A builder does its work: it does not end as soon as it begins.
    #[name = c"builders"]
    Builders,
    /// A change of an index or its table makes plans read its values again.
    #[name = c"known_relations"]
    KnownRelations,
    /// A change of operator families makes plans read the values of an index again.
    #[name = c"known_families"]
    KnownFamilies,
    /// Entries of a statement wait no longer than to its end.
    #[name = c"statement_ends"]
    StatementEnds,
}
