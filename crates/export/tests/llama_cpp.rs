//! What is emitted for llama.cpp comes back as the same plan under the engine's own rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::ops::Range;

use expect_test::{Expect, expect};
use plimsoll_balance::{Objective, Optimality, Plan, PlanValue, Stage, Strategy};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
use plimsoll_export::llama_cpp::{Command, ExportError, ModelFacts, Place, assign, command};
use plimsoll_model::{CacheType, Request, ResolvedContext};
use plimsoll_units::{Bytes, DeviceId, DeviceRef, Generation, NodeId, PoolId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn id(node: &str, device: &str) -> DeviceRef {
    DeviceRef { node: NodeId::new(node).unwrap(), device: DeviceId::new(device).unwrap() }
}

fn device(name: &str, backend: GpuBackend) -> (Pool, Device) {
    let pool = Pool {
        id: PoolId::new(name).unwrap(),
        total: Bytes::gib(24),
        reserve: None,
        cap: None,
        free: Some(Bytes::gib(24)),
        held: Bytes::ZERO,
    };
    let device = Device {
        id: DeviceId::new(name).unwrap(),
        name: None,
        pool: pool.id.clone(),
        limit: None,
        backend,
        bandwidth: None,
        uuid: None,
    };
    (pool, device)
}

fn node(name: &str, rpc: Option<&str>, devices: &[(&str, GpuBackend)]) -> Node {
    let (pools, devices) = devices.iter().map(|(name, backend)| device(name, *backend)).unzip();
    Node {
        id: NodeId::new(name).unwrap(),
        status: NodeStatus::Active,
        drained: false,
        main: false,
        rpc: rpc.map(str::to_owned),
        pools,
        devices,
    }
}

/// A main node `a` with a host and six cards, and two remote nodes with five each.
fn snapshot() -> ClusterSnapshot {
    use GpuBackend::{Cpu, Cuda};
    let cards =
        |n: usize| ["CUDA0", "CUDA1", "CUDA2", "CUDA3", "CUDA4", "CUDA5"][..n].iter().map(|c| (*c, Cuda));
    let main: Vec<_> = std::iter::once(("host", Cpu)).chain(cards(6)).collect();
    let remote: Vec<_> = std::iter::once(("host", Cpu)).chain(cards(4)).chain([("cpu0", Cpu)]).collect();
    ClusterSnapshot {
        generation: Generation::FIRST,
        nodes: vec![
            node("a", None, &main),
            node("b", Some("10.0.0.7:50052"), &remote),
            node("c", Some("lab-c.lan:50053"), &remote),
        ],
        links: vec![],
    }
}

fn stage(device: DeviceRef, layers: Range<u32>, input: bool, head: bool) -> Stage {
    let zero = Bytes::ZERO;
    Stage {
        pipeline: 0,
        device,
        layers,
        input,
        head,
        weights_bytes: zero,
        kv_bytes: zero,
        overhead_bytes: zero,
        budget_bytes: zero,
        slack_bytes: zero,
        seconds: None,
    }
}

fn plan(stages: Vec<Stage>) -> Plan {
    let value = PlanValue { value: None, lower_bound: None, optimality: Optimality::Unproven };
    Plan {
        basis: Generation::FIRST,
        objective: Objective::Latency,
        strategy: Strategy::Portfolio,
        stages,
        overrides: vec![],
        parts: vec![],
        value,
        assumed: vec![],
        stopped: vec![],
    }
}

fn facts(path: &str, nextn: u32) -> ModelFacts<'_> {
    let context = ResolvedContext { total: 8192, per_sequence: 8192, streams: 1 };
    ModelFacts { path, nextn, context, cache_ram: None }
}

/// The value behind a flag of an emitted line.
fn value<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    words.iter().position(|w| w == flag).and_then(|at| words.get(at + 1)).map(String::as_str)
}

