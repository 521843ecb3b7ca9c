//! How fast devices read where the snapshot does not say.

use plimsoll_cluster::GpuBackend;

use crate::fleet::Speed;

/// What is assumed for a device of this name and kind; `None` when nothing is known of either.
pub(crate) fn assumed(_name: Option<&str>, _backend: GpuBackend) -> Option<Speed> {
    None
}
