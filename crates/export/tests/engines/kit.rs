//! Plans and clusters for exports, out of a number.

use plimsoll_balance::{Objective, Optimality, Plan, PlanValue, Stage, Strategy};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
use plimsoll_units::{Bytes, DeviceId, DeviceRef, Generation, NodeId, PoolId};

/// Numbers that look random and are the same every time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

pub(crate) fn id(node: &str, device: &str) -> DeviceRef {
    DeviceRef { node: NodeId::new(node).unwrap(), device: DeviceId::new(device).unwrap() }
}

fn device(name: &str) -> (Pool, Device) {
    let backend = if name == "host" { GpuBackend::Cpu } else { GpuBackend::Cuda };
    let pool = Pool {
        id: PoolId::new(name).unwrap(),
        total: Bytes::gib(24),
        reserve: None,
        cap: None,
        free: Some(Bytes::gib(23)),
        held: Bytes::ZERO,
    };
    let id = DeviceId::new(name).unwrap();
    let device =
        Device { id, name: None, pool: pool.id.clone(), limit: None, backend, bandwidth: None, uuid: None };
    (pool, device)
}

/// A node with a host and so many cards.
pub(crate) fn node(name: &str, rpc: Option<&str>, cards: usize) -> Node {
    let names = std::iter::once("host".to_owned()).chain((0..cards).map(|n| format!("CUDA{n}")));
    let (pools, devices) = names.map(|name| device(&name)).unzip();
    Node {
        id: NodeId::new(name).unwrap(),
        status: NodeStatus::Active,
        drained: false,
        main: name == "a",
        rpc: rpc.map(str::to_owned),
        pools,
        devices,
    }
}

pub(crate) fn cluster(nodes: Vec<Node>) -> ClusterSnapshot {
    ClusterSnapshot { generation: Generation::FIRST, nodes, links: vec![] }
}

/// Three nodes with four cards each.
pub(crate) fn three() -> ClusterSnapshot {
    cluster(vec![
        node("a", None, 4),
        node("b", Some("10.0.0.7:50052"), 4),
        node("c", Some("10.0.0.8:50052"), 4),
    ])
}

/// `layers` cut into parts at random, none of them empty, for these devices; no more than there are layers.
pub(crate) fn plan(dice: &mut Dice, layers: u32, devices: &[DeviceRef]) -> Plan {
    let count = devices.len().min(usize::try_from(layers).unwrap());
    let mut cuts = std::collections::BTreeSet::from([0, layers]);
    while cuts.len() < count + 1 {
        cuts.insert(u32::try_from(dice.below(u64::from(layers))).unwrap());
    }
    let cuts: Vec<u32> = cuts.into_iter().collect();
    let stages = cuts.windows(2).zip(devices).map(|(cut, device)| Stage {
        pipeline: 0,
        device: device.clone(),
        layers: cut[0]..cut[1],
        input: cut[0] == 0,
        head: cut[1] == layers,
        weights_bytes: Bytes::new(u64::from(cut[1] - cut[0]) * 50_000_017),
        kv_bytes: Bytes::new(u64::from(cut[1] - cut[0]) * 512 * 65_536),
        overhead_bytes: Bytes::gib(1),
        budget_bytes: Bytes::gib(22),
        slack_bytes: Bytes::ZERO,
        seconds: None,
    });
    let value = PlanValue { value: None, lower_bound: None, optimality: Optimality::Unproven };
    Plan {
        overrides: Vec::new(),
        parts: Vec::new(),
        basis: Generation::FIRST,
        objective: Objective::Latency,
        strategy: Strategy::Portfolio,
        stages: stages.collect(),
        value,
        assumed: vec![],
        stopped: vec![],
    }
}

/// The value behind a flag.
pub(crate) fn value<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1)).map(String::as_str)
}

/// The value of a variable in front of a command.
pub(crate) fn variable<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let set = words.iter().skip(1).take_while(|word| word.contains('='));
    set.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}
