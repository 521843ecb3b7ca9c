//! What of a snapshot may hold something, and how much.

use std::collections::BTreeMap;

use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, DeviceRef, NodeId, PoolId};

use crate::error::PlanError;
use crate::plan::{Stopped, StoppedBy};
use crate::speeds;
use crate::workload::{EngineRules, HostUse, PlanOptions};

/// The name of a node's own memory as a device.
pub(crate) const HOST: &str = "host";

/// Devices that may be used, and those that may not.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The pools' budgets.
    pub(crate) pools: Vec<u64>,
    /// Devices that may hold layers, by id; not the main host.
    pub(crate) devices: Vec<Candidate>,
    /// The host of the node that runs the engine, where the rules know one.
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
    /// Whether it was assumed, and then whether by its name.
    pub(crate) assumed_by_name: Option<bool>,
}

/// The main node's host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) place: Candidate,
    /// Whether it may hold layers, or only what the engine keeps there.
    pub(crate) takes_layers: bool,
}

impl Fleet {
    pub(crate) fn new(
        snapshot: &ClusterSnapshot,
        rules: &EngineRules,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        check(snapshot, options)?;
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
                let reference = DeviceRef { node: node.id.clone(), device: device.id.clone() };
                let is_host = main.is_some() && device.id.as_str() == HOST;
                if is_host && !is_main {
                    continue;
                }
                let number = numbers.get(&(&node.id, &device.pool)).copied();
                let candidate = candidate(device, reference, number.unwrap_or(usize::MAX), given, options);
                let why = left_out(node, device, options);
                if is_host {
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
        if let (Some(main), None) = (main, &fleet.host) {
            fleet.host = Some(unlisted_host(main, &numbers, &mut fleet.pools));
        }
        fleet.devices.sort_by(|a, b| a.device.cmp(&b.device));
        fleet.left_out.sort_by(|a, b| a.device.cmp(&b.device));
        Ok(fleet)
    }

    /// What a device could use if nothing else drew on its pool.
    pub(crate) fn budget(&self, place: &Candidate) -> u64 {
        self.pools.get(place.pool).copied().unwrap_or(0).min(place.limit)
    }
}

fn check(snapshot: &ClusterSnapshot, options: &PlanOptions) -> Result<(), PlanError> {
    if let Some(device) = options.caps.keys().find(|d| snapshot.device(d).is_none()) {
        return Err(PlanError::UnknownDevice { device: device.clone() });
    }
    let still = snapshot.nodes.iter().flat_map(|node| {
        let devices = node.devices.iter().filter(|d| d.bandwidth.is_some_and(BytesPerSec::is_zero));
        devices.map(|device| DeviceRef { node: node.id.clone(), device: device.id.clone() })
    });
    match still.min() {
        Some(device) => Err(PlanError::ZeroBandwidth { device }),
        None => Ok(()),
    }
}

/// The node that runs the engine: the one marked, else the only one that no rpc server stands for.
fn main_node(snapshot: &ClusterSnapshot) -> Result<&Node, PlanError> {
    let named = |nodes: &[&Node]| {
        let mut names: Vec<&str> = nodes.iter().map(|n| n.id.as_str()).collect();
        names.sort_unstable();
        names.join(", ")
    };
    let marked: Vec<&Node> = snapshot.nodes.iter().filter(|n| n.main).collect();
    let local: Vec<&Node> = snapshot.nodes.iter().filter(|n| n.rpc.is_none()).collect();
    let reason = match (marked.as_slice(), local.as_slice()) {
        ([main], _) | ([], [main]) if main.drained => format!("{} runs the engine and is drained", main.id),
        ([main], _) | ([], [main]) if main.status == NodeStatus::Failed => {
            format!("{} runs the engine and does not answer", main.id)
        }
        ([main], _) | ([], [main]) => return Ok(main),
        ([], []) if snapshot.nodes.is_empty() => return Err(PlanError::NoDevices { stopped: Vec::new() }),
        ([], []) => format!(
            "every node has an rpc address, so that none runs the engine; mark one of {} as the main one",
            named(&snapshot.nodes.iter().collect::<Vec<_>>())
        ),
        ([], several) => format!("any of {} could run the engine; mark one as the main one", named(several)),
        (several, _) => format!("{} are all marked as the main one", named(several)),
    };
    Err(PlanError::NoMainNode { reason })
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
    let assumed = || speeds::assumed(device.name.as_deref(), device.backend);
    let told = device.bandwidth.map(|rate| Speed { rate, assumed_by_name: None });
    Candidate {
        device: reference,
        pool,
        limit: device.limit.unwrap_or(Bytes::MAX).min(cap).get(),
        backend: device.backend,
        given,
        speed: told.or_else(assumed),
    }
}

/// The host of a main node that lists none: the engine still keeps its buffers somewhere, on the pool named after the
/// host or else on the node's first one.
fn unlisted_host(node: &Node, numbers: &BTreeMap<(&NodeId, &PoolId), usize>, pools: &mut Vec<u64>) -> Host {
    let named = node.pools.iter().find(|p| p.id.as_str() == HOST);
    let pool = named.or(node.pools.first());
    let number = pool.and_then(|pool| numbers.get(&(&node.id, &pool.id)).copied());
    let number = number.unwrap_or_else(|| {
        pools.push(0);
        pools.len() - 1
    });
    let place = Candidate {
        device: DeviceRef { node: node.id.clone(), device: host_id() },
        pool: number,
        limit: u64::MAX,
        backend: GpuBackend::Cpu,
        given: 0,
        speed: None,
    };
    Host { place, takes_layers: false }
}

fn host_id() -> DeviceId {
    #[expect(clippy::expect_used, reason = "a constant that is a legal name")]
    DeviceId::new(HOST).expect("'host' is a legal name")
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
