//! A machine as it is written.

use std::collections::BTreeMap;

use plimsoll_cluster::{DeviceSpec, NodeResources, PoolSpec};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, NodeId, PoolId};
use serde::{Deserialize, Serialize};

/// What was measured of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsRecord {
    /// Milliseconds since the UNIX epoch, by the node's own clock: for people.
    pub(crate) at: u64,
    pub(crate) free: BTreeMap<PoolId, Bytes>,
}

/// What one machine brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeRecord {
    pub(super) id: NodeId,
    vram: Bytes,
    system_memory: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_capability: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rpc: Option<String>,
    #[serde(default)]
    main: bool,
    pools: Vec<PoolRecord>,
    devices: Vec<DeviceRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolRecord {
    id: PoolId,
    total: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserve: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cap: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    free: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceRecord {
    id: DeviceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    pool: PoolId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<Bytes>,
    backend: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_capability: Option<(u32, u32)>,
}

impl NodeRecord {
    pub(super) fn of(resources: &NodeResources) -> Self {
        let pool = |spec: PoolSpec| PoolRecord {
            id: spec.id,
            total: spec.total,
            reserve: spec.reserve,
            cap: spec.cap,
            free: spec.free,
        };
        let device = |spec: DeviceSpec| DeviceRecord {
            id: spec.id,
            name: spec.name,
            pool: spec.pool,
            limit: spec.limit,
            backend: spec.backend.name().to_owned(),
            bytes_per_second: spec.bandwidth.map(BytesPerSec::get),
            uuid: spec.uuid,
            compute_capability: spec.compute_capability,
        };
        Self {
            id: resources.id.clone(),
            vram: resources.vram,
            system_memory: resources.system_memory,
            gpu_name: resources.gpu_name.clone(),
            compute_capability: resources.compute_capability,
            boot_id: resources.boot_id.clone(),
            address: resources.address.clone(),
            rpc: resources.rpc.clone(),
            main: resources.main,
            pools: resources.pools().into_iter().map(pool).collect(),
            devices: resources.devices().into_iter().map(device).collect(),
        }
    }

    /// What it brings, or what of it is not understood.
    pub(super) fn resources(self) -> Result<NodeResources, String> {
        let pool = |record: PoolRecord| PoolSpec {
            id: record.id,
            total: record.total,
            reserve: record.reserve,
            cap: record.cap,
            free: record.free,
        };
        let device = |record: DeviceRecord| {
            let backend = record.backend.parse().map_err(|_| {
                format!("device '{}' has a backend that is not known: '{}'", record.id, record.backend)
            })?;
            Ok::<_, String>(DeviceSpec {
                name: record.name,
                limit: record.limit,
                bandwidth: record.bytes_per_second.map(BytesPerSec::new),
                uuid: record.uuid,
                compute_capability: record.compute_capability,
                ..DeviceSpec::new(record.id, record.pool, backend)
            })
        };
        let devices = self.devices.into_iter().map(device).collect::<Result<Vec<_>, _>>()?;
        let mut resources = NodeResources::new(self.id, self.vram, self.system_memory)
            .with_devices(self.pools.into_iter().map(pool), devices);
        resources.vram = self.vram;
        resources.gpu_name = self.gpu_name;
        resources.compute_capability = self.compute_capability;
        resources.boot_id = self.boot_id;
        resources.address = self.address;
        resources.rpc = self.rpc;
        resources.main = self.main;
        Ok(resources)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_cluster::GpuBackend;

    use super::*;
    use crate::wire;

    #[test]
    fn a_machine_comes_back_as_it_was_written() {
        let pool = PoolId::new("CUDA0").unwrap();
        let card = DeviceSpec::new(DeviceId::new("CUDA0").unwrap(), pool.clone(), GpuBackend::Cuda)
            .with_name("RTX 4090")
            .with_bandwidth(BytesPerSec::new(1_008_000_000_000));
        let tower = NodeResources::new(NodeId::new("tower").unwrap(), Bytes::ZERO, Bytes::gib(64))
            .with_devices([PoolSpec::new(pool, Bytes::gib(24)).with_reserve(Bytes::gib(1))], [card])
            .with_boot_id("1f2e")
            .with_address("10.0.0.7:7000")
            .with_rpc("10.0.0.7:50052")
            .as_main();
        let bytes = wire::encode(&NodeRecord::of(&tower));
        let back = wire::decode::<NodeRecord>("k", &bytes).unwrap().resources().unwrap();
        assert_eq!(back.pools(), tower.pools());
        assert_eq!(back.devices(), tower.devices());
        assert_eq!(NodeRecord::of(&back), NodeRecord::of(&tower));
        let unknown = String::from_utf8(bytes).unwrap().replace("\"cuda\"", "\"abacus\"");
        let error = wire::decode::<NodeRecord>("k", unknown.as_bytes()).unwrap().resources().unwrap_err();
        assert_eq!(error, "device 'CUDA0' has a backend that is not known: 'abacus'");
    }
}
