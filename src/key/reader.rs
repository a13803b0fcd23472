//! Reading segments byte by byte. No PostgreSQL symbol is used here.

/// Reads an encoded value, undoing the inversion of a descending column.
pub struct Reader<'k> {
    rest: &'k [u8],
    flip: u8,
}

impl<'k> Reader<'k> {
    /// Starts at the first byte of `segment`; `flip` is 0xFF for an inverted segment, else 0.
    pub fn new(segment: &'k [u8], flip: u8) -> Reader<'k> {
        Reader { rest: segment, flip }
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let b = self.rest[0] ^ self.flip;
        self.rest = &self.rest[1..];
        b
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// The next `n` bytes as a big-endian number.
    pub fn big_endian(&mut self, n: usize) -> u128 {
        (0..n).fold(0, |v, _| v << 8 | u128::from(self.byte()))
    }

    /// The byte with which each byte is combined.
    #[inline(always)]
    pub fn flip(&self) -> u8 {
        self.flip
    }

    /// Passes `n` bytes over.
    #[inline(always)]
    pub fn skip(&mut self, n: usize) {
        self.rest = &self.rest[n..];
    }

    /// Bytes not read yet (as stored).
    #[inline(always)]
    pub fn rest(&self) -> &'k [u8] {
        self.rest
    }
}

/// Inverts a segment: descending order.
pub fn invert(segment: &mut [u8]) {
    segment.iter_mut().for_each(|b| *b = !*b);
}
