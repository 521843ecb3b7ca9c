//! Hardware snapshots of llama-swap: what is taken of them, and what is refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use expect_test::{Expect, expect};
use plimsoll_cluster::hardware::{HardwareError, Imported, is_meant, parse_hardware};
use plimsoll_profile::GpuBackend;
use plimsoll_units::{Bytes, NodeId};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(snapshot: &Value) -> Result<Imported, HardwareError> {
    let imported = parse_hardware(&snapshot.to_string(), NodeId::new("box").unwrap())?;
    assert!(imported.snapshot.validate().is_ok());
    Ok(imported)
}

/// A whole snapshot as that program writes it, with these accelerators and this much memory.
fn machine(memory: &Value, accelerators: &Value) -> Value {
    json!({
        "schema_version": 1,
        "captured_at": "2026-01-02T03:04:05Z",
        "capture": {"scope": "inference_host", "method": "detected", "detector": {"name": "x", "version": "1"}},
        "architecture": {"name": "x86_64", "raw_name": null},
        "operating_system": {"family": "linux", "name": null, "version": null, "kernel": null},
        "environment": {"kind": "unknown", "name": null, "version": null},
        "cpu": {"vendor": null, "model": null, "socket_count": null, "physical_core_count": null, "logical_thread_count": 8},
        "memory": {"capacity_bytes": memory},
        "accelerators": accelerators,
    })
}

fn accelerator(index: u64, vendor: &str, form: &str, capacity: &Value) -> Value {
    json!({"index": index, "kind": "gpu", "vendor": vendor, "model": format!("{vendor} {index}"), "architecture": null,
        "memory": {"kind": form, "capacity_bytes": capacity}, "driver": null, "power_limit_watts": null})
}

/// Pools, devices and notes in lines.
fn shown(imported: &Imported) -> String {
    let mut out = String::new();
    for node in &imported.snapshot.nodes {
        for pool in &node.pools {
            out += &format!("pool {} {} free {:?}\n", pool.id, pool.total.exact(), pool.free.map(Bytes::get));
        }
        for device in &node.devices {
            let limit = device.limit.map_or_else(|| "-".to_owned(), |limit| limit.exact().to_string());
            out += &format!("device {} {:?} on {} limit {limit}\n", device.id, device.backend, device.pool);
        }
    }
    imported.notes.iter().for_each(|note| out += &format!("note: {note}\n"));
    out
}

fn check(memory: &Value, accelerators: &Value, expected: Expect) {
    expected.assert_eq(&shown(&read(&machine(memory, accelerators)).unwrap()));
}

const GIB: u64 = 1 << 30;

