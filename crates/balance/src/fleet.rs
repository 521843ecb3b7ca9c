//! What of a snapshot may hold something, and how much.

use std::collections::BTreeMap;

use plimsoll_cluster::speeds::{AssumedBy, assumed_bandwidth};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, MainNodeError, Node, NodeStatus, Pool};
use plimsoll_units::{Bytes, BytesPerSec, DeviceRef, NodeId, PoolId};

use crate::error::PlanError;
use crate::plan::{Stopped, StoppedBy};
use crate::workload::{EngineRules, HostUse, PlanOptions};

/// Devices that may be used, and those that may not.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    /// The pools' budgets.
    pub(crate) pools: Vec<u64>,
    /// Devices that may hold layers, by id; not the main host.
    pub(crate) devices: Vec<Candidate>,
    /// The host of the node that runs the engine: there wherever the rules know such a node.
    pub(crate) host: Option<Host>,
    /// Devices that may not be used, by id.
    pub(crate) left_out: Vec<Stopped>,
}

/// A device that may hold layers.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) device: DeviceRef,
    /// Its pool, as an index.
    pub(crate) pool: usize,
    /// The most of the pool that it can use.
    pub(crate) limit: u64,
    pub(crate) backend: GpuBackend,
    /// Its place in the snapshot.
    pub(crate) given: usize,
    pub(crate) speed: Option<Speed>,
}

/// How fast a device reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) rate: BytesPerSec,
    /// On what ground it was assumed; `None` where the snapshot tells it.
    pub(crate) assumed: Option<AssumedBy>,
}

/// The main node's host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) place: Candidate,
    /// Whether it may hold layers, or only what the engine keeps there.
    pub(crate) takes_layers: bool,
}

impl Fleet {
    /// Devices of a sound snapshot.
    pub(crate) fn new(
        snapshot: &ClusterSnapshot,
        rules: &EngineRules,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if let Some(device) = options.caps.keys().find(|d| snapshot.device(d).is_none()) {
            return Err(PlanError::UnknownDevice { device: device.clone() });
        }
        let main = match rules.host {
            HostUse::Ordinary => None,
            HostUse::FirstLayersOfMain => Some(main_node(snapshot)?),
        };
        let mut fleet = Self { pools: Vec::new(), devices: Vec::new(), host: None, left_out: Vec::new() };
        let mut numbers: BTreeMap<(&NodeId, &PoolId), usize> = BTreeMap::new();
        let mut given = 0;
        for node in &snapshot.nodes {
            for pool in &node.pools {
                numbers.entry((&node.id, &pool.id)).or_insert_with(|| {
                    fleet.pools.push(budget(pool, rules, options).get());
                    fleet.pools.len() - 1
                });
            }
            let is_main = main.is_some_and(|main| main.id == node.id);
            for device in &node.devices {
                given += 1;
                // To such an engine the host of its own node is one thing under one name, and a remote one takes part
                // only under a name of its own.
                let on_processor = device.is_host() || (is_main && device.backend == GpuBackend::Cpu);
                if main.is_some() && on_processor && !(is_main && device.is_host()) {
                    continue;
                }
                let reference = DeviceRef { node: node.id.clone(), device: device.id.clone() };
                let number = numbers.get(&(&node.id, &device.pool)).copied();
                let candidate = candidate(device, reference, number.unwrap_or(usize::MAX), given, options);
                let why = left_out(node, device, options);
                if is_main && device.is_host() {
                    fleet.host = Some(Host { place: candidate, takes_layers: why.is_none() });
                } else if let Some(reason) = why {
                    fleet.left_out.push(Stopped {
                        device: candidate.device,
                        reason,
                        short_bytes: Bytes::ZERO,
                    });
                } else {
                    fleet.devices.push(candidate);
                }
            }
        }
        fleet.keep_parts(options, |device| {
            let (node, found) = snapshot.device(device)?;
            numbers.get(&(&node.id, &found.pool)).copied()
        })?;
        fleet.devices.sort_by(|a, b| a.device.cmp(&b.device));
        fleet.left_out.sort_by(|a, b| a.device.cmp(&b.device));
        Ok(fleet)
    }

