//! Experts on the host: what a plan says, what its command line means to the engine, and what lies beside the layers.

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};

use plimsoll::balance::{Objective, PartClass, Plan, PlanOptions, audit};
use plimsoll::cluster::{self, ClusterSnapshot};
use plimsoll::export::PlanFile;
use plimsoll::export::llama_cpp::parse_flags;
use plimsoll::model::{self, ContextLength, ModelSpec, Padding, Request};
use plimsoll::units::Bytes;
use plimsoll::{
    Beside, Change, Draft, Engine, Job, MeaningError, Offload, PartPlace, Planned, Projector, check, diff,
    meaning, rebalance, suggestions,
};
use plimsoll_testkit::gguf::{Data, Value, Writer};

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

fn example(name: &str) -> ModelSpec {
    model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)).unwrap()
}

fn home(name: &str) -> ClusterSnapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    cluster::file::read_cluster(path).unwrap().snapshot
}

/// Two cards and a host with so much free, in bytes.
fn two_cards(host: u64, cards: [u64; 2]) -> ClusterSnapshot {
    let mut snapshot = home("two-cards.toml");
    for (pool, bytes) in snapshot.nodes[0].pools.iter_mut().zip([host, cards[0], cards[1]]) {
        pool.free = Some(Bytes::new(bytes).min(pool.total));
    }
    snapshot
}

fn request(context: u64) -> Request {
    Request { context: Some(ContextLength::PerSequence(context)), ..Request::default() }
}

fn job<'a>(model: &'a ModelSpec, snapshot: &'a ClusterSnapshot, objective: Objective) -> Job<'a> {
    let options = PlanOptions { objective, ..PlanOptions::default() };
    Job::new(model, snapshot, Engine::LlamaCpp, request(8192), options)
}

fn layers(plan: &Plan) -> Vec<std::ops::Range<u32>> {
    plan.overrides.iter().map(|moved| moved.layers.clone()).collect()
}

/// What the largest experts of these layers take on a card, which the engine copies there for long batches.
fn largest(model: &ModelSpec, is_meant: impl Fn(u32) -> bool) -> Bytes {
    model.largest_tensor(Padding::Cuda, |name| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
        name.contains("_exps.") && layer.is_some_and(|layer| is_meant(layer.parse().unwrap()))
    })
}

/// The words of a plan's command line.
fn words(planned: &Planned, snapshot: &ClusterSnapshot) -> Vec<String> {
    planned.command("m.gguf", snapshot).unwrap().unwrap().server.words
}

/// The bytes of tensors that the patterns of a line find, as a C++ programme would: the regular expressions of another
/// library over the names in the file.
fn found_by_patterns(words: &[String], model: &ModelSpec) -> Bytes {
    let mut patterns: Vec<regex::Regex> = Vec::new();
    for pair in words.windows(2) {
        match pair[0].as_str() {
            "-ot" => {
                let (pattern, buffer) = pair[1].split_once('=').unwrap();
                assert_eq!(buffer, "CPU");
                assert!(!pattern.contains(','));
                patterns.push(regex::Regex::new(pattern).unwrap());
            }
            "--n-cpu-moe" => {
                for layer in 0..pair[1].parse::<u32>().unwrap() {
                    let pattern = format!(r"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps");
                    patterns.push(regex::Regex::new(&pattern).unwrap());
                }
            }
            _ => {}
        }
    }
    let is_found = |name: &str| patterns.iter().any(|pattern| pattern.is_match(name));
    let parts = model.layer_parts(Padding::Cpu, is_found);
    Bytes::saturating_sum(parts.iter().map(|part| part.weights_bytes))
}

