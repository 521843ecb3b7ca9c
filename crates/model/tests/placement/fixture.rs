//! Headers from the short form in `fixtures/`.

use std::collections::BTreeMap;

use plimsoll_model::{GgufHeader, Tensor, TensorType, Value};
use plimsoll_units::Bytes;

/// A model of a fixture.
#[derive(Debug, Default)]
pub(crate) struct Fixture {
    arch: String,
    facts: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>)>,
    kinds: BTreeMap<String, Vec<(String, Vec<u64>)>>,
    layers: Vec<String>,
    quants: BTreeMap<String, Vec<(String, Vec<TensorType>)>>,
}

/// All models of a fixture, by name.
pub(crate) fn read(text: &str) -> BTreeMap<String, Fixture> {
    let mut models: BTreeMap<String, Fixture> = BTreeMap::new();
    let (mut name, mut quant) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (word, rest) = words.split_first().expect("a line has words");
        if *word == "model" {
            name = rest[0].to_owned();
            models.insert(name.clone(), Fixture::default());
            continue;
        }
        let model = models.get_mut(&name).expect("a model began");
        match *word {
            _ if line.starts_with("  ") => {
                let types: Vec<TensorType> = counted(rest).map(type_by_name).collect();
                let all = model.quants.get_mut(&quant).expect("a quantisation began");
                all.extend(word.split(',').map(|name| (name.to_owned(), types.clone())));
            }
            "arch" => model.arch = rest[0].to_owned(),
            "fact" => model.facts.push((rest[0].to_owned(), Value::Unsigned(number(rest[1])))),
            "list" => {
                let items = counted(&rest[1..]).map(|n| Value::Signed(n.parse().expect("a number")));
                model.facts.push((rest[0].to_owned(), Value::List(items.collect())));
            }
            "tensor" => model.tensors.push((rest[0].to_owned(), sides(rest[1]))),
            "kind" => {
                let tensors = rest[1..].iter().map(|t| t.split_once('=').expect("a shape"));
                let tensors = tensors.map(|(name, shape)| (name.to_owned(), sides(shape))).collect();
                model.kinds.insert(rest[0].to_owned(), tensors);
            }
            "layers" => model.layers = counted(rest).map(str::to_owned).collect(),
            "quant" => {
                quant = rest[0].to_owned();
                model.quants.insert(quant.clone(), Vec::new());
            }
            other => panic!("unknown word {other}"),
        }
    }
    models
}

impl Fixture {
    /// Its header in one of its quantisations.
    pub(crate) fn header(&self, quant: &str) -> GgufHeader {
        let types: BTreeMap<&str, &[TensorType]> =
            self.quants[quant].iter().map(|(name, types)| (name.as_str(), types.as_slice())).collect();
        let mut metadata: BTreeMap<String, Value> =
            self.facts.iter().map(|(key, value)| (format!("{}.{key}", self.arch), value.clone())).collect();
        metadata.insert("general.architecture".to_owned(), Value::Text(self.arch.clone()));
        let mut tensors = Vec::new();
        for (name, dims) in &self.tensors {
            let kind = types.get(format!("/{name}").as_str()).map_or(TensorType::F32, |types| types[0]);
            tensors.push(tensor(name.clone(), dims, kind));
        }
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, layer) in self.layers.iter().enumerate() {
            for (name, dims) in &self.kinds[layer] {
                let n = seen.entry(name).or_default();
                let kind = types.get(name.as_str()).map_or(TensorType::F32, |types| types[*n]);
                *n += 1;
                tensors.push(tensor(format!("blk.{i}.{name}"), dims, kind));
            }
        }
        GgufHeader { metadata, tensors, missing_bytes: Bytes::ZERO }
    }

    /// The names of its quantisations.
    pub(crate) fn quants(&self) -> impl Iterator<Item = &str> {
        self.quants.keys().map(String::as_str)
    }
}

/// A tensor with the size of its type.
pub(crate) fn tensor(name: String, dims: &[u64], kind: TensorType) -> Tensor {
    let (block, size) = block(kind);
    assert!(dims[0].is_multiple_of(block), "{name}");
    let bytes = dims.iter().product::<u64>() / block * size;
    Tensor { name, dims: dims.to_vec(), kind, bytes: Bytes::new(bytes) }
}

/// (values, bytes) of a block: the engine's table, written down apart from the crate's own.
fn block(kind: TensorType) -> (u64, u64) {
    match kind {
        TensorType::F32 => (1, 4),
        TensorType::F16 | TensorType::BF16 => (1, 2),
        TensorType::Q4_0 | TensorType::IQ4_NL => (32, 18),
        TensorType::Q5_0 => (32, 22),
        TensorType::Q5_1 => (32, 24),
        TensorType::Q8_0 => (32, 34),
        TensorType::Q3_K => (256, 110),
        TensorType::Q4_K => (256, 144),
        TensorType::Q5_K => (256, 176),
        TensorType::Q6_K => (256, 210),
        TensorType::IQ4_XS => (256, 136),
        TensorType::MXFP4 => (32, 17),
        other => panic!("no size for {other:?}"),
    }
}

fn type_by_name(name: &str) -> TensorType {
    match name {
        "F32" => TensorType::F32,
        "F16" => TensorType::F16,
        "BF16" => TensorType::BF16,
        "Q4_0" => TensorType::Q4_0,
        "Q5_0" => TensorType::Q5_0,
        "Q5_1" => TensorType::Q5_1,
        "Q8_0" => TensorType::Q8_0,
        "Q3_K" => TensorType::Q3_K,
        "Q4_K" => TensorType::Q4_K,
        "Q5_K" => TensorType::Q5_K,
        "Q6_K" => TensorType::Q6_K,
        "IQ4_NL" => TensorType::IQ4_NL,
        "IQ4_XS" => TensorType::IQ4_XS,
        "MXFP4" => TensorType::MXFP4,
        other => panic!("unknown type {other}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn sides(text: &str) -> Vec<u64> {
    text.split('x').map(number).collect()
}

/// `a*3 b` as `a a a b`.
fn counted<'a>(words: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    words.iter().flat_map(|word| match word.split_once('*') {
        Some((item, count)) => std::iter::repeat_n(item, count.parse().expect("a count")),
        None => std::iter::repeat_n(*word, 1),
    })
}
