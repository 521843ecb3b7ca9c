//! Small models of every architecture that llama.cpp knows, against what it kept of a context for them.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{
    ContextLength, FlashAttention, Footprint, GgufHeader, ModelSpec, Padding, Request, TensorType, Value,
};

use crate::fixture::tensor;

/// What every model of the fixture has unless its line says something else.
const COMMON: [(&str, u64); 7] = [
    ("block_count", 12),
    ("context_length", 16_384),
    ("embedding_length", 512),
    ("feed_forward_length", 1024),
    ("attention.head_count", 8),
    ("attention.head_count_kv", 2),
    ("vocab_size", 64),
];

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("a number, not {text}"))
}

/// `2*3,0` is 2, 2, 2, 0.
fn counted(text: &str) -> impl Iterator<Item = u64> {
    text.split(',').flat_map(|item| {
        let (value, count) = item.split_once('*').unwrap_or((item, "1"));
        std::iter::repeat_n(number(value), count.parse().expect("a count"))
    })
}

/// `0-2,5` is 0, 1, 2, 5; `-` is none.
fn ranges(text: &str) -> Vec<u64> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    text.split(',').filter(|part| *part != "-").flat_map(range).collect()
}

fn header(line: &str) -> GgufHeader {
    let mut words = line.split(' ').skip(1);
    let architecture = words.next().expect("an architecture");
    let key = |key: &str| format!("{architecture}.{key}");
    let mut metadata: BTreeMap<String, Value> =
        COMMON.into_iter().map(|(name, n)| (key(name), Value::Unsigned(n))).collect();
    metadata.insert("general.architecture".to_owned(), Value::Text(architecture.to_owned()));
    let mut tensors = vec![tensor("token_embd.weight".to_owned(), &[512, 64], TensorType::F32)];
    for (name, value) in words.map(|word| word.split_once('=').expect("a value")) {
        let value = match value.split_at(1) {
            _ if name == "ssm" => {
                let blocks = ranges(value).into_iter().map(|i| format!("blk.{i}.ssm_conv1d.weight"));
                tensors.extend(blocks.map(|name| tensor(name, &[4, 64], TensorType::F32)));
                continue;
            }
            _ if value == "none" => {
                metadata.remove(&key(name));
                continue;
            }
            (":", list) => Value::List(counted(list).map(Value::Unsigned).collect()),
            ("?", list) => Value::List(counted(list).map(|n| Value::Bool(n != 0)).collect()),
            _ => Value::Unsigned(number(value)),
        };
        metadata.insert(key(name), value);
    }
    GgufHeader { metadata, tensors, missing_bytes: plimsoll_units::Bytes::ZERO }
}

/// Whether a run agrees: which layers keep something, and how much all of them keep in hundredths of a MiB.
fn check(spec: &ModelSpec, run: &str) -> Result<(), String> {
    let words: Vec<&str> = run.split_whitespace().skip(1).collect();
    let [cells, parallel, micro_batch, flash, kept, printed, layers] = words[..] else { panic!("{run}") };
    let request = Request {
        context: Some(ContextLength::Total(number(cells))),
        parallel: parallel.parse().expect("a count"),
        micro_batch: micro_batch.parse().expect("a count"),
        flash_attention: if flash == "on" { FlashAttention::On } else { FlashAttention::Off },
        ..Request::default()
    };
    let Footprint { layers: found, .. } =
        spec.footprint(&request, Padding::Cpu).map_err(|error| error.to_string())?;
    let keeping: Vec<u64> =
        found.iter().filter(|l| !l.kv_bytes.is_zero()).map(|l| u64::from(l.index)).collect();
    let bytes: u64 = found.iter().map(|l| l.kv_bytes.get()).sum();
    // Each printed number is rounded for itself.
    let off = (bytes * 100).abs_diff(number(kept) << 20);
    if keeping != ranges(layers) || off > (number(printed) << 20) / 2 {
        return Err(format!("{run}: {} of 1/100 MiB in {keeping:?}", bytes * 100 / (1 << 20)));
    }
    Ok(())
}

#[test]
fn every_architecture_of_the_engine_keeps_what_the_engine_was_seen_to_keep() {
    let mut spec = None;
    let (mut architectures, mut runs, mut differed) = (BTreeSet::new(), 0, Vec::new());
    for line in include_str!("../fixtures/families.txt").lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("model ") {
            let read = ModelSpec::from_gguf(&header(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
            if !read.warnings().is_empty() {
                differed.push(format!("{line}: {:?}", read.warnings()));
            }
            architectures.insert(read.architecture().to_owned());
            spec = Some((line, read));
            continue;
        }
        let (name, spec) = spec.as_ref().expect("a model began");
        runs += 1;
        if let Err(text) = check(spec, line) {
            differed.push(format!("{name}\n  {text}"));
        }
    }
    println!("{} of {runs} runs of {} architectures agree", runs - differed.len(), architectures.len());
    assert!(differed.is_empty(), "{}", differed.join("\n"));
}