#[test]
fn the_command_line_means_the_plan_to_the_engine() {
    let (mut patterns, mut numbers) = (0, 0);
    for model in ["gpt-oss-120b-mxfp4.gguf", "qwen3-30b-a3b-q4_k_m.gguf"].map(example) {
        let gb = |n: u64| n * 1_000_000_000;
        for (host, cards) in [(64, [24, 24]), (64, [7, 9]), (68, [5, 0])] {
            let snapshot = two_cards(gb(host), cards.map(gb));
            for objective in OBJECTIVES {
                let Ok(planned) = job(&model, &snapshot, objective).plan() else { continue };
                if planned.plan.overrides.is_empty() {
                    continue;
                }
                let words = words(&planned, &snapshot);
                patterns += words.iter().filter(|word| *word == "-ot").count();
                numbers += words.iter().filter(|word| *word == "--n-cpu-moe").count();
                let meant = meaning(&model, &snapshot, &parse_flags(&words).unwrap()).unwrap();
                assert_eq!(meant.short_bytes, Bytes::ZERO);
                let bytes = |plan: &Plan| -> Vec<_> {
                    let stages = plan.stages.iter();
                    stages
                        .map(|s| (s.device.clone(), s.layers.clone(), s.weights_bytes, s.kv_bytes))
                        .collect()
                };
                assert_eq!(bytes(&meant.planned.plan), bytes(&planned.plan), "{words:?}");
                // A plan keeps room to copy the largest tensor that could have been moved, the engine needs that of the
                // largest that was.
                let room = largest(&model, |_| true).saturating_sub(largest(&model, |layer| {
                    planned.plan.overrides.iter().any(|moved| moved.layers.contains(&layer))
                }));
                // On one machine it is the first device that keeps the room.
                let stages = planned.plan.stages.iter().zip(&meant.planned.plan.stages);
                let over =
                    stages.map(|(stage, meant)| stage.overhead_bytes.checked_sub(meant.overhead_bytes));
                let expected =
                    (0..planned.plan.stages.len()).map(|at| if at == 1 { room } else { Bytes::ZERO });
                assert!(over.eq(expected.map(Some)), "{room:?}: {words:?}");
                assert_eq!(meant.planned.plan.overrides, planned.plan.overrides);
                // Whole layers on the host are not found a second time: they lie there anyway.
                let on_host = planned.plan.stages[0].layers.end;
                let whole = Bytes::saturating_sum(
                    (0..usize::try_from(on_host).unwrap())
                        .filter(|_| words.iter().any(|word| word == "--n-cpu-moe"))
                        .map(|layer| model.class_bytes(layer, Padding::Cpu).experts),
                );
                let apart = Bytes::saturating_sum(planned.plan.overrides.iter().map(|moved| moved.bytes));
                assert_eq!(found_by_patterns(&words, &model), apart.saturating_add(whole), "{words:?}");
            }
        }
    }
    assert!(patterns > 2 && numbers > 1, "{patterns} patterns and {numbers} numbers were checked");
}

#[test]
fn experts_on_the_host_are_faster_than_whole_layers_there() {
    let model = example("gpt-oss-120b-mxfp4.gguf");
    let snapshot = home("two-cards.toml");
    let job = job(&model, &snapshot, Objective::Latency);
    let auto = job.plan().unwrap();
    let device = Offload { experts: PartPlace::Device, ..Offload::default() };
    let whole = job.clone().with_offload(device).plan().unwrap();
    assert!(whole.plan.overrides.is_empty() && !whole.plan.stages[0].layers.is_empty());
    assert!(auto.plan.stages[0].layers.is_empty());
    assert!(auto.plan.value.value.unwrap() < 0.8 * whole.plan.value.value.unwrap());
    // On the device or on the host, a layer takes the same bytes.
    let weights = |plan: &Plan| Bytes::saturating_sum(plan.stages.iter().map(|stage| stage.weights_bytes));
    // But for what buffers round up.
    assert!(weights(&auto.plan).get().abs_diff(weights(&whole.plan).get()) < 1 << 20);
}

#[test]
fn all_experts_lie_on_the_host_where_that_is_asked_for() {
    let model = example("qwen3-30b-a3b-q4_k_m.gguf");
    let snapshot = home("two-cards.toml");
    let host = Offload { experts: PartPlace::Host, ..Offload::default() };
    let planned = job(&model, &snapshot, Objective::Latency).with_offload(host).plan().unwrap();
    let moved: Vec<u32> = layers(&planned.plan).into_iter().flatten().collect();
    assert!(moved.iter().copied().eq(0..48), "{moved:?}");
    let words = words(&planned, &snapshot);
    assert!(words.windows(2).any(|pair| pair == ["--n-cpu-moe", "48"]), "{words:?}");
}

#[test]
fn feed_forward_blocks_move_only_where_that_is_asked_for() {
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    let snapshot = two_cards(64_000_000_000, [14_000_000_000, 14_000_000_000]);
    let job = job(&model, &snapshot, Objective::Latency);
    assert!(job.plan().unwrap().plan.overrides.is_empty());
    let host = Offload { feed_forward: PartPlace::Host, ..Offload::default() };
    let planned = job.with_offload(host).plan().unwrap();
    assert!(planned.plan.overrides.iter().all(|moved| moved.class == PartClass::FeedForward));
    let words = words(&planned, &snapshot);
    let meant = meaning(&model, &snapshot, &parse_flags(&words).unwrap()).unwrap();
    assert_eq!(meant.planned.plan.overrides, planned.plan.overrides);
}

