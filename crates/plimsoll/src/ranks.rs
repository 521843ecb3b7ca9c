//! A cluster as an engine sees it: without what it has no use for, and with equal devices taken together as ranks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plimsoll_balance::{Pin, PlanOptions};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, Pool};
use plimsoll_export::TOGETHER;
use plimsoll_units::{Bytes, DeviceId, DeviceRef, PoolId};

use crate::engine::Engine;

/// What a cluster file calls the part of the host's memory that an integrated GPU maps.
const GTT: &str = "gtt";

/// The cluster as the engine sees it: without the devices that it has no name or no use for, and with `ranks` equal
/// devices of a node as one, under their names with a `+` between them. Devices that are too few for that are left out.
pub(crate) fn seen(engine: Engine, ranks: u32, snapshot: &ClusterSnapshot) -> Cow<'_, ClusterSnapshot> {
    let unseen = |device: &Device| !sees(engine, device);
    let any = snapshot.nodes.iter().any(|node| node.devices.iter().any(unseen));
    // One process on a node is one device.
    let single = engine == Engine::Exo;
    if ranks <= 1 && !any && !single {
        return Cow::Borrowed(snapshot);
    }
    let mut seen = snapshot.clone();
    for node in &mut seen.nodes {
        node.devices.retain(|device| !unseen(device));
        if single {
            keep_largest(node);
        }
        if ranks > 1 {
            group(node, ranks);
        }
    }
    Cow::Owned(seen)
}

/// The devices of a cluster that the engine has no name or no use for; not those that are too few to share layers.
pub(crate) fn unseen(engine: Engine, snapshot: &ClusterSnapshot) -> Vec<DeviceRef> {
    let nodes = snapshot.nodes.iter();
    let all = nodes.flat_map(|node| node.devices.iter().map(move |device| (node, device)));
    let unseen = all.filter(|(_, device)| !device.is_host() && !sees(engine, device));
    unseen.map(|(node, device)| DeviceRef { node: node.id.clone(), device: device.id.clone() }).collect()
}

/// The most equal devices of one node, each with memory of its own.
pub(crate) fn most_alike(engine: Engine, snapshot: &ClusterSnapshot) -> u32 {
    let mut most = 0;
    for node in &snapshot.nodes {
        let devices = node.devices.iter().filter(|device| sees(engine, device)).cloned().collect();
        let alike = alike(node, devices);
        most = most.max(alike.iter().map(|(_, list)| list.len()).max().unwrap_or(0));
    }
    u32::try_from(most).unwrap_or(u32::MAX)
}

fn sees(engine: Engine, device: &Device) -> bool {
    use GpuBackend::{Cpu, Cuda, Metal, Rocm};
    match engine {
        Engine::None => true,
        Engine::LlamaCpp | Engine::IkLlamaCpp => device.id.as_str() != GTT,
        Engine::Vllm | Engine::Sglang => matches!(device.backend, Cuda | Rocm),
        Engine::Petals => matches!(device.backend, Cuda | Rocm | Metal),
        Engine::Exo => device.backend != Cpu && device.id.as_str() != GTT,
        // Of processors only the host itself.
        Engine::Accelerate => device.is_host() || matches!(device.backend, Cuda | Rocm),
        Engine::MistralRs => device.is_host() || matches!(device.backend, Cuda | Metal),
    }
}

/// Keeps the device with the largest budget, ties by id.
fn keep_largest(node: &mut Node) {
    let budget = |device: &Device| {
        let pool = node.pools.iter().find(|pool| pool.id == device.pool);
        let budget = pool.map_or(Bytes::ZERO, |pool| pool.budget(Bytes::ZERO));
        budget.min(device.limit.unwrap_or(Bytes::MAX))
    };
    let largest =
        node.devices.iter().map(|device| (std::cmp::Reverse(budget(device)), device.id.clone())).min();
    if let Some((_, largest)) = largest {
        node.devices.retain(|device| device.id == largest);
    }
}

/// Takes `ranks` equal devices together, in the order of the file: as much memory as the smallest budget among them, for
/// each holds the same.
fn group(node: &mut Node, ranks: u32) {
    let size = usize::try_from(ranks).unwrap_or(usize::MAX);
    // What is taken together already stays as it is.
    let parts = |device: &Device| device.id.as_str().split(TOGETHER).count();
    let (whole, devices): (Vec<Device>, Vec<Device>) =
        std::mem::take(&mut node.devices).into_iter().partition(|device| parts(device) == size);
    node.devices = whole;
    for (_, list) in &alike(node, devices) {
        for members in list.chunks_exact(size) {
            if let Some((pool, device)) = together(node, members) {
                node.pools.push(pool);
                node.devices.push(device);
            }
        }
    }
}

