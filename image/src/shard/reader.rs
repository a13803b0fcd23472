//! Reading a shard, whatever its bytes are.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use super::list::Listed;
use super::{
    FrameList, MAX_KEY, Place, ShardId, ShardSummary, TID_BITS, digest, make_room, take_varint,
    unzigzag,
};
use crate::Damage;

/// Opens the file of a shard of an older image.
type Open<'a, R> = Box<dyn FnMut(u64, u32) -> Result<R, Damage> + Send + 'a>;

/// Reads the entries of one shard.
///
/// The shard is good only when [`next`](ShardReader::next) has returned `None`: entries of intact
/// frames are handed out before later frames are seen. Their order is not checked, since not every
/// order is that of the bytes.
pub struct ShardReader<'a, R> {
    list: FrameList<R>,
    open: Open<'a, R>,
    /// The file of an older image that was read last, with its generation and number. One is
    /// enough: to open a file takes little of the time of a frame.
    older: Option<(u64, u32, R)>,
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
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    Damaged,
}

impl<'a, R: Read + Seek> ShardReader<'a, R> {
    /// Opens the shard `id`, whose manifest has `summary`. `open` opens the shards of older images
    /// that have frames of this one.
    pub fn new(
        input: R,
        id: ShardId,
        summary: &ShardSummary,
        open: impl FnMut(u64, u32) -> Result<R, Damage> + Send + 'a,
    ) -> Result<ShardReader<'a, R>, Damage> {
        Ok(ShardReader {
            list: FrameList::new(input, id, summary)?,
            open: Box::new(open),
            older: None,
            raw: Vec::new(),
            at: 0,
            left: 0,
            key: Vec::new(),
            length: 0,
            tid: 0,
            snappy: snap::raw::Decoder::new(),
            packed: Vec::new(),
            state: State::Open,
        })
    }

    /// How many entries the manifest promises.
    pub fn entries(&self) -> u64 {
        self.list.entries()
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
        // Until the frame is known to be good.
        self.state = State::Damaged;
        let Some(listed) = self.list.next(&mut self.packed)? else {
            self.state = State::Closed;
            return Ok(false);
        };
        self.fetch(&listed)?;
        self.unpack(&listed)?;
        self.state = State::Open;
        Ok(true)
    }

    /// Reads the compressed entries of a frame, wherever they are, and compares their digest.
    fn fetch(&mut self, listed: &Listed) -> Result<(), Damage> {
        let Some(expected) = listed.digest else { return Ok(()) };
        match listed.place {
            None => self.list.body(listed.packed, &mut self.packed)?,
            Some(place) => self.fetch_from(place, listed.packed)?,
        }
        if digest(&self.packed) == expected {
            return Ok(());
        }
        let frame = self.list.frame();
        Err(match listed.place {
            None => Damage::Checksum { frame },
            Some(Place { generation, shard, .. }) => {
                Damage::Carried { generation, shard, what: "has a bad checksum" }
            }
        })
    }

    fn fetch_from(&mut self, place: Place, packed: u32) -> Result<(), Damage> {
        let Place { generation, shard, at } = place;
        self.older.take_if(|(g, s, _)| (*g, *s) != (generation, shard));
        let (.., file) = match &mut self.older {
            Some(same) => same,
            none => none.insert((generation, shard, (self.open)(generation, shard)?)),
        };
        make_room(&mut self.packed, packed)?;
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut self.packed));
        read.map_err(|error| match error.kind() {
            // No file is as long as some numbers.
            ErrorKind::UnexpectedEof | ErrorKind::InvalidInput => {
                Damage::Carried { generation, shard, what: "ends before a frame" }
            }
            _ => Damage::Io(error),
        })
    }

    fn unpack(&mut self, listed: &Listed) -> Result<(), Damage> {
        // The length that Snappy would allocate for is the one inside its bytes.
        if snap::raw::decompress_len(&self.packed).ok() != Some(listed.raw as usize) {
            return Err(self.malformed("two lengths"));
        }
        make_room(&mut self.raw, listed.raw)?;
        // A frame starts afresh: no key has more bytes than all of it.
        let longest = listed.raw.min(MAX_KEY as u32);
        if self.key.len() < longest as usize {
            make_room(&mut self.key, longest)?;
        }
        if self.snappy.decompress(&self.packed, &mut self.raw).is_err() {
            return Err(self.malformed("not compressed by snappy"));
        }
        (self.at, self.left, self.length, self.tid) = (0, listed.entries, 0, 0);
        Ok(())
    }

    #[cold]
    fn malformed(&mut self, what: &'static str) -> Damage {
        (self.state, self.left) = (State::Damaged, 0);
        self.list.malformed(what)
    }
}
