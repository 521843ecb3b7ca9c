//! A written cluster file parses back to the same snapshot, and no text makes the parser panic.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use plimsoll_cluster::file::{parse_cluster, write_cluster};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Link, Node, NodeStatus, Pool};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, Generation, NodeId, PoolId};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;

fn amount() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        any::<u64>().prop_map(Bytes::new),
        (0_u32..200).prop_map(Bytes::gib),
        (0_u64..1000).prop_map(Bytes::new)
    ]
}

fn rate() -> impl Strategy<Value = Option<BytesPerSec>> {
    of((1..=u64::MAX).prop_map(BytesPerSec::new))
}

fn pool(id: &'static str) -> impl Strategy<Value = Pool> {
    (amount(), of(amount()), of(amount()), of(any::<u64>())).prop_map(move |(total, reserve, cap, free)| {
        Pool {
            id: PoolId::new(id).unwrap(),
            total,
            reserve,
            cap,
            free: free.map(|free| Bytes::new(free.min(total.get()))),
            held: Bytes::ZERO,
        }
    })
}

type Words = (Option<String>, Option<BytesPerSec>, Option<String>, usize);

fn words() -> impl Strategy<Value = Words> {
    (of("\\PC{0,12}|[\"\\\\\n\t\u{7f}]{1,4}"), rate(), of("[A-Za-z0-9-]{1,20}"), 0..GpuBackend::ALL.len())
}

fn device(
    id: &'static str,
    pool: &Pool,
    limit: Option<Bytes>,
    (name, bandwidth, uuid, backend): Words,
) -> Device {
    Device {
        id: DeviceId::new(id).unwrap(),
        name,
        pool: pool.id.clone(),
        limit: limit.map(|limit| limit.min(pool.total)),
        backend: GpuBackend::ALL[backend],
        bandwidth,
        uuid,
    }
}

/// A node as files describe them: the host, devices with memory of their own, and devices that share.
fn node() -> impl Strategy<Value = Node> {
    const OWN: [&str; 3] = ["CUDA0", "zz", "gpu0"];
    const SHARED: [&str; 3] = ["gtt", "aa", "CUDA1"];
    let own = vec((pool("x"), words()), 0..=3);
    let shared = vec((any::<prop::sample::Index>(), of(amount()), words()), 0..=3);
    let ram = of((pool("ram"), rate()));
    (ram, own, shared, any::<bool>(), of(1_u16..)).prop_map(|(ram, own, shared, drained, port)| {
        let mut node = Node {
            id: NodeId::new("x").unwrap(),
            status: NodeStatus::Active,
            drained,
            main: false,
            rpc: port.map(|port| format!("10.0.0.7:{port}")),
            pools: Vec::new(),
            devices: Vec::new(),
        };
        if let Some((ram, bandwidth)) = ram {
            node.devices.push(device("host", &ram, None, (None, bandwidth, None, 6)));
            node.pools.push(ram);
        }
        for (id, (mut pool, mut words)) in OWN.into_iter().zip(own) {
            // A processor draws on the host's memory.
            words.3 %= 6;
            pool.id = PoolId::new(id).unwrap();
            node.devices.push(device(id, &pool, None, words));
            node.pools.push(pool);
        }
        for (id, (which, limit, mut words)) in SHARED.into_iter().zip(shared) {
            if node.pools.is_empty() {
                break;
            }
            let pool = which.get(&node.pools).clone();
            // One with a rate of its own: else a processor takes the host's.
            words.1 = words.1.or(Some(BytesPerSec::new(1)));
            node.devices.push(device(id, &pool, limit, words));
        }
        node
    })
}

