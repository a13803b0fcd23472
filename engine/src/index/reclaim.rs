//! Giving back what was unlinked, without visiting anything.

use super::given_up::destroy_due;
use super::root::Index;
use crate::index::tops;

/// Frees the memory that can be freed without a visit to a leaf. Returns true if there may be more
/// soon: the barrier holds some up, or another process is freeing.
pub fn relieve(index: &Index) -> bool {
    let Some(_collecting) = index.shared().collecting.try_lock() else { return true };
    free_all(index);
    let due = destroy_due(&index.area);
    due || index.garbage() > 0 || index.allocator().is_leaving()
}

/// Blocks go to the allocator, and from there extents that are free to the area.
pub(crate) fn free_all(index: &Index) {
    index.shared().retired.free(index.area, index.root, index.allocator());
    tops::reclaim(index);
    index.allocator().release(&index.area);
}
