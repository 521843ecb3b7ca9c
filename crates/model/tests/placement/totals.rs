//! Totals of models, against figures that were computed and measured apart from this crate, and tables of files as
//! they were published.

use plimsoll_model::{ContextLength, ModelSpec, Padding, Request, TensorClass};
use plimsoll_units::Bytes;

use crate::fixture;

fn of_total(cells: u64) -> Request {
    Request { context: Some(ContextLength::Total(cells)), ..Request::default() }
}

fn context_bytes(spec: &ModelSpec, cells: u64) -> u64 {
    let layers = spec.layers(&of_total(cells)).expect("layers");
    Bytes::saturating_sum(layers.iter().map(|l| l.kv_bytes)).get()
}

#[test]
fn totals_of_every_model_are_those_published_for_it() {
    let models = fixture::read(include_str!("../fixtures/models.txt"));
    let lines: Vec<&str> =
        include_str!("../fixtures/totals.txt").lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines.len(), models.len());
    for line in lines {
        let (name, numbers) = line.split_once(' ').expect("a name");
        let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
        let q4_header = models[name].header("Q4_K_M");
        let q4 = ModelSpec::from_gguf(&q4_header).expect("a model");
        let f16 = ModelSpec::from_gguf(&models[name].header("F16")).expect("a model");
        let unpadded = q4.footprint(&of_total(8192), Padding::None).expect("a footprint");
        let blocks = q4.layer_count() + q4.nextn_count();
        let weights = || unpadded.layers.iter().map(|l| l.weights_bytes.get());
        // States of layers that keep one do not grow: what two contexts share is theirs.
        let recurrent: u64 = (0..q4.layer_count())
            .filter(|_| q4.has_recurrent_layers())
            .map(|i| {
                let of = |cells| q4.layers(&of_total(cells)).expect("layers")[i].kv_bytes.get();
                if of(512) == of(1024) { of(512) } else { 0 }
            })
            .sum();
        let output =
            q4_header.tensors.iter().find(|t| t.name == "output.weight").map_or(0, |t| t.bytes.get());
        // The figures leave out what is neither matrix nor layer: final norms and rotary frequencies.
        let small = unpadded.head_beside_input_bytes.get() - output + unpadded.each_device_bytes.get();
        let per_token = q4.kv_bytes_per_token(&of_total(8192)).expect("a cost").get();
        let found = [
            blocks as u64,
            q4.num_weights(),
            f16.file_bytes().get(),
            q4.file_bytes().get() - small,
            unpadded.input_bytes.get(),
            output,
            weights().min().expect("layers"),
            weights().chain([q4.nextn_bytes(Padding::None).get()]).max().expect("layers"),
            per_token,
            context_bytes(&q4, 8192),
            context_bytes(&q4, 32768),
            recurrent,
        ];
        assert_eq!(found, numbers[..], "{name}");
    }
}

#[test]
fn published_files_have_layers_that_differ_and_add_up() {
    let models = fixture::read(include_str!("../fixtures/published.txt"));
    assert_eq!(models.len(), 4);
    for (name, model) in &models {
        let quant = model.quants().next().expect("a quantisation").to_owned();
        let header = model.header(&quant);
        let spec = ModelSpec::from_gguf(&header).expect("a model");
        assert_eq!(spec.warnings(), [], "{name}");
        let in_file = Bytes::saturating_sum(header.tensors.iter().map(|t| t.bytes));
        assert_eq!(spec.file_bytes(), in_file, "{name}");
        let footprint = spec.footprint(&of_total(8192), Padding::None).expect("a footprint");
        let parts = footprint.layers.iter().map(|l| l.weights_bytes).chain([
            footprint.input_bytes,
            footprint.head_beside_input_bytes,
            footprint.each_device_bytes,
        ]);
        assert_eq!(Bytes::saturating_sum(parts), in_file, "{name}");
        for layer in 0..spec.layer_count() {
            let classes = spec.class_bytes(layer, Padding::None);
            assert_eq!(classes.total(), footprint.layers[layer].weights_bytes, "{name} {layer}");
            assert_eq!((classes.experts, classes.other), (Bytes::ZERO, Bytes::ZERO), "{name} {layer}");
        }
        let by_name = spec.layer_tensors().filter(|t| t.class == TensorClass::Norms);
        let norms = Bytes::saturating_sum(by_name.map(|t| t.bytes));
        let by_layer = (0..spec.layer_count()).map(|i| spec.class_bytes(i, Padding::None).norms);
        assert_eq!(norms, Bytes::saturating_sum(by_layer), "{name}");
    }
}

/// Mixed quantisations give some layers a better type; which ones differs from file to file, and only the header tells.
#[test]
fn the_heavier_layers_of_a_published_file_are_those_of_its_header_not_of_a_formula() {
    let models = fixture::read(include_str!("../fixtures/published.txt"));
    let heavy = |name: &str, quant: &str| -> Vec<u32> {
        let spec = ModelSpec::from_gguf(&models[name].header(quant)).expect("a model");
        let layers = spec.layers(&of_total(512)).expect("layers");
        let least = layers.iter().map(|l| l.weights_bytes).min().expect("layers");
        layers.iter().filter(|l| l.weights_bytes > least).map(|l| l.index).collect()
    };
    // Its converter counted layers as text: 0, 1, 10, 11, ..
    let llama = [0, 1, 2, 3, 6, 10, 13, 16, 19, 21, 24, 27, 28, 29, 30, 31];
    assert_eq!(heavy("llama-3.1-8b", "Q4_K_M"), llama);
    assert!(heavy("mistral-7b-v0.3", "Q4_0").is_empty());
}
