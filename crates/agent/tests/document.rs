//! The OpenAPI document says what is really answered.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use std::collections::BTreeSet;

use kit::http::Reply;
use kit::schema::check;
use kit::{Wanted, toy};
use serde_json::{Value, json};

/// The schema that a document gives for an answer of this status.
fn schema<'a>(document: &'a Value, method: &str, path: &str, status: u16) -> &'a Value {
    let operation = &document["paths"][path][method];
    assert!(operation.is_object(), "{method} {path} is not described");
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{method} {path} is not said to answer {status}");
    let content = response["content"].as_object().unwrap();
    &content.values().next().unwrap()["schema"]
}

#[test]
fn every_answer_has_the_shape_that_the_document_says_it_has() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let document = client.get("/openapi.json").json(200);
    let mut described = BTreeSet::new();
    let mut answered = |method: &str, path: &str, reply: &Reply| {
        let schema = schema(&document, method, path, reply.status);
        let wrong = check(&document, schema, &reply.json(reply.status), "$");
        assert!(wrong.is_empty(), "{method} {path} {}: {wrong:#?}", reply.status);
        described.insert(format!("{method} {path}"));
    };
    for path in ["/healthz", "/readyz", "/v1/profile", "/v1/cluster", "/v1/plan/current"] {
        answered("get", path, &client.get(path));
    }
    let plan = client.post("/v1/plan", &toy(10, "4GB"));
    assert_eq!(plan.status, 200);
    answered("post", "/v1/plan", &plan);
    answered("post", "/v1/plan", &client.post("/v1/plan", &toy(99, "10GB")));
    answered("post", "/v1/plan", &client.post("/v1/plan", "{}"));
    answered("put", "/v1/plan/current", &client.put("/v1/plan/current", plan.text()));
    answered("put", "/v1/plan/current", &client.put("/v1/plan/current", "{}"));
    let mut events = client.events("/v1/events");
    agent.machine.show(1);
    events.find_that(|event| event.kind == "plan" && event.data["standing"]["holds"] == false);
    answered("get", "/v1/plan/current", &client.get("/v1/plan/current"));
    answered("put", "/v1/plan/current", &client.put("/v1/plan/current", plan.text()));
    let needs = r#"{"role": "coder", "needs": "20GB", "pool": "CUDA0"}"#;
    answered("post", "/v1/reservations", &client.post("/v1/reservations", needs));
    answered("post", "/v1/reservations", &client.post("/v1/reservations", needs));
    answered("post", "/v1/reservations", &client.post("/v1/reservations", &needs.replace("coder", "chat")));
    answered("post", "/v1/reservations", &client.post("/v1/reservations", "{}"));
    answered("get", "/v1/ledger", &client.get("/v1/ledger"));
    answered("delete", "/v1/reservations/{instance}", &client.delete("/v1/reservations/coder"));
    answered("delete", "/v1/reservations/{instance}", &client.delete("/v1/reservations/coder"));
    answered("delete", "/v1/plan/current", &client.delete("/v1/plan/current"));
    answered("get", "/openapi.json", &client.get("/openapi.json"));
    // The rest is no JSON.
    for (path, kind) in [("/", "text/html"), ("/metrics", "application/openmetrics-text")] {
        let reply = client.get(path);
        assert_eq!(reply.status, 200);
        assert!(reply.header("content-type").unwrap().starts_with(kind), "{path}");
        described.insert(format!("get {path}"));
    }
    client.events("/v1/events");
    described.insert("get /v1/events".to_owned());
    let paths = document["paths"].as_object().unwrap();
    let all: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    assert_eq!(described, all, "every path that is described was asked");
}

#[test]
fn the_document_is_ours_and_says_where_a_token_is_wanted() {
    let document = Wanted::usual().serve().client().get("/openapi.json").json(200);
    assert_eq!(document["info"]["title"], "plimsoll agent");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(document["info"].get("contact").is_none());
    assert_eq!(document["security"], json!([{"token": []}]));
    for open in ["/", "/healthz"] {
        assert_eq!(document["paths"][open]["get"]["security"], json!([{}]), "{open}");
    }
    // Every name that is referred to is there, and everything has words.
    let text = document.to_string();
    for name in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(name).is_some(), "{name}");
    }
    let request = &document["components"]["schemas"]["PlanRequest"]["properties"];
    for (key, described) in request.as_object().unwrap() {
        assert!(described.to_string().contains("description"), "{key}");
    }
}