#[test]
fn a_saved_plan_keeps_its_overrides_and_a_wrong_one_is_found() {
    let model = example("gpt-oss-120b-mxfp4.gguf");
    let snapshot = home("two-cards.toml");
    let planned = job(&model, &snapshot, Objective::Latency).plan().unwrap();
    let text = planned.to_file(None).unwrap().to_text().unwrap();
    let file = PlanFile::parse(&text).unwrap();
    assert_eq!(file.plan().unwrap().overrides, planned.plan.overrides);
    assert_eq!(file.workload().unwrap().movable, planned.workload.movable);
    assert_eq!(check(&file, &snapshot).unwrap().broken, []);
    let mut changed = file.clone();
    changed.overrides[0].bytes -= 1;
    assert_eq!(check(&changed, &snapshot).unwrap().broken.len(), 1);
}

#[test]
fn what_moves_between_plans_counts_parts_apart_from_their_layers() {
    let model = example("gpt-oss-120b-mxfp4.gguf");
    let snapshot = home("two-cards.toml");
    let auto = job(&model, &snapshot, Objective::Latency);
    let device = Offload { experts: PartPlace::Device, ..Offload::default() };
    let now = auto.plan().unwrap().to_file(None).unwrap();
    let then = auto.with_offload(device).plan().unwrap().to_file(None).unwrap();
    let changes = diff(&then, &now).unwrap();
    // What a device gets less what it gives up is what it holds more, charges aside.
    for change in &changes.devices {
        let (come, go) = changes.of(&change.device);
        let sum =
            |moves: Vec<&plimsoll::Moved>| Bytes::saturating_sum(moves.iter().map(|moved| moved.bytes)).get();
        let held = |file: &PlanFile| -> u64 {
            let at = file.stages.iter().find(|stage| stage.device == change.device.device).unwrap();
            at.weights_bytes + at.kv_bytes
        };
        // Buffers of devices round tensors up a little more than those of the host.
        let (before, after) = (held(&then) + sum(come), held(&now) + sum(go));
        assert!(before.abs_diff(after) < 1 << 20, "{}: {before} {after}", change.device);
    }
    let refused = rebalance(&now, &snapshot, &plimsoll::balance::RebalanceOptions::default());
    assert!(refused.unwrap_err().to_string().contains("only whole layers are rebalanced"));
}

#[test]
fn a_refusal_suggests_experts_on_the_host_only_where_that_fits() {
    let model = example("gpt-oss-120b-mxfp4.gguf");
    let device = Offload { experts: PartPlace::Device, ..Offload::default() };
    let told = |host: u64| {
        let snapshot = two_cards(host, [26_000_000_000, 26_000_000_000]);
        let auto = Job::new(&model, &snapshot, Engine::LlamaCpp, request(131_072), PlanOptions::default());
        let whole = auto.clone().with_offload(device);
        let refused = whole.plan().err()?;
        let found = suggestions(&whole, refused.refusal()?);
        let frees = found.iter().find(|found| found.change == Change::ExpertsToHost).map(|found| found.frees);
        assert_eq!(frees.is_some(), auto.plan().is_ok(), "{host}");
        Some(frees)
    };
    assert_eq!(told(10_000_000_000), Some(None), "neither fits");
    // Whole layers bring their cache along: there is a host that has room for experts and not for these.
    let frees = (24..27).filter_map(|gb| told(gb * 1_000_000_000)).flatten().next();
    assert!(frees.is_some_and(|frees| !frees.is_zero()));
}

