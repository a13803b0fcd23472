//! A shard: one file with the entries of one key range, in ascending order.
//!
//! The file is a header, frames of compressed entries, and a closing frame with the totals. Each
//! frame has a digest of its compressed entries. *One* checksum runs through the header, the heads
//! and the digests, and every head has the value so far. So a frame is good only if the list of
//! frames before it is that of the writer. The reader notices frames that are lost, repeated,
//! swapped or taken from another shard. The closing frame makes a file that was cut between two
//! frames incomplete. The manifest repeats the final checksum, which ties the shard to the one
//! image it was written for.
//!
//! The compressed entries of a frame may be in the file of an older image: the frame is *carried*.
//! It then says where they are. Their digest is that of the same bytes in this file.
//!
//! Inside a frame keys are front-coded: what a key shares with the one before is not repeated. A
//! frame starts afresh, and its entries decide where it ends. So the same entries are the same
//! frame, wherever they are in an image.

mod known;
mod list;
mod reader;
mod writer;

use std::{fmt, io};

pub(crate) use known::{Known, KnownFile, KnownFrame};
pub(crate) use list::FrameList;
pub use reader::ShardReader;
pub use writer::ShardWriter;

use crate::Damage;

/// Bytes of the longest key. Memory is requested as keys need it. Older shards with a smaller limit
/// can be read.
pub const MAX_KEY: usize = 1 << 20;

/// TIDs are numbers of this many bits.
pub const TID_BITS: u32 = 48;

/// A frame is full when its entries take this many bytes before compression: small enough for the
/// second-level cache. Most frames end earlier, at an entry that says so (`writer`).
const FRAME: usize = 256 << 10;

/// Parts of [`FRAME`]. One part is the length of a usual frame: 128 kB, twice as much as the
/// compressor looks at together. Shorter ones compress less. A change of one entry writes a frame
/// or two again.
const USUAL_PART: usize = 2;

/// No frame ends before this part of [`FRAME`]: a head costs little then.
const LEAST_PART: usize = 16;

/// Most bytes that one entry takes: three varints and a key.
const MAX_ENTRY: usize = 3 + 3 + 7 + MAX_KEY;

/// Room for entries behind a full frame that most frames do not exceed.
const USUAL_ENTRY: usize = 16 << 10;

/// Most bytes of entries in a frame. Larger lengths in a file are refused before memory is
/// allocated for them.
const MAX_RAW: usize = FRAME + MAX_ENTRY;

/// Most bytes of a compressed frame; what Snappy promises for incompressible input.
const MAX_PACKED: usize = 32 + MAX_RAW + MAX_RAW / 6;

const MAGIC: [u8; 8] = *b"NitroShd";
const VERSION: u32 = 2;

/// The version whose frames have no digest. Its checksum runs through the compressed entries, too.
/// Release 0.2.0 writes it.
const WITHOUT_DIGESTS: u32 = 1;

/// The identity of a shard: its image and number. It is in the header, so that a file in the wrong
/// place is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardId {
    /// OID of the database.
    pub database: u32,
    /// Incarnation of the index.
    pub incarnation: u128,
    /// Generation of the image.
    pub generation: u64,
    /// Number of the shard, from 0.
    pub shard: u32,
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShardId { database, incarnation, generation, shard } = self;
        write!(f, "{database}/{incarnation:032x}/{generation}/shard-{shard}")
    }
}

/// The summary of a shard in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSummary {
    /// Number of entries.
    pub entries: u64,
    /// Length of the file.
    pub bytes: u64,
    /// The running checksum at the end of the file.
    pub crc: u32,
}

/// The running checksum `crc`, continued over `bytes`.
fn checksum(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// A digest of compressed entries: BLAKE3. Two frames with the same digest are the same frame, also
/// if a user has chosen their keys.
pub(crate) type Digest = [u8; 32];

fn digest(packed: &[u8]) -> Digest {
    *blake3::hash(packed).as_bytes()
}

/// The place of a frame in a file of an older image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) generation: u64,
    pub(crate) shard: u32,
    /// Where the compressed entries begin.
    pub(crate) at: u64,
}

impl Place {
    pub(crate) const SIZE: usize = 20;

    fn encode(&self) -> [u8; Place::SIZE] {
        let mut bytes = [0; Place::SIZE];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.shard.to_le_bytes());
        bytes[12..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Place::SIZE]) -> Place {
        let (generation, shard) = (u64_at(bytes, 0), u32_at(bytes, 8));
        Place { generation, shard, at: u64_at(bytes, 12) }
    }
}