fn cluster() -> impl Strategy<Value = ClusterSnapshot> {
    let nodes = btree_map("[a-z]{1,3}", node(), 1..5);
    let links =
        vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), rate(), of(any::<u64>())), 0..4);
    (nodes, links, of(any::<prop::sample::Index>())).prop_map(|(nodes, links, main)| {
        let mut nodes: Vec<Node> =
            nodes.into_iter().map(|(id, node)| Node { id: NodeId::new(id).unwrap(), ..node }).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.rpc = node.rpc.take().map(|rpc| rpc.replace("10.0.0.7", &format!("10.0.0.{index}")));
        }
        if let Some(main) = main {
            let index = main.index(nodes.len());
            nodes[index].main = true;
        }
        let mut joined = std::collections::BTreeMap::new();
        for (a, b, bandwidth, nanos) in links {
            let (a, b) = (a.get(&nodes).id.clone(), b.get(&nodes).id.clone());
            if a != b {
                let between = if a < b { [a, b] } else { [b, a] };
                let latency = nanos.map(Duration::from_nanos);
                joined.insert(between.clone(), Link { between, bandwidth, latency });
            }
        }
        let mut cluster =
            ClusterSnapshot { generation: Generation::FIRST, nodes, links: joined.into_values().collect() };
        // A file marks the node that runs the engine where it can be told.
        let main = cluster.main_node().ok().map(|n| n.id.clone());
        cluster.nodes.iter_mut().for_each(|n| n.main = main.as_ref() == Some(&n.id));
        cluster
    })
}

proptest! {
    #[test]
    fn what_is_written_comes_back(cluster in cluster()) {
        cluster.validate().unwrap();
        let text = write_cluster(&cluster);
        match parse_cluster(&text) {
            Ok(file) => prop_assert_eq!(file.snapshot, cluster, "{}", text),
            Err(error) => prop_assert!(false, "{error}\n{text}"),
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
        let _ = parse_cluster(&text);
    }

    #[test]
    fn no_mixture_of_keys_makes_the_parser_panic_and_what_is_taken_is_valid(nodes in vec(block(), 1..4)) {
        let mut text = String::new();
        for (id, (node, devices)) in ["a", "b", "c"].into_iter().zip(nodes) {
            text += &format!("[[node]]\nid = '{id}'\n{}\n", node.join("\n"));
            for (id, device) in devices {
                text += &format!("[[node.device]]\nid = '{id}'\n{}\n", device.join("\n"));
            }
        }
        if let Ok(file) = parse_cluster(&text) {
            file.snapshot.validate().unwrap();
            let again = parse_cluster(&write_cluster(&file.snapshot)).unwrap();
            prop_assert_eq!(again, file);
        }
    }
}

type Keys = Vec<&'static str>;

/// A node with some keys, and devices with some keys.
fn block() -> impl Strategy<Value = (Keys, Vec<(&'static str, Keys)>)> {
    let some = |keys: &'static [&'static str]| prop::sample::subsequence(keys, 0..=4);
    let id = prop::sample::select(&["CUDA0", "CPU", "gpu0", "gtt"][..]);
    let memory = any::<bool>();
    let device = (id, some(DEVICE), memory).prop_map(|(id, mut keys, memory)| {
        keys.extend(memory.then_some("memory = '3GiB'"));
        (id, keys)
    });
    (some(NODE), memory, vec(device, 0..3)).prop_map(|(mut keys, memory, devices)| {
        keys.extend(memory.then_some("memory = '4GiB'"));
        (keys, devices)
    })
}

const NODE: &[&str] = &[
    "memory_free = '1GiB'",
    "memory_bandwidth = 9",
    "memory_cap = '9GiB'",
    "unified = true",
    "gpu_limit = '1GiB'",
    "reserve = 1",
    "main = false",
    "drain = true",
];

const DEVICE: &[&str] = &[
    "free = 7",
    "cap = '2GiB'",
    "pool = 'ram'",
    "pool = 'CUDA0'",
    "gtt = '9GiB'",
    "backend = 'vulkan'",
    "backend = 'cpu'",
    "reserve = 1",
    "bandwidth = '1GB/s'",
    "uuid = 'x'",
];
