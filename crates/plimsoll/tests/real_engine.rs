//! A real model in a real engine: what llama.cpp prints of its buffers, against what is told before anything runs.
//!
//! `cargo xtask test` sets `PLIMSOLL_SMOLLM2` (the model) and `PLIMSOLL_PYTHON` (an interpreter with a llama.cpp in it).

#![cfg(all(feature = "gguf", feature = "files"))]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll::export::llama_cpp::{Blocks, ComputeFacts, most_above, rules};
use plimsoll::model::{self, CacheType, ContextLength, FlashAttention, ModelSpec, Padding, Request};
use plimsoll::units::Bytes;
use plimsoll_testkit::adapter::adapter;
use plimsoll_testkit::gguf::{Data, Writer};

/// The settings, in the numbers of the engine's own interface: cells, sequences, one cache for all, micro-batch, types of
/// keys and values, flash attention.
const SETTINGS: [[u32; 7]; 8] = [
    [2048, 1, 0, 512, 1, 1, 1],
    [2048, 4, 0, 128, 8, 8, 1],
    [5000, 3, 1, 512, 1, 1, 0],
    [8192, 1, 0, 64, 0, 0, 1],
    [512, 2, 0, 512, 8, 2, 1],
    [4096, 1, 0, 512, 30, 7, 1],
    [1000, 1, 0, 256, 6, 3, 1],
    [8192, 2, 1, 32, 20, 20, 1],
];

fn cache_type(number: u32) -> CacheType {
    match number {
        0 => CacheType::F32,
        1 => CacheType::F16,
        2 => CacheType::Q4_0,
        3 => CacheType::Q4_1,
        6 => CacheType::Q5_0,
        7 => CacheType::Q5_1,
        8 => CacheType::Q8_0,
        20 => CacheType::Iq4Nl,
        30 => CacheType::Bf16,
        other => panic!("{other} is no type of a cache"),
    }
}

fn request([cells, parallel, unified, micro_batch, keys, values, flash]: [u32; 7]) -> Request {
    Request {
        context: Some(ContextLength::Total(u64::from(cells))),
        parallel,
        unified_kv: unified == 1,
        micro_batch,
        cache_type_k: cache_type(keys),
        cache_type_v: cache_type(values),
        flash_attention: if flash == 1 { FlashAttention::On } else { FlashAttention::Off },
        ..Request::default()
    }
}

/// Where the model lies; `None`, with a line that says why, where nobody tells.
fn model_path() -> Option<PathBuf> {
    let path = std::env::var_os("PLIMSOLL_SMOLLM2").filter(|path| !path.is_empty());
    if path.is_none() {
        eprintln!("skipped: PLIMSOLL_SMOLLM2 is not set; `cargo xtask test` fetches the model and sets it");
    }
    path.map(PathBuf::from)
}

/// What the engine printed: a line for the model, then one for each setting or adapter. `None`, with a line that says why, where there
/// is no engine; in CI there is no why.
fn printed(model: &Path, settings: &[String]) -> Option<Vec<Vec<String>>> {
    let skip = |why: &str| {
        let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!in_ci, "{why}: run the tests with `cargo xtask test`");
        eprintln!("skipped: {why}; `cargo xtask test` installs it");
    };
    let Some(python) = std::env::var_os("PLIMSOLL_PYTHON").filter(|path| !path.is_empty()) else {
        skip("PLIMSOLL_PYTHON is not set");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/engine.py");
    let output = Command::new(python).arg(script).arg(model).args(settings).output().expect("a process");
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    if text.starts_with("absent") {
        skip("the Python package cyllama is not there");
        return None;
    }
    Some(text.lines().map(|line| line.split(' ').skip(1).map(str::to_owned).collect()).collect())
}

/// The engine's own form of an amount: MiB with two digits, rounded as C does.
#[expect(clippy::cast_precision_loss, reason = "sizes of a small model are exact as floating-point numbers")]
fn mib(bytes: Bytes) -> String {
    format!("{:.2}", bytes.get() as f64 / f64::from(1 << 20))
}

fn compute_facts(model: &ModelSpec) -> ComputeFacts {
    ComputeFacts {
        embedding_length: model.embedding_length(),
        feed_forward_length: model.feed_forward_length(),
        vocabulary: model.vocabulary_size(),
        heads: model.head_count(),
        blocks: Blocks::Dense,
    }
}

