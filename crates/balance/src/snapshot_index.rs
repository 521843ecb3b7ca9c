//! A snapshot kept ready for many questions.

use std::cmp::Reverse;
use std::sync::Arc;

use plimsoll_cluster::{ClusterSnapshot, Device, Node, NodeStatus};
use plimsoll_units::{Bytes, DeviceRef, Generation};

use crate::config::HostLayers;

/// The devices of a snapshot by what they may hold, largest first: built once, asked often.
///
/// Only devices that may take layers and have room are in it: their node answers and is not drained, and what is free is
/// known. Where several draw on one pool, only the one that can use the most of it is; ties break on ids.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_balance::{SnapshotIndex, HostLayers, LayerSpec, ModelIndex};
/// use plimsoll_cluster::{ClusterState, NodeResources};
/// use plimsoll_units::{Bytes, NodeId};
///
/// let cluster = ClusterState::new();
/// for (name, gib) in [("small", 8), ("large", 24)] {
///     cluster.register(NodeResources::new(NodeId::new(name)?, Bytes::gib(gib), Bytes::ZERO))?;
/// }
/// let index = SnapshotIndex::new(cluster.snapshot(), HostLayers::Never);
/// let layers: Vec<_> = (0..30).map(|i| LayerSpec::of_weights(i, Bytes::gib(1))).collect();
/// let mut ends = Vec::new();
/// assert!(ModelIndex::new(&layers)?.fit_in_order(index.budgets(), &mut ends));
/// assert_eq!((index.device(0).to_string().as_str(), &ends[..]), ("large/gpu0", &[24, 30][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SnapshotIndex {
    snapshot: Arc<ClusterSnapshot>,
    hosts: HostLayers,
    /// Largest first.
    budgets: Vec<Bytes>,
    places: Vec<Place>,
    /// Whether there are nodes that may take layers, with room or without.
    usable: bool,
}

/// Where a device stands in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: u32,
    pub(crate) device: u32,
}

impl Place {
    fn new(node: usize, device: usize) -> Self {
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self { node: place(node), device: place(device) }
    }

    /// The device and its node; `None` in a snapshot that is not its own.
    pub(crate) fn of(self, snapshot: &ClusterSnapshot) -> Option<(&Node, &Device)> {
        let node = snapshot.nodes.get(usize::try_from(self.node).ok()?)?;
        Some((node, node.devices.get(usize::try_from(self.device).ok()?)?))
    }

    /// Where a device stands, by name.
    pub(crate) fn find(snapshot: &ClusterSnapshot, device: &DeviceRef) -> Option<Self> {
        let node = snapshot.nodes.binary_search_by(|node| node.id.cmp(&device.node)).ok()?;
        let at = snapshot.nodes[node].devices.iter().position(|d| d.id == device.device)?;
        Some(Self::new(node, at))
    }
}

impl SnapshotIndex {
    /// Sorts the devices of a sound snapshot.
    pub fn new(snapshot: Arc<ClusterSnapshot>, hosts: HostLayers) -> Self {
        let mut found: Vec<(Reverse<u64>, Place)> = Vec::with_capacity(snapshot.nodes.len());
        let mut usable = false;
        for (number, node) in snapshot.nodes.iter().enumerate() {
            if node.status == NodeStatus::Failed || node.drained {
                continue;
            }
            usable = true;
            let from = found.len();
            for (at, device) in node.devices.iter().enumerate() {
                if device.is_host() && hosts == HostLayers::Never {
                    continue;
                }
                let Some(pool) = node.pool(&device.pool).filter(|pool| pool.free.is_some()) else { continue };
                let budget = pool.budget(Bytes::ZERO).min(device.limit.unwrap_or(Bytes::MAX));
                if !budget.is_zero() {
                    found.push((Reverse(budget.get()), Place::new(number, at)));
                }
            }
            if found.len() > from + 1 {
                one_for_each_pool(node, &mut found, from);
            }
        }
        // The devices of a node are ordered by id among themselves, and nodes by theirs: a stable sort keeps that.
        if !found.is_sorted_by_key(|(budget, _)| *budget) {
            found.sort_by_key(|(budget, _)| *budget);
        }
        let budgets = found.iter().map(|(Reverse(budget), _)| Bytes::new(*budget)).collect();
        let places = found.into_iter().map(|(_, place)| place).collect();
        Self { snapshot, hosts, budgets, places, usable }
    }

    /// The snapshot that it sorts.
    pub fn snapshot(&self) -> &Arc<ClusterSnapshot> {
        &self.snapshot
    }

    /// Which moment that is.
    pub fn generation(&self) -> Generation {
        self.snapshot.generation
    }

    /// Whether hosts are in it.
    pub fn hosts(&self) -> HostLayers {
        self.hosts
    }

    /// What the devices may hold, largest first.
    pub fn budgets(&self) -> &[Bytes] {
        &self.budgets
    }

    /// The device with the `rank`-th largest budget, from 0.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn device(&self, rank: usize) -> DeviceRef {
        let (node, device) = self.places[rank].of(&self.snapshot).expect("places are those of the snapshot");
        DeviceRef { node: node.id.clone(), device: device.id.clone() }
    }

    /// Where the device with the `rank`-th largest budget stands.
    pub(crate) fn place(&self, rank: usize) -> Place {
        self.places[rank]
    }

    /// Whether any node may take layers, with room or without.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable
    }
}

