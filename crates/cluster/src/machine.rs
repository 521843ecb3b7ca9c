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
/// healthy accelerator of NVIDIA's driver is a device `CUDA0`, `CUDA1`, .., numbered as the driver numbers them, so that a
/// device that is left out leaves its number free. Each has a pool of its own under the same name, unless it sits on the
/// host's memory: then it draws on `ram`, at most what the driver grants it.
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
        let Accelerator { total: Some(total), backend: GpuBackend::Cuda, .. } = accelerator else { continue };
        if accelerator.health.is_healthy() && !node.devices.iter().any(|d| same(d, accelerator)) {
            add(&mut node, accelerator, *total, free);
        }
    }
    ClusterSnapshot { generation: Generation::FIRST, nodes: vec![node], links: Vec::new() }
}

/// The engine's name for an accelerator.
fn name_of(accelerator: &Accelerator) -> String {
    format!("CUDA{}", accelerator.ordinal)
}

/// Whether a device is already this accelerator: by the driver's number, or by its unique name.
fn same(device: &Device, accelerator: &Accelerator) -> bool {
    let by_uuid = device.uuid.is_some() && device.uuid == accelerator.uuid;
    device.id.as_str() == name_of(accelerator) || by_uuid
}

fn add(node: &mut Node, accelerator: &Accelerator, total: Bytes, free: &FreeMemory) {
    let name = name_of(accelerator);
    let host = node.pools.iter().find(|p| p.id.as_str() == Pool::RAM);
    let (pool_id, limit) = match host {
        Some(host) if accelerator.kind == AcceleratorKind::Integrated => {
            (ram(), Some(total.min(host.total)).filter(|limit| *limit < host.total))
        }
        _ => {
            let id = PoolId::new(&name).expect("letters and digits are a pool id");
            node.pools.push(pool(id.clone(), total, free.accelerators.get(&accelerator.id).copied()));
            (id, None)
        }
    };
    node.devices.push(Device {
        id: DeviceId::new(&name).expect("letters and digits are a device id"),
        name: accelerator.name.clone(),
        pool: pool_id,
        limit,
        backend: accelerator.backend,
        bandwidth: accelerator.bandwidth,
        uuid: accelerator.uuid.clone(),
    });
}

fn pool(id: PoolId, total: Bytes, free: Option<Bytes>) -> Pool {
    Pool { id, total, reserve: None, cap: None, free: free.map(|free| free.min(total)), held: Bytes::ZERO }
}
