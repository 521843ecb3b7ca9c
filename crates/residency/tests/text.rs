//! Specs as JSON.

use plimsoll_residency::{InferenceSpec, LatencyClass, Needs, footprint};
use plimsoll_units::{Bytes, PoolId};
use proptest::collection::{btree_map, btree_set};
use proptest::option::of;
use proptest::prelude::*;

fn read(text: &str) -> Result<InferenceSpec, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

#[test]
fn what_is_left_out_has_a_default() {
    let spec = read(r#"{"role": "role:coder", "runtime": "mine"}"#).unwrap();
    assert_eq!(spec, InferenceSpec::new("coder", "mine"));
}

#[test]
fn everything_can_be_said() {
    let spec = read(
        r#"{"role": "coder", "model": "m.gguf", "runtime": "llama.cpp",
            "memory": {"weights_bytes": "18GB", "kv_budget_bytes": 2000000000},
            "excludes": ["role:planner", "planner", "b"], "latency_class": "interactive", "sticky": true}"#,
    )
    .unwrap();
    assert_eq!(footprint(&spec), Bytes::new(20_000_000_000));
    assert_eq!((spec.latency_class, spec.sticky), (LatencyClass::Interactive, true));
    assert_eq!(Vec::from_iter(&spec.excludes), ["b", "planner"]);
    let pooled = read(r#"{"role": "a", "runtime": "b", "pools": {"CUDA0": "1GiB", "ram": 5}}"#).unwrap();
    assert_eq!(footprint(&pooled), Bytes::new((1 << 30) + 5));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (text, why) in [
        (r#"{"role": "a", "runtime": "b", "wieghts": 1}"#, "unknown field `wieghts`"),
        (r#"{"role": "a", "runtime": "b", "memory": {"weights_bytes": 1, "kv": 2}}"#, "unknown field `kv`"),
        (r#"{"role": "a", "runtime": "b", "memory": {}}"#, "missing field `weights_bytes`"),
        (r#"{"role": "a", "runtime": "b", "memory": {"weights_bytes": -1}}"#, "cannot be negative: -1"),
        (r#"{"role": "a", "runtime": "b", "latency_class": "soon"}"#, "unknown variant `soon`"),
        (r#"{"role": "a", "runtime": "b", "pools": {"a b": 1}}"#, "white space"),
        (
            r#"{"role": "a", "runtime": "b", "memory": {"weights_bytes": 1}, "pools": {}}"#,
            "role 'a' has both 'memory' and 'pools'; give one of them",
        ),
        (r#"{"runtime": "b"}"#, "missing field `role`"),
        (r#"{"role": "a"}"#, "missing field `runtime`"),
    ] {
        let said = read(text).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

proptest! {
    #[test]
    fn what_is_written_comes_back(
        role in "[a-z]{1,6}",
        model in of("\\PC{0,8}"),
        runtime in prop_oneof!["llama.cpp", "vllm", "\\PC{0,8}"],
        memory in of((any::<u64>(), any::<u64>())),
        pools in btree_map("[a-zA-Z0-9]{1,4}", any::<u64>(), 0..3),
        excludes in btree_set("[a-z]{1,4}", 0..3),
        interactive: bool,
        sticky: bool,
    ) {
        let mut spec = InferenceSpec::new(role, runtime).excluding(excludes);
        spec.needs = match memory {
            Some((weights, kv)) => Needs::Memory { weights: Bytes::new(weights), kv_budget: Bytes::new(kv) },
            None => Needs::Pools(
                pools.into_iter().map(|(id, n)| (PoolId::new(id).unwrap(), Bytes::new(n))).collect(),
            ),
        };
        spec.model = model;
        spec.sticky = sticky;
        if interactive {
            spec.latency_class = LatencyClass::Interactive;
        }
        let text = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(read(&text), Ok(spec));
    }
}
