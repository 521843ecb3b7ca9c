//! Adapters in plans: every byte on the device of the tensor that it changes, and the command line that says so.

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::error::Error as _;
use std::path::Path;

use plimsoll::balance::{Objective, PlanOptions, Stage};
use plimsoll::cluster::{self, ClusterSnapshot, GpuBackend};
use plimsoll::export::PlanFile;
use plimsoll::export::llama_cpp::{is_dense_tensor, is_expert_tensor, parse_flags};
use plimsoll::model::gguf::read_gguf;
use plimsoll::model::{ContextLength, GgufHeader, ModelSpec, Request, Tensor};
use plimsoll::units::Bytes;
use plimsoll::{
    AdaptError, Adapted, Adapter, Beside, Draft, Engine, Job, JobError, Offload, PartPlace, Planned,
    adapters_of, check, diff, digest_for, meaning, meaning_beside, rebalance,
};
use plimsoll_testkit::adapter::adapter;
use plimsoll_testkit::gguf::{Data, Writer};
use proptest::prelude::*;

const MODELS: [&str; 3] =
    ["llama-3.1-8b-q4_k_m.gguf", "llama-3.1-70b-q4_k_m.gguf", "qwen3-30b-a3b-q4_k_m.gguf"];

fn header(name: &str) -> GgufHeader {
    read_gguf(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)).unwrap()
}

fn home(name: &str) -> ClusterSnapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    cluster::file::read_cluster(path).unwrap().snapshot
}

/// An adapter for every n-th matrix of a model, read back from its file.
fn written(file: &str, base: &GgufHeader, every: usize, rank: u64, type_id: u32) -> GgufHeader {
    let matrices = base.tensors.iter().filter(|t| t.dims.len() > 1 && !t.name.starts_with("rope"));
    let architecture = base.metadata["general.architecture"].as_text().unwrap();
    let mut writer: Writer = adapter(architecture);
    for tensor in matrices.step_by(every) {
        // Halves whose rows are no whole blocks stay in 16 bits.
        let type_id = if rank.is_multiple_of(32) { type_id } else { type_id.min(1) };
        writer = writer.pair(&tensor.name, &tensor.dims, rank, type_id);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    writer.write(&path, Data::Whole).unwrap();
    let read = read_gguf(&path).unwrap();
    assert!(read.missing_bytes.is_zero() && !read.tensors.is_empty());
    read
}

fn request(context: u64) -> Request {
    Request { context: Some(ContextLength::PerSequence(context)), ..Request::default() }
}

fn named<'a>(path: &'a str, header: &'a GgufHeader) -> Adapter<'a> {
    Adapter { path, scale: None, header }
}

/// What one tensor takes on a device: the rule of its buffers, written down once more.
fn taken(tensor: &Tensor, on_host: bool) -> u64 {
    let (values, size) = tensor.kind.block();
    let bytes = tensor.bytes.get();
    if on_host {
        return bytes.next_multiple_of(32);
    }
    let short = if values > 1 { (512 - tensor.dims[0] % 512) % 512 } else { 0 };
    (bytes + short.div_ceil(values) * size).next_multiple_of(128)
}

/// The weights of every stage of a plan, tensor by tensor: each tensor goes where the plan says that its layer, or that
/// part of it, lies, and what changes it follows it.
fn recount(planned: &Planned, snapshot: &ClusterSnapshot, base: &GgufHeader, halves: &[&Tensor]) -> Vec<u64> {
    let plan = &planned.plan;
    let stage = |pick: &dyn Fn(&Stage) -> bool| plan.stages.iter().position(pick).unwrap();
    let place = |name: &str| -> Vec<usize> {
        let layer: Option<u32> =
            name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
        match layer {
            Some(layer) => {
                let moved = plan.overrides.iter().find(|moved| {
                    let class = if is_expert_tensor(name) { true } else { is_dense_tensor(name) };
                    class && moved.layers.contains(&layer)
                });
                match moved {
                    Some(moved) => vec![stage(&|stage| stage.device == moved.device)],
                    None => vec![stage(&|stage| stage.layers.contains(&layer))],
                }
            }
            None if name.starts_with("token_embd") => vec![stage(&|stage| stage.input)],
            None if name.starts_with("output") => vec![stage(&|stage| stage.head)],
            None => (0..plan.stages.len()).filter(|at| !plan.stages[*at].layers.is_empty()).collect(),
        }
    };
    let mut sums = vec![0; plan.stages.len()];
    let own = base.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor));
    let theirs = halves.iter().map(|half| (half.name.rsplit_once('.').unwrap().0, *half));
    for (name, tensor) in own.chain(theirs) {
        for at in place(name) {
            let (_, device) = snapshot.device(&plan.stages[at].device).unwrap();
            sums[at] += taken(tensor, device.backend == GpuBackend::Cpu);
        }
    }
    sums
}

