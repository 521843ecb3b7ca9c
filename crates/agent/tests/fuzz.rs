//! Nothing that is sent is a fault of the agent's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use std::io::{Read, Write};
use std::sync::LazyLock;

use kit::{Served, Wanted, toy};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

static AGENT: LazyLock<Served> = LazyLock::new(|| Wanted::usual().serve());

const PATHS: [(&str, &str); 3] =
    [("POST", "/v1/plan"), ("POST", "/v1/reservations"), ("PUT", "/v1/plan/current")];

/// Keys that mean something somewhere, so that values get past them.
const KEYS: [&str; 32] = [
    "list",
    "layers",
    "bytes",
    "count",
    "kv_bytes",
    "kv_bytes_per_token",
    "weights",
    "cut",
    "name",
    "input_bytes",
    "head_bytes",
    "model",
    "ctx",
    "ctx_total",
    "parallel",
    "ubatch",
    "cache_type_k",
    "objective",
    "strategy",
    "reserve",
    "max_devices",
    "only",
    "cap",
    "pin",
    "pipelines",
    "engine",
    "role",
    "needs",
    "pool",
    "exclude",
    "ttl_seconds",
    "format",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..100_u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        proptest::sample::select(vec![
            "f16",
            "q8_0",
            "latency",
            "throughput",
            "balanced",
            "fit",
            "auto",
            "none",
            "llama.cpp",
            "1GB",
            "18446744073709551615",
            "tower",
            "tower/CUDA0=1GB",
            "0-1=tower/CUDA0",
            "0-99999999999=tower/ram",
            "CUDA0",
            "../x",
            "plimsoll.plan/1",
        ])
        .prop_map(Value::from),
    ]
}

fn object(inside: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    vec((proptest::sample::select(&KEYS[..]), inside), 0..6).prop_map(|pairs| {
        Value::from(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 6, |inner| {
        prop_oneof![vec(inner.clone(), 0..5).prop_map(Value::from), object(inner)]
    })
}

/// Requests that are almost right.
fn almost() -> impl Strategy<Value = Value> {
    let layer = (any::<u64>(), 0..40_u64, any::<u64>(), any::<bool>(), 0..3_u32).prop_map(
        |(bytes, count, kv, cut, shift)| {
            let bytes = bytes >> (shift * 20);
            json!({"bytes": bytes, "count": count, "kv_bytes_per_token": kv >> 40, "cut": cut})
        },
    );
    let list = vec(layer, 0..4).prop_map(|layers| json!({"name": "a", "layers": layers}));
    (list, vec((proptest::sample::select(&KEYS[11..26]), leaf()), 0..4)).prop_map(|(list, extra)| {
        let mut request = Map::new();
        request.insert("list".to_owned(), list);
        request.extend(extra.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::from(request)
    })
}

fn is_no_fault(body: &[u8]) -> Result<(), TestCaseError> {
    let client = AGENT.client().with("content-type", "application/json");
    for (method, path) in PATHS {
        let reply = client.ask(method, path, Some(body));
        prop_assert!(
            reply.status < 500,
            "{} {}: {}",
            path,
            reply.status,
            String::from_utf8_lossy(&reply.body)
        );
        let answer: Result<Value, _> = serde_json::from_slice(&reply.body);
        prop_assert!(answer.is_ok_and(|answer| answer.is_object()), "{} {}", path, reply.status);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(body in vec(any::<u8>(), 0..200)) {
        is_no_fault(&body)?;
    }

    #[test]
    fn any_json_is_answered(body in any_json()) {
        is_no_fault(body.to_string().as_bytes())?;
    }

    #[test]
    fn requests_that_are_almost_right_are_answered(body in almost()) {
        is_no_fault(body.to_string().as_bytes())?;
    }

    #[test]
    fn plans_with_a_changed_byte_are_answered(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        static PLAN: LazyLock<Vec<u8>> = LazyLock::new(|| AGENT.client().post("/v1/plan", &toy(4, "1GB")).body);
        let mut body = PLAN.clone();
        let at = place.index(body.len());
        body[at] = byte;
        is_no_fault(&body)?;
    }

    #[test]
    fn any_path_and_query_are_answered(path in "/[!-~]{0,60}") {
        let path = path.replace('#', "");
        // Event streams go on for ever.
        prop_assume!(!path.starts_with("/v1/events"));
        for method in ["GET", "DELETE", "POST"] {
            let reply = AGENT.client().ask(method, &path, None);
            prop_assert!(reply.status < 500, "{} {} {}", method, path, reply.status);
        }
    }

    #[test]
    fn any_head_ends_in_an_answer_or_an_end(head in vec(any::<u8>(), 0..300)) {
        let mut stream = AGENT.client().connect();
        drop(stream.write_all(&head));
        drop(stream.write_all(b"\r\n\r\n"));
        // Whoever was refused already is not connected any more.
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        prop_assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
        prop_assert!(!answer.starts_with(b"HTTP/1.1 5"));
    }
}
