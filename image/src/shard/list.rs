//! The frames of a shard, as its file lists them: header, heads, digests and places.

use std::io::{self, Read, Seek, SeekFrom};

use super::{
    CARRIED, Digest, Frame, HEADER, MAX_PACKED, MAX_RAW, Place, ShardId, ShardSummary, Totals,
    WITHOUT_DIGESTS, decode_header, make_room,
};
use crate::Damage;

/// Reads the list of one shard.
pub(crate) struct FrameList<R> {
    pub(super) input: R,
    version: u32,
    expected: ShardSummary,
    /// Frames and entries so far, without the frame that was listed last.
    totals: Totals,
    /// The entries of the frame that was listed last.
    last: Option<u32>,
    /// How far the input is read.
    bytes: u64,
    crc: u32,
}

/// A frame in a list.
pub(crate) struct Listed {
    pub(crate) raw: u32,
    pub(crate) packed: u32,
    pub(crate) entries: u32,
    /// `None` in a file of the version without digests: its bytes were checked with the head.
    pub(crate) digest: Option<Digest>,
    /// Where the compressed entries are, if not in this file.
    pub(crate) place: Option<Place>,
}

impl<R: Read> FrameList<R> {
    /// Opens the shard `id`, whose manifest has `summary`.
    pub(crate) fn new(
        mut input: R,
        id: ShardId,
        summary: &ShardSummary,
    ) -> Result<FrameList<R>, Damage> {
        let mut header = [0; HEADER];
        input.read_exact(&mut header)?;
        let (version, found, crc) = decode_header(&header)?;
        if found != id {
            return Err(Damage::Foreign(Box::new(found)));
        }
        let (totals, bytes) = (Totals::default(), HEADER as u64);
        Ok(FrameList { input, version, expected: *summary, totals, last: None, bytes, crc })
    }

    /// How many entries the manifest promises.
    pub(super) fn entries(&self) -> u64 {
        self.expected.entries
    }

    /// The number of the frame that is being read, from 0.
    pub(super) fn frame(&self) -> u64 {
        self.totals.frames
    }

    pub(super) fn malformed(&self, what: &'static str) -> Damage {
        Damage::Frame { frame: self.totals.frames, what }
    }

    /// Goes to the next frame; `None` after the last one if the list was intact to its end. The
    /// caller reads or skips the compressed entries of each frame, unless they have no digest: then
    /// they are in `packed`.
    pub(crate) fn next(&mut self, packed: &mut Vec<u8>) -> Result<Option<Listed>, Damage> {
        if let Some(entries) = self.last.take() {
            self.totals.frames += 1;
            self.totals.entries += u64::from(entries);
        }
        let head = Frame::decode(&self.take()?);
        if head.raw as usize > MAX_RAW || head.packed as usize > MAX_PACKED {
            return Err(self.malformed("too large"));
        }
        if head.is_closing() {
            self.body(head.packed, packed)?;
            self.check(&head, packed)?;
            return self.close(packed).map(|()| None);
        }
        let Frame { raw, packed: length, .. } = head;
        let mut listed = Listed { raw, packed: length, entries: 0, digest: None, place: None };
        if self.version == WITHOUT_DIGESTS {
            self.body(length, packed)?;
            self.check(&head, packed)?;
            listed.entries = head.entries;
        } else {
            let mut tail = [0; size_of::<Digest>() + Place::SIZE];
            let length = size_of::<Digest>() + (head.entries >> 31) as usize * Place::SIZE;
            self.fill(&mut tail[..length])?;
            self.check(&head, &tail[..length])?;
            listed.entries = head.entries & !CARRIED;
            listed.digest = tail.first_chunk().copied();
            let carried = head.entries & CARRIED != 0;
            listed.place = tail.last_chunk().filter(|_| carried).map(Place::decode);
        }
        if listed.entries == 0 {
            return Err(self.malformed("no entries"));
        }
        self.last = Some(listed.entries);
        Ok(Some(listed))
    }

    /// Reads the next bytes of the file.
    pub(super) fn body(&mut self, length: u32, packed: &mut Vec<u8>) -> Result<(), Damage> {
        make_room(packed, length)?;
        self.fill(packed)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Damage> {
        self.input.read_exact(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let mut bytes = [0; N];
        self.fill(&mut bytes).map(|()| bytes)
    }

    fn check(&mut self, head: &Frame, tail: &[u8]) -> Result<(), Damage> {
        if head.crc != head.continued(self.crc, tail) {
            return Err(Damage::Checksum { frame: self.totals.frames });
        }
        self.crc = head.crc;
        Ok(())
    }

    /// Compares the closing frame with the frames that were read and with the manifest.
    fn close(&mut self, packed: &[u8]) -> Result<(), Damage> {
        if packed != self.totals.encode() {
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
}

impl<R: Read + Seek> FrameList<R> {
    /// Passes over the compressed entries of the frame that was listed last, and returns where in
    /// this file they are; `None` if they are in another.
    pub(crate) fn skip(&mut self, listed: &Listed) -> Result<Option<u64>, Damage> {
        if listed.place.is_some() {
            return Ok(None);
        }
        let at = self.bytes;
        self.bytes += u64::from(listed.packed);
        self.input.seek(SeekFrom::Start(self.bytes))?;
        Ok(Some(at))
    }
}
