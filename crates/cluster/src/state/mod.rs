//! A cluster as it lives: machines come and go, and whoever plans reads frozen, numbered snapshots.

mod event;
mod inner;
mod limits;
mod member;
mod metrics;
mod moment;
mod sample;
mod signal;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use plimsoll_profile::NodeResources;
use plimsoll_units::{Generation, NodeId};

use crate::{ClusterSnapshot, Link, Node, NodeStatus, SnapshotError};
use inner::Inner;

pub use event::ClusterEvent;
pub use limits::{Limits, LimitsError};
pub use member::{Identity, RegisterError};
pub use metrics::{MemoryUse, NodeMetrics, PoolUse};
pub use moment::Moment;
pub use sample::SampleError;
pub use signal::Signal;

/// Why a call changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// No machine of that name.
    #[error("the cluster has no node '{node}'")]
    UnknownNode {
        /// What was named.
        node: NodeId,
    },
    /// A link from a node to itself.
    #[error("a link joins the node '{node}' with itself")]
    LinkToItself {
        /// The node.
        node: NodeId,
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

/// Something that was computed from another generation than the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("computed from generation {basis} of the cluster, which is now at generation {current}")]
pub struct StaleGeneration {
    /// What it was computed from.
    pub basis: Generation,
    /// What is now.
    pub current: Generation,
}

/// A cluster as it lives.
///
/// All calls take `&self` and may come from many threads. Those that change something hold one lock for a moment;
/// [`ClusterState::snapshot`] takes none while nothing has changed. A thread that panics while it holds the lock leaves
/// every number as it was or as it should be, so the lock is recovered.
///
/// The generation moves whenever what snapshots show changes: who is there, how they answer, what is free. Latencies and
/// other signals do not move it; [`ClusterState::view`] has them.
///
/// ```
/// use plimsoll_cluster::{ClusterState, Moment, NodeResources, NodeStatus};
/// use plimsoll_units::{Bytes, NodeId, PoolId};
///
/// let cluster = ClusterState::new();
/// let tower = NodeId::new("tower")?;
/// cluster.register(NodeResources::new(tower.clone(), Bytes::gib(24), Bytes::gib(64)))?;
/// cluster.heartbeat(&tower, Moment::from_millis(0))?;
/// cluster.update_metrics(&tower, |m| {
///     m.record_free(&PoolId::new("gpu0")?, Bytes::gib(20), Moment::from_millis(5))?;
///     // A card of 24 GiB has no 25 GiB free: what is known stays.
///     assert!(m.record_free(&PoolId::new("gpu0")?, Bytes::gib(25), Moment::from_millis(6)).is_err());
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })??;
/// assert_eq!(cluster.snapshot().nodes[0].pools[1].free, Some(Bytes::gib(20)));
///
/// cluster.sweep(Moment::from_millis(20_000));
/// assert_eq!(cluster.snapshot().nodes[0].status, NodeStatus::Failed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClusterState {
    inner: Mutex<Inner>,
    /// The last snapshot that was built.
    published: ArcSwap<ClusterSnapshot>,
    /// The generation in `inner`, for those who hold no lock.
    generation: AtomicU64,
    newer: Condvar,
}

impl Default for ClusterState {
    fn default() -> Self {
        Self::new()
    }
}

/// A snapshot with all that was measured, of one moment.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// What planners read.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Beside each of its nodes, in the same order: who that is, and what was measured of it.
    pub members: Vec<MemberView>,
}

/// One machine of a view.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// Who it is.
    pub identity: Arc<Identity>,
    /// What was measured of it.
    pub metrics: Arc<NodeMetrics>,
}

impl ClusterState {
    /// A cluster without nodes, under the usual limits.
    pub fn new() -> Self {
        Self::made(Inner::new(Limits::default()))
    }

    /// A cluster without nodes, under these limits.
    ///
    /// # Errors
    ///
    /// Limits that contradict each other.
    pub fn with_limits(limits: Limits) -> Result<Self, LimitsError> {
        limits.validate()?;
        Ok(Self::made(Inner::new(limits)))
    }

