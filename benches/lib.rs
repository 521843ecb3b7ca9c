//! Inputs that the benches share: seeded, so that every run measures the same.

use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
use plimsoll_model::{Footprint, LayerSpec, ResolvedContext};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, Generation, NodeId, PoolId};

/// How many different instances every bench cycles through: one repeated input would train the branch predictor.
pub const INSTANCES: u64 = 32;

/// What cards hold, in GB, and how fast they read, in GB/s.
const CARDS: [(u64, u64); 8] =
    [(8, 272), (12, 360), (16, 448), (24, 936), (24, 1008), (32, 1792), (48, 960), (80, 2039)];

/// Numbers that look drawn and are always the same (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// Layers and devices of one instance.
#[derive(Debug)]
pub struct Instance {
    /// The layers, in order.
    pub layers: Vec<LayerSpec>,
    /// What the devices hold, in the order drawn.
    pub budgets: Vec<Bytes>,
    /// How fast they read.
    pub rates: Vec<BytesPerSec>,
}

impl Instance {
    /// `layers` layers on `devices` devices which hold 1.6 times as much as there is.
    pub fn new(seed: u64, layers: u32, devices: u32) -> Self {
        Self::tight(seed, layers, devices, 160)
    }

    /// The same where they hold so many per cent of what there is.
    pub fn tight(seed: u64, layers: u32, devices: u32, percent: u64) -> Self {
        let mut random = Random::new(seed);
        let cards: Vec<(u64, u64)> =
            (0..devices).map(|_| CARDS[usize::try_from(random.below(8)).unwrap_or(0)]).collect();
        let total: u64 = cards.iter().map(|card| card.0 * 1_000_000_000).sum();
        let mean = total / percent.max(1) * 100 / u64::from(layers.max(1));
        let size = |random: &mut Random| Bytes::new(mean * (50 + random.below(101)) / 100);
        Self {
            layers: (0..layers).map(|index| LayerSpec::of_weights(index, size(&mut random))).collect(),
            budgets: cards.iter().map(|card| Bytes::new(card.0 * 1_000_000_000)).collect(),
            rates: cards.iter().map(|card| BytesPerSec::new(card.1 * 1_000_000_000)).collect(),
        }
    }

    /// The same with so much room that filling the largest devices first is enough: with a layer or so to a device, most of
    /// what the small ones hold is lost.
    pub fn roomy(seed: u64, layers: u32, devices: u32) -> Self {
        Self::tight(seed, layers, devices, if layers / 4 < devices { 250 } else { 160 })
    }

    /// Its budgets, the largest first.
    pub fn largest_first(&self) -> Vec<Bytes> {
        let mut budgets = self.budgets.clone();
        budgets.sort_unstable_by(|a, b| b.cmp(a));
        budgets
    }

    /// Its devices as a cluster, two to a node.
    ///
    /// # Errors
    ///
    /// None for the names used here.
    pub fn snapshot(&self) -> Result<ClusterSnapshot, plimsoll_units::IdError> {
        let mut nodes: Vec<Node> = Vec::new();
        for (number, (&bytes, &rate)) in self.budgets.iter().zip(&self.rates).enumerate() {
            if number % 2 == 0 {
                nodes.push(Node {
                    id: NodeId::new(format!("n{number:05}"))?,
                    status: NodeStatus::Active,
                    drained: false,
                    main: false,
                    rpc: None,
                    pools: Vec::new(),
                    devices: Vec::new(),
                });
            }
            let Some(node) = nodes.last_mut() else { continue };
            let name = format!("CUDA{}", number % 2);
            node.devices.push(device(&name, &name, GpuBackend::Cuda, rate)?);
            node.pools.push(pool(PoolId::new(name)?, bytes));
        }
        Ok(ClusterSnapshot { generation: Generation::FIRST, nodes, links: Vec::new() })
    }

    /// The same with a fraction of the memory.
    pub fn with_less_room(mut self, divisor: u64) -> Self {
        for budget in &mut self.budgets {
            *budget = Bytes::new(budget.get() / divisor.max(1));
        }
        self
    }

    /// Its devices on one machine whose host has 512 GiB at 80 GB/s.
    ///
    /// # Errors
    ///
    /// None for the names used here.
    pub fn tower(&self) -> Result<ClusterSnapshot, plimsoll_units::IdError> {
        let memory = Bytes::gib(512);
        let mut tower = Node {
            id: NodeId::new("tower")?,
            status: NodeStatus::Active,
            drained: false,
            main: true,
            rpc: None,
            pools: vec![pool(PoolId::new(Pool::RAM)?, memory)],
            devices: vec![device(
                Device::HOST,
                Pool::RAM,
                GpuBackend::Cpu,
                BytesPerSec::new(80_000_000_000),
            )?],
        };
        for (number, (&bytes, &rate)) in self.budgets.iter().zip(&self.rates).enumerate() {
            let name = format!("CUDA{number}");
            tower.pools.push(pool(PoolId::new(name.as_str())?, bytes));
            tower.devices.push(device(&name, &name, GpuBackend::Cuda, rate)?);
        }
        Ok(ClusterSnapshot { generation: Generation::FIRST, nodes: vec![tower], links: Vec::new() })
    }

    /// Its layers as a model.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            layers: self.layers.clone(),
            input_bytes: Bytes::ZERO,
            head_bytes: Bytes::ZERO,
            head_beside_input_bytes: Bytes::ZERO,
            each_device_bytes: Bytes::ZERO,
            nextn: 0,
            context: ResolvedContext { total: 4096, per_sequence: 4096, streams: 1 },
        }
    }
}

fn pool(id: PoolId, total: Bytes) -> Pool {
    Pool { id, total, reserve: None, cap: None, free: Some(total), held: Bytes::ZERO }
}

fn device(
    id: &str,
    pool: &str,
    backend: GpuBackend,
    rate: BytesPerSec,
) -> Result<Device, plimsoll_units::IdError> {
    Ok(Device {
        id: DeviceId::new(id)?,
        name: None,
        pool: PoolId::new(pool)?,
        limit: None,
        backend,
        bandwidth: Some(rate),
        uuid: None,
    })
}
