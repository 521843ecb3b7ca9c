//! What is booked for a model is what a plan gives it.

#![cfg(all(feature = "files", feature = "gguf"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::Path;

use plimsoll::balance::PlanOptions;
use plimsoll::export::llama_cpp::CACHE_RAM;
use plimsoll::model::{ContextLength, ModelSpec, Request};
use plimsoll::units::Bytes;
use plimsoll::{Engine, Job, Place, cluster, size};

fn model(name: &str) -> ModelSpec {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    plimsoll::model::open(&path).unwrap()
}

/// What a plan on this machine uses of the device of that name.
fn planned(model: &ModelSpec, machine: &str, request: Request, device: &str) -> Bytes {
    let home = cluster::file::parse_cluster(machine).unwrap().snapshot;
    let planned = Job::new(model, &home, Engine::LlamaCpp, request, PlanOptions::default()).plan().unwrap();
    let stage = planned.plan.stages.iter().find(|stage| stage.device.device.as_str() == device).unwrap();
    // A host with room for it is charged the server's prompt cache, which no booking counts.
    let cache = if device == "host" && planned.cache_ram.is_none() { CACHE_RAM } else { Bytes::ZERO };
    stage.used_bytes().checked_sub(cache).unwrap()
}

#[test]
fn a_booking_is_what_a_plan_puts_into_one_place() {
    let card = "[[node]]\nid = \"tower\"\nmemory = \"64GiB\"\n[[node.device]]\nid = \"CUDA0\"\nmemory = \"640GiB\"\nbackend = \"cuda\"\n";
    let host = "[[node]]\nid = \"tower\"\nmemory = \"640GiB\"\n";
    for name in ["llama-3.1-8b-q4_k_m.gguf", "qwen3-30b-a3b-q4_k_m.gguf", "gpt-oss-120b-mxfp4.gguf"] {
        let model = model(name);
        for ctx in [4096, 32_768] {
            let request = Request { context: Some(ContextLength::PerSequence(ctx)), ..Request::default() };
            let on_card = size(&model, &request, Place::Device).unwrap().total();
            assert_eq!(on_card, planned(&model, card, request, "CUDA0"), "{name} on a card, {ctx}");
            let on_host = size(&model, &request, Place::OneMemory).unwrap().total();
            assert_eq!(on_host, planned(&model, host, request, "host"), "{name} on a host, {ctx}");
        }
    }
}

#[test]
fn an_unknown_engine_takes_exactly_the_layers() {
    let list = "name = \"toy\"\ninput_bytes = 5\nhead_bytes = 7\nlayers = [ { count = 3, bytes = 100, kv_bytes = 10 } ]";
    let toy = ModelSpec::from_list(&plimsoll::model::list::parse_list_toml(list).unwrap());
    for place in [Place::OneMemory, Place::Device] {
        let told = size(&toy, &Request::default(), place).unwrap();
        assert_eq!((told.weights, told.kv_and_buffers), (Bytes::new(312), Bytes::new(30)));
    }
}