/// Reads an emitted command as the engine would: which device holds which index of `blocks` and the head.
fn as_the_engine_reads(command: &Command, blocks: u32) -> Vec<DeviceRef> {
    let words = &command.server.words;
    let main = command.server.node.as_str();
    // Each server shows its devices in the order of its own list; the engine numbers them through.
    let mut rpc = Vec::new();
    let addresses: Vec<&str> = value(words, "--rpc").map_or(vec![], |list| list.split(',').collect());
    assert_eq!(addresses.len(), command.rpc_servers.len());
    for server in &command.rpc_servers {
        for name in value(&server.words, "--device").unwrap().split(',') {
            let name = if name == "CPU" { "cpu0" } else { name };
            rpc.push(id(server.node.as_str(), name));
        }
    }
    let listed = value(words, "--device").unwrap();
    let devices: Vec<DeviceRef> = listed
        .split(',')
        .filter(|name| *name != "none")
        .map(|name| match name.strip_prefix("RPC") {
            Some(n) => rpc[n.parse::<usize>().unwrap()].clone(),
            None => id(main, name),
        })
        .collect();
    let layers: i64 = value(words, "-ngl").unwrap().parse().unwrap();
    let split: Vec<f32> =
        value(words, "-ts").map_or(vec![], |list| list.split(',').map(|n| n.parse().unwrap()).collect());
    assert_eq!(split.len(), devices.len());
    let device = |place: &Place| match place {
        Place::Host => id(main, "host"),
        Place::Device(n) => devices[*n].clone(),
    };
    assign(blocks, layers, &split).iter().map(device).collect()
}

/// What a plan means, index by index.
fn as_planned(plan: &Plan, layers: u32, nextn: u32) -> Vec<DeviceRef> {
    let head = plan.stages.iter().find(|s| s.head).unwrap();
    let holder = |layer: u32| plan.stages.iter().find(|s| s.layers.contains(&layer)).unwrap();
    let blocks = (0..layers).map(|l| holder(l).device.clone());
    blocks.chain((0..=nextn).map(|_| head.device.clone())).collect()
}

/// Up to 15 of the cluster's devices in any order, any layers on the host, the rest cut anywhere; the head with the last.
fn any_plan() -> impl Strategy_<Value = (Plan, u32, u32)> {
    let names: Vec<DeviceRef> = snapshot()
        .nodes
        .iter()
        .flat_map(|n| n.devices.iter().map(move |d| id(n.id.as_str(), d.id.as_str())))
        .filter(|d| d.device.as_str() != "host")
        .collect();
    let layers = 1_u32..200;
    let devices = Just(names).prop_shuffle();
    (layers, devices, 0_usize..=15, 0_u32..3, any::<u64>()).prop_map(|(layers, names, used, nextn, seed)| {
        let mut state = seed | 1;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(below)).unwrap()
        };
        let on_host = if used == 0 { layers } else { draw(layers + 1) };
        let mut stages = vec![stage(id("a", "host"), 0..on_host, true, used == 0)];
        let mut cuts: Vec<u32> = (1..used).map(|_| on_host + draw(layers - on_host + 1)).collect();
        cuts.sort_unstable();
        cuts.push(layers);
        let mut at = on_host;
        for (device, end) in names.into_iter().take(used).zip(cuts) {
            stages.push(stage(device, at..end, false, false));
            at = end;
        }
        stages.last_mut().unwrap().head = true;
        // A device without anything is no part of a plan.
        stages.retain(|s| s.input || s.head || !s.layers.is_empty());
        (plan(stages), layers, nextn)
    })
}

use proptest::strategy::Strategy as Strategy_;

#[test]
fn ten_thousand_plans_come_back_exactly() {
    let snapshot = snapshot();
    let mut runner = TestRunner::new(Config { cases: 10_000, ..Config::default() });
    let outcome = runner.run(&any_plan(), |(plan, layers, nextn)| {
        let emitted = command(&plan, &snapshot, &Request::default(), &facts("m.gguf", nextn)).unwrap();
        let read = as_the_engine_reads(&emitted, layers + nextn);
        prop_assert_eq!(read, as_planned(&plan, layers, nextn), "{}", emitted.server);
        Ok(())
    });
    outcome.unwrap();
}

