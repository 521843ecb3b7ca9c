//! How fast devices read where the snapshot does not say.

use plimsoll_cluster::GpuBackend;
use plimsoll_cluster::speeds::{AssumedBy, assumed_bandwidth};

use crate::fleet::Speed;

/// What is assumed for a device of this name and kind; `None` when nothing is known of either.
pub(crate) fn assumed(name: Option<&str>, backend: GpuBackend) -> Option<Speed> {
    let (rate, by) = assumed_bandwidth(name, backend)?;
    Some(Speed { rate, assumed_by_name: Some(by == AssumedBy::Name) })
}
