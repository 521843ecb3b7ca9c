//! One `[[node]]` of a cluster file.

use std::collections::BTreeMap;

use plimsoll_profile::GpuBackend;
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, PoolId};

use super::problem::{Fault, Problem, line_of};
use super::table::{At, Table};
use crate::snapshot::{host_device, ram};
use crate::{Device, Node, NodeStatus, Pool};

pub(super) const NODE_KEYS: &[&str] = &[
    "id",
    "memory",
    "memory_free",
    "memory_bandwidth",
    "memory_cap",
    "reserve",
    "unified",
    "gpu_limit",
    "drain",
    "rpc",
    "main",
    "device",
];

const DEVICE_KEYS: &[&str] =
    &["id", "name", "memory", "free", "cap", "reserve", "bandwidth", "backend", "uuid", "pool", "gtt"];

/// The GPU of a unified node that lists none.
const UNIFIED_GPU: &str = "gpu0";

/// The device for the part of a host's memory that an APU reaches beside its carve-out.
const GTT: &str = "gtt";

pub(super) fn read_node(table: &Table<'_, '_>, reserve: Option<Bytes>, text: &str) -> Result<Node, Fault> {
    let Some(id) = table.id("id")? else { return Err(table.missing("id")) };
    let mut reader = NodeReader {
        table,
        reserve,
        unified: table.flag("unified")?,
        bandwidth: table.rate("memory_bandwidth")?,
        node: Node {
            id: id.value,
            status: NodeStatus::Active,
            drained: table.flag("drain")?,
            main: table.flag("main")?,
            rpc: read_address(table)?,
            pools: Vec::new(),
            devices: Vec::new(),
        },
    };
    reader.read_memory()?;
    reader.read_devices(text)?;
    Ok(reader.node)
}

struct NodeReader<'r, 't, 'i> {
    table: &'r Table<'t, 'i>,
    /// The file's default.
    reserve: Option<Bytes>,
    unified: bool,
    /// How fast the host reads its memory.
    bandwidth: Option<BytesPerSec>,
    node: Node,
}

