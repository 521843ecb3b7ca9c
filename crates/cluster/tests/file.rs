//! What a cluster file says, and what it may not say.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_cluster::file::{parse_cluster, read_cluster};
use plimsoll_units::Bytes;

/// One line a node, pool, device and link.
fn shown(cluster: &ClusterSnapshot) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let bytes = |b: Option<Bytes>| or_dash(b.map(|b| b.exact().to_string()));
    let mut out = format!("generation {}\n", cluster.generation);
    for node in &cluster.nodes {
        let mark = |on: bool, word: &'static str| if on { word } else { "" };
        let rpc = node.rpc.as_deref().map(|r| format!(" rpc {r}")).unwrap_or_default();
        let (main, drained) = (mark(node.main, " main"), mark(node.drained, " drained"));
        writeln!(out, "node {}{main}{drained}{rpc}", node.id).unwrap();
        for pool in &node.pools {
            let (total, free) = (pool.total.exact(), bytes(pool.free));
            let (reserve, cap) = (bytes(pool.reserve), bytes(pool.cap));
            writeln!(out, "  pool {}: {total}, free {free}, reserve {reserve}, cap {cap}", pool.id).unwrap();
        }
        for d in &node.devices {
            let rate = or_dash(d.bandwidth.map(|b| b.to_string()));
            let name = d.name.as_deref().map(|n| format!(" ({n})")).unwrap_or_default();
            let uuid = d.uuid.as_deref().map(|u| format!(" {u}")).unwrap_or_default();
            let limit = bytes(d.limit);
            writeln!(out, "  {}{name}: {} on {}, limit {limit}, {rate}{uuid}", d.id, d.backend, d.pool)
                .unwrap();
        }
    }
    for link in &cluster.links {
        let [a, b] = &link.between;
        let rate = or_dash(link.bandwidth.map(|b| b.to_string()));
        writeln!(out, "link {a} {b}: {rate}, {}", or_dash(link.latency.map(|l| format!("{l:?}")))).unwrap();
    }
    out
}

fn check(text: &str, expected: Expect) {
    match parse_cluster(text) {
        Ok(file) => {
            file.snapshot.validate().unwrap();
            expected.assert_eq(&shown(&file.snapshot));
        }
        Err(error) => expected.assert_eq(&format!("{error}\n")),
    }
}

/// `text` is refused with `message`.
fn refuses(text: &str, message: &str) {
    let said = parse_cluster(text).map(|file| shown(&file.snapshot)).unwrap_err().to_string();
    assert_eq!(said, message, "for\n{text}");
}

