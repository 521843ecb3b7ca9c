//! A cluster at one moment: frozen, ordered, numbered.

use std::time::Duration;

use plimsoll_profile::GpuBackend;
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, DeviceRef, Generation, NodeId, PoolId};

/// A cluster at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSnapshot {
    /// Which moment; a cluster file is the first.
    pub generation: Generation,
    /// The machines, ordered by id.
    pub nodes: Vec<Node>,
    /// What is known of the ways between them.
    pub links: Vec<Link>,
}

/// Whether a node may be counted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeStatus {
    /// It answers in time.
    #[default]
    Active,
    /// It answers late.
    Degraded,
    /// It does not answer.
    Failed,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// Whether it may be counted on.
    pub status: NodeStatus,
    /// Whether it only keeps what it holds and takes nothing new.
    pub drained: bool,
    /// Whether it runs the engine. At most one node of a snapshot does; none is marked where that cannot be told, and
    /// [`ClusterSnapshot::main_node`] says why.
    pub main: bool,
    /// Where its rpc server listens (`10.0.0.7:50052`).
    pub rpc: Option<String>,
    /// Its memory. A device names one of these.
    pub pools: Vec<Pool>,
    /// What can hold layers, in the order of the file or the driver. The host's own memory, where a node has some, is
    /// the device `host`, backend [`GpuBackend::Cpu`], first in order. A processor device that the file lists by itself
    /// stands beside it on the same pool; see [`Node::listed_cpu`].
    pub devices: Vec<Device>,
}

/// Memory that devices draw from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name on the node.
    pub id: PoolId,
    /// All of it.
    pub total: Bytes,
    /// What is to be kept free; `None` leaves that to the engine's margin.
    pub reserve: Option<Bytes>,
    /// The most that plimsoll may use.
    pub cap: Option<Bytes>,
    /// What is free now; `None` when nobody knows, and then nothing new is placed there.
    pub free: Option<Bytes>,
    /// What plimsoll itself holds there.
    pub held: Bytes,
}

impl Pool {
    /// What may be placed: max(0, min(cap, total − reserve, free + held − reserve)), with `margin` where the pool names no
    /// reserve of its own. Nothing when what is free is not known.
    pub fn budget(&self, margin: Bytes) -> Bytes {
        let Some(free) = self.free else { return Bytes::ZERO };
        let reserve = self.reserve.unwrap_or(margin);
        let by_total = self.total.saturating_sub(reserve);
        let by_free = free.saturating_add(self.held).saturating_sub(reserve);
        by_total.min(by_free).min(self.cap.unwrap_or(Bytes::MAX))
    }
}

/// Something on a node that holds layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The engine's name for it.
    pub id: DeviceId,
    /// What people call it (`RTX 4090`).
    pub name: Option<String>,
    /// The memory it draws from.
    pub pool: PoolId,
    /// The most of that pool that the device can use, where that is less than the pool (a GPU's share of unified memory).
    pub limit: Option<Bytes>,
    /// What drives it.
    pub backend: GpuBackend,
    /// How fast it reads its memory, where that is told.
    pub bandwidth: Option<BytesPerSec>,
    /// The driver's name for it, the same under every numbering.
    pub uuid: Option<String>,
}

/// A way between two nodes, the same in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its two ends.
    pub between: [NodeId; 2],
    /// How much passes in a second; `None` when not told.
    pub bandwidth: Option<BytesPerSec>,
    /// How long the first byte takes; `None` when not told.
    pub latency: Option<Duration>,
}

impl ClusterSnapshot {
    /// The node of this name.
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        match self.nodes.binary_search_by(|n| n.id.cmp(id)) {
            Ok(index) => self.nodes.get(index),
            // A snapshot that was put together out of order is still searched, at leisure.
            Err(_) => self.nodes.iter().find(|n| n.id == *id),
        }
    }

    /// What is known of the way between two nodes, in either direction.
    pub fn link(&self, a: &NodeId, b: &NodeId) -> Option<&Link> {
        self.links.iter().find(|l| l.joins(a, b))
    }

    /// The device of this name, with its node.
    pub fn device(&self, wanted: &DeviceRef) -> Option<(&Node, &Device)> {
        let node = self.node(&wanted.node)?;
        node.device(&wanted.device).map(|device| (node, device))
    }
}

impl Node {
    /// The pool of this name.
    pub fn pool(&self, id: &PoolId) -> Option<&Pool> {
        self.pools.iter().find(|p| p.id == *id)
    }

    /// The device of this name.
    pub fn device(&self, id: &DeviceId) -> Option<&Device> {
        self.devices.iter().find(|d| d.id == *id)
    }

    /// The host's own memory as a device: [`Device::HOST`], where the node has such memory.
    pub fn host(&self) -> Option<&Device> {
        self.devices.iter().find(|d| d.is_host())
    }

    /// The first processor device that the node's file lists by itself: a sign that this host may hold layers even when
    /// it is remote. It draws on the same pool as [`Node::host`], so a plan uses one of the two.
    pub fn listed_cpu(&self) -> Option<&Device> {
        self.devices.iter().find(|d| d.backend == GpuBackend::Cpu && !d.is_host())
    }
}

impl Device {
    /// The id of the device that stands for a host's own memory. A file cannot give it to another device.
    pub const HOST: &str = "host";

    /// Whether this is the host's own memory.
    pub fn is_host(&self) -> bool {
        self.id.as_str() == Self::HOST
    }
}

impl Pool {
    /// The id of a host's own memory.
    pub const RAM: &str = "ram";
}

impl Link {
    /// Whether its ends are these two, in either order.
    pub fn joins(&self, a: &NodeId, b: &NodeId) -> bool {
        let [one, two] = &self.between;
        (one == a && two == b) || (one == b && two == a)
    }
}

/// The pool of a host's own memory.
pub(crate) fn ram() -> PoolId {
    PoolId::new(Pool::RAM).expect("a literal of letters is a pool id")
}

/// The device of a host's own memory.
pub(crate) fn host_device(bandwidth: Option<BytesPerSec>) -> Device {
    Device {
        id: DeviceId::new(Device::HOST).expect("a literal of letters is a device id"),
        name: None,
        pool: ram(),
        limit: None,
        backend: GpuBackend::Cpu,
        bandwidth,
        uuid: None,
    }
}
