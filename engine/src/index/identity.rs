//! The identity of an index.

use crate::memory::area::Area;

/// See `Index::identity`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(super) area: Area,
    pub(super) id: u64,
}

impl PartialEq for Identity {
    #[inline]
    fn eq(&self, other: &Identity) -> bool {
        self.id == other.id && self.area.is(&other.area)
    }
}
