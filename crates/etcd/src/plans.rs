//! The plan in force.

use crate::Cluster;

/// The plan in force.
#[derive(Clone, Debug)]
pub struct Plans {
    cluster: Cluster,
}

impl Plans {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }
}