impl NodeReader<'_, '_, '_> {
    /// The pool `ram` and the device `host`, where the node has `memory`.
    fn read_memory(&mut self) -> Result<(), Fault> {
        let table = self.table;
        let Some(total) = table.bytes("memory")? else {
            let mut needy = vec!["memory_free", "memory_bandwidth", "memory_cap", "reserve"];
            if self.unified {
                needy.extend(["unified", "gpu_limit"]);
            }
            return match table.first_of(&needy) {
                None => Ok(()),
                Some(At { at, value: key }) => {
                    Err(Fault::new(at, Problem::NeedsMemory { key, table: table.name.clone() }))
                }
            };
        };
        self.node.pools.push(Pool {
            id: ram(),
            total,
            reserve: table.bytes("reserve")?.or(self.reserve),
            cap: table.bytes("memory_cap")?,
            free: table.free("memory_free", total)?,
            held: Bytes::ZERO,
        });
        self.node.devices.push(host_device(self.bandwidth));
        Ok(())
    }

    fn ram_total(&self) -> Option<Bytes> {
        self.node.pools.iter().find(|p| p.id.as_str() == Pool::RAM).map(|p| p.total)
    }

    fn read_devices(&mut self, text: &str) -> Result<(), Fault> {
        let owner = self.table.name.clone();
        let tables = self.table.tables("device", DEVICE_KEYS, |index, id| match id {
            Some(id) => format!("device '{}' of {owner}", id.escape_debug()),
            None => format!("[[node.device]] number {} of {owner}", index + 1),
        })?;
        let gpu_limit = self.table.bytes("gpu_limit")?;
        if gpu_limit.is_some() && !self.unified {
            let problem = Problem::LimitWithoutUnified { table: owner };
            return Err(Fault::new(self.table.place("gpu_limit"), problem));
        }
        let mut places: BTreeMap<DeviceId, usize> = BTreeMap::new();
        let mut shares: Vec<(usize, usize)> = Vec::new();
        let mut gpu: Option<String> = None;
        for (index, table) in tables.iter().enumerate() {
            let id = self.device_id(table)?;
            let backend = self.backend(table, &id.value)?;
            if self.unified && backend != GpuBackend::Cpu {
                self.one_gpu(table, &mut gpu, &id)?;
            }
            let from = self.node.devices.len();
            self.read_device(table, id.value, backend, gpu_limit)?;
            for (offset, device) in self.node.devices[from..].iter().enumerate() {
                let at = table.place(if offset == 0 { "id" } else { "gtt" });
                if let Some(first) = places.insert(device.id.clone(), at) {
                    let (id, node) = (device.id.to_string(), self.node.id.to_string());
                    let problem = Problem::DeviceTwice { id, node, first: line_of(text, first) };
                    return Err(Fault::new(at, problem));
                }
            }
            shares.push((from, index));
        }
        for (device, index) in shares {
            self.settle_pool(&tables[index], device)?;
        }
        if self.unified && gpu.is_none() {
            if let Some(&at) = places.get(UNIFIED_GPU) {
                // A processor of that name would stand beside the GPU that every unified node has.
                let node = self.node.id.to_string();
                return Err(Fault::new(at, Problem::TakenByGpu { id: UNIFIED_GPU, node, instead: "cpu0" }));
            }
            self.add_unified_gpu(gpu_limit);
        }
        Ok(())
    }

    fn device_id(&self, table: &Table<'_, '_>) -> Result<At<DeviceId>, Fault> {
        let node = || self.node.id.to_string();
        let id = match table.id("id")? {
            Some(id) => id,
            None if self.unified => At { at: table.at, value: known_id(UNIFIED_GPU) },
            None => return Err(table.missing("id")),
        };
        match id.value.as_str() {
            Device::HOST => {
                Err(Fault::new(id.at, Problem::Taken { id: Device::HOST, node: node(), instead: "cpu0" }))
            }
            Pool::RAM => {
                Err(Fault::new(id.at, Problem::Taken { id: Pool::RAM, node: node(), instead: "gpu0" }))
            }
            _ => Ok(id),
        }
    }

    fn one_gpu(
        &self,
        table: &Table<'_, '_>,
        gpu: &mut Option<String>,
        id: &At<DeviceId>,
    ) -> Result<(), Fault> {
        let second = id.value.to_string();
        match gpu.replace(second.clone()) {
            None => Ok(()),
            Some(first) => {
                let problem = Problem::TwoUnifiedGpus { table: self.table.name.clone(), first, second };
                Err(Fault::new(table.place("id"), problem))
            }
        }
    }

    fn backend(&self, table: &Table<'_, '_>, id: &DeviceId) -> Result<GpuBackend, Fault> {
        match table.text("backend")? {
            Some(At { at, value }) => value
                .parse()
                .map_err(|why| Fault::new(at, Problem::Backend { table: table.name.clone(), why })),
            None => Ok(backend_of(id.as_str()).unwrap_or(if self.unified {
                GpuBackend::Metal
            } else {
                GpuBackend::Cuda
            })),
        }
    }

    /// Adds the device and, where it has memory of its own, its pool; with `gtt` also the device beside it.
    fn read_device(
        &mut self,
        table: &Table<'_, '_>,
        id: DeviceId,
        backend: GpuBackend,
        gpu_limit: Option<Bytes>,
    ) -> Result<(), Fault> {
        let is_cpu = backend == GpuBackend::Cpu;
        let unified_gpu = self.unified && !is_cpu;
        let named_pool = table.id::<PoolId>("pool")?;
        let memory = table.bytes("memory")?;
        let cap = table.bytes("cap")?;
        let shared = match named_pool {
            Some(pool) => Some(pool.value),
            None if unified_gpu => Some(ram()),
            None if is_cpu && self.ram_total().is_some() => Some(ram()),
            None => None,
        };
        let (pool, limit) = match shared {
            Some(pool) => {
                if let Some(At { at, value: key }) = table.first_of(&["free", "reserve"]) {
                    let (table, pool) = (table.name.clone(), pool.to_string());
                    return Err(Fault::new(at, Problem::OfThePool { key, table, pool }));
                }
                let share = gpu_limit.filter(|_| unified_gpu);
                (pool, [memory, cap, share].into_iter().flatten().min())
            }
            None => {
                let Some(total) = memory else { return Err(table.missing("memory")) };
                let pool = if is_cpu { ram() } else { pool_named(&id) };
                self.node.pools.push(Pool {
                    id: pool.clone(),
                    total,
                    reserve: table.bytes("reserve")?.or(self.reserve),
                    cap,
                    free: table.free("free", total)?,
                    held: Bytes::ZERO,
                });
                (pool, None)
            }
        };
        let bandwidth = table.rate("bandwidth")?.or(self.bandwidth.filter(|_| unified_gpu || is_cpu));
        let name = table.text("name")?.map(|t| t.value.to_owned());
        let uuid = table.text("uuid")?.map(|t| t.value.to_owned());
        self.node.devices.push(Device { id, name: name.clone(), pool, limit, backend, bandwidth, uuid });
        self.read_gtt(table, name, backend)
    }

    /// The part of the host's memory that an APU reaches beside its carve-out.
    fn read_gtt(
        &mut self,
        table: &Table<'_, '_>,
        name: Option<String>,
        backend: GpuBackend,
    ) -> Result<(), Fault> {
        let Some(gtt) = table.bytes("gtt")? else { return Ok(()) };
        let at = table.place("gtt");
        let Some(total) = self.ram_total() else {
            return Err(Fault::new(at, Problem::NeedsMemory { key: "gtt", table: table.name.clone() }));
        };
        let carve_out = self.node.devices.last().map(|d| d.pool.as_str()).filter(|pool| *pool != Pool::RAM);
        if carve_out.is_none() {
            return Err(Fault::new(at, Problem::NoCarveOut { table: table.name.clone() }));
        }
        self.node.devices.push(Device {
            id: known_id(GTT),
            name,
            pool: ram(),
            limit: Some(gtt.min(total)),
            backend,
            bandwidth: self.bandwidth,
            uuid: None,
        });
        Ok(())
    }

    /// Finds the pool that a device names and holds its limit within it.
    fn settle_pool(&mut self, table: &Table<'_, '_>, index: usize) -> Result<(), Fault> {
        let Some(device) = self.node.devices.get_mut(index) else { return Ok(()) };
        match self.node.pools.iter().find(|p| p.id == device.pool) {
            Some(pool) => {
                device.limit = device.limit.map(|limit| limit.min(pool.total));
                Ok(())
            }
            None => {
                let known: Vec<String> = self.node.pools.iter().map(|p| format!("'{}'", p.id)).collect();
                let problem = Problem::UnknownPool {
                    table: table.name.clone(),
                    pool: device.pool.to_string(),
                    node: self.node.id.to_string(),
                    known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
                };
                Err(Fault::new(table.place("pool"), problem))
            }
        }
    }

    fn add_unified_gpu(&mut self, gpu_limit: Option<Bytes>) {
        let total = self.ram_total();
        self.node.devices.push(Device {
            id: known_id(UNIFIED_GPU),
            name: None,
            pool: ram(),
            limit: gpu_limit.map(|limit| limit.min(total.unwrap_or(limit))),
            backend: GpuBackend::Metal,
            bandwidth: self.bandwidth,
            uuid: None,
        });
    }
}

