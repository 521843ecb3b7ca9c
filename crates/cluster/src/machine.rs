//! The machine at hand as a cluster of one node.

use plimsoll_profile::{
    Accelerator, AcceleratorKind, FreeMemory, GpuBackend, MemoryProfile, Presence, SystemProfile,
};
use plimsoll_units::{Bytes, DeviceId, Generation, NodeId, PoolId};

use crate::snapshot::{host_device, ram};
use crate::{ClusterSnapshot, Device, Node, NodeStatus, Pool};

/// A machine as a cluster of one node, which runs the engine.
///
/// Its memory, or the control group's limit where that is less, is the pool `ram` with the device `host` on it. Every
/// healthy accelerator of NVIDIA's driver is a device `CUDA0`, `CUDA1`, .., every one of AMD's `ROCm0`, `ROCm1`, .., and
/// Apple's `MTL0`, numbered as the driver numbers them, so that a device that is left out leaves its number free. Each has a pool of its own
/// under the same name, unless it sits on the host's memory: then it draws on `ram`, at most what the driver grants it.
///
/// A part of AMD's processors that has a piece of the memory for itself and may map more of the host's is two devices:
/// `gpu0` with a pool of its own for that piece, and `gtt` on `ram`, at most what it may map. The second part is `gpu1` and
/// `gtt1`, and so on.
///
/// `free` says what is free; what it does not say is not known, and then nothing new is placed there. More than the total
/// is taken for the total. Accelerators that are unhealthy, whose total is unknown, or that other drivers drive are left
/// out.
///
/// ```
/// use plimsoll_cluster::this_machine;
/// use plimsoll_profile::{FreeMemory, SystemProfile};
/// use plimsoll_units::NodeId;
///
/// let profile = SystemProfile::detect_fast();
/// let cluster = this_machine(NodeId::new("here")?, &profile, &FreeMemory::default());
/// assert!(cluster.validate().is_ok());
/// assert!(cluster.nodes[0].main);
/// # Ok::<(), plimsoll_units::IdError>(())
/// ```
pub fn this_machine(id: NodeId, profile: &SystemProfile, free: &FreeMemory) -> ClusterSnapshot {
    let mut node = Node {
        id,
        status: NodeStatus::Active,
        drained: false,
        main: true,
        rpc: None,
        pools: Vec::new(),
        devices: Vec::new(),
    };
    if let Presence::Found(MemoryProfile { total, .. }) = &profile.memory {
        node.pools.push(pool(ram(), *total, free.host));
        node.devices.push(host_device(None));
    }
    for accelerator in &profile.accelerators {
        let Accelerator { total: Some(total), .. } = accelerator else { continue };
        let Some(name) = name_of(accelerator) else { continue };
        if accelerator.health.is_healthy() && !node.devices.iter().any(|d| same(d, &name, accelerator)) {
            match accelerator.layout.host_share {
                Some(share) if accelerator.kind == AcceleratorKind::Integrated => {
                    add_divided(&mut node, accelerator, (*total, share), free);
                }
                _ => add(&mut node, &name, accelerator, *total, free),
            }
        }
    }
    ClusterSnapshot { generation: Generation::FIRST, nodes: vec![node], links: Vec::new() }
}

/// The engine's name for an accelerator; `None` for one whose engine's numbers are not known.
fn name_of(accelerator: &Accelerator) -> Option<String> {
    match accelerator.backend {
        GpuBackend::Cuda => Some(format!("CUDA{}", accelerator.ordinal)),
        GpuBackend::Rocm => Some(format!("ROCm{}", accelerator.ordinal)),
        GpuBackend::Metal => Some(format!("MTL{}", accelerator.ordinal)),
        _ => None,
    }
}

/// Whether a device is already this accelerator: by the driver's number, or by its unique name.
fn same(device: &Device, name: &str, accelerator: &Accelerator) -> bool {
    let by_uuid = device.uuid.is_some() && device.uuid == accelerator.uuid;
    device.id.as_str() == name || by_uuid
}

fn add(node: &mut Node, name: &str, accelerator: &Accelerator, total: Bytes, free: &FreeMemory) {
    let host = node.pools.iter().find(|p| p.id.as_str() == Pool::RAM);
    let (pool_id, limit) = match host {
        Some(host) if accelerator.kind == AcceleratorKind::Integrated => {
            (ram(), Some(total.min(host.total)).filter(|limit| *limit < host.total))
        }
        _ => (add_pool(node, name, accelerator, total, free), None),
    };
    node.devices.push(device(name, accelerator, pool_id, limit));
}

/// A part of a processor with a piece of memory for itself, that may map a share of the host's.
fn add_divided(node: &mut Node, accelerator: &Accelerator, (own, share): (Bytes, Bytes), free: &FreeMemory) {
    let number = node.devices.iter().filter(|d| d.id.as_str().starts_with("gpu")).count();
    let name = format!("gpu{number}");
    let pool_id = add_pool(node, &name, accelerator, own, free);
    node.devices.push(device(&name, accelerator, pool_id, None));
    if let Some(host) = node.pools.iter().find(|p| p.id.as_str() == Pool::RAM) {
        let limit = Some(share).filter(|share| *share < host.total);
        let mapped = if number == 0 { "gtt".to_owned() } else { format!("gtt{number}") };
        node.devices.push(device(&mapped, accelerator, ram(), limit));
    }
}

/// A pool of the accelerator's own, named like its device.
fn add_pool(
    node: &mut Node,
    name: &str,
    accelerator: &Accelerator,
    total: Bytes,
    free: &FreeMemory,
) -> PoolId {
    let id = PoolId::new(name).expect("letters and digits are a pool id");
    node.pools.push(pool(id.clone(), total, free.accelerators.get(&accelerator.id).copied()));
    id
}

fn device(name: &str, accelerator: &Accelerator, pool: PoolId, limit: Option<Bytes>) -> Device {
    Device {
        id: DeviceId::new(name).expect("letters and digits are a device id"),
        name: accelerator.name.clone(),
        pool,
        limit,
        backend: accelerator.backend,
        bandwidth: accelerator.bandwidth,
        uuid: accelerator.uuid.clone(),
    }
}

fn pool(id: PoolId, total: Bytes, free: Option<Bytes>) -> Pool {
    Pool { id, total, reserve: None, cap: None, free: free.map(|free| free.min(total)), held: Bytes::ZERO }
}