    /// Takes what lies beside the layers from pools and from what devices may use of them.
    fn keep_parts(
        &mut self,
        options: &PlanOptions,
        pool_of: impl Fn(&DeviceRef) -> Option<usize>,
    ) -> Result<(), PlanError> {
        for part in &options.parts {
            let device = part.device.clone();
            let Some(pool) = pool_of(&device).and_then(|pool| self.pools.get_mut(pool)) else {
                return Err(PlanError::UnknownDevice { device });
            };
            let host = self.host.as_mut().map(|host| &mut host.place);
            let mut place = host.into_iter().chain(&mut self.devices).find(|place| place.device == device);
            let bytes = part.bytes.get();
            let budget = place.as_ref().map_or(*pool, |place| place.limit.min(*pool));
            if bytes > budget {
                return Err(PlanError::PartDoesNotFit { name: part.name.clone(), device, bytes, budget });
            }
            *pool -= bytes;
            if let Some(place) = &mut place {
                place.limit -= bytes;
            }
        }
        Ok(())
    }

    /// What a device could use if nothing else drew on its pool.
    pub(crate) fn budget(&self, place: &Candidate) -> u64 {
        self.pools.get(place.pool).copied().unwrap_or(0).min(place.limit)
    }
}

/// The node that runs the engine, which must be there and know the memory that the engine keeps its buffers in.
fn main_node(snapshot: &ClusterSnapshot) -> Result<&Node, PlanError> {
    let main = snapshot.main_node().map_err(|error| match error {
        MainNodeError::Empty => PlanError::NoDevices { stopped: Vec::new() },
        error => PlanError::NoMainNode(error),
    })?;
    let node = main.id.clone();
    if main.drained {
        return Err(PlanError::MainNodeDrained { node });
    }
    if main.status == NodeStatus::Failed {
        return Err(PlanError::MainNodeFailed { node });
    }
    match main.host().map(|host| main.pool(&host.pool).and_then(|pool| pool.free)) {
        None => Err(PlanError::NoHostMemory { node }),
        Some(None) => Err(PlanError::HostMemoryUnknown { node }),
        Some(Some(_)) => Ok(main),
    }
}

fn budget(pool: &Pool, rules: &EngineRules, options: &PlanOptions) -> Bytes {
    match options.reserve {
        Some(reserve) => Pool { reserve: Some(reserve), ..pool.clone() }.budget(Bytes::ZERO),
        None => pool.budget(rules.margin),
    }
}

fn candidate(
    device: &Device,
    reference: DeviceRef,
    pool: usize,
    given: usize,
    options: &PlanOptions,
) -> Candidate {
    let cap = options.caps.get(&reference).copied().unwrap_or(Bytes::MAX);
    let assumed = || assumed_bandwidth(device.name.as_deref(), device.backend);
    let assumed = || assumed().map(|(rate, by)| Speed { rate, assumed: Some(by) });
    let told = device.bandwidth.map(|rate| Speed { rate, assumed: None });
    Candidate {
        device: reference,
        pool,
        limit: device.limit.unwrap_or(Bytes::MAX).min(cap).get(),
        backend: device.backend,
        given,
        speed: told.or_else(assumed),
    }
}

fn left_out(node: &Node, device: &Device, options: &PlanOptions) -> Option<StoppedBy> {
    if options.only.as_ref().is_some_and(|only| !only.contains(&node.id)) {
        return Some(StoppedBy::NotAsked);
    }
    if node.status == NodeStatus::Failed {
        return Some(StoppedBy::Failed);
    }
    if node.drained {
        return Some(StoppedBy::Drained);
    }
    let free = node.pool(&device.pool).and_then(|pool| pool.free);
    if free.is_none() { Some(StoppedBy::FreeUnknown) } else { None }
}
