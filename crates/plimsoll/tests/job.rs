//! The main job through the facade: what a plan promises, and what a refusal suggests.

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::num::NonZeroU32;
use std::path::Path;

use plimsoll::balance::{Finding, Objective, Pipelines, PlanOptions};
use plimsoll::cluster::{self, ClusterSnapshot};
use plimsoll::export::PlanFile;
use plimsoll::export::llama_cpp::parse_flags;
use plimsoll::model::{self, ContextLength, ModelSpec, Request};
use plimsoll::units::{Bytes, DeviceRef};
use plimsoll::{Change, ContextChoice, Engine, Job, check, digest_for, meaning, suggestions};
use proptest::prelude::*;

fn example(name: &str) -> ModelSpec {
    model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)).unwrap()
}

fn home(name: &str) -> ClusterSnapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    cluster::file::read_cluster(path).unwrap().snapshot
}

fn request(context: u64) -> Request {
    Request { context: Some(ContextLength::PerSequence(context)), ..Request::default() }
}

#[test]
fn every_example_is_planned_onto_every_cluster_for_every_objective() {
    let models = [
        "llama-3.1-8b-q4_k_m.gguf",
        "llama-3.1-70b-q4_k_m.gguf",
        "qwen3-30b-a3b-q4_k_m.gguf",
        "gpt-oss-120b-mxfp4.gguf",
    ];
    for model in models.map(example) {
        for snapshot in ["home-lab.toml", "two-cards.toml", "mac-and-pc.toml"].map(home) {
            for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced]
            {
                let options = PlanOptions { objective, ..PlanOptions::default() };
                for engine in [Engine::LlamaCpp, Engine::None] {
                    let job = Job::new(&model, &snapshot, engine, request(8192), options.clone());
                    // A plan that is returned has passed the audit.
                    let planned =
                        job.plan().unwrap_or_else(|e| panic!("{} {objective:?} {engine}: {e}", model.name()));
                    let command = planned.command("m.gguf", &snapshot).unwrap();
                    assert_eq!(command.is_some(), engine == Engine::LlamaCpp);

                    // A plan that was saved is read back, and still holds.
                    let text = planned.to_file(command.as_ref()).unwrap().to_text().unwrap();
                    let file = PlanFile::parse(&text).unwrap();
                    assert!(file.to_text().unwrap() == text, "{} {objective:?} {engine}", model.name());
                    let checked = check(&file, &snapshot).unwrap();
                    assert_eq!(checked.broken, []);
                    assert_eq!(checked.changed, []);
                    assert_eq!(digest_for(&model, &file).unwrap(), file.model.digest);
                }
            }
        }
    }
}