    /// A cluster that starts as this snapshot, such as that of a cluster file.
    ///
    /// # Errors
    ///
    /// A snapshot that is not sound.
    pub fn from_snapshot(snapshot: &ClusterSnapshot) -> Result<Self, SnapshotError> {
        snapshot.validate()?;
        let mut inner = Inner::new(Limits::default());
        for node in &snapshot.nodes {
            inner.restore(node.clone());
        }
        for link in &snapshot.links {
            inner.connect(link.clone()).expect("links of a sound snapshot join its nodes");
        }
        inner.generation = snapshot.generation;
        Ok(Self::made(inner))
    }

    fn made(inner: Inner) -> Self {
        Self {
            published: ArcSwap::from_pointee(inner.snapshot()),
            generation: AtomicU64::new(inner.generation.get()),
            inner: Mutex::new(inner),
            newer: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something; whoever waits for that is told.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let before = inner.generation;
        let result = change(&mut inner);
        if inner.generation != before {
            self.generation.store(inner.generation.get(), Ordering::Release);
            if inner.waiting > 0 {
                self.newer.notify_all();
            }
        }
        result
    }

    /// Adds a machine, or takes it back.
    ///
    /// A machine that is there already under this name is replaced: its last measurements stay where its memory has not
    /// changed, unless it was started anew in between, and it stays drained. A machine that was there under another
    /// name (same boot id, same address) is there under the new one only. Whoever registers is alive: silence counts
    /// from the next sweep.
    ///
    /// # Errors
    ///
    /// Another machine of that name that has not failed, a second main node, or resources that do not hold together.
    /// Then nothing changes.
    pub fn register(&self, resources: NodeResources) -> Result<ClusterEvent, RegisterError> {
        let node = member::node(&resources);
        let identity = Identity { boot_id: resources.boot_id, address: resources.address };
        self.change(|inner| inner.register(node, identity))
    }

    /// The same for a machine that is already described as snapshots show it; its status and whether it is drained are
    /// those of the state.
    ///
    /// # Errors
    ///
    /// As [`ClusterState::register`].
    pub fn register_node(&self, node: Node, identity: Identity) -> Result<ClusterEvent, RegisterError> {
        let node = Node { status: NodeStatus::Active, drained: false, ..node };
        self.change(|inner| inner.register(node, identity))
    }

    /// Takes a machine out, with its links.
    ///
    /// # Errors
    ///
    /// No such machine.
    pub fn deregister(&self, id: &NodeId) -> Result<ClusterEvent, StateError> {
        self.change(|inner| inner.deregister(id))
    }

    /// Lets `update` change what is measured of a machine, and hands back what it returns.
    ///
    /// `update` runs under the state's lock: it must be short and must not call the state.
    ///
    /// # Errors
    ///
    /// No such machine: `update` was not called.
    pub fn update_metrics<R>(
        &self,
        id: &NodeId,
        update: impl FnOnce(&mut NodeMetrics) -> R,
    ) -> Result<R, StateError> {
        self.change(|inner| inner.update(id, update))
    }

    /// Notes that a machine was heard of, which makes it active. One that is older than the last is ignored.
    ///
    /// # Errors
    ///
    /// No such machine.
    pub fn heartbeat(&self, id: &NodeId, now: Moment) -> Result<Option<ClusterEvent>, StateError> {
        self.change(|inner| inner.heartbeat(id, now))
    }

    /// Notes that a machine is known to be gone, however short its silence: it has failed until it is heard of again or
    /// registers. `None` when it had failed before.
    ///
    /// # Errors
    ///
    /// No such machine.
    pub fn fail(&self, id: &NodeId) -> Result<Option<ClusterEvent>, StateError> {
        self.change(|inner| inner.fail(id))
    }

    /// Looks who has been silent for how long, and which samples are too old to be believed; what has changed.
    pub fn sweep(&self, now: Moment) -> Vec<ClusterEvent> {
        self.change(|inner| inner.sweep(now))
    }

    /// Places nothing new on a machine from now on; what it holds stays. `None` when that was so before.
    ///
    /// # Errors
    ///
    /// No such machine.
    pub fn drain(&self, id: &NodeId) -> Result<Option<ClusterEvent>, StateError> {
        self.change(|inner| inner.drain(id, true))
    }

    /// Places layers on a machine again. `None` when that was so before.
    ///
    /// # Errors
    ///
    /// No such machine.
    pub fn undrain(&self, id: &NodeId) -> Result<Option<ClusterEvent>, StateError> {
        self.change(|inner| inner.drain(id, false))
    }

    /// Says what is known of the way between two machines, in both directions.
    ///
    /// # Errors
    ///
    /// A machine that is not there, a link from one to itself, or a bandwidth of zero.
    pub fn connect(&self, link: Link) -> Result<(), StateError> {
        self.change(|inner| inner.connect(link))
    }

    /// Forgets what is known of the way between two machines; whether anything was.
    pub fn disconnect(&self, a: &NodeId, b: &NodeId) -> bool {
        self.change(|inner| inner.disconnect(a, b))
    }

    /// How long silence is borne, from now on.
    ///
    /// # Errors
    ///
    /// Limits that contradict each other: the old ones stay.
    pub fn set_limits(&self, limits: Limits) -> Result<(), LimitsError> {
        limits.validate()?;
        self.lock().limits = limits;
        Ok(())
    }

    /// How long silence is borne.
    pub fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// Which generation the cluster is at.
    pub fn generation(&self) -> Generation {
        Generation::new(self.generation.load(Ordering::Acquire))
    }

    /// The cluster as it is now. Without a lock when it has not changed since the last one; else the first to ask builds
    /// it, once, in time that grows with the number of nodes.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        let current = self.generation();
        let published = self.published.load();
        if published.generation >= current {
            return Arc::clone(&published);
        }
        drop(published);
        self.built(&self.lock())
    }

