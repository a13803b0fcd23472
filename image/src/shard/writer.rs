//! Writing a shard.

use std::io::{self, Write};

use super::{
    FRAME, Frame, MAX_ENTRY, MAX_KEY, ShardId, ShardSummary, TID_BITS, Totals, USUAL_ENTRY,
    encode_header, put_varint, zigzag,
};

/// Writes the entries of one shard, in the order they are pushed.
///
/// The output sees one write per frame: give it a buffer if that is too small. After an error the
/// file is of no use, and the writer refuses to finish it.
pub struct ShardWriter<W: Write> {
    out: W,
    id: ShardId,
    frame_size: usize,
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
            frame_size,
            raw,
            count: 0,
            key: Vec::new(),
            tid: 0,
            snappy: snap::raw::Encoder::new(),
            packed,
            totals: Totals::default(),
            bytes: header.len() as u64,
            crc,
            failed: false,
        })
    }

    /// The id in its header.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How much of the file is written already.
    pub fn bytes_written(&self) -> u64 {
        self.bytes
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
        if self.raw.len() >= self.frame_size { self.flush() } else { Ok(()) }
    }

    /// Closes the shard. The output has seen all bytes, but may hold some in a buffer.
    pub fn finish(mut self) -> io::Result<(W, ShardSummary)> {
        // A frame whose writing failed is still there, and is refused here.
        if self.count > 0 {
            self.flush()?;
        }
        let totals = self.totals.encode();
        let frame = Frame::new(0, 0, &totals, self.crc);
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
        let frame = Frame::new(self.raw.len(), self.count, packed, self.crc);
        self.out.write_all(&frame.encode())?;
        self.out.write_all(packed)?;
        self.crc = frame.crc;
        self.bytes += (Frame::SIZE + length) as u64;
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
