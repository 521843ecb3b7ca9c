//! Small random instances, and what proptest draws.

use std::time::Duration;

use plimsoll_balance::{Charges, EngineRules, HostUse, LayerSpec, StageCharges, Workload};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Link, Pool};
use plimsoll_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{device, footprint, node, node_id, pool, snapshot};

/// A layer: weights, key-value bytes, bytes read, and whether a stage may end behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub(crate) weights: u64,
    pub(crate) kv: u64,
    pub(crate) read: u64,
    pub(crate) cut: bool,
}

/// A device: which pool it draws from, the most of it, how fast it reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dev {
    pub(crate) node: usize,
    pub(crate) pool: usize,
    pub(crate) limit: Option<u64>,
    pub(crate) rate: u64,
    /// Whether its buffers follow the second footprint.
    pub(crate) padded: bool,
}

/// Everything that a plan is computed from, in plain numbers.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) layers: Vec<Layer>,
    /// What every layer takes more in the second footprint.
    pub(crate) padding: u64,
    pub(crate) input: u64,
    pub(crate) head: u64,
    pub(crate) head_beside: u64,
    pub(crate) each_device: u64,
    pub(crate) activation: u64,
    /// The same behind each layer, where it is not the same everywhere.
    pub(crate) boundaries: Option<Vec<u64>>,
    pub(crate) pools: Vec<u64>,
    pub(crate) devices: Vec<Dev>,
    /// Bandwidth and latency between two nodes, by their numbers.
    pub(crate) links: Vec<(usize, usize, u64, u64)>,
    /// The main host as a device, where there is a main node (number 0): pool, limit and rate.
    pub(crate) host: Option<Dev>,
    pub(crate) charges: [u64; 9],
    pub(crate) max_devices: Option<u32>,
}

impl Instance {
    pub(crate) fn rules(&self) -> EngineRules {
        let b = |n: usize| Bytes::new(self.charges[n]);
        EngineRules {
            host: if self.host.is_some() { HostUse::FirstLayersOfMain } else { HostUse::Ordinary },
            max_devices: self.max_devices,
            margin: Bytes::ZERO,
            charges: Charges {
                host: b(0),
                host_alone: b(1),
                alone: b(2),
                split: StageCharges { each: b(3), first_more: b(4), last_more: b(5) },
                partial: StageCharges { each: b(6), first_more: b(7), last_more: b(8) },
            },
        }
    }

    pub(crate) fn workload(&self) -> Workload {
        let specs = |padding: u64| -> Vec<LayerSpec> {
            let one = |(layer, index): (&Layer, u32)| LayerSpec {
                index,
                weights_bytes: Bytes::new(layer.weights + padding),
                kv_bytes: Bytes::new(layer.kv),
                read_bytes: Bytes::new(layer.read),
                num_weights: 0,
                cut_after: layer.cut,
            };
            self.layers.iter().zip(0..).map(one).collect()
        };
        let with_ends = |padding: u64| {
            let mut print = footprint(specs(padding));
            print.input_bytes = Bytes::new(self.input);
            print.head_bytes = Bytes::new(self.head);
            print.head_beside_input_bytes = Bytes::new(self.head_beside);
            print.each_device_bytes = Bytes::new(self.each_device);
            print
        };
        let mut workload = Workload::uniform(with_ends(0));
        workload.footprints.push(with_ends(self.padding));
        workload.by_backend.insert(GpuBackend::Vulkan, 1);
        workload.activation_bytes = Bytes::new(self.activation);
        workload.boundary_bytes =
            self.boundaries.as_ref().map(|told| told.iter().copied().map(Bytes::new).collect());
        workload
    }