#[test]
fn what_a_real_engine_takes_for_a_real_model_is_what_was_told_before() {
    let Some(path) = model_path() else { return };
    let settings = SETTINGS.map(|setting| setting.map(|n| n.to_string()).join(","));
    let Some(lines) = printed(&path, &settings) else { return };
    let model = model::open(&path).unwrap();
    assert_eq!(lines.len(), 1 + SETTINGS.len());
    for (setting, line) in SETTINGS.into_iter().zip(&lines[1..]) {
        let request = request(setting);
        let footprint = model.footprint(&request, Padding::Cpu).unwrap();
        let weights = footprint.layers.iter().map(|layer| layer.weights_bytes).chain([
            footprint.input_bytes,
            footprint.head_beside_input_bytes,
            footprint.each_device_bytes,
        ]);
        assert_eq!(mib(Bytes::checked_sum(weights).unwrap()), lines[0][0]);
        let cache = Bytes::checked_sum(footprint.layers.iter().map(|layer| layer.kv_bytes)).unwrap();
        let [kept, computing, output] = &line[..] else { panic!("{line:?}") };
        assert_eq!(mib(cache), *kept, "{setting:?}");

        let rows = model.vocabulary_size() * 4 * u64::from(request.parallel);
        assert_eq!(mib(Bytes::new(rows)), *output, "{setting:?}");
        let charges = rules(Some(&compute_facts(&model)), &request, &footprint.context, Bytes::ZERO).charges;
        let charged = charges.host_alone.get() - rows;
        let computing = computing.parse::<f64>().unwrap() * 1_048_576.0;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of two sizes")]
        let ratio = computing / charged as f64;
        println!("{setting:?}: cache {kept} MiB, computing {:.1} % of the charge", ratio * 100.0);
        assert!(ratio <= 1.0 + f64::from(most_above(Blocks::Dense)) / 100.0, "{setting:?}: {ratio}");
        // Without flash attention the charge is for the worst of several ways to compute.
        let least = if request.flash_attention == FlashAttention::On { 0.85 } else { 0.4 };
        assert!(ratio > least, "{setting:?}: {ratio}");
    }
}

/// What all weights of a model take on a CPU.
fn weights(model: &ModelSpec) -> Bytes {
    let footprint = model.footprint(&request(SETTINGS[0]), Padding::Cpu).expect("a footprint");
    let layers = footprint.layers.iter().map(|layer| layer.weights_bytes);
    let ends = [footprint.input_bytes, footprint.head_beside_input_bytes, footprint.each_device_bytes];
    Bytes::checked_sum(layers.chain(ends)).expect("a sum")
}

/// Adapters that differ in what rounding adds: halves in blocks of 34 bytes, and a pair for the tied embedding.
fn adapters() -> [(&'static str, Writer); 2] {
    let mut blocks = adapter("llama");
    let mut halves = adapter("llama").pair("token_embd.weight", &[576, 49152], 3, 1);
    for layer in 0..30 {
        let matrices =
            [("attn_q", 576), ("attn_k", 192), ("attn_v", 192), ("attn_output", 576), ("ffn_gate", 1536)];
        for (name, high) in matrices {
            let base = format!("blk.{layer}.{name}.weight");
            halves = halves.pair(&base, &[576, high], 5, 0);
            blocks = blocks.tensor(&format!("{base}.lora_a"), &[576, 1], 8, 576 / 32 * 34).tensor(
                &format!("{base}.lora_b"),
                &[1, high],
                1,
                high * 2,
            );
        }
    }
    [("blocks.gguf", blocks), ("halves.gguf", halves)]
}

#[test]
fn what_a_real_engine_takes_for_an_adapter_is_what_was_told_before() {
    let Some(path) = model_path() else { return };
    let written = adapters().map(|(name, writer)| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        writer.write(&path, Data::Whole).unwrap();
        path
    });
    let asked = written.each_ref().map(|path| format!("adapter={}", path.display()));
    let Some(lines) = printed(&path, &asked) else { return };
    let model = model::open(&path).unwrap();
    let mut rounded = 0;
    for (path, line) in written.iter().zip(&lines[1..]) {
        let header = model::gguf::read_gguf(path).unwrap();
        let adapted = model.with_adapter(&header).unwrap();
        let more = weights(&adapted).saturating_sub(weights(&model));
        println!("{}: {} MiB, {} bytes told before", path.display(), line[0], more.get());
        assert_eq!([mib(more)], line[..]);
        rounded += u32::from(mib(model::adapter_bytes(&header)) != mib(more));
    }
    assert!(rounded > 0, "no adapter shows what rounding adds");
}
