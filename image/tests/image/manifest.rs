//! Manifests: there is one way to write each, and no other is read.

use nitro_image::{CarriedFile, Damage, MAX_MANIFEST, Manifest, ShardSummary};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::content;

fn some_manifest() -> Manifest {
    let shard = |entries| ShardSummary { entries, bytes: 123_456, crc: 0xab };
    content::manifest(0x16_B374_D848, 3, vec![shard(10), shard(20)])
}

fn manifests() -> impl Strategy<Value = Manifest> {
    let identity = (any::<[u64; 7]>(), any::<[u32; 6]>(), any::<u128>(), any::<i64>());
    let text = || prop_oneof![any::<String>(), "[a-z\\\\\n\r ]{0,20}"];
    let shard = any::<(u64, u64, u32)>().prop_map(|(entries, bytes, crc)| ShardSummary {
        entries,
        bytes,
        crc,
    });
    let carried = btree_map(any::<(u64, u32)>(), (any::<[u64; 2]>(), 1..u64::MAX), 0..3);
    let files = (vec(shard, 0..9), carried);
    (identity, any::<bool>(), text(), vec(text(), 0..5), files).prop_map(
        |((large, small, incarnation, taken), slot, name, columns, (shards, carried))| {
            let [system, lsn, end, mark, generation, entries, operations] = large;
            // Carried files are of older images.
            let carried = carried.into_iter().filter(|((older, _), _)| *older < generation);
            let carried = carried
                .map(|((generation, shard), ([bytes, frames], used))| CarriedFile {
                    generation,
                    shard,
                    bytes,
                    frames,
                    used,
                })
                .collect();
            let [timeline, server, database, index, heap_tablespace, heap_file] = small;
            Manifest {
                system,
                lsn,
                end,
                timeline,
                mark,
                server,
                slot,
                database,
                index,
                heap_tablespace,
                heap_file,
                incarnation,
                generation,
                name,
                columns,
                entries,
                operations,
                taken,
                shards,
                carried,
            }
        },
    )
}

proptest! {
    #[test]
    fn reads_what_was_written(manifest in manifests()) {
        let bytes = manifest.encode();
        prop_assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
    }
}

#[test]
fn looks_like_this() {
    let text = String::from_utf8(some_manifest().encode()).unwrap();
    let (body, crc) = text.split_at(text.len() - 15);
    assert_eq!(
        body,
        "nitro image 3
system 7234567890123456789
lsn 16/B374D848
end 16/B374E848
timeline 1
mark 0123456789abcdef
server 180001
slot yes
database 16384
index 16400
heap_tablespace 1663
heap_file 16390
incarnation 0123456789abcdef0011223344556677
generation 3
name orders_customer_idx
column int4_ops 1
column text_ops C
entries 30
operations 97500059720
taken 1700000000
shard 10 123456 000000ab
shard 20 123456 000000ab
"
    );
    assert_eq!(crc, format!("crc32 {:08x}\n", crc32fast::hash(body.as_bytes())));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = some_manifest().encode();
    for at in 0..bytes.len() {
        for byte in 0..=u8::MAX {
            let mut changed = bytes.clone();
            changed[at] = byte;
            assert_eq!(Manifest::decode(&changed).is_ok(), changed == bytes, "{byte} at {at}");
        }
    }
}

#[test]
fn every_other_length_is_noticed() {
    let bytes = some_manifest().encode();
    for length in 0..bytes.len() {
        assert!(Manifest::decode(&bytes[..length]).is_err());
    }
    assert!(Manifest::decode(&[&bytes[..], b"\n"].concat()).is_err());
    assert!(matches!(Manifest::decode(&vec![b' '; MAX_MANIFEST + 1]), Err(Damage::Trailing)));
}

/// Reads a manifest that was edited, checksum included.
fn edited(edit: impl Fn(&mut Vec<String>)) -> Result<Manifest, Damage> {
    let text = String::from_utf8(some_manifest().encode()).unwrap();
    let mut lines: Vec<_> = text.lines().map(String::from).collect();
    lines.pop();
    edit(&mut lines);
    let body = lines.join("\n") + "\n";
    let crc = crc32fast::hash(body.as_bytes());
    Manifest::decode(format!("{body}crc32 {crc:08x}\n").as_bytes())
}

