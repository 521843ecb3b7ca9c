//! What is answered to whom asks well, and to whom asks wrongly.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use kit::{Folder, Wanted, toy};
use plimsoll::balance::PlanOptions;
use plimsoll::model::list::parse_list_json;
use plimsoll::model::{ModelSpec, Request};
use plimsoll::units::Bytes;
use plimsoll::{Engine, Job};
use serde_json::{Value, json};

const HOME: &str = "[[node]]\nid = \"box\"\n\
    [[node.device]]\nid = \"CUDA0\"\nmemory = \"16GB\"\nbandwidth = \"900GB/s\"\n\
    [[node.device]]\nid = \"CUDA1\"\nmemory = \"12GB\"\nbandwidth = \"400GB/s\"\n";

#[test]
fn the_agent_says_that_it_runs_and_what_the_machine_is() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    assert_eq!(
        client.get("/healthz").json(200),
        json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")})
    );
    assert_eq!(client.get("/readyz").json(200)["status"], "ok");
    let profile = client.get("/v1/profile").json(200);
    assert_eq!((&profile["node"], &profile["acceleration"]), (&json!("tower"), &json!("gpu")));
    assert_eq!(profile["accelerators"][1]["id"], "GPU-1");
    let cluster = client.get("/v1/cluster").json(200);
    let pools: Vec<&str> = cluster["nodes"][0]["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| pool["id"].as_str().unwrap())
        .collect();
    assert_eq!((&cluster["source"], pools), (&json!("machine"), vec!["ram", "CUDA0", "CUDA1"]));
    assert_eq!(cluster["skew"]["ratio"], 1.0);
}

#[test]
fn a_plan_over_http_is_the_plan_that_the_library_makes() {
    let agent = Wanted::usual().on(HOME).serve();
    let list = r#"{"name": "toy", "layers": [{"count": 8, "bytes": "3GB"}]}"#;
    let reply = agent.client().post("/v1/plan", &format!("{{\"list\": {list}}}"));
    let model = ModelSpec::from_list(&parse_list_json(list).unwrap());
    let snapshot = kit::cluster_of(HOME);
    let job = Job::new(&model, &snapshot, Engine::None, Request::default(), PlanOptions::default());
    let expected = job.plan().unwrap().to_file(None).unwrap().to_text().unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.text(), expected);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    // Asked again it comes from memory, and is the same to the byte.
    assert_eq!(agent.client().post("/v1/plan", &format!("{{\"list\": {list}}}")).text(), expected);
}

#[test]
fn every_flag_of_the_command_has_a_key_that_does_the_same() {
    let agent = Wanted::usual().on(HOME).serve();
    let layers = r#"{"name": "toy", "layers": [{"count": 4, "bytes": "1GB", "kv_bytes_per_token": 4096}]}"#;
    let asked = format!(
        r#"{{"list": {layers}, "ctx": 1000, "parallel": 2, "unified_kv": true, "cache_type_k": "q8_0",
        "cache_type_v": "f16", "flash_attn": "on", "ubatch": 128, "swa_full": true, "engine": "none",
        "tensor_parallel": 1, "experts": "host", "ffn": "auto", "objective": "fit", "strategy": "given-order", "reserve": "1GB", "max_devices": 2, "only": ["box"],
        "cap": ["box/CUDA0=10GB"], "pin": ["0-1=box/CUDA1"], "pipelines": 1, "transfers": "apart"}}"#
    );
    let plan = agent.client().post("/v1/plan", &asked).json(200);
    let request = &plan["request"];
    for (key, value) in [
        ("ctx", json!(1000)),
        ("parallel", json!(2)),
        ("unified_kv", json!(true)),
        ("cache_type_k", json!("q8_0")),
        ("flash_attn", json!("on")),
        ("ubatch", json!(128)),
        ("swa_full", json!(true)),
        ("objective", json!("fit")),
        ("strategy", json!("given-order")),
    ] {
        assert_eq!(request[key], value, "{key} in {request}");
    }
    let stage = &plan["stages"][0];
    assert_eq!((&stage["device"], &stage["budget_bytes"]), (&json!("CUDA1"), &json!(11_000_000_000_u64)));
}

#[test]
fn what_does_not_fit_is_a_conflict_with_a_refusal() {
    let agent = Wanted::usual().on(HOME).serve();
    let refusal = agent.client().post("/v1/plan", &toy(8, "4GB")).json(409);
    assert_eq!(refusal["format"], "plimsoll.refusal/1");
    assert_eq!(refusal["reason"], "proven-infeasible");
    assert_eq!(refusal["short_bytes"], 4_000_000_000_u64);
    assert_eq!(refusal["suggestions"][0]["change"], "add-device");
}

