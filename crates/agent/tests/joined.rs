//! An agent in a cluster that is kept in etcd: what it answers has the shape that its document says, and it leaves well.

#![cfg(all(target_os = "linux", feature = "etcd"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use std::path::Path;
use std::time::Duration;

use kit::schema::check;
use kit::{Wanted, toy};
use plimsoll::etcd::Options;
use plimsoll::live::Live;
use plimsoll::residency::Store as _;
use plimsoll::units::{Bytes, NodeId, PoolId};
use plimsoll_agent::{Joining, Source};
use plimsoll_testkit::etcd::Etcd;
use serde_json::{Value, json};

/// An agent on the usual machine, in this cluster.
fn joining(live: Live) -> Wanted {
    let joining = Joining {
        live,
        described: None,
        address: "tower:1".to_owned(),
        boot_id: Some("boot".to_owned()),
        rpc: None,
        main: true,
        grace: Duration::from_secs(60),
    };
    Wanted { source: Source::Joined(Box::new(joining)), ..Wanted::usual() }
}

fn cluster() -> Option<(Etcd, Live)> {
    let etcd = Etcd::start(Path::new(env!("CARGO_TARGET_TMPDIR")), 1)?;
    let patient = Options { patience: Duration::from_secs(30), ..Options::default() };
    let live = Live::open(&etcd.url("home"), patient).unwrap();
    Some((etcd, live))
}

#[test]
fn what_a_joined_agent_answers_has_the_shape_that_the_document_says_it_has() {
    let Some((_etcd, live)) = cluster() else { return };
    let agent = joining(live).serve();
    let client = agent.client();
    let document = client.get("/openapi.json").json(200);
    let answered = |method: &str, path: &str, reply: &kit::http::Reply| -> Value {
        let response = &document["paths"][path][method]["responses"][reply.status.to_string()];
        let content =
            response["content"].as_object().unwrap_or_else(|| panic!("{method} {path} {}", reply.status));
        let wrong =
            check(&document, &content.values().next().unwrap()["schema"], &reply.json(reply.status), "$");
        assert!(wrong.is_empty(), "{method} {path} {}: {wrong:#?}", reply.status);
        reply.json(reply.status)
    };
    let shown = answered("get", "/v1/cluster", &client.get("/v1/cluster"));
    assert_eq!((&shown["source"], &shown["membership"]["registered"]), (&json!("shared"), &json!(true)));
    answered("get", "/readyz", &client.get("/readyz"));
    let plan = client.post("/v1/plan", &toy(10, "4GB"));
    assert_eq!(plan.status, 200);
    answered("post", "/v1/plan", &plan);
    let current = answered("put", "/v1/plan/current", &client.put("/v1/plan/current", plan.text()));
    assert_eq!((&current["number"], &current["standing"]["holds"]), (&json!(1), &json!(true)));
    let other = client.put("/v1/plan/current?replaces=9", plan.text());
    assert_eq!(other.status, 409);
    answered("put", "/v1/plan/current", &other);
    assert!(client.get("/v1/plan/current").header("age").is_some());
    answered("get", "/v1/plan/current", &client.get("/v1/plan/current"));
    let needs = r#"{"role": "coder", "needs": "20GB", "pool": "tower:CUDA0"}"#;
    assert_eq!(client.post("/v1/reservations", needs).status, 201);
    let refused = client.post("/v1/reservations", &needs.replace("coder", "chat"));
    assert_eq!(refused.status, 409);
    answered("post", "/v1/reservations", &refused);
    let ledger = answered("get", "/v1/ledger", &client.get("/v1/ledger"));
    assert_eq!(ledger["holders"][0]["pool"], "tower:CUDA0");
    answered("delete", "/v1/plan/current", &client.delete("/v1/plan/current"));
}

#[test]
fn what_changes_on_the_machine_is_known_in_the_cluster_and_a_stop_takes_it_out() {
    let Some((_etcd, live)) = cluster() else { return };
    let mut agent = joining(live.clone()).serve();
    let tower = NodeId::new("tower").unwrap();
    let until = |meant: &dyn Fn(&plimsoll::cluster::Node) -> bool| {
        while !live.seen().unwrap().snapshot.node(&tower).is_some_and(meant) {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let card = PoolId::new("CUDA0").unwrap();
    agent.machine.take(Bytes::gib(4));
    until(&|node| node.pool(&card).is_some_and(|pool| pool.free == Some(Bytes::gib(20))));
    assert_eq!(
        agent
            .client()
            .post("/v1/reservations", r#"{"role": "coder", "needs": 1, "pool": "tower:ram"}"#)
            .status,
        201
    );
    // A card goes: the registry and the ledger's budgets follow.
    agent.machine.show(1);
    until(&|node| node.devices.iter().all(|device| device.id.as_str() != "CUDA1"));
    let budget = |pool: &str| {
        let book = live.ledger(None, plimsoll::residency::NoOwners).book().unwrap();
        book.pool(pool).unwrap().budget
    };
    while budget("tower:CUDA1") != Some(Bytes::ZERO) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(budget("tower:CUDA0"), Some(Bytes::gib(23)));
    agent.stop();
    assert!(live.seen().unwrap().snapshot.node(&tower).is_none());
    let book = live.ledger(None, plimsoll::residency::NoOwners).book().unwrap();
    assert!(book.get("coder").is_some(), "a booking is nobody's but its own");
}
