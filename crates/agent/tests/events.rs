//! What happens is told as it happens, and nobody who reads slowly holds others up.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use std::collections::BTreeSet;

use kit::{Wanted, toy};
use plimsoll::residency::{InferenceSpec, Request, Store, Timestamp};
use plimsoll::units::{Bytes, PoolId};
use serde_json::json;

fn booking(name: &str) -> Request {
    let spec = InferenceSpec::new(name, "x").with_pools([(PoolId::new("CUDA0").unwrap(), Bytes::new(7))]);
    Request::new(name, spec)
}

#[test]
fn a_change_of_the_machine_is_told() {
    let agent = Wanted::usual().serve();
    let mut events = agent.client().events("/v1/events");
    let hello = events.next().unwrap();
    assert_eq!((hello.kind.as_str(), &hello.data["node"], hello.id), ("hello", &json!("tower"), None));
    agent.machine.show(1);
    // In any order: the cluster is told as soon as it is another, also before what made it so.
    let mut wanted = BTreeSet::from(["hardware", "node", "cluster"]);
    while !wanted.is_empty() {
        let event = events.next().unwrap();
        if wanted.remove(event.kind.as_str()) && event.kind == "hardware" {
            assert_eq!(event.data["text"], "GPU 1 'RTX 4090' GPU-1 gone");
            assert!(event.data["at"].as_u64().unwrap() > 0 && event.id.is_some());
        }
    }
    assert_eq!(agent.client().get("/v1/profile").json(200)["accelerators"].as_array().unwrap().len(), 1);
}

#[test]
fn bookings_of_anybody_are_told_and_so_are_refusals() {
    let agent = Wanted::usual().serve();
    let mut events = agent.client().events("/v1/events");
    // Another process that shares the ledger.
    agent.ledger.request(&booking("other"), Timestamp::ZERO).unwrap();
    let told = events.find("booking").data;
    assert_eq!(
        (&told["change"], &told["instance"], &told["bytes"]),
        (&json!("booked"), &json!("other"), &json!(7))
    );
    agent.client().delete("/v1/reservations/other");
    assert_eq!(events.find("booking").data["change"], "released");
    agent.client().post("/v1/plan", &toy(99, "10GB")).json(409);
    let told = events.find("refusal").data;
    assert_eq!(
        (&told["of"], &told["name"], &told["reason"]),
        (&json!("plan"), &json!("toy"), &json!("proven-infeasible"))
    );
    agent.client().post("/v1/reservations", r#"{"role": "big", "needs": "1TB", "pool": "CUDA0"}"#).json(409);
    let told = events.find("refusal").data;
    assert_eq!((&told["of"], &told["name"]), (&json!("booking"), &json!("big")));
}

#[test]
fn a_reader_goes_on_where_it_stopped() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let mut first = client.events("/v1/events");
    agent.ledger.request(&booking("a"), Timestamp::ZERO).unwrap();
    let seen = first.find("booking").id.unwrap();
    drop(first);
    agent.ledger.request(&booking("b"), Timestamp::ZERO).unwrap();
    let mut witness = client.events("/v1/events?after=first");
    witness.find_that(|event| event.data["instance"] == "b");
    for mut resumed in [
        client.with("last-event-id", &seen).events("/v1/events"),
        client.events(&format!("/v1/events?after={seen}")),
    ] {
        assert_eq!(resumed.next().unwrap().kind, "hello");
        let next = resumed.find("booking");
        assert_eq!(next.data["instance"], "b", "nothing twice, nothing left out");
    }
}

#[test]
fn what_was_not_kept_is_counted() {
    let agent = Wanted::usual().limited(|limits| limits.events = 4).serve();
    let client = agent.client();
    let mut witness = client.events("/v1/events");
    let mut names = Vec::new();
    for n in 0..10 {
        client.post("/v1/plan", &toy(99 + n, "10GB")).json(409);
        names.push(witness.find("refusal").id.unwrap());
    }
    let mut late = client.with("last-event-id", &names[0]).events("/v1/events");
    let lost = late.find("lost");
    assert_eq!((&lost.data["count"], lost.id), (&json!(5), None));
    let rest: Vec<_> = (0..4).map(|_| late.find("refusal").id.unwrap()).collect();
    assert_eq!(rest, names[6..]);
    let mut stranger = client.with("last-event-id", "17-3").events("/v1/events");
    assert_eq!(stranger.find("lost").data["count"], json!(null), "of another life of the agent");
    assert_eq!(stranger.find("refusal").id.as_ref(), Some(&names[6]));
    let mut future = client.with("last-event-id", &names[9].replace("-", "-9")).events("/v1/events");
    client.post("/v1/plan", &toy(98, "10GB")).json(409);
    assert_eq!(future.find("refusal").data["name"], "toy");
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up_and_loses_what_is_oldest() {
    let agent = Wanted::usual().limited(|limits| limits.events = 4).serve();
    let client = agent.client();
    let mut slow = client.events("/v1/events");
    assert_eq!(slow.next().unwrap().kind, "hello");
    let mut quick = client.events("/v1/events");
    // In all more than a connection takes without being read.
    let long = "n".repeat(400_000);
    let mut last = None;
    for n in 0..80 {
        let body =
            format!("{{\"list\": {{\"name\": \"{n}{long}\", \"layers\": [{{\"bytes\": \"10TB\"}}]}}}}");
        assert_eq!(client.post("/v1/plan", &body).status, 409);
        last = quick.find("refusal").id;
    }
    // The slow one hears how much it has lost, and then of the newest.
    let lost = slow.find("lost");
    assert!(lost.data["count"].as_u64().unwrap() > 0);
    slow.find_that(|event| event.id == last);
}
