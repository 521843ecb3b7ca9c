//! Who is there.

use plimsoll_units::{Bytes, IdError, PoolId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::Cluster;

/// What was measured of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsRecord {
    /// Milliseconds since the UNIX epoch, by the node's own clock: for people.
    pub(crate) at: u64,
    pub(crate) free: BTreeMap<PoolId, Bytes>,
}

/// The name of a node's pool in the ledger of its cluster: `node:pool`.
///
/// # Errors
///
/// The two names are too long together.
pub fn ledger_pool(node: &str, pool: &str) -> Result<PoolId, IdError> {
    PoolId::new(format!("{node}:{pool}"))
}

/// Who is there.
#[derive(Clone, Debug)]
pub struct Registry {
    cluster: Cluster,
}

impl Registry {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }
}