/// The head of the file: magic, version, the parts of the id, checksum; integers little-endian.
pub(crate) const HEADER: usize = 48;

/// The header, and the running checksum behind it. That leaves out the checksums themselves: one
/// over bytes *and* their checksum is the same for all bytes.
pub(crate) fn encode_header(id: &ShardId) -> ([u8; HEADER], u32) {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&id.database.to_le_bytes());
    header[16..32].copy_from_slice(&id.incarnation.to_le_bytes());
    header[32..40].copy_from_slice(&id.generation.to_le_bytes());
    header[40..44].copy_from_slice(&id.shard.to_le_bytes());
    let crc = checksum(0, &header[..44]);
    header[44..].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Returns the format version, the id, and the running checksum behind the header.
fn decode_header(header: &[u8; HEADER]) -> Result<(u32, ShardId, u32), Damage> {
    if header[..8] != MAGIC {
        return Err(Damage::Magic);
    }
    let version = u32_at(header, 8);
    if ![WITHOUT_DIGESTS, VERSION].contains(&version) {
        return Err(Damage::Version(version));
    }
    let crc = u32_at(header, 44);
    if crc != checksum(0, &header[..44]) {
        return Err(Damage::Header);
    }
    let (low, high) = (u64_at(header, 16), u64_at(header, 24));
    let id = ShardId {
        database: u32_at(header, 12),
        incarnation: u128::from(high) << 64 | u128::from(low),
        generation: u64_at(header, 32),
        shard: u32_at(header, 40),
    };
    Ok((version, id, crc))
}

/// The head of a frame. Its digest follows, then its place if it is carried, else its `packed`
/// bytes. `crc` is the running checksum up to the end of the digest or the place, checksums left
/// out.
///
/// The closing frame has no entries and no digest. Its bytes are not compressed: [`Totals`].
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) raw: u32,
    pub(crate) packed: u32,
    /// With the bit [`CARRIED`].
    pub(crate) entries: u32,
    pub(crate) crc: u32,
}

/// The bit of the number of entries that says that a frame is carried. A frame has fewer bytes.
pub(crate) const CARRIED: u32 = 1 << 31;

impl Frame {
    pub(crate) const SIZE: usize = 16;

    /// Returns the head of a frame that has `tail` behind it, when `crc` is the running checksum
    /// in front of it.
    fn new(raw: usize, entries: u32, packed: usize, crc: u32, tail: &[u8]) -> Frame {
        let mut frame = Frame { raw: raw as u32, packed: packed as u32, entries, crc: 0 };
        frame.crc = frame.continued(crc, tail);
        frame
    }

    pub(crate) fn continued(&self, crc: u32, tail: &[u8]) -> u32 {
        checksum(checksum(crc, &self.encode()[..12]), tail)
    }

    pub(crate) fn encode(&self) -> [u8; Frame::SIZE] {
        let mut bytes = [0; Frame::SIZE];
        for (at, field) in [self.raw, self.packed, self.entries, self.crc].into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Frame::SIZE]) -> Frame {
        Frame {
            raw: u32_at(bytes, 0),
            packed: u32_at(bytes, 4),
            entries: u32_at(bytes, 8),
            crc: u32_at(bytes, 12),
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.raw == 0
    }
}

/// The bytes of the closing frame: how many entries and frames came before it.
#[derive(Clone, Copy, Default)]
struct Totals {
    entries: u64,
    frames: u64,
}

impl Totals {
    const SIZE: usize = 16;

    fn encode(&self) -> [u8; Totals::SIZE] {
        let mut bytes = [0; Totals::SIZE];
        bytes[..8].copy_from_slice(&self.entries.to_le_bytes());
        bytes[8..].copy_from_slice(&self.frames.to_le_bytes());
        bytes
    }
}

/// Makes a buffer as long as the frame says.
fn make_room(buffer: &mut Vec<u8>, length: u32) -> io::Result<()> {
    let length = length as usize;
    buffer.try_reserve(length.saturating_sub(buffer.len()))?;
    buffer.resize(length, 0);
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at + 4)) << 32 | u64::from(u32_at(bytes, at))
}

/// Appends `value`, seven bits a byte, lowest first; all bytes but the last have the top bit set.
#[inline]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `bytes`; `None` if there is none or it has more than 63 bits.
#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Signed numbers close to zero become small unsigned ones.
#[inline]
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