fn weights(planned: &Planned) -> Vec<u64> {
    planned.plan.stages.iter().map(|stage| stage.weights_bytes.get()).collect()
}

/// A plan on a cluster whose pools have so many GB free, in the cluster's order.
fn squeezed(name: &str, free: &[u64]) -> ClusterSnapshot {
    let mut snapshot = home(name);
    let pools = snapshot.nodes.iter_mut().flat_map(|node| &mut node.pools);
    for (pool, gb) in pools.zip(free) {
        pool.free = Some(Bytes::new(gb * 1_000_000_000).min(pool.total));
    }
    snapshot
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_tensor_of_an_adapter_weighs_on_the_device_of_its_base(
        model in 0_usize..3,
        cluster in 0_usize..2,
        free in prop::collection::vec(2_u64..70, 8),
        (every, rank, type_id) in (1_usize..9, prop::sample::select(vec![1_u64, 8, 32, 64, 129]),
            prop::sample::select(vec![0_u32, 1, 8])),
        twice: bool,
        host in prop::sample::select(vec![PartPlace::Auto, PartPlace::Device, PartPlace::Host]),
        objective in prop::sample::select(vec![Objective::Fit, Objective::Latency, Objective::Throughput]),
    ) {
        let base = header(MODELS[model]);
        let spec = ModelSpec::from_gguf(&base).unwrap();
        let name = |n: u8| format!("adapter-{model}-{every}-{rank}-{type_id}-{n}.gguf");
        let (first, second) =
            (written(&name(1), &base, every, rank, type_id), written(&name(2), &base, every + 1, 4, 1));
        let mut all = vec![named("a.gguf", &first)];
        all.extend(twice.then(|| named("b.gguf", &second)));
        let adapted = Adapted::new(&spec, &all).unwrap();
        let snapshot = squeezed(["two-cards.toml", "home-lab.toml"][cluster], &free);
        let options = PlanOptions { objective, ..PlanOptions::default() };
        let offload = Offload { experts: host, feed_forward: host };
        let job = Job::new(&spec, &snapshot, Engine::LlamaCpp, request(4096), options)
            .with_offload(offload)
            .with_adapters(&adapted);
        let planned = match job.plan() {
            Ok(planned) => planned,
            Err(error) => {
                prop_assert!(error.refusal().is_some(), "{error}");
                return Ok(());
            }
        };
        let halves: Vec<&Tensor> = all.iter().flat_map(|one| &one.header.tensors).collect();
        let recounted = recount(&planned, &snapshot, &base, &halves);
        prop_assert_eq!(&recounted, &weights(&planned));
        let alone = recount(&planned, &snapshot, &base, &[]);
        let adapters = recounted.iter().sum::<u64>() - alone.iter().sum::<u64>();
        // The line means the same to the engine, with the adapters and without looking at them.
        let command = planned.command("m.gguf", &snapshot).unwrap().unwrap();
        let servers = command.rpc_servers.iter().flat_map(|server| &server.words);
        let words: Vec<String> = servers.chain(&command.server.words).cloned().collect();
        let flags = parse_flags(&words).unwrap();
        let meant = meaning_beside(&spec, &snapshot, &flags, Beside::default(), Some(&adapted)).unwrap();
        prop_assert_eq!(weights(&meant.planned), recounted);
        prop_assert_eq!(meant.short_bytes, Bytes::ZERO);
        // Without the adapters the same places hold just as much less.
        let blind = meaning(&spec, &snapshot, &flags).unwrap();
        let with: u64 = weights(&meant.planned).iter().sum();
        let without: u64 = weights(&blind.planned).iter().sum();
        prop_assert_eq!(with - without, adapters);
        prop_assert!(blind.planned.warnings.iter().any(|line| line == "not looked at: --lora a.gguf"));
    }
}

