//! Small clusters and models for tests.
#![allow(dead_code, reason = "every test binary uses its own part")]

pub(crate) mod instance;
pub(crate) mod moves;
pub(crate) mod oracle;
pub(crate) mod parts;
pub(crate) mod pipelines;
pub(crate) mod world;

use plimsoll_balance::{LayerSpec, Workload};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
use plimsoll_model::{Footprint, ResolvedContext};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, DeviceRef, Generation, NodeId, PoolId};

/// A count for comparison with shares and times.
pub(crate) fn float(n: u64) -> f64 {
    Bytes::new(n).as_f64()
}

pub(crate) fn node_id(name: &str) -> NodeId {
    NodeId::new(name).expect("a legal name")
}

pub(crate) fn device_ref(node: &str, device: &str) -> DeviceRef {
    DeviceRef { node: node_id(node), device: DeviceId::new(device).expect("a legal name") }
}

/// A pool with everything free.
pub(crate) fn pool(id: &str, bytes: u64) -> Pool {
    let bytes = Bytes::new(bytes);
    Pool {
        id: PoolId::new(id).expect("a legal name"),
        total: bytes,
        reserve: None,
        cap: None,
        free: Some(bytes),
        held: Bytes::ZERO,
    }
}

pub(crate) fn device(id: &str, pool: &str, backend: GpuBackend, bandwidth: Option<u64>) -> Device {
    Device {
        id: DeviceId::new(id).expect("a legal name"),
        name: None,
        pool: PoolId::new(pool).expect("a legal name"),
        limit: None,
        backend,
        bandwidth: bandwidth.map(BytesPerSec::new),
        uuid: None,
    }
}

pub(crate) fn node(id: &str, pools: Vec<Pool>, devices: Vec<Device>) -> Node {
    Node {
        id: node_id(id),
        status: NodeStatus::Active,
        drained: false,
        main: false,
        rpc: None,
        pools,
        devices,
    }
}

pub(crate) fn snapshot(nodes: Vec<Node>) -> ClusterSnapshot {
    ClusterSnapshot { generation: Generation::FIRST, nodes, links: Vec::new() }
}

/// One node `n00`, `n01`, … with one device `d0` of each capacity, all equally fast.
pub(crate) fn devices(capacities: &[u64]) -> ClusterSnapshot {
    let one = |(number, &bytes): (usize, &u64)| {
        node(
            &format!("n{number:02}"),
            vec![pool("p", bytes)],
            vec![device("d0", "p", GpuBackend::Cuda, Some(1_000_000_000))],
        )
    };
    snapshot(capacities.iter().enumerate().map(one).collect())
}

pub(crate) fn footprint(layers: Vec<LayerSpec>) -> Footprint {
    Footprint {
        layers,
        input_bytes: Bytes::ZERO,
        head_bytes: Bytes::ZERO,
        head_beside_input_bytes: Bytes::ZERO,
        each_device_bytes: Bytes::ZERO,
        nextn: 0,
        context: ResolvedContext { total: 0, per_sequence: 0, streams: 1 },
    }
}

/// Layers of these weights.
pub(crate) fn layers(bytes: &[u64]) -> Workload {
    let specs = bytes.iter().zip(0..).map(|(&b, index)| LayerSpec::of_weights(index, Bytes::new(b)));
    Workload::uniform(footprint(specs.collect()))
}
