//! What is measured of one node.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_units::{Bytes, DeviceId, NodeId, PoolId};

use super::Moment;
use super::sample::{SampleError, possible};
use super::signal::Signal;
use crate::{Node, NodeStatus, Pool};

/// How much of one pool is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// The pool.
    pub id: PoolId,
    /// All of it.
    pub total: Bytes,
    /// What is free; `None` when nobody knows. Never more than `total`.
    pub free: Option<Bytes>,
    /// When it was last measured, even where that is no longer believed; `None` for what was only declared.
    pub measured: Option<Moment>,
    /// What plimsoll itself holds there. Never more than `total`.
    pub held: Bytes,
}

impl PoolUse {
    /// A pool as it is declared.
    fn declared(pool: &Pool) -> Self {
        let free = pool.free.map(|free| free.min(pool.total));
        Self { id: pool.id.clone(), total: pool.total, free, measured: None, held: pool.held.min(pool.total) }
    }

    /// What somebody uses; `None` when nobody knows.
    pub fn used(&self) -> Option<Bytes> {
        self.free.map(|free| self.total.saturating_sub(free))
    }

    /// How old the last sample is.
    pub fn age(&self, now: Moment) -> Option<Duration> {
        self.measured.map(|at| now.since(at))
    }
}

/// How much a device has, how much of it is used and how much is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// All of it.
    pub total: Bytes,
    /// What is used, or not known to be free.
    pub used: Bytes,
    /// What is free.
    pub available: Bytes,
}

/// What is measured of one node.
///
/// `0 ≤ free ≤ total` holds at every moment: a sample that cannot be true is refused, and the old value stays with its
/// age.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMetrics {
    pub(super) name: NodeId,
    pub(super) status: NodeStatus,
    pub(super) drained: bool,
    pub(super) last_heartbeat: Option<Moment>,
    /// Known to be gone, whatever its silence: until it is heard of again.
    pub(super) gone: bool,
    pools: Vec<PoolUse>,
    devices: Vec<(DeviceId, usize, Bytes)>,
    /// `None` until there is a first sample: most of a large cluster may never send one.
    signals: Option<Box<Signals>>,
    streaming: BTreeSet<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Signals {
    latency: Signal,
    delivery: Signal,
    throughput: Signal,
}

static NO_SIGNAL: Signal = Signal::new();

impl NodeMetrics {
    /// Of a sound node of which nothing was measured yet.
    pub(super) fn of(node: &Node) -> Self {
        let place = |pool: &PoolId| node.pools.iter().position(|p| p.id == *pool).unwrap_or(usize::MAX);
        let device = |d: &crate::Device| (d.id.clone(), place(&d.pool), d.limit.unwrap_or(Bytes::MAX));
        Self {
            name: node.id.clone(),
            status: node.status,
            drained: node.drained,
            last_heartbeat: None,
            gone: false,
            pools: node.pools.iter().map(PoolUse::declared).collect(),
            devices: node.devices.iter().map(device).collect(),
            signals: None,
            streaming: BTreeSet::new(),
        }
    }

    /// The same machine under new terms: what was measured of pools that have not changed stays.
    pub(super) fn carry_over(&mut self, earlier: Self) {
        for pool in &mut self.pools {
            if let Some(before) = earlier.pools.iter().find(|p| p.id == pool.id && p.total == pool.total) {
                pool.clone_from(before);
            }
        }
        self.signals = earlier.signals;
        self.streaming = earlier.streaming;
    }

    /// The node.
    pub fn name(&self) -> &NodeId {
        &self.name
    }

    /// Whether it may be counted on.
    pub fn status(&self) -> NodeStatus {
        self.status
    }

    /// Whether it takes nothing new.
    pub fn drained(&self) -> bool {
        self.drained
    }

    /// When it was last heard of.
    pub fn last_heartbeat(&self) -> Option<Moment> {
        self.last_heartbeat
    }

    /// How much of each pool is used, in the node's order.
    pub fn pools(&self) -> &[PoolUse] {
        &self.pools
    }

    /// All of its memory, every pool once, saturating.
    pub fn total(&self) -> Bytes {
        Bytes::saturating_sum(self.pools.iter().map(|pool| pool.total))
    }

    /// What is free of it; what is not known to be free is not.
    pub fn available(&self) -> Bytes {
        Bytes::saturating_sum(self.pools.iter().filter_map(|pool| pool.free))
    }

    /// What is used of it, or not known to be free.
    pub fn used(&self) -> Bytes {
        self.total().saturating_sub(self.available())
    }

    /// The memory of one device: its pool's, as far as the device can use it.
    pub fn device(&self, id: &DeviceId) -> Option<MemoryUse> {
        let (_, pool, limit) = self.devices.iter().find(|(device, ..)| device == id)?;
        let pool = self.pools.get(*pool)?;
        let total = pool.total.min(*limit);
        let available = pool.free.unwrap_or(Bytes::ZERO).min(total);
        Some(MemoryUse { total, used: total.saturating_sub(available), available })
    }

    /// How long an answer takes, in seconds.
    pub fn latency(&self) -> &Signal {
        self.signals.as_deref().map_or(&NO_SIGNAL, |signals| &signals.latency)
    }