#[test]
fn wrong_requests_name_what_is_wrong_and_where() {
    let agent = Wanted::usual().on(HOME).serve();
    let client = agent.client();
    let list = r#""list": {"layers": [{"bytes": 1}]}"#;
    for (body, said) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("[]", "must be a JSON object"),
        ("{}", "neither model"),
        (r#"{"lst": 1}"#, "unknown field `lst`"),
        (&format!(r#"{{{list}, "model": "a"}}"#), "model and list are both given"),
        (r#"{"model": "a.gguf"}"#, "without a folder of models"),
        (&format!(r#"{{{list}, "ctx": 0}}"#), "expected a number of tokens from 1 on"),
        (&format!(r#"{{{list}, "ctx": 1, "ctx_total": 1}}"#), "ctx and ctx_total are both given"),
        (&format!(r#"{{{list}, "ctx": -1}}"#), "integer `-1`, expected a number of tokens"),
        (&format!(r#"{{{list}, "parallel": 0}}"#), "parallel is 0, and must be at least 1"),
        (&format!(r#"{{{list}, "ubatch": 0}}"#), "ubatch is 0"),
        (&format!(r#"{{{list}, "cache_type_k": "q9"}}"#), "cache_type_k: unknown cache type 'q9'"),
        (&format!(r#"{{{list}, "objective": "best"}}"#), "unknown variant `best`, expected one of"),
        (&format!(r#"{{{list}, "pipelines": 0}}"#), "a number of copies from 1 on"),
        (&format!(r#"{{{list}, "pipelines": "many"}}"#), "a number of copies from 1 on"),
        (&format!(r#"{{{list}, "reserve": "1XB"}}"#), "1XB"),
        (&format!(r#"{{{list}, "only": ["mac"]}}"#), "only names node 'mac', and the cluster has box"),
        (
            &format!(r#"{{{list}, "cap": ["box/CUDA7=1"]}}"#),
            "cap names device 'box/CUDA7', and the cluster has box/CUDA0, box/CUDA1",
        ),
        (&format!(r#"{{{list}, "cap": ["box/CUDA0=1", "box/CUDA0=2"]}}"#), "twice"),
        (&format!(r#"{{{list}, "cap": ["box"]}}"#), "cap 'box': not of the form"),
        (&format!(r#"{{{list}, "pin": ["0-1"]}}"#), "pin: "),
        (r#"{"list": {"layers": []}}"#, "no layers"),
        (r#"{"list": {"layers": [{"bytes": 1, "kv": 2}]}}"#, "unknown field `kv`"),
        (
            r#"{"list": {"layers": [{"bytes": 1, "count": 20001}]}}"#,
            "20001 layers, and this agent plans at most 20000",
        ),
        (r#"{"list": {"layers": [{"bytes": 1, "count": 99999999999}]}}"#, "99999999999 layers"),
        (&format!(r#"{{{list}, "list": {{}}}}"#), "duplicate field `list`"),
    ] {
        let error = client.post("/v1/plan", body).error(400);
        assert!(error.contains(said), "{body}: {error}");
    }
}

#[test]
fn models_are_planned_by_path_below_their_folder() {
    let folder = Folder::new("by-path");
    std::fs::create_dir(folder.0.join("toys")).unwrap();
    let file = folder.0.join("toys/toy.toml");
    std::fs::write(&file, "layers = [ { count = 8, bytes = \"3GB\" } ]").unwrap();
    let agent = Wanted::usual().on(HOME).with_models(&folder.0).serve();
    let ask = || agent.client().post("/v1/plan", r#"{"model": "toys/toy.toml"}"#);
    let plan = ask().json(200);
    assert_eq!((&plan["model"]["name"], &plan["model"]["layers"]), (&json!("toy"), &json!(8)));
    // A file that has changed is another model.
    std::fs::write(&file, "layers = [ { count = 9, bytes = \"3GB\" } ]\n").unwrap();
    assert_eq!(ask().json(200)["model"]["layers"], 9);
    std::fs::write(&file, "layers = 7\n").unwrap();
    assert!(ask().error(400).starts_with("the model 'toys/toy.toml' cannot be read: "));
    assert_eq!(
        agent.client().post("/v1/plan", r#"{"model": "toys/none.toml"}"#).error(404),
        "there is no model 'toys/none.toml' below the folder of models"
    );
}

#[test]
fn memory_is_booked_shown_and_given_back() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let booked = client
        .post("/v1/reservations", r#"{"role": "coder", "needs": "20GB", "pool": "CUDA0", "pin": true}"#);
    assert_eq!(
        booked.json(201),
        json!({"format": "plimsoll.reserve/1", "instance": "coder", "changed": true})
    );
    let again = client.post("/v1/reservations", r#"{"role": "coder", "needs": "20GB", "pool": "CUDA0"}"#);
    assert_eq!(again.json(200)["changed"], false);
    let ledger = client.get("/v1/ledger").json(200);
    assert_eq!(ledger["format"], "plimsoll.ps/1");
    let holder = &ledger["holders"][0];
    assert_eq!(
        (&holder["instance"], &holder["bytes"], &holder["pinned"]),
        (&json!("coder"), &json!(20_000_000_000_u64), &json!(true))
    );
    let refusal =
        client.post("/v1/reservations", r#"{"role": "chat", "needs": "20GB", "pool": "CUDA0"}"#).json(409);
    assert_eq!(
        (&refusal["format"], &refusal["reason"]),
        (&json!("plimsoll.refusal/1"), &json!("over-budget"))
    );
    assert!(refusal["certificate"].as_str().unwrap().contains("held by coder 20.0 GB"), "{refusal}");
    assert_eq!(
        client.delete("/v1/reservations/coder").json(200),
        json!({"format": "plimsoll.release/1", "instances": ["coder"]})
    );
    assert_eq!(client.delete("/v1/reservations/coder").error(404), "nothing is held by 'coder'");
    assert_eq!(client.get("/v1/ledger").json(200)["holders"], json!([]));
}

#[test]
fn wrong_bookings_change_nothing_and_say_why() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    for (body, said) in [
        (r#"{"needs": 1}"#, "missing field `role`"),
        (r#"{"role": "a"}"#, "missing field `needs`"),
        (r#"{"role": "a", "needs": 0}"#, "needs 0 bytes"),
        (r#"{"role": "", "needs": 1}"#, "role: a name has from 1 to 256 bytes"),
        (r#"{"role": "a", "needs": 1, "instance": "a\u0007"}"#, "instance: a name"),
        (r#"{"role": "a", "needs": 1, "exclude": ["role:"]}"#, "exclude: a name"),
        (r#"{"role": "a", "needs": 1, "ttl_seconds": 0}"#, "ttl_seconds is 0"),
        (r#"{"role": "a", "needs": 1, "pool": "CUDA9"}"#, "pool: "),
        (r#"{"role": "a", "needs": 1, "pool": "a/b"}"#, "a/b"),
        (r#"{"role": "a", "needs": 1, "wait": true}"#, "unknown field `wait`"),
    ] {
        let error = client.post("/v1/reservations", body).error(400);
        assert!(error.contains(said), "{body}: {error}");
    }
    assert_eq!(client.get("/v1/ledger").json(200)["holders"], json!([]));
}

#[test]
fn names_with_any_characters_can_be_given_back() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let body = json!({"role": "ä/b c%2F?", "needs": 1, "pool": "CUDA0"}).to_string();
    assert_eq!(client.post("/v1/reservations", &body).status, 201);
    assert_eq!(
        client.delete("/v1/reservations/%C3%A4%2Fb%20c%252F%3F").json(200)["instances"],
        json!(["ä/b c%2F?"])
    );
}

#[test]
fn a_plan_is_taken_into_force_shown_and_retired() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let nothing = json!({"format": "plimsoll.current/1", "number": null, "standing": null, "plan": null});
    assert_eq!(client.get("/v1/plan/current").json(200), nothing);
    let plan = client.post("/v1/plan", &toy(10, "2GB"));
    let current = client.put("/v1/plan/current", plan.text()).json(200);
    assert_eq!(current["standing"]["text"], "the plan in force holds");
    assert_eq!(current["standing"]["remedy"]["action"], "keep");
    let shown = client.get("/v1/plan/current").json(200);
    assert_eq!(shown["plan"], plan.json(200));
    assert_eq!(client.delete("/v1/plan/current").json(200), nothing);
    assert_eq!(client.delete("/v1/plan/current").json(200), nothing);
}

#[test]
fn a_plan_that_does_not_hold_or_was_changed_is_not_taken() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let plan = client.post("/v1/plan", &toy(10, "2GB"));
    client.put("/v1/plan/current", plan.text()).json(200);
    let elsewhere = Wanted::usual().on(HOME).serve();
    let standing = elsewhere.client().put("/v1/plan/current", plan.text()).json(409);
    assert_eq!(standing["holds"], false);
    assert!(!standing["findings"].as_array().unwrap().is_empty(), "{standing}");
    let changed = plan.text().replacen("2000000000", "2000000001", 1);
    let error = client.put("/v1/plan/current", &changed).error(400);
    assert!(error.contains("changed by hand"), "{error}");
    assert!(client.put("/v1/plan/current", "{}").error(400).contains("'plimsoll.plan/1'"));
    assert_eq!(
        client.get("/v1/plan/current").json(200)["standing"]["holds"],
        true,
        "what was in force stays"
    );
}

#[test]
fn a_card_that_goes_breaks_the_plan_in_force_and_what_helps_is_told() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let plan = client.post("/v1/plan", &toy(10, "4GB"));
    let mut events = client.events("/v1/events");
    client.put("/v1/plan/current", plan.text()).json(200);
    events.find("plan");
    agent.machine.show(1);
    let told = events.find("plan").data;
    assert_eq!(told["standing"]["holds"], false, "{told}");
    let current = client.get("/v1/plan/current").json(200);
    assert_eq!(current["standing"], told["standing"]);
    let remedy = &current["standing"]["remedy"];
    assert_eq!(remedy["action"], "rebalance", "{remedy}");
    assert!(remedy["loaded_bytes"].as_u64().unwrap() > 0);
    assert_eq!(remedy["steps"][0]["action"], "load", "{remedy}");
    agent.machine.show(2);
    assert_eq!(events.find("plan").data["standing"]["holds"], true);
}

#[test]
fn figures_are_open_metrics_with_what_is_total_used_booked_and_refused() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    client.post("/v1/reservations", r#"{"role": "coder", "needs": 7, "pool": "CUDA0"}"#).json(201);
    client.post("/v1/plan", &toy(3, "1GB")).json(200);
    client.post("/v1/plan", &toy(99, "10GB")).json(409);
    let reply = client.get("/metrics");
    assert_eq!(
        reply.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let text = reply.text();
    assert!(text.ends_with("# EOF\n"));
    let figure = |name: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let found: Vec<f64> = lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(known, _)| *known == name)
            .map(|(_, value)| value.parse().unwrap())
            .collect();
        assert_eq!(found.len(), 1, "{name} in\n{text}");
        found[0]
    };
    let gib = Bytes::gib(24).as_f64();
    assert_eq!(figure("plimsoll_pool_total_bytes{node=\"tower\",pool=\"CUDA1\"}"), gib);
    assert_eq!(figure("plimsoll_pool_used_bytes{node=\"tower\",pool=\"CUDA1\"}"), 0.0);
    assert_eq!(figure("plimsoll_pool_booked_bytes{node=\"tower\",pool=\"CUDA0\"}"), 7.0);
    assert_eq!(figure("plimsoll_skew_ratio"), 1.0);
    assert_eq!(figure("plimsoll_refusals_total{reason=\"proven-infeasible\"}"), 1.0);
    assert_eq!(figure("plimsoll_planning_seconds_count"), 2.0);
    assert_eq!(figure("plimsoll_http_requests_total{status=\"409\"}"), 1.0);
    // Every sample belongs to a family that was declared.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let base = ["_total", "_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {base} ")), "{name}");
    }
}

#[test]
fn budgets_that_somebody_gave_stand_and_those_of_a_new_ledger_follow_the_machine() {
    use plimsoll::residency::{ResidencyLedger, Store};
    use plimsoll::units::PoolId;
    let budgets = |agent: &kit::Served| -> Value {
        let ledger = agent.client().get("/v1/ledger").json(200);
        ledger["pools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pool| json!([pool["id"], pool["budget_bytes"]]))
            .collect()
    };
    let new = Wanted::usual().serve();
    let followed = json!([
        ["CUDA0", Bytes::gib(23).get()],
        ["CUDA1", Bytes::gib(23).get()],
        ["ram", Bytes::gib(63).get()]
    ]);
    assert_eq!(budgets(&new), followed);
    let given = ResidencyLedger::with_pools([(PoolId::new("CUDA0").unwrap(), Some(Bytes::gib(10)))]);
    assert_eq!(given.book().unwrap().pools().len(), 1);
    let old = Wanted { ledger: std::sync::Arc::new(given), ..Wanted::usual() }.serve();
    assert_eq!(budgets(&old), json!([["CUDA0", Bytes::gib(10).get()]]));
}

#[test]
fn ten_thousand_machines_are_planned_on_and_shown() {
    let nodes: String = (0..10_000)
        .map(|n| format!("[[node]]\nid = \"n{n:05}\"\n[[node.device]]\nid = \"CUDA0\"\nmemory = \"24GB\"\nbandwidth = \"900GB/s\"\n"))
        .collect();
    let agent = Wanted::usual().on(&nodes).serve();
    let cluster = agent.client().get("/v1/cluster").json(200);
    assert_eq!(cluster["nodes"].as_array().unwrap().len(), 10_000);
    assert!(agent.client().get("/metrics").text().contains("node=\"n09999\""));
    let mut asked: Value = serde_json::from_str(&toy(80, "1GB")).unwrap();
    (asked["objective"], asked["strategy"]) = (json!("fit"), json!("capacity-descending"));
    assert_eq!(
        agent.client().post("/v1/plan", &asked.to_string()).json(200)["stages"].as_array().unwrap().len(),
        4
    );
}
