//! The largest context that fits, against plans made one by one.

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::Path;

use plimsoll::balance::{Objective, PlanOptions};
use plimsoll::cluster::{self, ClusterSnapshot};
use plimsoll::model::{self, CacheType, ContextLength, ModelSpec, Request, list};
use plimsoll::units::Bytes;
use plimsoll::{Engine, Fit, Job, Limit};
use proptest::prelude::*;

fn example(name: &str) -> ModelSpec {
    model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)).unwrap()
}

fn cluster(text: &str) -> ClusterSnapshot {
    cluster::file::parse_cluster(text).unwrap().snapshot
}

/// A box with two cards of these sizes, and so much memory of its own.
fn boxed(cards: [u64; 2], host: u64) -> ClusterSnapshot {
    let [a, b] = cards;
    cluster(&format!(
        "[[node]]\nid = \"box\"\nmemory = {host}\n\
         [[node.device]]\nid = \"CUDA0\"\nmemory = {a}\nbackend = \"cuda\"\nbandwidth = \"900GB/s\"\n\
         [[node.device]]\nid = \"CUDA1\"\nmemory = {b}\nbackend = \"cuda\"\nbandwidth = \"900GB/s\"\n"
    ))
}

fn toy(text: &str) -> ModelSpec {
    ModelSpec::from_list(&list::parse_list_toml(text).unwrap())
}

/// Whether a plan is found with so much context, whatever the objective.
fn plans(model: &ModelSpec, snapshot: &ClusterSnapshot, request: Request, context: u64) -> bool {
    let request = Request { context: Some(ContextLength::PerSequence(context)), ..request };
    [Objective::Fit, Objective::Latency].into_iter().any(|objective| {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        Job::new(model, snapshot, Engine::LlamaCpp, request, options).plan().is_ok()
    })
}

fn fit(model: &ModelSpec, snapshot: &ClusterSnapshot, request: Request) -> Fit {
    Job::new(model, snapshot, Engine::LlamaCpp, request, PlanOptions::default()).fit().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_largest_context_fits_and_the_next_step_does_not(
        cards in [4_u64..9, 4..9],
        host in 3_u64..8,
        parallel in 1_u32..4,
        small in any::<bool>(),
    ) {
        let model = example("llama-3.1-8b-q4_k_m.gguf");
        let snapshot = boxed(cards.map(|gib| gib << 30), host << 30);
        let types = if small { CacheType::Q8_0 } else { CacheType::F16 };
        let request = Request { parallel, cache_type_k: types, cache_type_v: types, ..Request::default() };
        let fit = fit(&model, &snapshot, request);
        let fits = |context: u64| plans(&model, &snapshot, request, context);
        if let Some(largest) = &fit.largest {
            prop_assert!(fits(largest.context), "{fit:#?}");
        }
        match &fit.limit {
            Limit::Memory { next, refusal } => {
                let largest = fit.largest.as_ref().map_or(0, |largest| largest.context);
                prop_assert_eq!(*next, largest + 256);
                prop_assert!(!fits(*next));
                prop_assert!(refusal.as_ref().unwrap().short_bytes > Bytes::ZERO);
            }
            Limit::Trained { context } => {
                prop_assert_eq!(fit.largest.as_ref().unwrap().context, *context);
                prop_assert_eq!(Some(*context), model.trained_context());
            }
            Limit::Longest { .. } | Limit::Nothing => prop_assert!(false, "context takes memory here"),
        }
        prop_assert_eq!(fit.fits(), fits(fit.context));
        if let Some(off_host) = &fit.off_host {
            prop_assert!(off_host.plan.stages[0].layers.is_empty());
            prop_assert!(off_host.context < fit.largest.as_ref().unwrap().context);
        }
    }
}

#[test]
fn a_context_longer_than_trained_is_not_looked_for() {
    let model = example("qwen3-30b-a3b-q4_k_m.gguf");
    let trained = model.trained_context().unwrap();
    let found = fit(&model, &boxed([80 << 30, 80 << 30], 64 << 30), Request::default());
    assert_eq!(found.context, 4096);
    assert_eq!(found.largest.unwrap().context, trained);
    assert!(matches!(found.limit, Limit::Trained { context } if context == trained));
}

#[test]
fn a_list_that_tells_no_training_is_followed_as_far_as_it_fits() {
    let snapshot = boxed([10_000, 0], 0);
    let job = |model: &ModelSpec, context| {
        let request = Request { context, ..Request::default() };
        Job::new(model, &snapshot, Engine::None, request, PlanOptions::default()).fit().unwrap()
    };
    // 2000 bytes of weights leave 8000 for 4 bytes a token: 2000 tokens, 1792 in whole steps.
    let grows = toy("name = \"toy\"\nlayers = [ { count = 2, bytes = 1000, kv_bytes_per_token = 2 } ]");
    let found = job(&grows, None);
    assert_eq!(found.largest.unwrap().context, 1792);
    assert!(found.plan.is_none(), "4096 tokens do not fit");
    let Limit::Memory { next, refusal } = found.limit else { panic!("memory is what limits it") };
    assert_eq!((next, refusal.unwrap().short_bytes), (2048, Bytes::new(192)));
    assert!(job(&grows, Some(ContextLength::PerSequence(2000))).fits());
    assert!(!job(&grows, Some(ContextLength::PerSequence(2001))).fits());

    let still = toy("name = \"toy\"\nlayers = [ { count = 2, bytes = 1000, kv_bytes = 7 } ]");
    let found = job(&still, None);
    assert!(found.fits() && found.largest.is_some() && matches!(found.limit, Limit::Nothing));
    let huge = toy("name = \"toy\"\nlayers = [ { count = 2, bytes = 9000 } ]");
    let found = job(&huge, None);
    assert!(found.largest.is_none() && matches!(found.limit, Limit::Memory { .. }));
}
