//! What was asked lies in a saved plan and is read back; plans of earlier versions are read as they were meant.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::num::NonZeroU32;

use plimsoll_balance::{Objective, Pin, Pipelines, PlanOptions, Transfers};
use plimsoll_export::{FormatError, PlanFile};
use plimsoll_units::{Bytes, DeviceRef};
use serde_json::{Value, json};

/// A plan that was saved before pins, copies and transfers could be asked for.
const EARLIER: &str = include_str!("fixtures/plan-1.json");

/// The same with other keys in its request. It has no seal then, as plans of other programs have none.
fn with(change: impl FnOnce(&mut Value)) -> Result<PlanFile, FormatError> {
    let mut value: Value = serde_json::from_str(EARLIER).unwrap();
    value.as_object_mut().unwrap().remove("seal");
    change(&mut value["request"]);
    PlanFile::parse(&value.to_string())
}

#[test]
fn a_plan_of_an_earlier_version_is_read_and_written_back_as_it_was() {
    let file = PlanFile::parse(EARLIER).unwrap();
    assert!(file.seal.is_some(), "its seal was checked");
    assert_eq!(file.to_text().unwrap(), EARLIER);
    let options = file.options().unwrap();
    let card = DeviceRef { node: "a".parse().unwrap(), device: "CUDA0".parse().unwrap() };
    let expected = PlanOptions {
        objective: Objective::Latency,
        max_devices: Some(2),
        caps: [(card, Bytes::new(50))].into(),
        ..PlanOptions::default()
    };
    assert_eq!(options, expected);
    assert_eq!(file.model_path(), None);
}

#[test]
fn what_was_asked_is_read_back() {
    let file = with(|request| {
        request["pins"] = json!([{ "node": "a", "device": "CUDA0", "layers": [2, 5] }]);
        request["pipelines"] = json!(3);
        request["transfers"] = json!("added");
    });
    let file = file.unwrap();
    let options = file.options().unwrap();
    let pin: Pin = "2-5=a/CUDA0".parse().unwrap();
    assert_eq!(options.pins, [pin]);
    assert_eq!(options.pipelines, Pipelines::Exactly(NonZeroU32::new(3).unwrap()));
    assert_eq!(options.transfers, Transfers::Added);
    // What is written is what was read, and nothing that was not asked is in it.
    let text = file.to_text().unwrap();
    assert_eq!(PlanFile::parse(&text).unwrap(), file);
    let auto = with(|request| request["pipelines"] = json!("auto")).unwrap();
    assert_eq!(auto.options().unwrap().pipelines, Pipelines::Auto);
    assert!(!auto.to_text().unwrap().contains("\"pins\""));
}

#[test]
fn words_that_mean_nothing_are_named() {
    for (key, value, why) in [
        ("pipelines", json!("many"), "request.pipelines is 'many'; known are a number from 1, auto"),
        ("transfers", json!("none"), "request.transfers is 'none'; known are apart, overlapped, added"),
    ] {
        let error = with(|request| request[key] = value).unwrap().options().unwrap_err().to_string();
        assert_eq!(error, why);
    }
    for (key, value) in [
        ("pipelines", json!(0)),
        ("pipelines", json!(-1)),
        ("pins", json!([{ "node": "a", "device": "CUDA0" }])),
        ("pins", json!([{ "node": "a", "device": "CUDA0", "layers": [1] }])),
        ("pin", json!([])),
    ] {
        assert!(with(|request| request[key] = value.clone()).is_err(), "{key}: {value}");
    }
}

#[test]
fn the_model_of_a_command_line_is_found_behind_its_quotes() {
    let with_line = |line: &str| {
        let mut value: Value = serde_json::from_str(EARLIER).unwrap();
        value.as_object_mut().unwrap().remove("seal");
        let first = json!({ "node": "b", "line": "ggml-rpc-server -m 8" });
        value["commands"] = json!([first, { "node": "a", "line": line }]);
        PlanFile::parse(&value.to_string()).unwrap().model_path()
    };
    assert_eq!(with_line("llama-server -m 'my model.gguf' -c 8"), Some("my model.gguf".to_owned()));
    let address = "https://host/m-00001-of-00002.gguf";
    assert_eq!(with_line(&format!("llama-server -mu {address} -c 8")), Some(address.to_owned()));
    assert_eq!(with_line("llama-server -c 8"), None);
    assert_eq!(with_line("llama-server -m"), None);
    assert_eq!(with_line("llama-server -m 'open"), None);
}