#[test]
fn tensors_that_flags_send_to_another_device_count_there() {
    let model = example("qwen3-30b-a3b-q4_k_m.gguf");
    let snapshot = home("two-cards.toml");
    let meant = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        meaning(&model, &snapshot, &parse_flags(&words).unwrap())
    };
    let base = "-c 8192 -np 1 --fit off --device CUDA0,CUDA1 -ngl 49 -ts 24,25 --cache-ram 0";
    let plain = meant(base).unwrap();
    let sent = meant(&format!(r"{base} -ot blk\.0\.ffn_.*_exps=CUDA1")).unwrap();
    let experts = sent.planned.plan.parts[0].bytes;
    assert_eq!(sent.planned.plan.parts[0].device.to_string(), "box/CUDA1");
    let weights = |planned: &Planned, at: usize| planned.plan.stages[at].weights_bytes;
    assert_eq!(weights(&plain.planned, 1), weights(&sent.planned, 1).saturating_add(experts));
    assert!(sent.planned.plan.overrides.is_empty());
    // A rule that sends tensors where they lie moves nothing, and ends the work side by side all the same.
    let same = meant(&format!(r"{base} -ot blk\.0\.ffn_.*_exps=CUDA0")).unwrap();
    assert_eq!(weights(&same.planned, 1), weights(&plain.planned, 1));
    assert_ne!(same.planned.plan.stages[1].overhead_bytes, plain.planned.plan.stages[1].overhead_bytes);
    // Attention of one layer is a tensor like any other.
    let attention = meant(&format!(r"{base} -ot blk\.3\.attn_=CPU")).unwrap();
    assert_eq!(attention.planned.plan.overrides[0].class, PartClass::Tensors);
    let refused = meant(&format!("{base} -ot ^output\\.weight=CPU")).unwrap_err();
    assert!(matches!(refused, MeaningError::OutsideLayers { .. }), "{refused}");
    let refused = meant(&format!("{base} -ot exps=CUDA7")).unwrap_err();
    assert_eq!(refused.to_string(), "-ot names the buffer 'CUDA7'; the engine has CPU, CUDA0, CUDA1");
}

/// A projector of 1 GiB.
fn projector() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("projector.gguf");
    let text = |text: &str| Value::Text(text.to_owned());
    let file = Writer::new()
        .fact("general.architecture", text("clip"))
        .fact("general.type", text("mmproj"))
        .tensor("v.blk.0.attn_q.weight", &[16384, 16384], 0, 1 << 30);
    file.write(&path, Data::First(0)).unwrap();
    path
}

#[test]
fn a_projector_and_a_draft_model_take_their_room_and_stand_in_the_line() {
    let snapshot = home("two-cards.toml");
    let (model, small) = (example("llama-3.1-70b-q4_k_m.gguf"), example("llama-3.1-8b-q4_k_m.gguf"));
    let header = model::gguf::read_gguf(&projector()).unwrap();
    let beside = Beside {
        projector: Some(Projector { path: "p.gguf", header: &header }),
        draft: Some(Draft { path: "d.gguf", model: &small }),
    };
    let alone = job(&model, &snapshot, Objective::Latency);
    let planned = alone.clone().with_beside(beside).plan().unwrap();
    let names: Vec<&str> = planned.plan.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["projector", "draft model", "draft model's input"]);
    assert_eq!(planned.plan.parts[0].device.to_string(), "box/CUDA0");
    assert_eq!(planned.plan.parts[0].bytes, Bytes::gib(1));
    assert!(planned.plan.parts[1].bytes > small.file_bytes().saturating_sub(Bytes::gib(1)));
    let words = words(&planned, &snapshot);
    let tail = words.join(" ");
    let device = planned.plan.parts[1].device.device.as_str();
    assert!(tail.ends_with(&format!("--mmproj p.gguf -md d.gguf -devd {device} -ngld 33")), "{tail}");
    // The budgets are what the parts leave.
    let without = alone.plan().unwrap();
    let budget = |planned: &Planned, device: &str| {
        planned.plan.stages.iter().find(|stage| stage.device.device.as_str() == device).unwrap().budget_bytes
    };
    let on_first: Vec<Bytes> = planned
        .plan
        .parts
        .iter()
        .filter(|part| part.device.device.as_str() == "CUDA0")
        .map(|part| part.bytes)
        .collect();
    let less = budget(&without, "CUDA0").saturating_sub(budget(&planned, "CUDA0"));
    assert_eq!(less, Bytes::saturating_sum(on_first));
    let file = planned.to_file(None).unwrap();
    assert_eq!(PlanFile::parse(&file.to_text().unwrap()).unwrap().plan().unwrap().parts, planned.plan.parts);
    assert_eq!(check(&file, &snapshot).unwrap().broken, []);
    // What is not where it was told to be is found.
    let mut plan = planned.plan.clone();
    plan.parts[0].bytes = Bytes::gib(40);
    assert!(audit(&plan, &snapshot, &planned.workload, &planned.rules, &planned.options).is_err());
}
