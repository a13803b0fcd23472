//! Places in an area, and its units.

/// A place in the area, in units of 128 bytes from its start; 0 = none. Bit 31 is free for flags.
pub(crate) type Ref = u32;
/// Bytes in one step of a [`Ref`].
pub(crate) const UNIT: usize = 128;
/// Bytes that the allocator hands out at least.
pub(crate) const PAGE: usize = 4096;
/// Steps of a [`Ref`] in a page.
pub(crate) const UNITS_PER_PAGE: u32 = (PAGE / UNIT) as u32;
/// Most pages of an extent: the distance of a page from its beginning is stored in one byte.
pub(crate) const MAX_EXTENT_PAGES: usize = 256;
