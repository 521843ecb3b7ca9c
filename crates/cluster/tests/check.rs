//! What a snapshot must keep.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Link, Node, NodeStatus, Pool};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, Generation, NodeId, PoolId};

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn node(name: &str) -> Node {
    let pool = Pool {
        id: PoolId::new("p").unwrap(),
        total: Bytes::gib(8),
        reserve: None,
        cap: None,
        free: Some(Bytes::gib(8)),
        held: Bytes::ZERO,
    };
    let device = Device {
        id: DeviceId::new("d").unwrap(),
        name: None,
        pool: pool.id.clone(),
        limit: None,
        backend: GpuBackend::Cuda,
        bandwidth: None,
        uuid: None,
    };
    Node {
        id: id(name),
        status: NodeStatus::Active,
        drained: false,
        main: false,
        rpc: None,
        pools: vec![pool],
        devices: vec![device],
    }
}

fn link(a: &str, b: &str) -> Link {
    Link { between: [id(a), id(b)], bandwidth: None, latency: None }
}

fn cluster() -> ClusterSnapshot {
    ClusterSnapshot {
        generation: Generation::FIRST,
        nodes: vec![node("a"), node("b"), node("c")],
        links: vec![link("a", "b"), link("c", "b")],
    }
}

#[test]
fn a_good_snapshot_is_taken_and_every_fault_is_named() {
    assert_eq!(cluster().validate(), Ok(()));
    type Spoil = fn(&mut ClusterSnapshot);
    let faults: [(Spoil, &str); 12] = [
        (|c| c.nodes.swap(0, 1), "node 'a' comes after 'b': nodes are ordered by id, each once"),
        (|c| c.nodes[1] = node("a"), "node 'a' comes after 'a': nodes are ordered by id, each once"),
        (|c| c.nodes.iter_mut().for_each(|n| n.main = true), "nodes 'a' and 'b' are both marked as main"),
        (|c| c.nodes[2].pools = [node("x").pools, node("x").pools].concat(), "node 'c' has two pools 'p'"),
        (
            |c| c.nodes[2].devices = [node("x").devices, node("x").devices].concat(),
            "node 'c' has two devices 'd'",
        ),
        (
            |c| c.nodes[0].devices[0].pool = PoolId::new("q").unwrap(),
            "device 'a/d' draws on the pool 'q', which its node does not have",
        ),
        (
            |c| c.nodes[0].pools[0].free = Some(Bytes::gib(9)),
            "9 GiB of pool 'p' on node 'a' are free, but it has 8 GiB in all",
        ),
        (
            |c| c.nodes[0].devices[0].bandwidth = Some(BytesPerSec::ZERO),
            "device 'a/d' has a bandwidth of 0 bytes in a second",
        ),
        (|c| c.links[1] = link("a", "z"), "a link names the node 'z', which is not in the cluster"),
        (|c| c.links[1] = link("a", "a"), "a link joins the node 'a' with itself"),
        (|c| c.links[1] = link("b", "a"), "nodes 'b' and 'a' have two links"),
        (
            |c| c.links[0].bandwidth = Some(BytesPerSec::ZERO),
            "the link between 'a' and 'b' has a bandwidth of 0 bytes in a second",
        ),
    ];
    for (spoil, said) in faults {
        let mut spoilt = cluster();
        spoil(&mut spoilt);
        assert_eq!(spoilt.validate().unwrap_err().to_string(), said);
    }
}

#[test]
fn links_are_found_from_both_ends() {
    let cluster = cluster();
    assert_eq!(cluster.link(&id("b"), &id("c")), cluster.link(&id("c"), &id("b")));
    assert_eq!(cluster.link(&id("b"), &id("c")), Some(&link("c", "b")));
    assert_eq!(cluster.link(&id("a"), &id("c")), None);
}

#[test]
fn several_marked_nodes_are_named() {
    let mut cluster = cluster();
    cluster.nodes[0].main = true;
    cluster.nodes[2].main = true;
    let said = cluster.main_node().unwrap_err().to_string();
    assert_eq!(said, "nodes 'a' and 'c' are marked as main; one node runs the engine");
    let none = ClusterSnapshot { nodes: Vec::new(), ..cluster };
    assert_eq!(none.main_node().unwrap_err().to_string(), "the cluster has no nodes");
}
