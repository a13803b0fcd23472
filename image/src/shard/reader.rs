//! Reading a shard, whatever its bytes are.

use std::io::{self, Read};

use super::{
    Frame, HEADER, MAX_KEY, MAX_PACKED, MAX_RAW, ShardId, ShardSummary, TID_BITS, Totals,
    decode_header, take_varint, unzigzag,
};
use crate::Damage;

/// Reads the entries of one shard.
///
/// The shard is good only when [`next`](ShardReader::next) has returned `None`: entries of intact
/// frames are handed out before later frames are seen. Their order is not checked, since not every
/// order is that of the bytes.
pub struct ShardReader<R: Read> {
    input: R,
    expected: ShardSummary,
    /// The frame being read: its entries, how far they are read, and how many are left.
    raw: Vec<u8>,
    at: usize,
    left: u32,
    /// The last entry; the key is the first `length` bytes.
    key: Vec<u8>,
    length: usize,
    tid: u64,
    snappy: snap::raw::Decoder,
    packed: Vec<u8>,
    totals: Totals,
    bytes: u64,
    crc: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    Damaged,
}

impl<R: Read> ShardReader<R> {
    /// Opens the shard `id`, whose manifest has `summary`.
    pub fn new(
        mut input: R,
        id: ShardId,
        summary: &ShardSummary,
    ) -> Result<ShardReader<R>, Damage> {
        let mut header = [0; HEADER];
        input.read_exact(&mut header)?;
        let (found, crc) = decode_header(&header)?;
        if found != id {
            return Err(Damage::Foreign(Box::new(found)));
        }
        Ok(ShardReader {
            input,
            expected: *summary,
            raw: Vec::new(),
            at: 0,
            left: 0,
            key: Vec::new(),
            length: 0,
            tid: 0,
            snappy: snap::raw::Decoder::new(),
            packed: Vec::new(),
            totals: Totals::default(),
            bytes: HEADER as u64,
            crc,
            state: State::Open,
        })
    }

    /// How many entries the manifest promises.
    pub fn entries(&self) -> u64 {
        self.expected.entries
    }

    /// The next entry, or `None` after the last one if the shard was intact to its end.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its key")]
    pub fn next(&mut self) -> Result<Option<(&[u8], u64)>, Damage> {
        if self.left == 0 && !self.frame()? {
            return Ok(None);
        }
        match self.item() {
            Some(()) => Ok(Some((&self.key[..self.length], self.tid))),
            None => Err(self.malformed("an entry out of range")),
        }
    }

    /// Decodes the next entry of the frame.
    #[inline]
    fn item(&mut self) -> Option<()> {
        let mut rest = &self.raw[self.at..];
        let shared = take_varint(&mut rest)? as usize;
        let suffix = take_varint(&mut rest)? as usize;
        let (suffix, mut rest) = rest.split_at_checked(suffix)?;
        if shared > self.length {
            return None;
        }
        let length = shared + suffix.len();
        self.key.get_mut(shared..length)?.copy_from_slice(suffix);
        let tid = self.tid.checked_add_signed(unzigzag(take_varint(&mut rest)?))?;
        if tid >> TID_BITS != 0 {
            return None;
        }
        self.length = length;
        self.tid = tid;
        self.at = self.raw.len() - rest.len();
        self.left -= 1;
        Some(())
    }

    /// Goes to the next frame; false if there is none.
    #[cold]
    fn frame(&mut self) -> Result<bool, Damage> {
        match self.state {
            State::Open => {}
            State::Closed => return Ok(false),
            State::Damaged => return Err(self.malformed("read again")),
        }
        if self.at != self.raw.len() {
            return Err(self.malformed("bytes after its last entry"));
        }
        self.totals.frames += u64::from(!self.raw.is_empty());
        // Until the frame is known to be good.
        self.state = State::Damaged;
        let mut head = [0; Frame::SIZE];
        self.input.read_exact(&mut head)?;
        let head = Frame::decode(&head);
        if head.raw as usize > MAX_RAW || head.packed as usize > MAX_PACKED {
            return Err(self.malformed("too large"));
        }
        make_room(&mut self.packed, head.packed)?;
        self.input.read_exact(&mut self.packed)?;
        if head.crc != head.continued(self.crc, &self.packed) {
            return Err(Damage::Checksum { frame: self.totals.frames });
        }
        self.crc = head.crc;
        self.bytes += Frame::SIZE as u64 + u64::from(head.packed);
        if head.is_closing() {
            self.close()?;
            self.state = State::Closed;
            return Ok(false);
        }
        self.unpack(&head)?;
        self.state = State::Open;
        Ok(true)
    }

    fn unpack(&mut self, head: &Frame) -> Result<(), Damage> {
        if head.entries == 0 {
            return Err(self.malformed("no entries"));
        }
        // The length that Snappy would allocate for is the one inside its bytes.
        if snap::raw::decompress_len(&self.packed).ok() != Some(head.raw as usize) {
            return Err(self.malformed("two lengths"));
        }
        make_room(&mut self.raw, head.raw)?;
        // A frame starts afresh: no key has more bytes than all of it.
        let longest = head.raw.min(MAX_KEY as u32);
        if self.key.len() < longest as usize {
            make_room(&mut self.key, longest)?;
        }
        if self.snappy.decompress(&self.packed, &mut self.raw).is_err() {
            return Err(self.malformed("not compressed by snappy"));
        }
        self.totals.entries += u64::from(head.entries);
        (self.at, self.left, self.length, self.tid) = (0, head.entries, 0, 0);
        Ok(())
    }

    /// Compares the closing frame with the frames that were read and with the manifest.
    fn close(&mut self) -> Result<(), Damage> {
        if self.packed != self.totals.encode() {
            return Err(self.malformed("wrong totals"));
        }
        match self.input.read_exact(&mut [0]) {
            Ok(()) => return Err(Damage::Trailing),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error.into()),
        }
        let ShardSummary { entries, bytes, crc } = self.expected;
        for (same, what) in [
            (self.totals.entries == entries, "number of entries"),
            (self.bytes == bytes, "length"),
            (self.crc == crc, "checksum"),
        ] {
            if !same {
                return Err(Damage::Summary { what });
            }
        }
        Ok(())
    }

    #[cold]
    fn malformed(&mut self, what: &'static str) -> Damage {
        (self.state, self.left) = (State::Damaged, 0);
        Damage::Frame { frame: self.totals.frames, what }
    }
}

/// Makes a buffer as long as the frame says.
fn make_room(buffer: &mut Vec<u8>, length: u32) -> io::Result<()> {
    let length = length as usize;
    buffer.try_reserve(length.saturating_sub(buffer.len()))?;
    buffer.resize(length, 0);
    Ok(())
}