    pub(crate) fn snapshot(&self) -> ClusterSnapshot {
        let count = self.devices.iter().map(|d| d.node + 1).max().unwrap_or(0).max(1);
        let mut nodes: Vec<_> = (0..count).map(|n| node(&format!("n{n}"), Vec::new(), Vec::new())).collect();
        for (number, node) in nodes.iter_mut().enumerate().skip(1) {
            node.rpc = self.host.map(|_| format!("10.0.0.{number}:1"));
        }
        let mut place = |id: String, dev: &Dev, backend: GpuBackend| {
            let node = &mut nodes[dev.node];
            let is_ram = self.host.is_some_and(|host| host.pool == dev.pool);
            let pool_id = if is_ram { Pool::RAM.to_owned() } else { format!("p{}", dev.pool) };
            if !node.pools.iter().any(|p| p.id.as_str() == pool_id) {
                node.pools.push(pool(&pool_id, self.pools[dev.pool]));
            }
            let mut made = device(&id, &pool_id, backend, Some(dev.rate));
            made.limit = dev.limit.map(Bytes::new);
            node.devices.push(made);
        };
        if let Some(host) = &self.host {
            place(Device::HOST.to_owned(), host, GpuBackend::Cpu);
        }
        for (number, dev) in self.devices.iter().enumerate() {
            place(format!("d{number}"), dev, if dev.padded { GpuBackend::Vulkan } else { GpuBackend::Cuda });
        }
        let mut snapshot = snapshot(nodes);
        snapshot.links = self
            .links
            .iter()
            .filter(|&&(_, b, _, _)| b < count)
            .map(|&(a, b, rate, latency)| Link {
                between: [node_id(&format!("n{a}")), node_id(&format!("n{b}"))],
                bandwidth: Some(plimsoll_units::BytesPerSec::new(rate)),
                latency: Some(Duration::from_secs(latency)),
            })
            .collect();
        snapshot
    }
}

fn layer() -> impl Strategy<Value = Layer> {
    (0_u64..20, 0_u64..5, 0_u64..20, prop::bool::weighted(0.85)).prop_map(|(weights, kv, read, cut)| Layer {
        weights,
        kv,
        read: read.min(weights),
        cut,
    })
}

fn links() -> impl Strategy<Value = Vec<(usize, usize, u64, u64)>> {
    (vec((1_u64..4, 0_u64..4), 6)).prop_map(|drawn| {
        let pairs = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b)));
        pairs.zip(drawn).map(|((a, b), (rate, latency))| (a, b, rate, latency)).collect()
    })
}

/// Devices without a main host, every one with a pool of its own; `tight` leaves little room.
pub(crate) fn ordinary(max_layers: usize, max_devices: usize) -> impl Strategy<Value = Instance> {
    let devices = vec(
        (0_usize..4, 0_u64..60, 1_u64..6, any::<bool>(), prop::option::weighted(0.2, 0_u64..40)),
        1..=max_devices,
    );
    let ends = (0_u64..4, 0_u64..6, 0_u64..2, 0_u64..3, 0_u64..3);
    let charges = prop::bool::weighted(0.4).prop_flat_map(|any| vec(if any { 0_u64..5 } else { 0..1 }, 9));
    let passing = prop::option::weighted(0.25, vec(0_u64..4, max_layers));
    let limit = prop::option::weighted(0.2, 1_u32..4);
    (vec(layer(), 1..=max_layers), devices, ends, links(), charges, limit, passing).prop_map(
        |(
            layers,
            devices,
            (input, head, each_device, padding, activation),
            links,
            charges,
            max_devices,
            passing,
        )| Instance {
            boundaries: passing.map(|told| told[..layers.len()].to_vec()),
            padding,
            input,
            head,
            head_beside: head / 2,
            each_device,
            activation,
            pools: devices.iter().map(|d| d.1).collect(),
            devices: devices
                .iter()
                .zip(0..)
                .map(|(d, number)| Dev { node: d.0, pool: number, limit: d.4, rate: d.2, padded: d.3 })
                .collect(),
            layers,
            links,
            host: None,
            charges: charges.try_into().expect("nine charges"),
            max_devices,
        },
    )
}

/// A main node with a host, whose pool the first device may share.
pub(crate) fn around_a_host(max_layers: usize, max_devices: usize) -> impl Strategy<Value = Instance> {
    (
        ordinary(max_layers, max_devices),
        0_u64..60,
        1_u64..4,
        any::<bool>(),
        prop::option::weighted(0.2, 0_u64..40),
    )
        .prop_map(|(mut instance, room, rate, unified, limit)| {
            let own = instance.pools.len();
            instance.pools.push(room);
            if unified && let Some(first) = instance.devices.first_mut() {
                first.node = 0;
                first.pool = own;
            }
            instance.host = Some(Dev { node: 0, pool: own, limit, rate, padded: false });
            instance
        })
}

/// The same instances with as many bytes behind every layer.
pub(crate) mod even {
    use proptest::prelude::*;

    use super::Instance;

    fn evened(instance: Instance) -> Instance {
        Instance { boundaries: None, ..instance }
    }

    pub(crate) fn ordinary(max_layers: usize, max_devices: usize) -> impl Strategy<Value = Instance> {
        super::ordinary(max_layers, max_devices).prop_map(evened)
    }

    pub(crate) fn around_a_host(max_layers: usize, max_devices: usize) -> impl Strategy<Value = Instance> {
        super::around_a_host(max_layers, max_devices).prop_map(evened)
    }
}