#[test]
fn a_file_with_everything_becomes_a_snapshot() {
    check(
        r#"
        [defaults]
        reserve = "1GiB"

        [[node]]
        id = "tower"
        memory = "64GiB"
        memory_free = "50GiB"
        memory_bandwidth = "80GB/s"
        [[node.device]]
        id = "CUDA0"
        name = "RTX 4090"
        memory = "24GiB"
        free = "22.5GiB"
        cap = "20GiB"
        bandwidth = "1008GB/s"
        backend = "cuda"
        uuid = "GPU-1"
        [[node.device]]
        id = "CUDA1"
        memory = 8000000000
        free = "unknown"
        reserve = 0

        [[node]]
        id = "mac"
        memory = "64GiB"
        unified = true
        drain = true
        gpu_limit = "48GiB"
        rpc = "10.0.0.7:50052"

        [[link]]
        between = ["tower", "mac"]
        bandwidth = "10Gbit/s"
        latency = "200us"
        "#,
        expect![[r#"
            generation 1
            node mac drained rpc 10.0.0.7:50052
              pool ram: 64 GiB, free 64 GiB, reserve 1 GiB, cap -
              host: cpu on ram, limit -, -
              gpu0: metal on ram, limit 48 GiB, -
            node tower main
              pool ram: 64 GiB, free 50 GiB, reserve 1 GiB, cap -
              pool CUDA0: 24 GiB, free 23040 MiB, reserve 1 GiB, cap 20 GiB
              pool CUDA1: 8 GB, free -, reserve 0 B, cap -
              host: cpu on ram, limit -, 80 GB/s
              CUDA0 (RTX 4090): cuda on CUDA0, limit -, 1.008 TB/s GPU-1
              CUDA1: cuda on CUDA1, limit -, -
            link mac tower: 1.25 GB/s, 200µs
        "#]],
    );
}

#[test]
fn the_gpu_of_a_unified_node_draws_on_its_ram() {
    check(
        r#"
        node = [
            { id = "spark", memory = "120GiB", memory_bandwidth = "273GB/s", unified = true, rpc = "[::1]:1", device = [
                { id = "CUDA0", backend = "cuda", uuid = "GPU-2" } ] },
            { id = "mac", memory = "16GiB", unified = true, gpu_limit = "90GiB", device = [ { cap = "12GiB" } ] },
            { id = "box", unified = false, rpc = "box:2" },
        ]
        "#,
        expect![[r#"
            generation 1
            node box rpc box:2
            node mac main
              pool ram: 16 GiB, free 16 GiB, reserve -, cap -
              host: cpu on ram, limit -, -
              gpu0: metal on ram, limit 12 GiB, -
            node spark rpc [::1]:1
              pool ram: 120 GiB, free 120 GiB, reserve -, cap -
              host: cpu on ram, limit -, 273 GB/s
              CUDA0: cuda on ram, limit -, 273 GB/s GPU-2
        "#]],
    );
}

#[test]
fn an_apu_with_a_carve_out_has_two_devices_and_its_memory_counts_once() {
    // 8 GiB are set apart for the graphics part; the driver would let it reach 124 GiB of a memory that has 120 left.
    check(
        r#"
        [[node]]
        id = "apu"
        memory = "120GiB"
        memory_bandwidth = "256GB/s"
        [[node.device]]
        id = "gpu0"
        memory = 8589934592
        gtt = 133143986176
        backend = "vulkan"
        "#,
        expect![[r#"
            generation 1
            node apu main
              pool ram: 120 GiB, free 120 GiB, reserve -, cap -
              pool gpu0: 8 GiB, free 8 GiB, reserve -, cap -
              host: cpu on ram, limit -, 256 GB/s
              gpu0: vulkan on gpu0, limit -, -
              gtt: vulkan on ram, limit 120 GiB, 256 GB/s
        "#]],
    );
}

#[test]
fn a_listed_processor_stands_beside_the_host_on_the_same_memory() {
    let text = r#"
        [[node]]
        id = "far"
        memory = "32GiB"
        rpc = "far:50052"
        [[node.device]]
        id = "CPU"
        [[node]]
        id = "bare"
        rpc = "bare:50052"
        [[node.device]]
        id = "CPU"
        memory = "16GiB"
        free = "10GiB"
        cap = "9GiB"
        [[node]]
        id = "near"
        memory = 0
        [[node.device]]
        id = "half"
        memory = "8GiB"
        backend = "rocm"
        [[node.device]]
        id = "other-half"
        backend = "vulkan"
        pool = "half"
        memory = "99GiB"
        "#;
    check(
        text,
        expect![[r#"
            generation 1
            node bare rpc bare:50052
              pool ram: 16 GiB, free 10 GiB, reserve -, cap 9 GiB
              CPU: cpu on ram, limit -, -
            node far rpc far:50052
              pool ram: 32 GiB, free 32 GiB, reserve -, cap -
              host: cpu on ram, limit -, -
              CPU: cpu on ram, limit -, -
            node near main
              pool ram: 0 B, free 0 B, reserve -, cap -
              pool half: 8 GiB, free 8 GiB, reserve -, cap -
              host: cpu on ram, limit -, -
              half: rocm on half, limit -, -
              other-half: vulkan on half, limit 8 GiB, -
        "#]],
    );
    let cluster = parse_cluster(text).unwrap().snapshot;
    let listed = |index: usize| cluster.nodes[index].listed_cpu().map(|d| d.id.as_str());
    assert_eq!([listed(0), listed(1), listed(2)], [Some("CPU"), Some("CPU"), None]);
    assert!(cluster.nodes[0].host().is_none());
    assert_eq!(cluster.nodes[1].host().map(|d| d.pool.as_str()), Some("ram"));
}

#[test]
fn the_main_node_is_the_marked_one_or_the_one_without_an_address() {
    let main = |text: &str| {
        let cluster = parse_cluster(text).unwrap().snapshot;
        let marked: Vec<String> = cluster.nodes.iter().filter(|n| n.main).map(|n| n.id.to_string()).collect();
        match cluster.main_node() {
            Ok(node) => {
                assert_eq!(marked, [node.id.to_string()]);
                node.id.to_string()
            }
            Err(error) => {
                assert!(marked.is_empty());
                error.to_string()
            }
        }
    };
    assert_eq!(main("node = [{ id = 'a' }, { id = 'b', rpc = 'b:1' }]"), "a");
    assert_eq!(main("node = [{ id = 'a' }, { id = 'b', rpc = 'b:1', main = true }]"), "b");
    assert_eq!(main("node = [{ id = 'a' }, { id = 'b' }, { id = 'c', main = true }]"), "c");
    assert_eq!(main("node = [{ id = 'a', rpc = 'a:1' }]"), "a");
    assert_eq!(
        main("node = [{ id = 'c' }, { id = 'a', main = false }, { id = 'b' }, { id = 'd', rpc = 'd:1' }]"),
        "nodes 'a', 'b' and 'c' could each run the engine: mark one with main = true, or give the others their rpc \
         address"
    );
    assert_eq!(
        main("node = [{ id = 'a', rpc = 'a:1' }, { id = 'b', rpc = 'b:1' }]"),
        "all 2 nodes have an rpc address and none is marked main = true: which one runs the engine?"
    );
}

#[test]
fn unknown_keys_are_named_with_their_line() {
    refuses("\n\nnodes = 1", "line 3: unknown key 'nodes' in the file; known are defaults, node, link");
    refuses(
        "[defaults]\nreserve = 1\nmargin = 2",
        "line 3: unknown key 'margin' in [defaults]; known are reserve",
    );
    refuses(
        "[[node]]\nid = 'a'\n[[node.device]]\nid = 'g'\nmemory = 1\nfre = 1",
        "line 6: unknown key 'fre' in device 'g' of node 'a'; known are id, name, memory, free, cap, reserve, \
         bandwidth, backend, uuid, pool, gtt",
    );
    refuses(
        "[[node]]\nid = 'a'\nzeta = 1\nalpha = 1",
        "line 3: unknown key 'zeta' in node 'a'; known are id, memory, memory_free, memory_bandwidth, memory_cap, \
         reserve, unified, gpu_limit, drain, rpc, main, device",
    );
    refuses(
        "[[node]]\nid = 'a'\n[[link]]\nspeed = 1",
        "line 4: unknown key 'speed' in [[link]] number 1; known are between, bandwidth, latency",
    );
}

#[test]
fn values_of_the_wrong_kind_are_named_with_their_line() {
    for (text, message) in [
        (
            "[[node]]\nid = \"a\\u001b[2J\"\n\"b\\n\" = 1",
            "line 3: unknown key 'b\\n' in node 'a\\u{1b}[2J'; known are id, memory, memory_free, memory_bandwidth, \
             memory_cap, reserve, unified, gpu_limit, drain, rpc, main, device",
        ),
        ("x", "line 1: not valid TOML: key with no value, expected `=`"),
        ("[[node]]\nid = 'a'\nid = 'b'", "line 3: not valid TOML: duplicate key"),
        ("", "line 1: the cluster file has no [[node]]"),
        ("node = 1", "line 1: 'node' in the file is a whole number; expected a list of tables"),
        ("node = [1]", "line 1: 'node' in the file is a whole number; expected a list of tables"),
        ("defaults = 1", "line 1: 'defaults' in the file is a whole number; expected a table"),
        ("[[node]]\n\nmemory = 1", "line 1: [[node]] number 1 has no 'id'"),
        (
            "[[node]]\nid = 1",
            "line 2: 'id' in [[node]] number 1 is a whole number; expected a text in quotes",
        ),
        (
            "[[node]]\nid = 'a b'",
            "line 2: 'id' in node 'a b': the node id \"a b\" holds ' '; white space, control and invisible characters and / , = \" ' \
             are not allowed",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 1.5",
            "line 3: 'memory' in node 'a' is a number with a point; expected a count of bytes or a text such as \
             \"24GiB\"",
        ),
        ("[[node]]\nid = 'a'\nmemory = -5", "line 3: 'memory' in node 'a' is negative: -5"),
        (
            "[[node]]\nid = 'a'\nmemory = '-5GB'",
            "line 3: 'memory' in node 'a': '-5GB' is not an amount of memory: it is negative",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 99999999999999999999",
            "line 3: 'memory' in node 'a' is larger than 18446744073709551615 (2^64 - 1): 99999999999999999999",
        ),
        (
            "[[node]]\nid = 'a'\ndrain = 'yes'",
            "line 3: 'drain' in node 'a' is a text; expected true or false",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 1\nmemory_bandwidth = '1GB'",
            "line 4: 'memory_bandwidth' in node 'a': '1GB' is not a rate (such as 1008GB/s or 10Gbit/s): unknown unit; \
             use K, M, G, T, P (powers of 1000) or Ki, Mi, Gi, Ti, Pi (powers of 1024)",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 1\nmemory_bandwidth = 0",
            "line 4: 'memory_bandwidth' in node 'a' is 0 bytes in a second; leave it out when it is not known",
        ),
        (
            "[[node]]\nid = 'a'\n[[node.device]]\nid = 'g'\nmemory = 1\nbackend = 'CUDA'",
            "line 6: 'backend' in device 'g' of node 'a': unknown backend 'CUDA'; known are cuda, rocm, vulkan, \
             directml, metal, npu, cpu",
        ),
    ] {
        refuses(text, message);
    }
}

#[test]
fn amounts_that_contradict_each_other_are_named_with_both_numbers() {
    for (text, message) in [
        (
            "[[node]]\nid = 'a'\nmemory = '8GiB'\nmemory_free = '9GiB'",
            "line 4: 'memory_free' in node 'a' is 9 GiB, but there are only 8 GiB in all",
        ),
        (
            "[[node]]\nid = 'a'\n[[node.device]]\nid = 'g'\nfree = 2\nmemory = 1",
            "line 5: 'free' in device 'g' of node 'a' is 2 B, but there are only 1 B in all",
        ),
        (
            "[[node]]\nid = 'a'\nmemory_free = 1",
            "line 3: 'memory_free' in node 'a' needs the node's 'memory', which is not given",
        ),
        (
            "[[node]]\nid = 'a'\nunified = false\nmemory_free = 1",
            "line 4: 'memory_free' in node 'a' needs the node's 'memory', which is not given",
        ),
        (
            "[[node]]\nid = 'a'\nunified = true",
            "line 3: 'unified' in node 'a' needs the node's 'memory', which is not given",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 1\ngpu_limit = 1",
            "line 4: 'gpu_limit' in node 'a' needs 'unified = true': other GPUs are limited by their own 'cap'",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 9\nunified = true\n[[node.device]]\nid = 'x'\n[[node.device]]\nid = 'y'",
            "line 8: node 'a' is unified and has one GPU device; 'x' and 'y' are given",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 9\nunified = true\n[[node.device]]\nfree = 3",
            "line 6: 'free' in [[node.device]] number 1 of node 'a' belongs to the memory it shares, 'ram'; set it there",
        ),
        ("[[node]]\nid = 'a'\n[[node.device]]\nid = 'g'", "line 3: device 'g' of node 'a' has no 'memory'"),
        (
            "[[node]]\nid = 'a'\n[[node.device]]\nid = 'g'\nmemory = 1\ngtt = 2",
            "line 6: 'gtt' in device 'g' of node 'a' needs the node's 'memory', which is not given",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 4\n[[node.device]]\nid = 'g'\npool = 'ram'\ngtt = 2",
            "line 7: 'gtt' in device 'g' of node 'a' is what an APU reaches beside its own 'memory', and this device has \
             none of its own",
        ),
        (
            "[[node]]\nid = 'a'\nmemory = 4\n[[node.device]]\nid = 'g'\npool = 'vram'",
            "line 6: 'pool' in device 'g' of node 'a' is 'vram'; node 'a' has 'ram'",
        ),
    ] {
        refuses(text, message);
    }
}

#[test]
fn ids_addresses_and_links_are_used_once() {
    let two = "[[node]]\nid = 'a'\n[[node]]\nid = 'b'\n";
    let with = |more: &str| format!("{two}{more}");
    for (text, message) in [
        (
            "[[node]]\nid = 'a'\n[[node]]\nid = 'a'".to_owned(),
            "line 4: node id 'a' is used twice, first in line 2",
        ),
        (
            "[[node]]\nid='a'\n[[node.device]]\nid='g'\nmemory=1\n[[node.device]]\nid='g'\nmemory=1"
                .to_owned(),
            "line 7: device id 'g' is used twice on node 'a', first in line 4",
        ),
        (
            "[[node]]\nid='a'\nmemory=1\n[[node.device]]\nid='gtt'\nmemory=1\ngtt=1".to_owned(),
            "line 7: device id 'gtt' is used twice on node 'a', first in line 5",
        ),
        (
            "[[node]]\nid='a'\nmemory='4GiB'\nunified=true\n[[node.device]]\nid='gpu0'\nbackend='cpu'"
                .to_owned(),
            "line 6: device id 'gpu0' on node 'a' is taken by the GPU of a unified node; choose another, such as cpu0",
        ),
        (
            "[[node]]\nid='a'\n[[node.device]]\nid='host'\nbackend='cpu'".to_owned(),
            "line 4: device id 'host' on node 'a' is taken by the host's own memory; choose another, such as cpu0",
        ),
        (
            "[[node]]\nid='a'\n[[node.device]]\nid='ram'".to_owned(),
            "line 4: device id 'ram' on node 'a' is taken by the host's own memory; choose another, such as gpu0",
        ),
        (
            "[[node]]\nid='a'\nrpc='x:1'\n[[node]]\nid='b'\nrpc='x:1'".to_owned(),
            "line 6: 'rpc' in node 'b' is 'x:1', which node 'a' in line 3 has already",
        ),
        (
            "[[node]]\nid='a'\nmain=true\n[[node]]\nid='b'\nmain=true".to_owned(),
            "line 6: 'main' in node 'b': node 'a' in line 3 is already marked; one node runs the engine",
        ),
        (with("[[link]]\nlatency = '1us'"), "line 5: [[link]] number 1 has no 'between'"),
        (
            with("[[link]]\nbetween = ['a']"),
            "line 6: 'between' in [[link]] number 1 names 1 nodes; a link has 2 ends",
        ),
        (
            with("[[link]]\nbetween = ['a',\n 'c']"),
            "line 7: 'between' in [[link]] number 1 names the node 'c', which the file does not have; it has a, b",
        ),
        (
            with("[[link]]\nbetween = ['a', 'a']"),
            "line 6: 'between' in [[link]] number 1 joins the node 'a' with itself",
        ),
        (
            with("[[link]]\nbetween = ['a', 'b']\n[[link]]\nbetween = ['b', 'a']"),
            "line 8: 'between' in [[link]] number 2: 'b' and 'a' are already joined in line 6; a link counts in both \
             directions",
        ),
        (
            with("[[link]]\nbetween = ['a', 'b']\nbandwidth = '0GB/s'"),
            "line 7: 'bandwidth' in [[link]] number 1 is 0 bytes in a second; leave it out when it is not known",
        ),
        (
            with("[[link]]\nbetween = ['a', 'b']\nlatency = '200'"),
            "line 7: 'latency' in [[link]] number 1: '200' is not a time such as 200us, 1.5ms or 1s",
        ),
    ] {
        refuses(&text, message);
    }
}

#[test]
fn an_address_has_a_host_and_a_port() {
    for good in ["h:1", "10.0.0.7:50052", "[fe80::1]:65535", "my-box.local:9"] {
        assert!(parse_cluster(&format!("[[node]]\nid = 'a'\nrpc = '{good}'")).is_ok(), "{good}");
    }
    for (bad, why) in [
        ("h", "it has no port"),
        ("", "it has no port"),
        (":1", "it has no host"),
        ("[]:1", "it has no host"),
        ("h:", "its port is not a number from 1 to 65535"),
        ("h:0", "its port is not a number from 1 to 65535"),
        ("h:65536", "its port is not a number from 1 to 65535"),
        ("h:+1", "its port is not a number from 1 to 65535"),
        ("fe80::1:5", "an IPv6 address stands in brackets before its port"),
        ("a b:1", "its host holds a character that no address has"),
        ("a,b:1", "its host holds a character that no address has"),
    ] {
        let message = format!(
            "line 3: 'rpc' in node 'a' is '{bad}': {why}; expected host:port, such as 10.0.0.7:50052"
        );
        refuses(&format!("[[node]]\nid = 'a'\nrpc = '{bad}'"), &message);
    }
}

#[test]
fn a_large_memory_is_counted_in_64_bits() {
    for mib in [10_000_u64, 20_000, 30_000] {
        let text = format!("[[node]]\nid = 'a'\n[[node.device]]\nid = 'g'\nmemory = '{mib}MiB'");
        let cluster = parse_cluster(&text).unwrap().snapshot;
        assert_eq!(cluster.nodes[0].pools[0].total, Bytes::new(mib * 1024 * 1024));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = read_cluster("no/such/cluster.toml").unwrap_err();
    assert_eq!(missing.to_string(), "cannot read the cluster file no/such/cluster.toml");
    assert!(std::error::Error::source(&missing).is_some());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let wrong = read_cluster(path).unwrap_err();
    assert!(wrong.to_string().starts_with(&format!("{path}, line ")), "{wrong}");
    assert!(wrong.to_string().contains("unknown key 'package'"), "{wrong}");
}