    /// Which share of messages arrives.
    pub fn delivery_ratio(&self) -> &Signal {
        self.signals.as_deref().map_or(&NO_SIGNAL, |signals| &signals.delivery)
    }

    /// How many bytes arrive in a second.
    pub fn throughput(&self) -> &Signal {
        self.signals.as_deref().map_or(&NO_SIGNAL, |signals| &signals.throughput)
    }

    /// Layers that are on their way to it.
    pub fn streaming_layers(&self) -> &BTreeSet<u32> {
        &self.streaming
    }

    /// Takes a sample of what is free in a pool.
    ///
    /// # Errors
    ///
    /// No such pool, more than the pool has, or older than the newest sample: nothing changes.
    pub fn record_free(&mut self, pool: &PoolId, free: Bytes, at: Moment) -> Result<(), SampleError> {
        self.record("free", pool, free, |pool| {
            if let Some(newest) = pool.measured.filter(|newest| *newest > at) {
                return Err(SampleError::Outdated { pool: pool.id.clone(), at, newest });
            }
            (pool.free, pool.measured) = (Some(free), Some(at));
            Ok(())
        })
    }

    /// Takes a sample of what is used in a pool.
    ///
    /// # Errors
    ///
    /// As [`NodeMetrics::record_free`].
    pub fn record_used(&mut self, pool: &PoolId, used: Bytes, at: Moment) -> Result<(), SampleError> {
        let total = self.record("used", pool, used, |pool| Ok(pool.total))?;
        self.record_free(pool, total.saturating_sub(used), at)
    }

    /// Notes that a reading failed: from now on nobody knows what is free there, and nothing new is placed, until the
    /// next good sample.
    ///
    /// # Errors
    ///
    /// No such pool.
    pub fn record_unreadable(&mut self, pool: &PoolId) -> Result<(), SampleError> {
        self.record("free", pool, Bytes::ZERO, |pool| {
            pool.free = None;
            Ok(())
        })
    }

    /// Says how much plimsoll itself holds in a pool.
    ///
    /// # Errors
    ///
    /// No such pool, or more than the pool has: nothing changes.
    pub fn record_held(&mut self, pool: &PoolId, held: Bytes) -> Result<(), SampleError> {
        self.record("held", pool, held, |pool| {
            pool.held = held;
            Ok(())
        })
    }

    fn record<T>(
        &mut self,
        what: &'static str,
        id: &PoolId,
        bytes: Bytes,
        set: impl FnOnce(&mut PoolUse) -> Result<T, SampleError>,
    ) -> Result<T, SampleError> {
        let Some(pool) = self.pools.iter_mut().find(|pool| pool.id == *id) else {
            return Err(SampleError::UnknownPool { node: self.name.clone(), pool: id.clone() });
        };
        if bytes > pool.total {
            return Err(SampleError::AboveTotal { what, pool: id.clone(), bytes, total: pool.total });
        }
        set(pool)
    }

    /// Takes a sample of how long an answer took, in seconds.
    ///
    /// # Errors
    ///
    /// Not finite or negative: nothing changes.
    pub fn record_latency(&mut self, seconds: f64) -> Result<(), SampleError> {
        let sample = possible("latency", seconds)?;
        self.signals().latency.take(sample);
        Ok(())
    }

    /// Takes a sample of the share of messages that arrived.
    ///
    /// # Errors
    ///
    /// Not between 0 and 1: nothing changes.
    pub fn record_delivery_ratio(&mut self, share: f64) -> Result<(), SampleError> {
        let what = "delivery ratio";
        let value = possible(what, share)?;
        if value > 1.0 {
            return Err(SampleError::AboveOne { what, value });
        }
        self.signals().delivery.take(value);
        Ok(())
    }

    /// Takes a sample of how many bytes arrived in a second.
    ///
    /// # Errors
    ///
    /// Not finite or negative: nothing changes.
    pub fn record_throughput(&mut self, bytes_per_second: f64) -> Result<(), SampleError> {
        let sample = possible("throughput", bytes_per_second)?;
        self.signals().throughput.take(sample);
        Ok(())
    }

    fn signals(&mut self) -> &mut Signals {
        self.signals.get_or_insert_default()
    }

    /// Says which layers are on their way to the node.
    pub fn set_streaming_layers(&mut self, layers: impl IntoIterator<Item = u32>) {
        self.streaming = layers.into_iter().collect();
    }

    /// Forgets samples older than that; which pools they were of, and how old they were.
    pub(super) fn forget_free(&mut self, now: Moment, older_than: Duration) -> Vec<(PoolId, Duration)> {
        let mut forgotten = Vec::new();
        for pool in self.pools.iter_mut().filter(|pool| pool.free.is_some()) {
            if let Some(age) = pool.age(now).filter(|age| *age >= older_than) {
                pool.free = None;
                forgotten.push((pool.id.clone(), age));
            }
        }
        forgotten
    }

    /// Whether a sample is so old that it will be forgotten.
    pub(super) fn has_stale(&self, now: Moment, older_than: Duration) -> bool {
        self.pools.iter().any(|p| p.free.is_some() && p.age(now).is_some_and(|age| age >= older_than))
    }
}