#[test]
fn cards_of_their_own_memory_are_pools_named_as_the_engine_names_them() {
    let cards = json!([
        accelerator(0, "NVIDIA", "dedicated", &json!(24 * GIB)),
        accelerator(1, "AMD", "dedicated", &json!(16 * GIB)),
        accelerator(2, "NVIDIA", "dedicated", &json!(12 * GIB)),
        accelerator(3, "Intel", "dedicated", &json!(8 * GIB)),
    ]);
    check(
        &json!(64 * GIB),
        &cards,
        expect![[r#"
        pool ram 64 GiB free Some(68719476736)
        pool CUDA0 24 GiB free Some(25769803776)
        pool ROCm0 16 GiB free Some(17179869184)
        pool CUDA1 12 GiB free Some(12884901888)
        pool Vulkan0 8 GiB free Some(8589934592)
        device host Cpu on ram limit -
        device CUDA0 Cuda on CUDA0 limit -
        device ROCm0 Rocm on ROCm0 limit -
        device CUDA1 Cuda on CUDA1 limit -
        device Vulkan0 Vulkan on Vulkan0 limit -
        note: the snapshot does not say what is free: all of the memory is taken for free
        note: the numbers of unlike cards follow the snapshot: see whether the engine numbers them in the same way
    "#]],
    );
}

#[test]
fn memory_that_is_shared_is_never_added_to_that_of_the_system() {
    for form in ["unified", "shared_system"] {
        let shared = json!([accelerator(0, "Apple", form, &json!(48 * GIB))]);
        let imported = read(&machine(&json!(64 * GIB), &shared)).unwrap();
        let node = &imported.snapshot.nodes[0];
        let total = Bytes::saturating_sum(node.pools.iter().map(|pool| pool.total));
        assert_eq!((total, node.pools.len()), (Bytes::gib(64), 1), "{form}");
        assert_eq!(node.devices[1].limit, Some(Bytes::gib(48)));
        assert_eq!((node.devices[1].id.as_str(), node.devices[1].backend), ("MTL0", GpuBackend::Metal));
    }
    // A control group's limit makes the system's memory less than what the accelerator could share.
    let shared = json!([accelerator(0, "amd", "shared_system", &json!(48 * GIB))]);
    let imported = read(&machine(&json!(16 * GIB), &shared)).unwrap();
    assert_eq!(imported.snapshot.nodes[0].devices[1].limit, None);
    assert_eq!(imported.snapshot.nodes[0].pools[0].total, Bytes::gib(16));
}

#[test]
fn what_is_not_known_is_left_out_and_told_and_never_nothing() {
    let cards = json!([
        accelerator(0, "NVIDIA", "dedicated", &Value::Null),
        accelerator(1, "NVIDIA", "unknown", &json!(GIB)),
        accelerator(2, "Apple", "unified", &Value::Null),
        accelerator(3, "Contoso", "dedicated", &json!(GIB)),
        {"index": 4, "kind": "npu", "vendor": "AMD", "model": null, "memory": {"kind": "shared_system", "capacity_bytes": GIB}},
        {"index": 5, "kind": "gpu", "vendor": null, "model": null, "memory": null},
        accelerator(6, "NVIDIA", "dedicated", &json!(24 * GIB)),
    ]);
    check(
        &Value::Null,
        &cards,
        expect![[r#"
        pool CUDA0 24 GiB free Some(25769803776)
        device CUDA0 Cuda on CUDA0 limit -
        note: the memory of the host is not known: nothing is placed there
        note: accelerator 0 'NVIDIA 0' is left out: how much memory it has is not known
        note: accelerator 1 'NVIDIA 1' is left out: whether its memory is its own is not known
        note: accelerator 2 'Apple 2' is left out: how much memory it has is not known
        note: accelerator 3 'Contoso 3' is left out: its maker is not known, so nothing tells what drives it
        note: accelerator 4 'AMD' is left out: it is no GPU
        note: accelerator 5 'of an unknown make' is left out: its maker is not known, so nothing tells what drives it
        note: the snapshot does not say what is free: all of the memory is taken for free
    "#]],
    );
    let shared = json!([accelerator(0, "Apple", "unified", &json!(GIB))]);
    assert_eq!(read(&machine(&Value::Null, &shared)), Err(HardwareError::NoMemory));
    assert_eq!(read(&json!({"schema_version": 1})), Err(HardwareError::NoMemory));
}

#[test]
fn every_refusal_names_the_field_and_its_value() {
    let refusals = [
        json!([1]),
        json!({"memory": 1}),
        json!({"schema_version": 2}),
        json!({"schema_version": "1"}),
        json!({"schema_version": null}),
        json!({"schema_version": 1, "memory": 5}),
        machine(&json!(0), &json!([])),
        machine(&json!(-1), &json!([])),
        machine(&json!(1.5), &json!([])),
        machine(&json!("64 GB"), &json!([])),
        machine(&json!(u64::MAX), &json!([])),
        machine(&json!(GIB), &json!({})),
        machine(&json!(GIB), &json!(["x"])),
        machine(&json!(GIB), &json!([accelerator(1, "NVIDIA", "dedicated", &json!(GIB))])),
        machine(&json!(GIB), &json!([accelerator(0, "NVIDIA", "shared", &json!(GIB))])),
        machine(&json!(GIB), &json!([accelerator(0, "NVIDIA", "dedicated", &json!(0))])),
        machine(&json!(GIB), &json!([{"index": 0, "kind": "tpu"}])),
        machine(&json!(GIB), &json!([{"index": 0, "kind": "gpu", "vendor": 4318}])),
        machine(&json!(GIB), &json!(vec![json!({}); 1025])),
    ];
    let told: Vec<String> = refusals.iter().map(|text| read(text).unwrap_err().to_string()).collect();
    expect![[r#"
        this JSON is no hardware snapshot of llama-swap: it has no 'schema_version'
        this JSON is no hardware snapshot of llama-swap: it has no 'schema_version'
        'schema_version' is 2; version 1 is understood
        'schema_version' is "1"; version 1 is understood
        'schema_version' is null; version 1 is understood
        'memory' is 5; expected an object
        'memory.capacity_bytes' is 0; expected a number of bytes from 1 to 2^60, or null where it is not known
        'memory.capacity_bytes' is -1; expected a number of bytes from 1 to 2^60, or null where it is not known
        'memory.capacity_bytes' is 1.5; expected a number of bytes from 1 to 2^60, or null where it is not known
        'memory.capacity_bytes' is "64 GB"; expected a number of bytes from 1 to 2^60, or null where it is not known
        'memory.capacity_bytes' is 18446744073709551615; expected a number of bytes from 1 to 2^60, or null where it is not known
        'accelerators' is an object; expected a list
        'accelerators[0]' is "x"; expected an object
        'accelerators[0].index' is 1; expected its place in the list
        'accelerators[0].memory.kind' is "shared"; expected dedicated, unified, shared_system or unknown
        'accelerators[0].memory.capacity_bytes' is 0; expected a number of bytes from 1 to 2^60, or null where it is not known
        'accelerators[0].kind' is "tpu"; expected gpu, npu or other
        'accelerators[0].vendor' is 4318; expected a text
        'accelerators' lists 1025; at most 1024 are read"#]]
    .assert_eq(&told.join("\n"));
}

#[test]
fn text_that_is_no_snapshot_is_refused_where_it_breaks() {
    let read = |text: &str| parse_hardware(text, NodeId::new("box").unwrap()).unwrap_err();
    assert_eq!(read("{\n  \"a\": }"), HardwareError::Json { line: 2, column: 8 });
    assert!(matches!(read(&"[".repeat(100_000)), HardwareError::Json { .. }));
    assert_eq!(read(&" ".repeat(2 << 20)), HardwareError::TooLong);
    assert!(is_meant("\u{feff} \n{") && !is_meant("[[node]]") && !is_meant(""));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_or_count_memory_twice(
        forms in prop::collection::vec((0..4_usize, prop::option::of(any::<u64>())), 0..6),
        memory in prop::option::of(1..=u64::MAX),
        cut in 0..2000_usize,
    ) {
        let forms = forms.iter().zip(0..).map(|((form, capacity), index)| {
            let form = ["dedicated", "unified", "shared_system", "unknown"][*form];
            accelerator(index, "NVIDIA", form, &json!(capacity))
        });
        let whole = machine(&json!(memory), &forms.collect());
        if let Ok(imported) = read(&whole) {
            let pools = &imported.snapshot.nodes[0].pools;
            let own = whole["accelerators"].as_array().unwrap().iter();
            let own = own.filter(|one| one["memory"]["kind"] == "dedicated").filter_map(|one| one["memory"]["capacity_bytes"].as_u64());
            let expected: u128 = own.chain(memory).map(u128::from).sum();
            let total: u128 = pools.iter().map(|pool| u128::from(pool.total.get())).sum();
            prop_assert_eq!(total, expected);
        }
        let text = whole.to_string();
        let _ = parse_hardware(&text[..cut.min(text.len())], NodeId::new("box").unwrap());
    }
}