#[test]
fn experts_on_the_host_take_what_changes_them_along() {
    let base = header("qwen3-30b-a3b-q4_k_m.gguf");
    let spec = ModelSpec::from_gguf(&base).unwrap();
    let mut writer = adapter("qwen3moe");
    let experts = base.tensors.iter().filter(|tensor| is_expert_tensor(&tensor.name));
    for tensor in experts {
        writer = writer.pair(&tensor.name, &tensor.dims, 8, 1);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experts-adapter.gguf");
    writer.write(&path, Data::Whole).unwrap();
    let change = read_gguf(&path).unwrap();
    let adapted = Adapted::new(&spec, &[named("x.gguf", &change)]).unwrap();
    let snapshot = home("two-cards.toml");
    let plan = |adapted: Option<&Adapted>| {
        let offload = Offload { experts: PartPlace::Host, ..Offload::default() };
        let job = Job::new(&spec, &snapshot, Engine::LlamaCpp, request(4096), PlanOptions::default());
        let job = job.with_offload(offload);
        adapted.map_or(job.clone(), |adapted| job.with_adapters(adapted)).plan().unwrap()
    };
    let (with, without) = (plan(Some(&adapted)), plan(None));
    let apart = |planned: &Planned| {
        Bytes::saturating_sum(planned.plan.overrides.iter().map(|moved| moved.bytes)).get()
    };
    let all: u64 = change.tensors.iter().map(|half| taken(half, true)).sum();
    assert_eq!(apart(&with) - apart(&without), all);
    // No device holds a byte of it.
    let devices = |planned: &Planned| weights(planned)[1..].iter().sum::<u64>();
    assert_eq!(devices(&with), devices(&without));
}

#[test]
fn a_line_has_every_adapter_and_a_saved_plan_keeps_them() {
    let base = header("llama-3.1-8b-q4_k_m.gguf");
    let spec = ModelSpec::from_gguf(&base).unwrap();
    let (tone, terms) = (written("tone.gguf", &base, 3, 16, 1), written("terms.gguf", &base, 5, 8, 1));
    let scaled = Adapter { scale: Some(0.25), ..named("my terms.gguf", &terms) };
    let adapted = Adapted::new(&spec, &[named("tone.gguf", &tone), scaled]).unwrap();
    let snapshot = home("two-cards.toml");
    let job = Job::new(&spec, &snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
    let job = job.with_adapters(&adapted);
    let planned = job.plan().unwrap();
    let export = planned.export("m.gguf", &snapshot).unwrap();
    let words = planned.command("m.gguf", &snapshot).unwrap().unwrap().server.words;
    let tail = ["--lora", "tone.gguf", "--lora-scaled", "my terms.gguf:0.25"];
    assert_eq!(words[words.len() - 4..], tail);
    let file = planned.to_file_with(export.as_ref(), "m.gguf").unwrap();
    let file = PlanFile::parse(&file.to_text().unwrap()).unwrap();
    let kept = [("tone.gguf".to_owned(), None), ("my terms.gguf".to_owned(), Some(0.25))];
    assert_eq!(adapters_of(&file), kept);
    assert_eq!(check(&file, &snapshot).unwrap().broken, []);
    assert_eq!(digest_for(adapted.model(), &file).unwrap(), file.model.digest);
    assert_ne!(digest_for(&spec, &file).unwrap(), file.model.digest);
    // To another place, with its adapters.
    let mut lost = snapshot.clone();
    lost.nodes[0].devices.retain(|device| device.id.as_str() != "CUDA1");
    let moved = rebalance(&file, &lost, &Default::default()).unwrap();
    let line = moved.command.unwrap().server.words;
    assert_eq!(line[line.len() - 4..], tail);
    let target = moved.planned.to_file_with(moved.export.as_ref(), "m.gguf").unwrap();
    assert_eq!(target.model.digest, file.model.digest);
    assert!(diff(&file, &target).is_ok());
    let notes = [
        "adapter tone.gguf: its 36.2 MB (36192256 bytes) count",
        "what adapters take to compute is not charged: only the margin covers it",
    ];
    for note in notes {
        assert!(target.report.warnings.iter().any(|line| line.starts_with(note)), "{:?}", target.report);
    }
}

#[test]
fn adapters_go_together_with_a_draft_model() {
    let base = header("llama-3.1-8b-q4_k_m.gguf");
    let spec = ModelSpec::from_gguf(&base).unwrap();
    let tone = written("drafted.gguf", &base, 3, 16, 1);
    let adapted = Adapted::new(&spec, &[named("tone.gguf", &tone)]).unwrap();
    let snapshot = home("two-cards.toml");
    let beside = Beside { draft: Some(Draft { path: "d.gguf", model: &spec }), ..Beside::default() };
    let job = Job::new(&spec, &snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
    let planned = job.with_beside(beside).with_adapters(&adapted).plan().unwrap();
    let words = planned.command("m.gguf", &snapshot).unwrap().unwrap().server.words;
    let flags = parse_flags(&words).unwrap();
    assert_eq!(flags.ignored, Vec::<String>::new());
    let meant = meaning_beside(&spec, &snapshot, &flags, beside, Some(&adapted)).unwrap();
    assert_eq!(meant.planned.plan.parts, planned.plan.parts);
    assert_eq!(weights(&meant.planned), weights(&planned));
    assert_eq!(meant.planned.command("m.gguf", &snapshot).unwrap().unwrap().server.words, words);
}

#[test]
fn what_cannot_be_loaded_is_refused_with_both_names() {
    let base = header("llama-3.1-8b-q4_k_m.gguf");
    let spec = ModelSpec::from_gguf(&base).unwrap();
    let tone = written("refused.gguf", &base, 30, 4, 1);
    let other = header("qwen3-30b-a3b-q4_k_m.gguf");
    let other = written("other.gguf", &other, 30, 4, 1);
    let refused = |adapters: &[Adapter<'_>]| Adapted::new(&spec, adapters).unwrap_err();
    let error = refused(&[named("x.gguf", &other)]);
    assert_eq!(
        format!("{error}: {}", error.source().unwrap()),
        format!(
            "x.gguf cannot be loaded beside '{}': it is an adapter for the architecture 'qwen3moe', and the model is \
             'llama'",
            spec.name()
        )
    );
    let one = named("a.gguf", &tone);
    assert_eq!(refused(&[one, one]), AdaptError::Twice { path: "a.gguf".to_owned() });
    let mark = |path, scale| refused(&[Adapter { path, scale, header: &tone }]);
    assert_eq!(mark("a,b.gguf", None), AdaptError::Mark { path: "a,b.gguf".to_owned(), mark: ',' });
    assert_eq!(mark("c:a.gguf", Some(1.0)), AdaptError::Mark { path: "c:a.gguf".to_owned(), mark: ':' });
    assert!(Adapted::new(&spec, &[named("c:a.gguf", &tone)]).is_ok());
    // A file that was not fetched to its end is planned with all that its table tells, and that is said.
    let snapshot = home("two-cards.toml");
    let short = GgufHeader { missing_bytes: Bytes::new(77), ..tone.clone() };
    let adapted = Adapted::new(&spec, &[named("short.gguf", &short)]).unwrap();
    let job = Job::new(&spec, &snapshot, Engine::LlamaCpp, request(4096), PlanOptions::default());
    let warnings = job.with_adapters(&adapted).plan().unwrap().warnings;
    let said = "adapter short.gguf: the file ends 77 bytes before its tensors do";
    assert!(warnings.iter().any(|line| line == said), "{warnings:?}");
    // Other engines keep adapters in their own ways.
    let adapted = Adapted::new(&spec, &[one]).unwrap();
    for engine in [Engine::IkLlamaCpp, Engine::MistralRs, Engine::None] {
        let job = Job::new(&spec, &snapshot, engine, request(4096), PlanOptions::default());
        let error = job.with_adapters(&adapted).plan().unwrap_err();
        assert!(matches!(error, JobError::Engine(_)), "{error}");
        assert!(error.to_string().starts_with("adapters (--lora) cannot be planned under"), "{error}");
    }
    let vllm = Engine::Vllm.takes_adapters().unwrap_err().to_string();
    assert!(vllm.contains("--max-loras and --max-lora-rank"), "{vllm}");
}
