//! Mechanisms that can be switched off, each by itself, to see which test notices (`make mutants`).
//! With the feature `mutants` the environment variable `NITRO_MUTANT` names them; without it
//! nothing is left of them.

/// Is this mechanism, by its name in [`MUTANTS`], switched off?
macro_rules! mutant {
    ($name:literal) => {
        cfg!(feature = "mutants")
            && crate::sync::mutants::off(const { crate::sync::mutants::number($name) })
    };
}

pub(crate) use mutant;

/// All of them, each with the tests that are tried first.
const MUTANTS: &[(&str, &str)] = &[
    // The version of a node.
    ("a fresh node is latched", "schedule::splitting::a_split_beside"),
    ("a reader validates", "schedule::splitting"),
    ("a latch is of the searched state", "schedule::splitting"),
    ("an exclusive phase moves the count by three", "block::version::models"),
    ("readers wait for the end of an exclusive phase", "block::version::models"),
    ("a fence before the validation", "block::version::models"),
    ("a fence behind the latch", "block::version::models"),
    ("a fence behind a publication under the latch", "block::version::models"),
    ("a fence behind the beginning of an exclusive phase", "block::version::models"),
    // Insert and removal.
    ("an entry that was found is validated", "schedule::snapshots"),
    ("an entry is born after its earlier life", "schedule::snapshots"),
    ("a new key is not in its leaf", "new_keys"),
    ("a new key has a neighbour on the left", "the_last_entry"),
    ("a new key has a neighbour on the right", "the_last_entry"),
    ("a removal looks whether the entry is dead", "schedule::snapshots"),
    ("a cursor removes what is not dead", "schedule::cursors"),
    ("without a snapshot the dead are dead", "old_term"),
    ("a separator lies behind the beginning of its range", "part"),
    ("the rest of a leaf is of the batch's version", "rest"),
    ("the rest of a leaf is of one group", "rest"),
    ("the rest of a leaf is validated", "schedule::packed"),
    ("what is before a number has one length", "rest"),
    ("a cursor removes from the leaf that it copied", "schedule::merging::a_merge_beside"),
    ("the count of the dead falls in an exclusive phase", "schedule::snapshots"),
    ("a chunk goes with its last reference", "schedule::snapshots"),
    ("a token for a further index is announced", "no_tid_is_reused"),
    ("a finger is of one index", "finger"),
    ("a finger's leaf is alive", "finger"),
    ("a finger is of the session that was announced", "finger"),
    ("a finger's session is open", "nothing_under_a_finger"),
    ("entries of a key under a finger begin in its leaf", "finger"),
    ("entries of a key under a finger end in its leaf", "finger"),
    // The reverse map.
    ("the reverse map learns of a key first", "reverse"),
    ("the reverse map forgets a key last", "reverse"),
    // Searches.
    ("a search goes right from the first node", "seek::tests"),
    ("a scan goes on by its rank in a leaf", "seek::tests"),
    // Split and promotion.
    ("lives of one entry stay together", "bytes"),
    ("a promotion looks for the parent", "schedule::splitting"),
    ("a promotion looks for leaves that came between", "schedule::splitting"),
    ("a separator comes with the parent", "schedule::splitting"),
    ("a separator that could end in padding is not exact", "bytes"),
    ("a run leaves its leaf full", "density"),
    ("ascending groups share a node", "density"),
    // Packed leaves.
    ("an insert into a packed leaf looks for snapshots", "schedule::packed"),
    ("a removal from a packed leaf looks for snapshots", "schedule::packed"),
    ("a batch that goes from a packed leaf looks for snapshots", "schedule::packed"),
    ("ends of a part are counted from its first entry", "packed::rearranged"),
    ("tails of a part are counted from its first symbol", "packed::rearranged"),
    ("nothing is behind copied bits", "packed::rearranged"),
    ("a comparator gets what was validated", "torn"),
    ("what a sweep holds is of this version", "schedule::filling"),
    // Runs of sorted entries.
    ("a run ends with the range of its leaf", "model"),
    ("a run is of the term that was asked for", "schedule::runs"),
    ("a run looks for snapshots", "schedule::runs"),
    ("a merge of a run looks for what was marked", "schedule::runs"),
    ("a run may fill leaves that are full", "sorted::tests"),
    ("a run that is there is validated", "sorted::tests"),
    ("a key that comes twice is new once", "packed::run_tests"),
    ("a key that was known before is known", "packed::run_tests"),
    ("places of a run that descend end it", "packed::run_tests"),
    // Relinking.
    ("a relinking looks again for what was marked", "schedule::merging"),
    ("slots become packed without a snapshot", "schedule::packed"),
    ("a leaf without separator stays", "schedule::splitting"),
    ("a leaf on a list stays", "schedule::random::snapshots"),
    ("a leaf with pins stays", "schedule::merging"),
    ("a first child stays", "schedule::merging"),
    ("a separator that changes shares what its node leaves out", "held"),
    ("a relinking tells the right neighbour", "schedule::splitting"),
    ("separators of dead leaves go", "schedule::merging"),
    ("the separator of a dead leaf leads to the new one", "schedule::moving"),
    ("separators that move change the parent", "schedule::splitting"),
    ("a node that gives all it has is dead", "schedule::merging"),
    ("a leaf that dies is not where inserts append", "schedule::leaving"),
    ("an append looks whether its leaf is dead", "schedule::splitting"),
    ("an index node is retired behind the flat top", "schedule::merging"),
    ("retired blocks wait for the barrier", "schedule::merging"),
    ("an index that is given up waits for the barrier", "index::given_up"),
    ("memory is taken from full granules", "area"),
    ("memory that goes back is credited", "memory::charge"),
    ("readers enter the barrier", "schedule::merging"),
    ("memory that leaves begins an epoch", "schedule::leaving"),
    ("memory that leaves waits for the barrier", "schedule::leaving"),
    // Walks over all leaves.
    ("a pin waits for the latch", "block::version::models"),
    ("a fence between a pin and the look at the leaf", "block::version::models"),
    ("a fence between a latch and the look at the pins", "block::version::models"),
    ("a process that is abandoned gives up its pins", "pin"),
    ("a walk reads a state that leads to what it has pinned", "a_split_beside_a_walk"),
    ("a pass goes through all leaves that it has asked about", "schedule::splitting"),
    // Snapshots.
    ("a snapshot in the making has a bound", "schedule::snapshots"),
    ("a snapshot waits for writers", "schedule::snapshots"),
    ("a writer reads the term again", "model"),
    ("snapshots are asked before an entry is dropped", "schedule::snapshots"),
    // Cursors.
    ("a neighbour on the left leads to where it was come from", "schedule::splitting"),
    ("a scan looks whether its leaf has changed", "schedule::merging"),
    ("a scan that searches goes on behind its last entry", "schedule::cursors"),
    ("long keys end a batch", "long"),
    ("a batch has all lives of an entry", "long"),
];

/// The number of a mechanism; does not compile if the list does not have it.
pub(crate) const fn number(name: &str) -> usize {
    let mut i = 0;
    while i < MUTANTS.len() {
        let (a, b) = (MUTANTS[i].0.as_bytes(), name.as_bytes());
        let mut at = 0;
        while at < a.len() && at < b.len() && a[at] == b[at] {
            at += 1;
        }
        if at == a.len() && at == b.len() {
            return i;
        }
        i += 1;
    }
    panic!("not in MUTANTS")
}

/// Is it switched off?
pub(crate) fn off(number: usize) -> bool {
    use std::sync::OnceLock;
    static OFF: OnceLock<Vec<bool>> = OnceLock::new();
    OFF.get_or_init(|| {
        let named = std::env::var("NITRO_MUTANT").unwrap_or_default();
        let off = |&(name, _): &(&str, &str)| named.split(',').any(|wanted| wanted == name);
        let all: Vec<bool> = MUTANTS.iter().map(off).collect();
        let wanted = named.split(',').filter(|name| !name.is_empty()).count();
        assert_eq!(all.iter().filter(|&&off| off).count(), wanted, "unknown mutant in {named}");
        all
    })[number]
}