    /// The present snapshot, built if nobody has; the lock is held.
    fn built(&self, inner: &Inner) -> Arc<ClusterSnapshot> {
        let published = self.published.load();
        if published.generation == inner.generation {
            return Arc::clone(&published);
        }
        let snapshot = Arc::new(inner.snapshot());
        self.published.store(Arc::clone(&snapshot));
        snapshot
    }

    /// The present snapshot with who everybody is and what was measured of them, of one moment.
    pub fn view(&self) -> ClusterView {
        let inner = self.lock();
        let snapshot = self.built(&inner);
        let member = |m: &member::Member| MemberView {
            identity: Arc::clone(&m.identity),
            metrics: Arc::clone(&m.metrics),
        };
        ClusterView { snapshot, members: inner.members().map(member).collect() }
    }

    /// What was measured of one machine.
    pub fn metrics(&self, id: &NodeId) -> Option<Arc<NodeMetrics>> {
        self.lock().member(id).ok().map(|member| Arc::clone(&member.metrics))
    }

    /// Machines that answer in time and take layers, by name.
    pub fn active_nodes(&self) -> Vec<NodeId> {
        let snapshot = self.snapshot();
        let active = snapshot.nodes.iter().filter(|n| n.status == NodeStatus::Active && !n.drained);
        active.map(|node| node.id.clone()).collect()
    }

    /// What happened since `seen` events, and how many there were in all: ask with that number the next time. The last
    /// 1024 are remembered.
    pub fn events_after(&self, seen: u64) -> (Vec<ClusterEvent>, u64) {
        self.lock().events_after(seen)
    }

    /// Whether something that was computed from `basis` still speaks of the present cluster.
    ///
    /// # Errors
    ///
    /// It does not: both generations are named.
    pub fn ensure_current(&self, basis: Generation) -> Result<(), StaleGeneration> {
        let current = self.generation();
        if basis == current { Ok(()) } else { Err(StaleGeneration { basis, current }) }
    }

    /// Waits for a snapshot newer than `generation`, at most until `deadline`; `None` when none came.
    ///
    /// The only call that waits.
    pub fn wait_newer(&self, generation: Generation, deadline: Instant) -> Option<Arc<ClusterSnapshot>> {
        if self.generation() > generation {
            return Some(self.snapshot());
        }
        let mut inner = self.lock();
        while inner.generation <= generation {
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return None;
            }
            inner.waiting += 1;
            inner = self.newer.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
            inner.waiting -= 1;
        }
        Some(self.built(&inner))
    }

    /// The moment so long from now, for [`ClusterState::wait_newer`]; one that the clock cannot tell is far away.
    pub fn deadline_in(span: Duration) -> Instant {
        let now = now();
        let century = Duration::from_secs(u64::from(u32::MAX));
        now.checked_add(span).or_else(|| now.checked_add(century)).unwrap_or(now)
    }
}

#[expect(clippy::disallowed_methods, reason = "a wait that ends needs a clock; nothing that is decided does")]
fn now() -> Instant {
    Instant::now()
}
