//! Lists of layers as models.

use plimsoll_model::list::parse_list_toml;
use plimsoll_model::{ContextLength, EngineProfile, EstimateError, ModelFormat, ModelSpec, Padding, Request};
use plimsoll_units::Bytes;

fn model(text: &str) -> ModelSpec {
    ModelSpec::from_list(&parse_list_toml(text).expect("a list"))
}

fn bare(tokens: Option<u64>) -> Request {
    Request {
        context: tokens.map(ContextLength::PerSequence),
        engine: EngineProfile::NONE,
        ..Request::default()
    }
}

#[test]
fn the_amounts_of_a_list_are_taken_as_they_are() {
    let spec = model(
        r#"
        name = "toy"
        input_bytes = 5
        head_bytes = 7
        layers = [ { bytes = 14, weights = 9 }, { bytes = "3GB", kv_bytes = 11, cut = false }, { count = 2, bytes = 3 } ]
        "#,
    );
    assert_eq!((spec.name(), spec.format(), spec.layer_count()), ("toy", ModelFormat::List, 4));
    // Even in buffers that round tensors, a list's amounts are already those of the buffer.
    for padding in [Padding::None, Padding::Cpu, Padding::Cuda] {
        let footprint = spec.footprint(&Request { context: None, ..Request::default() }, padding);
        let footprint = footprint.expect("a footprint");
        let weights: Vec<u64> = footprint.layers.iter().map(|l| l.weights_bytes.get()).collect();
        assert_eq!(weights, [14, 3_000_000_000, 3, 3]);
        assert_eq!((footprint.input_bytes, footprint.head_bytes), (Bytes::new(5), Bytes::new(7)));
        assert_eq!(footprint.head_beside_input_bytes, Bytes::new(7));
        let cuts: Vec<bool> = footprint.layers.iter().map(|l| l.cut_after).collect();
        assert_eq!(cuts, [true, false, true, true]);
        assert_eq!((footprint.layers[0].num_weights, footprint.layers[1].kv_bytes), (9, Bytes::new(11)));
        assert_eq!(footprint.context.total, 0);
    }
}

#[test]
fn bytes_per_token_count_in_every_cell_and_need_a_context() {
    let spec = model(r#"layers = [ { bytes = 1, kv_bytes = 3, kv_bytes_per_token = 4096 } ]"#);
    let kv = |request: &Request| spec.layers(request).expect("layers")[0].kv_bytes.get();
    assert_eq!(kv(&bare(Some(1000))), 3 + 4096 * 1000);
    assert_eq!(kv(&Request { parallel: 4, ..bare(Some(1000)) }), 3 + 4096 * 4000);
    assert_eq!(kv(&Request { engine: EngineProfile::LLAMA_CPP, ..bare(Some(1000)) }), 3 + 4096 * 1024);
    assert_eq!(spec.kv_bytes_per_token(&bare(Some(1))).expect("a cost"), Bytes::new(4096));
    let model = spec.name().to_owned();
    assert_eq!(spec.layers(&bare(None)), Err(EstimateError::ContextNeeded { model }));
}

#[test]
fn many_experts_weigh_what_all_of_them_weigh() {
    // 125.1 billion weights of 0.58 bytes, of which a token uses 10 billion.
    let spec = model(r#"layers = [ { bytes = 72558000000, weights = 125100000000 } ]"#);
    let layer = spec.layers(&bare(None)).expect("layers")[0];
    assert!(layer.weights_bytes > "48GB".parse().expect("an amount"));
    assert_eq!(layer.num_weights, 125_100_000_000);
}