/// Of the devices of one node from `from` on, leaves for each pool the one that can use the most, ordered by id.
fn one_for_each_pool(node: &Node, found: &mut Vec<(Reverse<u64>, Place)>, from: usize) {
    let device = |place: &Place| usize::try_from(place.device).ok().and_then(|at| node.devices.get(at));
    let id = |place: &Place| device(place).map(|d| &d.id);
    let pool = |place: &Place| device(place).map(|d| &d.pool);
    let mine = &mut found[from..];
    mine.sort_by(|a, b| {
        let by_pool = pool(&a.1).cmp(&pool(&b.1));
        by_pool.then_with(|| a.0.cmp(&b.0)).then_with(|| id(&a.1).cmp(&id(&b.1)))
    });
    let mut kept = from;
    for at in from..found.len() {
        if kept == from || pool(&found[kept - 1].1) != pool(&found[at].1) {
            found[kept] = found[at];
            kept += 1;
        }
    }
    found.truncate(kept);
    found[from..].sort_by(|a, b| id(&a.1).cmp(&id(&b.1)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cluster::{ClusterState, DeviceSpec, GpuBackend, NodeResources, PoolSpec};
    use plimsoll_units::{DeviceId, NodeId, PoolId};

    fn pool(id: &str, bytes: u64) -> PoolSpec {
        PoolSpec::new(PoolId::new(id).unwrap(), Bytes::new(bytes))
    }

    fn device(id: &str, pool: &str, limit: Option<u64>) -> DeviceSpec {
        let (id, pool) = (DeviceId::new(id).unwrap(), PoolId::new(pool).unwrap());
        DeviceSpec { limit: limit.map(Bytes::new), ..DeviceSpec::new(id, pool, GpuBackend::Vulkan) }
    }

    fn ranked(index: &SnapshotIndex) -> Vec<(String, u64)> {
        (0..).zip(index.budgets()).map(|(rank, b)| (index.device(rank).to_string(), b.get())).collect()
    }

    #[test]
    fn devices_come_largest_first_and_ties_by_id_however_they_are_listed() {
        let devices = [device("b", "p", None), device("a", "q", None), device("c", "r", None)];
        let pools = [pool("p", 5), pool("q", 5), pool("r", 9)];
        let mut lists = Vec::new();
        for shift in 0..3 {
            let (mut devices, mut pools) = (devices.clone(), pools.clone());
            devices.rotate_left(shift);
            pools.rotate_right(shift);
            let cluster = ClusterState::new();
            for name in ["n2", "n1"] {
                let node = NodeResources::new(NodeId::new(name).unwrap(), Bytes::ZERO, Bytes::ZERO);
                cluster.register(node.with_devices(pools.clone(), devices.clone())).unwrap();
            }
            lists.push(ranked(&SnapshotIndex::new(cluster.snapshot(), HostLayers::Never)));
        }
        let names: Vec<&str> = lists[0].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["n1/c", "n2/c", "n1/a", "n1/b", "n2/a", "n2/b"]);
        assert!(lists.iter().all(|list| *list == lists[0]));
    }

    #[test]
    fn memory_that_two_devices_share_is_listed_once() {
        let cluster = ClusterState::new();
        let node = NodeResources::new(NodeId::new("n").unwrap(), Bytes::ZERO, Bytes::new(10));
        let devices = [device("b", "ram", Some(7)), device("a", "ram", Some(7)), device("c", "ram", Some(6))];
        cluster.register(node.with_devices([], devices)).unwrap();
        let without = SnapshotIndex::new(cluster.snapshot(), HostLayers::Never);
        assert_eq!(ranked(&without), [("n/a".to_owned(), 7)]);
        let with = SnapshotIndex::new(cluster.snapshot(), HostLayers::LastResort);
        assert_eq!(ranked(&with), [("n/host".to_owned(), 10)]);
    }

    #[test]
    fn devices_that_may_take_nothing_are_left_out() {
        let cluster = ClusterState::new();
        let named = |name: &str| NodeResources::new(NodeId::new(name).unwrap(), Bytes::ZERO, Bytes::new(10));
        let unknown = named("a").with_devices([pool("p", 5).unmeasured()], [device("d", "p", None)]);
        cluster.register(unknown).unwrap();
        let index = SnapshotIndex::new(cluster.snapshot(), HostLayers::Never);
        assert!(index.is_usable() && index.budgets().is_empty());
        cluster.register(named("b").with_devices([pool("p", 0)], [device("d", "p", None)])).unwrap();
        assert!(SnapshotIndex::new(cluster.snapshot(), HostLayers::Never).budgets().is_empty());
        cluster.register(named("c").with_devices([pool("p", 5)], [device("d", "p", None)])).unwrap();
        cluster.drain(&NodeId::new("c").unwrap()).unwrap();
        assert!(SnapshotIndex::new(cluster.snapshot(), HostLayers::Never).budgets().is_empty());
        for name in ["a", "b"] {
            cluster.drain(&NodeId::new(name).unwrap()).unwrap();
        }
        assert!(!SnapshotIndex::new(cluster.snapshot(), HostLayers::Never).is_usable());
    }
}
