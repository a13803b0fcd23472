//! Writing a shard.

use std::io::{self, Write};
use std::sync::Arc;

use super::{
    CARRIED, Digest, FRAME, Frame, Known, LEAST_PART, MAX_ENTRY, MAX_KEY, Place, ShardId,
    ShardSummary, TID_BITS, Totals, USUAL_ENTRY, USUAL_PART, digest, encode_header, put_varint,
    zigzag,
};

/// Writes the entries of one shard, in the order they are pushed.
///
/// The output sees one write per frame: give it a buffer if that is too small. After an error the
/// file is of no use, and the writer refuses to finish it.
pub struct ShardWriter<W: Write> {
    out: W,
    id: ShardId,
    /// Frames that need not be written again.
    known: Option<Arc<Known>>,
    frame_size: usize,
    /// How likely a byte of an entry makes it the end of its frame, of 2^64.
    odds: u64,
    /// The frame being filled, before compression, and its number of entries.
    raw: Vec<u8>,
    count: u32,
    /// The last entry.
    key: Vec<u8>,
    tid: u64,
    snappy: snap::raw::Encoder,
    packed: Vec<u8>,
    totals: Totals,
    bytes: u64,
    carried: u64,
    crc: u32,
    failed: bool,
}

impl<W: Write> ShardWriter<W> {
    /// Starts a shard.
    pub fn new(out: W, id: ShardId) -> io::Result<ShardWriter<W>> {
        ShardWriter::with_frame_size(out, id, FRAME)
    }

    /// Starts a shard whose frames are full at `frame_size` bytes, if that is less than usual.
    pub fn with_frame_size(
        mut out: W,
        id: ShardId,
        frame_size: usize,
    ) -> io::Result<ShardWriter<W>> {
        let (header, crc) = encode_header(&id);
        out.write_all(&header)?;
        let frame_size = frame_size.min(FRAME);
        let (mut raw, mut packed) = (Vec::new(), Vec::new());
        raw.try_reserve_exact(frame_size + USUAL_ENTRY)?;
        make_room(&mut packed, frame_size + USUAL_ENTRY)?;
        Ok(ShardWriter {
            out,
            id,
            known: None,
            frame_size,
            odds: u64::MAX / frame_size.div_ceil(USUAL_PART).max(1) as u64,
            raw,
            count: 0,
            key: Vec::new(),
            tid: 0,
            snappy: snap::raw::Encoder::new(),
            packed,
            totals: Totals::default(),
            bytes: header.len() as u64,
            carried: 0,
            crc,
            failed: false,
        })
    }

    /// Refers to these frames instead of writing the same again.
    pub(crate) fn knowing(self, known: Option<Arc<Known>>) -> ShardWriter<W> {
        ShardWriter { known, ..self }
    }

    /// The id in its header.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How much of the file is written already.
    pub fn bytes_written(&self) -> u64 {
        self.bytes
    }

    /// How many bytes it has not written, because an older image has them.
    pub fn bytes_carried(&self) -> u64 {
        self.carried
    }

    /// How much waits for its frame to be full, before compression.
    pub fn bytes_pending(&self) -> u64 {
        self.raw.len() as u64
    }

    /// Appends an entry. The caller gives them in ascending order; any other is only larger.
    #[inline]
    pub fn push(&mut self, key: &[u8], tid: u64) -> io::Result<()> {
        if key.len() > MAX_KEY || tid >> TID_BITS != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "entry out of range"));
        }
        let begin = self.raw.len();
        let shared = shared_prefix(&self.key, key);
        let suffix = &key[shared..];
        self.raw.try_reserve(suffix.len() + MAX_ENTRY - MAX_KEY)?;
        self.key.try_reserve(suffix.len())?;
        put_varint(&mut self.raw, shared as u64);
        put_varint(&mut self.raw, suffix.len() as u64);
        self.raw.extend_from_slice(suffix);
        put_varint(&mut self.raw, zigzag(tid as i64 - self.tid as i64));
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.tid = tid;
        self.count += 1;
        if self.ends_frame(begin) { self.flush() } else { Ok(()) }
    }

    /// Whether the frame ends with the last entry, which begins there. The entry itself decides: so
    /// entries that come or go elsewhere do not move the ends of frames. A longer one is more
    /// likely to be an end, so frames of all kinds of keys have the usual length.
    #[inline]
    fn ends_frame(&self, begin: usize) -> bool {
        let length = self.raw.len();
        let odds = ((length - begin) as u64).saturating_mul(self.odds);
        length >= self.frame_size
            || length >= self.frame_size / LEAST_PART && mixed(self.tid) < odds
    }

    /// Closes the shard. The output has seen all bytes, but may hold some in a buffer.
    pub fn finish(mut self) -> io::Result<(W, ShardSummary)> {
        // A frame whose writing failed is still there, and is refused here.
        if self.count > 0 {
            self.flush()?;
        }
        let totals = self.totals.encode();
        let frame = Frame::new(0, 0, totals.len(), self.crc, &totals);
        self.out.write_all(&frame.encode())?;
        self.out.write_all(&totals)?;
        let bytes = self.bytes + (Frame::SIZE + Totals::SIZE) as u64;
        Ok((self.out, ShardSummary { entries: self.totals.entries, bytes, crc: frame.crc }))
    }

    /// Writes the frame and starts the next one.
    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        // Stays set if a write below fails: a second attempt would leave a part of the first.
        if std::mem::replace(&mut self.failed, true) {
            return Err(io::Error::other("an earlier write to this shard failed"));
        }
        make_room(&mut self.packed, self.raw.len())?;
        let length = self.snappy.compress(&self.raw, &mut self.packed).map_err(io::Error::other)?;
        let packed = &self.packed[..length];
        let digest = digest(packed);
        let place = self.known.as_deref().and_then(|known| known.refer(&digest));
        let mut tail = [0; size_of::<Digest>() + Place::SIZE];
        let (front, back) = tail.split_at_mut(digest.len());
        front.copy_from_slice(&digest);
        let (entries, tail, body) = match place {
            None => (self.count, &*front, packed),
            Some(place) => {
                back.copy_from_slice(&place.encode());
                self.carried += length as u64;
                (self.count | CARRIED, &tail[..], &[][..])
            }
        };
        let frame = Frame::new(self.raw.len(), entries, length, self.crc, tail);
        for bytes in [&frame.encode()[..], tail, body] {
            self.out.write_all(bytes)?;
            self.bytes += bytes.len() as u64;
        }
        self.crc = frame.crc;
        self.totals.entries += u64::from(self.count);
        self.totals.frames += 1;
        (self.count, self.tid) = (0, 0);
        self.raw.clear();
        self.key.clear();
        self.failed = false;
        Ok(())
    }
}

/// Makes a buffer long enough for this number of bytes, compressed.
fn make_room(packed: &mut Vec<u8>, bytes: usize) -> io::Result<()> {
    let most = snap::raw::max_compress_len(bytes);
    if let Some(more) = most.checked_sub(packed.len()) {
        packed.try_reserve_exact(more)?;
        packed.resize(most, 0);
    }
    Ok(())
}

/// Spreads TIDs evenly over all numbers.
#[inline]
fn mixed(tid: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let product = tid.wrapping_mul(ODD);
    (product ^ product >> 32).wrapping_mul(ODD)
}

/// How many bytes `a` and `b` begin with alike.
#[inline]
fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    const WORD: usize = 8;
    let mut at = 0;
    for (a, b) in a.chunks_exact(WORD).zip(b.chunks_exact(WORD)) {
        if a != b {
            break;
        }
        at += WORD;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}
