//! What holds in every snapshot, and which node runs the engine.

use std::collections::BTreeSet;

use plimsoll_units::{Bytes, DeviceId, NodeId, PoolId};

use crate::{ClusterSnapshot, Node};

/// What is wrong with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Nodes out of order, or one of them twice.
    #[error("node '{second}' comes after '{first}': nodes are ordered by id, each once")]
    NodeOrder {
        /// The one in front.
        first: NodeId,
        /// The one behind it.
        second: NodeId,
    },
    /// Two nodes claim to run the engine.
    #[error("nodes '{first}' and '{second}' are both marked as main")]
    TwoMains {
        /// The first of them.
        first: NodeId,
        /// The second.
        second: NodeId,
    },
    /// Two pools of a node share an id.
    #[error("node '{node}' has two pools '{pool}'")]
    PoolTwice {
        /// The node.
        node: NodeId,
        /// The id they share.
        pool: PoolId,
    },
    /// Two devices of a node share an id.
    #[error("node '{node}' has two devices '{device}'")]
    DeviceTwice {
        /// The node.
        node: NodeId,
        /// The id they share.
        device: DeviceId,
    },
    /// A device draws on memory that its node does not have.
    #[error("device '{node}/{device}' draws on the pool '{pool}', which its node does not have")]
    NoSuchPool {
        /// The node.
        node: NodeId,
        /// The device.
        device: DeviceId,
        /// What it names.
        pool: PoolId,
    },
    /// More is free than there is.
    #[error("{} of pool '{pool}' on node '{node}' are free, but it has {} in all", .free.exact(), .total.exact())]
    FreeAboveTotal {
        /// The node.
        node: NodeId,
        /// The pool.
        pool: PoolId,
        /// What is said to be free.
        free: Bytes,
        /// All of it.
        total: Bytes,
    },
    /// A device that reads nothing in a second.
    #[error("device '{node}/{device}' has a bandwidth of 0 bytes in a second")]
    DeviceStandsStill {
        /// The node.
        node: NodeId,
        /// The device.
        device: DeviceId,
    },
    /// A link to a node that is not there.
    #[error("a link names the node '{node}', which is not in the cluster")]
    LinkToNowhere {
        /// What it names.
        node: NodeId,
    },
    /// A link from a node to itself.
    #[error("a link joins the node '{node}' with itself")]
    LinkToItself {
        /// The node.
        node: NodeId,
    },
    /// Two links between the same nodes.
    #[error("nodes '{first}' and '{second}' have two links")]
    LinkTwice {
        /// One end.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
    /// A link over which nothing passes.
    #[error("the link between '{first}' and '{second}' has a bandwidth of 0 bytes in a second")]
    LinkStandsStill {
        /// One end.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
}

/// Why no node can be said to run the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MainNodeError {
    /// There are no nodes.
    #[error("the cluster has no nodes")]
    Empty,
    /// Every node is an rpc server.
    #[error(
        "all {nodes} nodes have an rpc address and none is marked main = true: which one runs the engine?"
    )]
    NoCandidate {
        /// How many there are.
        nodes: usize,
    },
    /// Several nodes have no rpc address, and none is marked.
    #[error("{} could each run the engine: mark one with main = true, or give the others their rpc address", names(.candidates))]
    Ambiguous {
        /// Those that could, in order.
        candidates: Vec<NodeId>,
    },
    /// Several nodes are marked.
    #[error("{} are marked as main; one node runs the engine", names(.marked))]
    SeveralMarked {
        /// Those that are, in order.
        marked: Vec<NodeId>,
    },
}

/// `nodes 'a', 'b' and 'c'`.
fn names(ids: &[NodeId]) -> String {
    let quoted: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("nodes {} and {last}", rest.join(", ")),
        _ => format!("node {}", quoted.concat()),
    }
}