fn check(plan: &Plan, request: &Request, model: &ModelFacts<'_>, expected: Expect) {
    let text = match command(plan, &snapshot(), request, model) {
        Ok(command) => {
            let mut lines: Vec<String> =
                command.rpc_servers.iter().map(|line| format!("{}: {line}", line.node)).collect();
            lines.push(format!("{}: {}", command.server.node, command.server));
            lines.extend(command.notes.iter().map(|note| format!("note: {note}")));
            lines.join("\n") + "\n"
        }
        Err(error) => format!("error: {error}\n"),
    };
    expected.assert_eq(&text);
}

#[test]
fn a_line_names_devices_servers_and_everything_the_bytes_depend_on() {
    let plan = plan(vec![
        stage(id("a", "host"), 0..0, true, false),
        stage(id("a", "CUDA1"), 0..30, false, false),
        stage(id("b", "CUDA2"), 30..50, false, false),
        stage(id("c", "cpu0"), 50..60, false, false),
        stage(id("b", "CUDA0"), 60..80, false, true),
    ]);
    let request = Request {
        parallel: 4,
        unified_kv: true,
        full_window: true,
        cache_type_k: CacheType::Q8_0,
        cache_type_v: CacheType::Q4_0,
        ..Request::default()
    };
    check(
        &plan,
        &request,
        &ModelFacts { cache_ram: Some(Bytes::ZERO), ..facts("my models/it's.gguf", 1) },
        expect![[r#"
            b: ggml-rpc-server -H 10.0.0.7 -p 50052 --device CUDA0,CUDA2 -c
            c: ggml-rpc-server -H 0.0.0.0 -p 50053 --device CPU -c
            a: llama-server -m "my models/it's.gguf" -c 8192 -np 4 -b 2048 -ub 512 -fa on -ctk q8_0 -ctv q4_0 --fit off --cache-ram 0 --rpc 10.0.0.7:50052,lab-c.lan:50053 --device CUDA1,RPC1,RPC2,RPC0 -ngl 82 -ts 30,20,10,22 --kv-unified --swa-full
            note: an rpc server asks nobody for a password: run it only on a network you trust
            note: the server on c listens on every address it has
        "#]],
    );
}

#[test]
fn a_plan_without_devices_says_so() {
    let plan = plan(vec![stage(id("a", "host"), 0..32, true, true)]);
    check(
        &plan,
        &Request::default(),
        &facts("m.gguf", 0),
        expect![[r#"
            a: llama-server -m m.gguf -c 8192 -np 1 -b 2048 -ub 512 -fa auto -ctk f16 -ctv f16 --fit off --device none -ngl 0
        "#]],
    );
}

#[test]
fn a_model_on_a_server_is_named_by_its_address() {
    let plan = plan(vec![stage(id("a", "host"), 0..32, true, true)]);
    check(
        &plan,
        &Request::default(),
        &facts("https://host/m-00001-of-00002.gguf", 0),
        expect![[r#"
            a: llama-server -mu https://host/m-00001-of-00002.gguf -c 8192 -np 1 -b 2048 -ub 512 -fa auto -ctk f16 -ctv f16 --fit off --device none -ngl 0
        "#]],
    );
}

#[test]
fn the_head_may_lie_alone_on_the_last_device() {
    let plan = plan(vec![
        stage(id("a", "host"), 0..31, true, false),
        stage(id("a", "CUDA0"), 31..32, false, false),
        stage(id("a", "CUDA1"), 32..32, false, true),
    ]);
    check(
        &plan,
        &Request::default(),
        &facts("m.gguf", 0),
        expect![[r#"
            a: llama-server -m m.gguf -c 8192 -np 1 -b 2048 -ub 512 -fa auto -ctk f16 -ctv f16 --fit off --device CUDA0,CUDA1 -ngl 2 -ts 1,1
        "#]],
    );
}

#[test]
fn plans_that_the_engine_cannot_carry_out_are_refused() {
    let request = Request::default();
    let facts = facts("m.gguf", 0);
    check(
        &plan(vec![stage(id("a", "CUDA0"), 0..10, false, true), stage(id("a", "host"), 10..20, true, false)]),
        &request,
        &facts,
        expect![[r#"
            error: the host a/host holds layers from 10 on; llama.cpp keeps only the first layers on the host
        "#]],
    );
    check(
        &plan(vec![
            stage(id("a", "CUDA0"), 0..10, true, true),
            stage(id("a", "CUDA1"), 10..20, false, false),
        ]),
        &request,
        &facts,
        expect![[r#"
            error: the head lies on a/CUDA0; llama.cpp keeps it on the last device of the line
        "#]],
    );
    check(
        &plan(vec![stage(id("z", "CUDA0"), 0..10, true, true)]),
        &request,
        &facts,
        expect![[r#"
            error: the plan uses z/CUDA0, which the cluster does not have
        "#]],
    );
}

#[test]
fn sixteen_devices_are_one_too_many() {
    let mut stages: Vec<Stage> =
        (0..16).map(|n| stage(id("a", &format!("CUDA{n}")), n..n + 1, false, false)).collect();
    stages[15].head = true;
    let mut snapshot = snapshot();
    let names: Vec<String> = (0..16).map(|n| format!("CUDA{n}")).collect();
    let cards: Vec<(&str, GpuBackend)> = names.iter().map(|name| (name.as_str(), GpuBackend::Cuda)).collect();
    snapshot.nodes[0] = node("a", None, &cards);
    let error = command(&plan(stages), &snapshot, &Request::default(), &facts("m.gguf", 0)).unwrap_err();
    assert_eq!(error, ExportError::TooManyDevices { devices: 16 });
}

#[test]
fn a_path_with_a_nul_is_not_quoted() {
    let plan = plan(vec![stage(id("a", "host"), 0..32, true, true)]);
    let emitted = command(&plan, &snapshot(), &Request::default(), &facts("a\0b", 0)).unwrap();
    assert_eq!(emitted.server.quoted(), Err(ExportError::Unquotable { text: "a\0b".to_owned() }));
}

#[test]
fn cards_are_numbered_by_the_drivers_own_names_where_the_cluster_tells_all_of_them() {
    let mut snapshot = snapshot();
    for node in &mut snapshot.nodes[..2] {
        // Listed in another order than they are numbered.
        node.devices.reverse();
        for device in node.devices.iter_mut().filter(|device| device.backend == GpuBackend::Cuda) {
            device.uuid = Some(format!("GPU-{}-{}", node.id, device.id));
        }
    }
    let split = plan(vec![
        stage(id("a", "CUDA3"), 0..10, true, false),
        stage(id("a", "CUDA1"), 10..20, false, false),
        stage(id("b", "CUDA2"), 20..30, false, false),
        stage(id("c", "CUDA0"), 30..32, false, true),
    ]);
    let emitted = command(&split, &snapshot, &Request::default(), &facts("m.gguf", 0)).unwrap();
    let all = |node: &str, count: usize| {
        let uuids: Vec<String> = (0..count).map(|n| format!("GPU-{node}-CUDA{n}")).collect();
        format!("CUDA_VISIBLE_DEVICES={}", uuids.join(","))
    };
    assert_eq!(emitted.server.words[..3], ["env", &all("a", 6), "llama-server"]);
    assert_eq!(value(&emitted.server.words, "--device"), Some("CUDA3,CUDA1,RPC0,RPC1"));
    assert_eq!(emitted.rpc_servers[0].words[..3], ["env", &all("b", 4), "ggml-rpc-server"]);
    assert_eq!(emitted.rpc_servers[1].words[0], "ggml-rpc-server", "no names are known there");
    let read = plimsoll_export::llama_cpp::parse_flags(&emitted.server.words).unwrap();
    assert!(read.ignored.is_empty(), "{:?}", read.ignored);

    let older = plimsoll_export::llama_cpp::older_command;
    let older = older(&split, &snapshot, &Request::default(), &facts("m.gguf", 0)).unwrap();
    assert_eq!(older.rpc_servers[0].words[..3], ["env", "CUDA_VISIBLE_DEVICES=GPU-b-CUDA2", "rpc-server"]);
}