/// Devices by what makes them equal, in their order.
fn alike(node: &Node, devices: Vec<Device>) -> Vec<(Likeness, Vec<Device>)> {
    let mut alike: Vec<(Likeness, Vec<Device>)> = Vec::new();
    for device in devices {
        let Some(pool) = node.pools.iter().find(|pool| pool.id == device.pool) else { continue };
        let likeness = Likeness { backend: device.backend, name: device.name.clone(), total: pool.total };
        // Two devices on one memory are no two places for a share of the same layer.
        match alike
            .iter_mut()
            .find(|(known, list)| *known == likeness && list.iter().all(|d| d.pool != device.pool))
        {
            Some((_, list)) => list.push(device),
            None => alike.push((likeness, vec![device])),
        }
    }
    alike
}

/// What makes devices equal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Likeness {
    backend: GpuBackend,
    name: Option<String>,
    total: Bytes,
}

fn together(node: &Node, members: &[Device]) -> Option<(Pool, Device)> {
    let pools: Vec<&Pool> =
        members.iter().filter_map(|device| node.pools.iter().find(|pool| pool.id == device.pool)).collect();
    let joined = |parts: Vec<&str>, by: char| parts.join(&by.to_string());
    let name = joined(members.iter().map(|device| device.id.as_str()).collect(), TOGETHER);
    let id = PoolId::new(&name).ok()?;
    let free: Option<Vec<Bytes>> = pools.iter().map(|pool| pool.free).collect();
    let pool = Pool {
        id: id.clone(),
        total: pools.iter().map(|pool| pool.total).min()?,
        reserve: pools.iter().filter_map(|pool| pool.reserve).max(),
        cap: pools.iter().filter_map(|pool| pool.cap).min(),
        free: free.and_then(|free| free.into_iter().min()),
        held: pools.iter().map(|pool| pool.held).min()?,
    };
    let uuids: Option<Vec<&str>> = members.iter().map(|device| device.uuid.as_deref()).collect();
    let slowest: Option<Vec<_>> = members.iter().map(|device| device.bandwidth).collect();
    let first = members.first()?;
    let device = Device {
        id: DeviceId::new(&name).ok()?,
        name: first.name.clone(),
        pool: id,
        limit: members.iter().filter_map(|device| device.limit).min(),
        backend: first.backend,
        bandwidth: slowest.and_then(|rates| rates.into_iter().min()),
        uuid: uuids.map(|uuids| joined(uuids, ',')),
    };
    Some((pool, device))
}

/// The options in the names of the cluster as it is seen: what is said of one device holds for all that share its layers.
pub(crate) fn options(options: PlanOptions, seen: &ClusterSnapshot) -> PlanOptions {
    let named = |device: &DeviceRef| -> DeviceRef {
        let node = seen.node(&device.node);
        let whole = node.and_then(|node| {
            node.devices
                .iter()
                .find(|d| d.id.as_str().split(TOGETHER).any(|part| part == device.device.as_str()))
        });
        let device_id = whole.map_or_else(|| device.device.clone(), |whole| whole.id.clone());
        DeviceRef { node: device.node.clone(), device: device_id }
    };
    let mut caps: BTreeMap<DeviceRef, Bytes> = BTreeMap::new();
    for (device, cap) in &options.caps {
        let device = named(device);
        // A cap on what the engine does not see changes nothing.
        if seen.device(&device).is_some() {
            let least = caps.entry(device).or_insert(*cap);
            *least = (*least).min(*cap);
        }
    }
    let pins =
        options.pins.iter().map(|pin| Pin { device: named(&pin.device), layers: pin.layers }).collect();
    PlanOptions { caps, pins, ..options }
}

/// A group as the devices that it was made of, with everything else as it is.
pub(crate) fn members(device: &DeviceRef) -> impl Iterator<Item = DeviceRef> + '_ {
    let parts = device.device.as_str().split(TOGETHER);
    let ids = parts.filter_map(|part| DeviceId::new(part).ok());
    ids.map(|id| DeviceRef { node: device.node.clone(), device: id })
}