#[test]
fn what_is_printed_for_the_engine_means_the_same_plan_again() {
    for name in ["llama-3.1-8b-q4_k_m.gguf", "llama-3.1-70b-q4_k_m.gguf", "gpt-oss-120b-mxfp4.gguf"] {
        let model = example(name);
        for cluster in ["home-lab.toml", "two-cards.toml", "mac-and-pc.toml"] {
            let mut snapshot = home(cluster);
            // A server shows every device of its node, so only what the plan uses may be listed there.
            let used = |snapshot: &ClusterSnapshot| {
                let job = Job::new(&model, snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
                job.plan().unwrap()
            };
            let first = used(&snapshot);
            for node in &mut snapshot.nodes {
                node.devices.retain(|device| {
                    let used = |s: &plimsoll::balance::Stage| {
                        s.device.node == node.id && s.device.device == device.id
                    };
                    device.is_host() || first.plan.stages.iter().any(used)
                });
            }
            let planned = used(&snapshot);
            let command = planned.command("m.gguf", &snapshot).unwrap().unwrap();
            let flags = parse_flags(&command.server.words).unwrap();
            assert_eq!(flags.ignored, Vec::<String>::new());
            let read = meaning(&model, &snapshot, &flags).unwrap();
            assert_eq!(read.short_bytes, Bytes::ZERO);
            assert_eq!(read.planned.plan.stages, planned.plan.stages, "{name} {cluster}: {}", command.server);
            assert_eq!(read.planned.plan.value.value, planned.plan.value.value);
        }
    }
}

#[test]
fn a_model_that_is_far_too_large_is_short_of_all_that_is_missing() {
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    let snapshot = home("two-cards.toml");
    let job = Job::new(&model, &snapshot, Engine::LlamaCpp, request(1 << 20), PlanOptions::default());
    let error = job.plan().unwrap_err();
    let refusal = error.refusal().unwrap();
    // 343.6 GB of context and 42.5 GB of weights on 117 GB.
    assert!(refusal.short_bytes > Bytes::new(269_000_000_000), "{}", refusal.short_bytes);
}

#[test]
fn flags_that_overfill_a_card_are_short_by_what_it_lacks() {
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    let snapshot = home("two-cards.toml");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let on_one = parse_flags(&words("-ngl 99 -np 1 -c 8192 --device CUDA0")).unwrap();
    let on_one = meaning(&model, &snapshot, &on_one).unwrap();
    let stage = &on_one.planned.plan.stages[1];
    let used = stage.weights_bytes.get() + stage.kv_bytes.get() + stage.overhead_bytes.get();
    assert_eq!(on_one.short_bytes.get(), used - stage.budget_bytes.get());
    // Shares by what is free, as the engine takes them when nothing is said: half the blocks each.
    let by_free = parse_flags(&words("-np 1 -c 8192")).unwrap();
    let by_free = meaning(&model, &snapshot, &by_free).unwrap();
    let ranges: Vec<_> = by_free.planned.plan.stages[1..].iter().map(|s| s.layers.clone()).collect();
    assert_eq!(ranges, [0..41, 41..80]);
}

#[test]
fn a_context_that_nobody_asked_for_is_the_largest_that_fits() {
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    let mut snapshot = home("two-cards.toml");
    // Without a host that takes layers the trained context is too long.
    snapshot.nodes[0].pools[0].free = Some(Bytes::gib(6));
    let asked = Request { context: None, ..Request::default() };
    let job = |request| Job::new(&model, &snapshot, Engine::LlamaCpp, request, PlanOptions::default());
    let planned = job(asked).plan().unwrap();
    let ContextChoice::Lowered { trained: 131_072, fits } = planned.context else {
        panic!("{:?}", planned.context);
    };
    assert_eq!(fits % 256, 0);
    assert!(job(request(fits)).plan().is_ok());
    assert!(job(request(fits + 256)).plan().unwrap_err().refusal().is_some());
}

#[test]
fn every_suggestion_of_a_refusal_works_and_is_the_smallest_of_its_kind() {
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    let mut snapshot = home("two-cards.toml");
    snapshot.nodes[0].pools[0].free = Some(Bytes::gib(6));
    let job = |request| Job::new(&model, &snapshot, Engine::LlamaCpp, request, PlanOptions::default());
    let refused = job(request(65_536));
    let error = refused.plan().unwrap_err();
    let found = suggestions(&refused, error.refusal().unwrap());
    let kinds: Vec<&str> = found.iter().map(|s| s.change.word()).collect();
    assert_eq!(kinds, ["ctx", "cache-type", "add-device"]);
    for suggestion in found {
        match suggestion.change {
            Change::Context { to } => {
                assert!(job(request(to)).plan().is_ok());
                assert!(job(request(to + 256)).plan().is_err());
            }
            Change::CacheType { to } => {
                let smaller = Request { cache_type_k: to, cache_type_v: to, ..request(65_536) };
                assert!(job(smaller).plan().is_ok());
            }
            Change::Unpin
            | Change::Uncap
            | Change::Devices { .. }
            | Change::Pipelines { .. }
            | Change::ExpertsToHost
            | Change::FeedForwardToHost => {
                panic!("nothing of the kind was asked for")
            }
            Change::AddDevice { memory } => {
                assert!(memory > Bytes::gib(1), "more than its margin");
                assert_eq!(memory.get() % 100_000_000, 0);
            }
        }
    }
}

#[test]
fn a_pin_that_is_in_the_way_is_suggested_to_be_left_out() {
    let (model, snapshot) = (example("llama-3.1-70b-q4_k_m.gguf"), home("two-cards.toml"));
    let options = PlanOptions { pins: vec!["0-60=box/CUDA0".parse().unwrap()], ..PlanOptions::default() };
    let job = Job::new(&model, &snapshot, Engine::LlamaCpp, request(8192), options);
    let error = job.plan().unwrap_err();
    let found = suggestions(&job, error.refusal().unwrap());
    assert_eq!(found[0].change, Change::Unpin);
    let free = Job::new(&model, &snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
    assert!(free.plan().is_ok());
}

#[test]
fn options_that_are_in_the_way_are_suggested_to_be_changed_as_little_as_it_takes() {
    let (model, snapshot) = (example("forty-layers.toml"), home("five-nodes.toml"));
    let cap = |node: &str| {
        let device = DeviceRef { node: node.parse().unwrap(), device: "gpu0".parse().unwrap() };
        (device, Bytes::new(30_000_000_000))
    };
    let few =
        PlanOptions { max_devices: Some(1), caps: ["b", "c", "d"].map(cap).into(), ..PlanOptions::default() };
    let copies = |n: u32| PlanOptions {
        objective: Objective::Throughput,
        pipelines: Pipelines::Exactly(NonZeroU32::new(n).unwrap()),
        ..PlanOptions::default()
    };
    let tight = PlanOptions { max_devices: Some(1), ..copies(2) };
    let found = |options: PlanOptions| -> Vec<(&str, String)> {
        let job = Job::new(&model, &snapshot, Engine::None, Request::default(), options);
        let error = job.plan().unwrap_err();
        let found = suggestions(&job, error.refusal().unwrap());
        let told = found.iter().map(|s| (s.change.word(), s.change.to_text()));
        told.filter(|(word, _)| *word != "add-device").collect()
    };
    let said = |word, to: &str| (word, to.to_owned());
    assert_eq!(found(few), [said("uncap", ""), said("max-devices", "2")]);
    // Three machines hold a copy each, and the two small ones one together.
    assert_eq!(found(copies(9)), [said("pipelines", "4")]);
    assert_eq!(found(tight), [said("max-devices", "2"), said("pipelines", "1")]);
}

#[test]
fn a_prompt_cache_is_charged_where_there_is_room_and_switched_off_where_not() {
    let model = example("llama-3.1-8b-q4_k_m.gguf");
    let roomy = home("two-cards.toml");
    let mut tight = roomy.clone();
    tight.nodes[0].pools[0].free = Some(Bytes::gib(8));
    let host = |snapshot: &ClusterSnapshot| {
        let job = Job::new(&model, snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
        let planned = job.plan().unwrap();
        (planned.plan.stages[0].overhead_bytes, planned.cache_ram)
    };
    let (charged, default) = host(&roomy);
    assert!(charged > Bytes::gib(8));
    assert_eq!(default, None);
    let (charged, off) = host(&tight);
    assert!(charged < Bytes::gib(1));
    assert_eq!(off, Some(Bytes::ZERO));
}

#[test]
fn equal_cards_are_not_split_over_for_nothing() {
    // The sum of two stages on equal cards is the time of one, but for the last digits.
    let snapshot = home("two-cards.toml");
    for (name, contexts) in [
        ("llama-3.1-8b-q4_k_m.gguf", [2048, 4096, 8192, 16_384, 32_768]),
        ("qwen3-30b-a3b-q4_k_m.gguf", [2048, 4096, 8192, 12_288, 16_384]),
    ] {
        let model = example(name);
        for context in contexts {
            for engine in [Engine::LlamaCpp, Engine::None] {
                let job = Job::new(&model, &snapshot, engine, request(context), PlanOptions::default());
                let plan = job.plan().unwrap().plan;
                let cards = plan.stages.iter().filter(|s| s.device.device.as_str() != "host").count();
                assert_eq!(cards, 1, "{name} {context} {engine}");
            }
        }
    }
}

#[test]
fn a_main_node_has_to_tell_its_memory() {
    let model = example("llama-3.1-8b-q4_k_m.gguf");
    let error = |text: &str| {
        let snapshot = cluster::file::parse_cluster(text).unwrap().snapshot;
        let job = Job::new(&model, &snapshot, Engine::LlamaCpp, request(4096), PlanOptions::default());
        job.plan().unwrap_err().to_string()
    };
    let card = "[[node.device]]\nid = \"CUDA0\"\nmemory = \"24GiB\"\n";
    let without = error(&format!("[[node]]\nid = \"a\"\n{card}"));
    assert!(without.contains("(memory = …)"), "{without}");
    let unknown =
        error(&format!("[[node]]\nid = \"a\"\nmemory = \"8GiB\"\nmemory_free = \"unknown\"\n{card}"));
    assert!(unknown.contains("(memory_free = …)"), "{unknown}");
}

#[test]
fn the_part_of_memory_that_an_apu_maps_is_no_device_of_llama_cpp() {
    let model = example("llama-3.1-8b-q4_k_m.gguf");
    let snapshot = cluster::file::parse_cluster(
        "[[node]]\nid = \"a\"\nmemory = \"32GiB\"\n\
         [[node.device]]\nid = \"ROCm0\"\nmemory = \"4GiB\"\ngtt = \"16GiB\"\nbackend = \"rocm\"\n",
    )
    .unwrap()
    .snapshot;
    let uses_gtt = |engine| {
        let job = Job::new(&model, &snapshot, engine, request(4096), PlanOptions::default());
        let planned = job.plan().unwrap();
        planned.plan.stages.iter().any(|stage| stage.device.device.as_str() == "gtt")
    };
    assert!(!uses_gtt(Engine::LlamaCpp));
    assert!(uses_gtt(Engine::None));
}

#[test]
fn a_plan_that_was_edited_breaks_its_seal() {
    let model = example("llama-3.1-8b-q4_k_m.gguf");
    let snapshot = home("two-cards.toml");
    let job = Job::new(&model, &snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
    let planned = job.plan().unwrap();
    let command = planned.command("m.gguf", &snapshot).unwrap();
    let text = planned.to_file(command.as_ref()).unwrap().to_text().unwrap();
    for (from, to) in [("-c 8192", "-c 9999"), ("\"ubatch\": 512", "\"ubatch\": 511"), ("b11434", "b1")] {
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text);
        let error = PlanFile::parse(&edited).unwrap_err().to_string();
        assert!(error.contains("changed by hand"), "{error}");
    }
}

#[test]
fn a_plan_for_another_cluster_says_what_has_changed() {
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    let snapshot = home("home-lab.toml");
    let job = Job::new(&model, &snapshot, Engine::LlamaCpp, request(32_768), PlanOptions::default());
    let file = job.plan().unwrap().to_file(None).unwrap();
    // A machine is gone.
    let mut gone = snapshot.clone();
    gone.nodes.retain(|node| node.id.as_str() != "rig");
    let checked = check(&file, &gone).unwrap();
    assert!(checked.broken.iter().any(|f| f.to_string().contains("rig/CUDA0")), "{:?}", checked.broken);
    // A card is fuller than it was.
    let mut fuller = snapshot;
    let tower = fuller.nodes.iter_mut().find(|node| node.id.as_str() == "tower").unwrap();
    let card = tower.pools.iter_mut().find(|pool| pool.id.as_str() == "CUDA0").unwrap();
    card.free = Some(Bytes::gib(12));
    let checked = check(&file, &fuller).unwrap();
    assert!(matches!(checked.broken[..], [Finding::OverBudget { .. }]), "{:?}", checked.broken);
}

proptest! {
    #[test]
    fn no_text_makes_the_plan_reader_panic(text in "\\PC{0,200}") {
        let _ = PlanFile::parse(&text);
    }

    /// A saved plan with one value replaced is refused, or read and checked, but never a panic.
    #[test]
    fn no_edit_of_a_plan_makes_the_checker_panic(at in 0_usize..20_000, with in "[0-9\"{}a-z,:-]{1,8}") {
        let model = example("llama-3.1-8b-q4_k_m.gguf");
        let snapshot = home("two-cards.toml");
        let job = Job::new(&model, &snapshot, Engine::LlamaCpp, request(8192), PlanOptions::default());
        // Without a seal, so that an edit comes through to the checker.
        let file = PlanFile { seal: None, ..job.plan().unwrap().to_file(None).unwrap() };
        let mut text = file.to_text().unwrap();
        let at = at % text.len();
        if text.is_char_boundary(at) {
            let end = (at + with.len()).min(text.len());
            if text.is_char_boundary(end) {
                text.replace_range(at..end, &with);
            }
        }
        if let Ok(file) = PlanFile::parse(&text) {
            let _ = check(&file, &snapshot);
        }
    }
}

#[test]
fn cards_that_other_programs_hold_are_given_nothing() {
    let card = |n: u32, free: &str| {
        format!(
            "[[node.device]]\nid = \"CUDA{n}\"\nname = \"A100 80GB\"\nmemory = \"80GB\"\nfree = \"{free}\"\nbackend = \"cuda\"\n"
        )
    };
    let cards: String = (0..8).map(|n| card(n, if n < 4 { "1GB" } else { "80GB" })).collect();
    let cluster = format!("[[node]]\nid = \"box\"\nmemory = \"256GB\"\n{cards}");
    let snapshot = cluster::file::parse_cluster(&cluster).unwrap().snapshot;
    let model = example("llama-3.1-70b-q4_k_m.gguf");
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        let planned = Job::new(&model, &snapshot, Engine::LlamaCpp, request(32_768), options).plan().unwrap();
        let held = planned.plan.stages.iter().filter(|stage| stage.head || !stage.layers.is_empty());
        let held: Vec<&str> = held.map(|stage| stage.device.device.as_str()).collect();
        assert!(!held.is_empty());
        for full in ["CUDA0", "CUDA1", "CUDA2", "CUDA3"] {
            assert!(!held.contains(&full), "{objective:?}: {held:?}");
        }
    }
}
