//! A real, published model, planned end to end: SmolLM2-135M-Instruct, Q4_1.
//!
//! `cargo xtask test` fetches it and says where it lies in `PLIMSOLL_SMOLLM2`.

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::path::PathBuf;

use plimsoll::balance::PlanOptions;
use plimsoll::model::gguf::read_gguf;
use plimsoll::model::{self, ContextLength, Padding, Request};
use plimsoll::units::Bytes;
use plimsoll::{Engine, Job, cluster};

/// The file, or `None` with a line that says why; in CI there is no why.
fn smollm2() -> Option<PathBuf> {
    let path = std::env::var_os("PLIMSOLL_SMOLLM2").filter(|path| !path.is_empty());
    let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(path.is_some() || !in_ci, "PLIMSOLL_SMOLLM2 is not set: run the tests with `cargo xtask test`");
    if path.is_none() {
        eprintln!("skipped: PLIMSOLL_SMOLLM2 is not set; `cargo xtask test` fetches the model and sets it");
    }
    path.map(PathBuf::from)
}

#[test]
fn a_real_model_has_the_bytes_that_its_engine_reports() {
    let Some(path) = smollm2() else { return };
    let header = read_gguf(&path).unwrap();
    assert_eq!(header.tensors.len(), 272);

    let model = model::open(&path).unwrap();
    assert_eq!(model.architecture(), "llama");
    assert_eq!(model.layer_count(), 30);
    assert!(model.is_tied());
    assert!(model.missing_bytes().is_zero());
    assert!(model.warnings().is_empty(), "{:?}", model.warnings());

    let request = Request { context: Some(ContextLength::PerSequence(2048)), ..Request::default() };
    let footprint = model.footprint(&request, Padding::Cpu).unwrap();
    let cache = Bytes::checked_sum(footprint.layers.iter().map(|layer| layer.kv_bytes)).unwrap();
    assert_eq!(cache, Bytes::mib(45));
    // Every byte of the file is a tensor, or the header in front of them and less than a block of padding each.
    let size = std::fs::metadata(&path).unwrap().len();
    assert_eq!(size, 98_362_432);
    let header_bytes = size - model.file_bytes().get();
    assert!(header_bytes < 4 << 20, "{header_bytes} bytes are no tensor");
}

#[test]
fn a_real_model_is_planned_onto_two_cards() {
    let Some(path) = smollm2() else { return };
    let model = model::open(&path).unwrap();
    let home = cluster::file::parse_cluster(
        "[defaults]\nreserve = 0\n[[node]]\nid = \"box\"\nmemory = \"8GiB\"\n\
         [[node.device]]\nid = \"CUDA0\"\nmemory = \"256MiB\"\nbandwidth = \"300GB/s\"\nbackend = \"cuda\"\n\
         [[node.device]]\nid = \"CUDA1\"\nmemory = \"256MiB\"\nbandwidth = \"200GB/s\"\nbackend = \"cuda\"\n",
    )
    .unwrap()
    .snapshot;
    let request =
        Request { context: Some(ContextLength::PerSequence(2048)), micro_batch: 64, ..Request::default() };
    let job = Job::new(&model, &home, Engine::LlamaCpp, request, PlanOptions::default());
    let planned = job.plan().unwrap();
    let layers: u32 = planned.plan.stages.iter().map(|s| s.layers.end - s.layers.start).sum();
    assert_eq!(layers, 30);
    let command = planned.command("model.gguf", &home).unwrap().unwrap();
    assert!(command.server.to_string().contains("-c 2048 "), "{}", command.server);
}