#[test]
fn fields_come_once_and_in_order() {
    let lines = some_manifest().encode().iter().filter(|byte| **byte == b'\n').count() - 1;
    assert!(edited(|_| {}).is_ok());
    // A column or a shard less is another manifest, but a good one.
    let repeated = |line: &str| line.starts_with("column") || line.starts_with("shard");
    for at in 0..lines {
        let removed = edited(|lines| {
            if !repeated(&lines[at]) {
                lines.remove(at);
            } else {
                lines.swap(0, at);
            }
        });
        assert!(removed.is_err(), "line {at} is missing");
        let twice = edited(|lines| {
            if !repeated(&lines[at]) {
                lines.insert(at, lines[at].clone());
            } else {
                lines.insert(at, "color red".into());
            }
        });
        assert!(twice.is_err(), "line {at} is there twice");
    }
    let damage = edited(|lines| lines.insert(11, "color red".into())).unwrap_err();
    assert_eq!(damage.to_string(), "line 12 of the manifest: expected heap_file");
}

#[test]
fn values_have_one_form() {
    for (line, text) in [
        (1, "system 007234567890123456789"),
        (1, "system +7234567890123456789"),
        (1, "system  7234567890123456789"),
        (1, "system 18446744073709551616"),
        (1, "system 7234567890123456789\r"),
        (2, "lsn 16/b374d848"),
        (2, "lsn 16/0B374D848"),
        (2, "lsn 16B374D848"),
        (2, "lsn 16/1B374D848"),
        (3, "end 16/0B374E848"),
        (4, "timeline -1"),
        (5, "mark 0123456789ABCDEF"),
        (5, "mark 123456789abcdef"),
        (7, "slot true"),
        (12, "incarnation 0123456789ABCDEF0011223344556677"),
        (12, "incarnation 123456789abcdef0011223344556677"),
        (14, "name a\\tb"),
        (14, "name a\\"),
        (15, "column a\rb"),
        (20, "shard 10 123456"),
        (20, "shard 10 123456 000000ab 1"),
        (20, "shard 10 123456 ab"),
    ] {
        assert!(edited(|lines| lines[line] = text.into()).is_err(), "{text}");
    }
}

/// Release 0.2.0 reads manifests without carried files.
#[test]
fn carried_files_are_of_another_version() {
    let carried = vec![CarriedFile { generation: 2, shard: 1, bytes: 123, frames: 99, used: 45 }];
    let manifest = Manifest { carried, ..some_manifest() };
    let text = String::from_utf8(manifest.encode()).unwrap();
    assert!(text.starts_with("nitro image 4\n") && text.contains("\ncarried 2 1 123 99 45\n"));
    assert_eq!((manifest.written(), manifest.bytes()), (246_912, 246_957));
    assert!(edited(|lines| lines.push("carried 2 1 123 99 45".into())).is_err());
    assert!(edited(|lines| lines[0] = "nitro image 4".into()).is_err());
    let both = |lines: &mut Vec<String>| {
        lines[0] = "nitro image 4".into();
        lines.push("carried 2 1 123 99 45".into());
    };
    assert_eq!(edited(both).unwrap(), manifest);
    for line in ["carried 2 1 123 99", "carried 02 1 123 99 45", "carried 2 1 123 99 45 6"] {
        assert!(
            edited(|lines| {
                both(lines);
                *lines.last_mut().unwrap() = line.into();
            })
            .is_err()
        );
    }
    // Files of older images, each once, in order, and used.
    let lines = |files: [&str; 2]| {
        edited(|lines| {
            lines[0] = "nitro image 4".into();
            lines.extend(files.map(|file| format!("carried {file}")));
        })
    };
    assert!(lines(["1 4 123 99 45", "2 1 123 99 45"]).is_ok());
    for second in ["1 4 123 99 45", "1 3 123 99 45", "3 5 123 99 45", "2 1 123 99 0"] {
        assert!(lines(["1 4 123 99 45", second]).is_err(), "{second}");
    }
}

#[test]
fn a_manifest_of_another_release_says_so() {
    for version in [1, 2, 5] {
        let other = edited(|lines| lines[0] = format!("nitro image {version}"));
        assert!(matches!(other, Err(Damage::Version(v)) if v == version));
    }
    assert!(matches!(edited(|lines| lines[0] = "hello".into()), Err(Damage::Magic)));
}
