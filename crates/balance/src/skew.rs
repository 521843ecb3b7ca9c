//! How unequally the memory of devices is used.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use plimsoll_cluster::{ClusterSnapshot, Device, Node, NodeStatus, Pool};
use plimsoll_units::{Bytes, DeviceRef, PoolId};

/// How much of a device is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The device.
    pub device: DeviceRef,
    /// What more may be placed there.
    pub available: Bytes,
    /// What could be placed there if nothing lay there.
    pub capacity: Bytes,
}

impl Share {
    /// The share of the capacity that is available, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        if self.capacity.is_zero() { 0.0 } else { self.available.as_f64() / self.capacity.as_f64() }
    }
}

/// How unequally the devices of a cluster are used.
#[derive(Clone, Debug, PartialEq)]
pub struct SkewReport {
    /// The largest available share divided by the smallest. Infinite where the smallest is 0 and the largest is not; 1
    /// where no device has capacity, or none has any of it available.
    pub ratio: f64,
    /// From which ratio on it counts as skewed.
    pub threshold: f64,
    /// Whether it does.
    pub skewed: bool,
    /// The device with the smallest available share.
    pub fullest: Option<Share>,
    /// The device with the largest.
    pub emptiest: Option<Share>,
    /// How many devices were compared.
    pub devices: usize,
}

/// How unequally the devices of active nodes are used.
///
/// The capacity of a device is min(pool's total − reserve, cap, its own limit), and min(free − reserve, cap − held, its own
/// limit) of that is available, never more than the capacity. Devices that draw on one pool are compared once, under the
/// one with the largest capacity. Nodes that are degraded, failed or drained take no part, nor do hosts: their memory is
/// not what layers are spread over. A device of which nobody knows what is free takes no part either.
///
/// ```
/// use plimsoll_balance::skew;
/// use plimsoll_cluster::ClusterSnapshot;
/// use plimsoll_units::Generation;
///
/// let nobody = ClusterSnapshot { generation: Generation::FIRST, nodes: Vec::new(), links: Vec::new() };
/// let report = skew(&nobody, 1.25);
/// assert_eq!((report.ratio, report.skewed, report.fullest), (1.0, false, None));
/// ```
pub fn skew(snapshot: &ClusterSnapshot, threshold: f64) -> SkewReport {
    let rooms = rooms(snapshot);
    let fullest = rooms.iter().min_by(|a, b| a.compare(b).then_with(|| a.id().cmp(&b.id())));
    let emptiest = rooms.iter().max_by(|a, b| a.compare(b).then_with(|| b.id().cmp(&a.id())));
    let ratio = match (fullest, emptiest) {
        (Some(least), Some(most)) if least.compare(most).is_ne() => {
            if least.available == 0 {
                f64::INFINITY
            } else {
                most.fraction() / least.fraction()
            }
        }
        _ => 1.0,
    };
    SkewReport {
        ratio,
        threshold,
        skewed: !rooms.is_empty() && ratio >= threshold,
        fullest: fullest.map(Room::share),
        emptiest: emptiest.map(Room::share),
        devices: rooms.len(),
    }
}

/// A device that layers may be moved from or to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    pub(crate) node: &'a Node,
    pub(crate) device: &'a Device,
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

impl Room<'_> {
    /// By available share, exactly.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let cross = |a: u64, b: u64| u128::from(a) * u128::from(b);
        cross(self.available, other.capacity).cmp(&cross(other.available, self.capacity))
    }

    /// Whether less than `percent` of it are available.
    pub(crate) fn has_less_than(&self, percent: u64) -> bool {
        u128::from(self.available) * 100 < u128::from(self.capacity) * u128::from(percent)
    }

    /// Whether more than `percent` of it are available.
    pub(crate) fn has_more_than(&self, percent: u64) -> bool {
        u128::from(self.available) * 100 > u128::from(self.capacity) * u128::from(percent)
    }

    pub(crate) fn id(&self) -> (&str, &str) {
        (self.node.id.as_str(), self.device.id.as_str())
    }

    pub(crate) fn reference(&self) -> DeviceRef {
        DeviceRef { node: self.node.id.clone(), device: self.device.id.clone() }
    }

    fn fraction(&self) -> f64 {
        Bytes::new(self.available).as_f64() / Bytes::new(self.capacity).as_f64()
    }

    fn share(&self) -> Share {
        Share {
            device: self.reference(),
            available: Bytes::new(self.available),
            capacity: Bytes::new(self.capacity),
        }
    }
}

/// Every device of an active node that has capacity: one for each pool, no hosts. In the order of the snapshot.
pub(crate) fn rooms(snapshot: &ClusterSnapshot) -> Vec<Room<'_>> {
    let mut rooms = Vec::with_capacity(snapshot.nodes.len());
    for node in snapshot.nodes.iter().filter(|node| node.status == NodeStatus::Active && !node.drained) {
        let first = rooms.len();
        for device in node.devices.iter().filter(|device| !device.is_host()) {
            let Some(room) = node.pool(&device.pool).and_then(|pool| room(node, device, pool)) else {
                continue;
            };
            rooms.push(room);
        }
        if rooms.len() > first + 1 {
            one_for_each_pool(&mut rooms, first);
        }
    }
    rooms
}

fn room<'a>(node: &'a Node, device: &'a Device, pool: &Pool) -> Option<Room<'a>> {
    let free = pool.free?.min(pool.total);
    let reserve = pool.reserve.unwrap_or(Bytes::ZERO);
    let limit = device.limit.unwrap_or(Bytes::MAX);
    let cap = pool.cap.unwrap_or(Bytes::MAX);
    let capacity = pool.total.saturating_sub(reserve).min(cap).min(limit);
    let under_cap = if pool.cap.is_some() { cap.saturating_sub(pool.held) } else { Bytes::MAX };
    let available = free.saturating_sub(reserve).min(under_cap).min(capacity);
    (!capacity.is_zero()).then_some(Room {
        node,
        device,
        available: available.get(),
        capacity: capacity.get(),
    })
}

/// Of the devices of one node from `first` on, leaves for each pool the one with the largest capacity.
fn one_for_each_pool(rooms: &mut Vec<Room<'_>>, first: usize) {
    let mut best: BTreeMap<&PoolId, usize> = BTreeMap::new();
    for (at, room) in rooms.iter().enumerate().skip(first) {
        let kept = best.entry(&room.device.pool).or_insert(at);
        let key = |room: &Room<'_>| (std::cmp::Reverse(room.capacity), room.device.id.clone());
        if key(room) < key(&rooms[*kept]) {
            *kept = at;
        }
    }
    let kept: Vec<Room<'_>> = {
        let mut places: Vec<usize> = best.into_values().collect();
        places.sort_unstable();
        places.into_iter().map(|at| rooms[at]).collect()
    };
    rooms.truncate(first);
    rooms.extend(kept);
}
