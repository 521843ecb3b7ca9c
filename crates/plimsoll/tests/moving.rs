//! From one saved plan to another: what moves, and how to get there.

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::Path;

use plimsoll::balance::{Objective, PlanOptions, RebalanceError, RebalanceOptions};
use plimsoll::cluster::{self, ClusterSnapshot};
use plimsoll::export::PlanFile;
use plimsoll::model::{self, ContextLength, ModelSpec, Request};
use plimsoll::units::{Bytes, DeviceRef};
use plimsoll::{DiffError, Engine, Job, MoveError, What, check, diff, holding, rebalance};

fn example(name: &str) -> ModelSpec {
    model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)).unwrap()
}

fn home() -> ClusterSnapshot {
    cluster::file::read_cluster(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/home-lab.toml"))
        .unwrap()
        .snapshot
}

fn saved(model: &ModelSpec, snapshot: &ClusterSnapshot, context: u64, options: PlanOptions) -> PlanFile {
    let request = Request { context: Some(ContextLength::PerSequence(context)), ..Request::default() };
    let planned = Job::new(model, snapshot, Engine::LlamaCpp, request, options).plan().unwrap();
    let command = planned.command("my model.gguf", snapshot).unwrap();
    planned.to_file(command.as_ref()).unwrap()
}

fn pinned(text: &str) -> PlanOptions {
    PlanOptions { pins: vec![text.parse().unwrap()], ..PlanOptions::default() }
}

/// Which device of a plan holds a layer.
fn holder(file: &PlanFile, layer: u32) -> DeviceRef {
    let mut stages = file.stages.iter().filter(|s| s.layers[0] <= layer && layer < s.layers[1]);
    let stage = stages.next().unwrap();
    DeviceRef { node: stage.node.clone(), device: stage.device.clone() }
}

#[test]
fn every_layer_that_changes_its_device_is_told_once_with_its_bytes() {
    let (model, snapshot) = (example("llama-3.1-70b-q4_k_m.gguf"), home());
    let old = saved(&model, &snapshot, 32_768, PlanOptions::default());
    let new = saved(&model, &snapshot, 32_768, pinned("0-20=rig/CUDA1"));
    let found = diff(&old, &new).unwrap();
    assert!(found.same_request);
    let sizes: Vec<u64> = {
        let runs = new.model.runs.iter();
        runs.flat_map(|run| (0..run.count).map(|_| run.weights_bytes + run.kv_bytes)).collect()
    };
    let mut moved = vec![false; sizes.len()];
    for change in &found.moves {
        let What::Layers(layers) = &change.what else { continue };
        let mut bytes = 0;
        for layer in layers.clone() {
            let place = usize::try_from(layer).unwrap();
            assert!(!std::mem::replace(&mut moved[place], true), "layer {layer} is told twice");
            assert_eq!(change.from, Some(holder(&old, layer)));
            assert_eq!(change.to, Some(holder(&new, layer)));
            bytes += sizes[place];
        }
        assert_eq!(change.bytes, Bytes::new(bytes));
    }
    for layer in 0..80 {
        let changed = holder(&old, layer) != holder(&new, layer);
        assert_eq!(moved[usize::try_from(layer).unwrap()], changed, "layer {layer}");
    }
    // What all devices get is what moves.
    let gets = found.devices.iter().flat_map(|device| found.of(&device.device).0);
    assert_eq!(Bytes::saturating_sum(gets.map(|change| change.bytes)), found.moved());
    let none = diff(&old, &old).unwrap();
    assert!(none.moves.is_empty() && none.moved().is_zero());
}

#[test]
fn another_context_is_the_same_model_and_moves_only_weights() {
    let (model, snapshot) = (example("llama-3.1-8b-q4_k_m.gguf"), home());
    let old = saved(&model, &snapshot, 8_192, pinned("0-10=tower/CUDA0"));
    let new = saved(&model, &snapshot, 16_384, pinned("0-10=rig/CUDA0"));
    let found = diff(&old, &new).unwrap();
    assert!(!found.same_request);
    let weights: u64 = new.model.runs.iter().map(|run| run.count * run.weights_bytes).sum();
    assert_eq!(found.total, Bytes::new(weights + new.model.input_bytes + new.model.head_bytes));
}

#[test]
fn plans_for_different_models_are_refused_with_both_names() {
    let snapshot = home();
    let old = saved(&example("llama-3.1-8b-q4_k_m.gguf"), &snapshot, 8_192, PlanOptions::default());
    let new = saved(&example("qwen3-30b-a3b-q4_k_m.gguf"), &snapshot, 8_192, PlanOptions::default());
    let error = diff(&old, &new).unwrap_err();
    assert!(matches!(error, DiffError::OtherModel { .. }));
    for part in [&old.model.name, &old.model.digest, &new.model.name, &new.model.digest] {
        assert!(error.to_string().contains(part.as_str()), "{error}");
    }
}

#[test]
fn a_plan_that_no_longer_fits_is_moved_to_one_that_does() {
    let (model, snapshot) = (example("llama-3.1-70b-q4_k_m.gguf"), home());
    let mut less = snapshot.clone();
    let tower = less.nodes.iter_mut().find(|node| node.id.as_str() == "tower").unwrap();
    let card = tower.device(&"CUDA0".parse().unwrap()).unwrap().pool.clone();
    let pool = tower.pools.iter_mut().find(|pool| pool.id == card).unwrap();
    pool.free = pool.free.and_then(|free| free.checked_sub(Bytes::new(4 << 30)));
    for objective in [Objective::Latency, Objective::Throughput, Objective::Balanced, Objective::Fit] {
        for pins in [Vec::new(), vec!["0-10=tower/CUDA0".parse().unwrap()]] {
            let old =
                saved(&model, &snapshot, 32_768, PlanOptions { objective, pins, ..PlanOptions::default() });
            let done = rebalance(&old, &less, &RebalanceOptions::default()).unwrap();
            let new = done.planned.to_file(done.command.as_ref()).unwrap();
            let text = new.to_text().unwrap();
            let new = PlanFile::parse(&text).unwrap();
            assert_eq!(check(&new, &less).unwrap(), plimsoll::Checked::default(), "{objective:?}");
            assert_eq!(new.options().unwrap(), old.options().unwrap());
            assert_eq!(new.model_path().as_deref(), Some("my model.gguf"));
            // The comparison of the two files counts the same layers; only padding of buffers is counted in the one.
            let (told, counted) = (done.rebalance.bytes(), diff(&old, &new).unwrap().moved());
            assert!(
                told >= counted && told.get() - counted.get() <= told.get() / 100,
                "{told:?} {counted:?}"
            );
        }
    }
}

#[test]
fn what_lay_on_a_device_that_is_gone_is_loaded_again_elsewhere() {
    let (model, snapshot) = (example("llama-3.1-70b-q4_k_m.gguf"), home());
    let old = saved(&model, &snapshot, 32_768, PlanOptions::default());
    let gone = DeviceRef { node: "rig".parse().unwrap(), device: "CUDA1".parse().unwrap() };
    assert_eq!(holder(&old, 79), gone);
    let mut fewer = snapshot.clone();
    let rig = fewer.nodes.iter_mut().find(|node| node.id == gone.node).unwrap();
    rig.devices.retain(|device| device.id != gone.device);
    let mut without_rig = snapshot.clone();
    without_rig.nodes.retain(|node| node.id != gone.node);
    without_rig.links.retain(|link| !link.between.contains(&gone.node));
    for cluster in [&fewer, &without_rig] {
        let done = rebalance(&old, cluster, &RebalanceOptions::default()).unwrap();
        let new = done.planned.to_file(done.command.as_ref()).unwrap();
        assert_eq!(check(&new, cluster).unwrap(), plimsoll::Checked::default());
        let there = |device: &DeviceRef| cluster.node(&device.node)?.device(&device.device);
        let held: u64 = old
            .stages
            .iter()
            .filter(|s| there(&DeviceRef { node: s.node.clone(), device: s.device.clone() }).is_none())
            .map(|s| s.weights_bytes + s.kv_bytes)
            .sum();
        let loaded = done.rebalance.loaded_bytes.get();
        assert!(loaded.abs_diff(held) <= held / 100, "{loaded} of {held}");
    }
}

#[test]
fn a_plan_for_quite_another_cluster_is_not_moved() {
    let (model, snapshot) = (example("llama-3.1-8b-q4_k_m.gguf"), home());
    let old = saved(&model, &snapshot, 8_192, PlanOptions::default());
    let mut other = snapshot;
    other.nodes.iter_mut().for_each(|node| node.id = format!("other-{}", node.id).parse().unwrap());
    other.links.clear();
    let error = rebalance(&old, &other, &RebalanceOptions::default()).unwrap_err();
    assert!(matches!(error, MoveError::Rebalance(RebalanceError::UnknownDevice { .. })), "{error}");
}

#[test]
fn what_a_plan_holds_counts_as_ours_but_never_more_than_is_taken() {
    let (model, mut snapshot) = (example("llama-3.1-8b-q4_k_m.gguf"), home());
    let plan = saved(&model, &snapshot, 8_192, pinned("0-32=tower/CUDA0"));
    let tower = snapshot.nodes.iter_mut().find(|node| node.id.as_str() == "tower").unwrap();
    let card = tower.device(&"CUDA0".parse().unwrap()).unwrap().pool.clone();
    let pool = tower.pools.iter_mut().find(|pool| pool.id == card).unwrap();
    let taken = Bytes::new(1 << 30);
    pool.free = pool.total.checked_sub(taken);
    let held = |snapshot: &ClusterSnapshot| {
        let node = snapshot.nodes.iter().find(|node| node.id.as_str() == "tower").unwrap();
        node.pool(&card).unwrap().held
    };
    assert_eq!(held(&snapshot), Bytes::ZERO);
    assert_eq!(held(&holding(&snapshot, &plan)), taken);
}