impl ClusterSnapshot {
    /// The node that runs the engine: the one marked main; else the only node; else the only one without an rpc address.
    ///
    /// Only engines with a main node ask this, so a snapshot without one is legal.
    ///
    /// # Errors
    ///
    /// No node, no candidate, or several: then they are named.
    pub fn main_node(&self) -> Result<&Node, MainNodeError> {
        let marked: Vec<&Node> = self.nodes.iter().filter(|n| n.main).collect();
        match marked.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => {
                return Err(MainNodeError::SeveralMarked {
                    marked: several.iter().map(|n| n.id.clone()).collect(),
                });
            }
        }
        if let [only] = self.nodes.as_slice() {
            return Ok(only);
        }
        let candidates: Vec<&Node> = self.nodes.iter().filter(|n| n.rpc.is_none()).collect();
        match candidates.as_slice() {
            [one] => Ok(one),
            [] if self.nodes.is_empty() => Err(MainNodeError::Empty),
            [] => Err(MainNodeError::NoCandidate { nodes: self.nodes.len() }),
            several => {
                Err(MainNodeError::Ambiguous { candidates: several.iter().map(|n| n.id.clone()).collect() })
            }
        }
    }

    /// Whether the snapshot is one that a planner may trust.
    ///
    /// Nodes are ordered by id, each once, at most one is main; pools and devices have ids of their own on each node;
    /// every device draws on a pool of its node; 0 ≤ free ≤ total; no bandwidth is zero; links join two different known
    /// nodes, each pair once.
    ///
    /// # Errors
    ///
    /// The first of these that does not hold, in the order of the snapshot.
    pub fn validate(&self) -> Result<(), SnapshotError> {
        for pair in self.nodes.windows(2) {
            if let [first, second] = pair
                && first.id >= second.id
            {
                return Err(SnapshotError::NodeOrder { first: first.id.clone(), second: second.id.clone() });
            }
        }
        let mut mains = self.nodes.iter().filter(|n| n.main);
        if let (Some(first), Some(second)) = (mains.next(), mains.next()) {
            return Err(SnapshotError::TwoMains { first: first.id.clone(), second: second.id.clone() });
        }
        self.nodes.iter().try_for_each(check_node)?;
        self.check_links()
    }

    fn check_links(&self) -> Result<(), SnapshotError> {
        let known: BTreeSet<&NodeId> = self.nodes.iter().map(|n| &n.id).collect();
        let mut seen = BTreeSet::new();
        for link in &self.links {
            let [a, b] = &link.between;
            if let Some(node) = [a, b].into_iter().find(|id| !known.contains(id)) {
                return Err(SnapshotError::LinkToNowhere { node: node.clone() });
            }
            if a == b {
                return Err(SnapshotError::LinkToItself { node: a.clone() });
            }
            if !seen.insert((a.min(b), a.max(b))) {
                return Err(SnapshotError::LinkTwice { first: a.clone(), second: b.clone() });
            }
            if link.bandwidth.is_some_and(|rate| rate.is_zero()) {
                return Err(SnapshotError::LinkStandsStill { first: a.clone(), second: b.clone() });
            }
        }
        Ok(())
    }
}

/// Ids that came up: usually a handful, which a list finds sooner than a tree.
enum Seen<'a, T> {
    Few([Option<&'a T>; 8], usize),
    Many(BTreeSet<&'a T>),
}

impl<'a, T: Ord> Seen<'a, T> {
    fn of_at_most(count: usize) -> Self {
        if count <= 8 { Self::Few([None; 8], 0) } else { Self::Many(BTreeSet::new()) }
    }

    /// Whether it was not there before.
    fn insert(&mut self, id: &'a T) -> bool {
        if self.contains(id) {
            return false;
        }
        match self {
            Self::Few(ids, count) => {
                if let Some(place) = ids.get_mut(*count) {
                    *place = Some(id);
                    *count += 1;
                }
            }
            Self::Many(ids) => {
                ids.insert(id);
            }
        }
        true
    }

    fn contains(&self, id: &T) -> bool {
        match self {
            Self::Few(ids, count) => ids[..*count].contains(&Some(id)),
            Self::Many(ids) => ids.contains(id),
        }
    }
}

/// What holds of every node of a snapshot.
pub(crate) fn check_node(node: &Node) -> Result<(), SnapshotError> {
    let mut pools = Seen::of_at_most(node.pools.len());
    for pool in &node.pools {
        if !pools.insert(&pool.id) {
            return Err(SnapshotError::PoolTwice { node: node.id.clone(), pool: pool.id.clone() });
        }
        if let Some(free) = pool.free.filter(|free| *free > pool.total) {
            let (node, pool_id) = (node.id.clone(), pool.id.clone());
            return Err(SnapshotError::FreeAboveTotal { node, pool: pool_id, free, total: pool.total });
        }
    }
    let mut devices = Seen::of_at_most(node.devices.len());
    for device in &node.devices {
        let names = || (node.id.clone(), device.id.clone());
        if !devices.insert(&device.id) {
            let (node, device) = names();
            return Err(SnapshotError::DeviceTwice { node, device });
        }
        if !pools.contains(&device.pool) {
            let (node, id) = names();
            return Err(SnapshotError::NoSuchPool { node, device: id, pool: device.pool.clone() });
        }
        if device.bandwidth.is_some_and(|rate| rate.is_zero()) {
            let (node, device) = names();
            return Err(SnapshotError::DeviceStandsStill { node, device });
        }
    }
    Ok(())
}