/// The backend that an engine's own device name tells.
fn backend_of(id: &str) -> Option<GpuBackend> {
    let id = id.to_ascii_lowercase();
    let known = [
        ("cuda", GpuBackend::Cuda),
        ("rocm", GpuBackend::Rocm),
        ("hip", GpuBackend::Rocm),
        ("vulkan", GpuBackend::Vulkan),
        ("metal", GpuBackend::Metal),
        ("mtl", GpuBackend::Metal),
        ("cpu", GpuBackend::Cpu),
        ("npu", GpuBackend::Npu),
    ];
    known.into_iter().find(|(prefix, _)| id.starts_with(prefix)).map(|(_, backend)| backend)
}

fn known_id(id: &'static str) -> DeviceId {
    DeviceId::new(id).expect("a literal of letters and digits is a device id")
}

fn pool_named(id: &DeviceId) -> PoolId {
    PoolId::new(id.as_str()).expect("pools and devices follow the same rule for names")
}

/// `host:port`; an IPv6 host stands in brackets.
fn read_address(table: &Table<'_, '_>) -> Result<Option<String>, Fault> {
    let Some(At { at, value }) = table.text("rpc")? else { return Ok(None) };
    match check_address(value) {
        Ok(()) => Ok(Some(value.to_owned())),
        Err(why) => {
            let (table, value) = (table.name.clone(), value.escape_debug().to_string());
            Err(Fault::new(at, Problem::Address { table, value, why }))
        }
    }
}

fn check_address(address: &str) -> Result<(), &'static str> {
    let (host, port) = address.rsplit_once(':').ok_or("it has no port")?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return Err("an IPv6 address stands in brackets before its port");
    }
    if bare.unwrap_or(host).is_empty() {
        return Err("it has no host");
    }
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, ',' | '=' | '"' | '\'' | '/');
    if host.contains(bad) {
        return Err("its host holds a character that no address has");
    }
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(1..) if digits => Ok(()),
        _ => Err("its port is not a number from 1 to 65535"),
    }
}
