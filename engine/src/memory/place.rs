//! Places in an area, and its units.

/// A place in the area, in units of 128 bytes from its start; 0 = none. Bit 31 is free for flags.
pub(crate) type Ref = u32;
/// What one [`Ref`] step is worth.
pub(crate) const UNIT: usize = 128;
/// The allocator's grain.
pub(crate) const PAGE: usize = 4096;
/// Steps of a [`Ref`] in a page.
pub(crate) const UNITS_PER_PAGE: u32 = (PAGE / UNIT) as u32;
/// A page's distance from the beginning of its extent is one byte.
pub(crate) const MAX_EXTENT_PAGES: usize = 256;
