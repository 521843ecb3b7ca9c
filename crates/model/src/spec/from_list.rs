//! A model from a list of layers.

use crate::arch::{Cache, LayerShape, Shape};
use crate::list::LayerList;
use crate::spec::weights::Weight;
use crate::spec::{ModelFormat, ModelSpec};

impl ModelSpec {
    /// Takes a list of layers as a model. Its amounts are taken as they are: no engine rounds them.
    pub fn from_list(list: &LayerList) -> Self {
        let mut layers = Vec::with_capacity(list.layers.len());
        let mut blocks = Vec::with_capacity(list.layers.len());
        for (i, layer) in list.layers.iter().enumerate() {
            let per_cell = layer.kv_bytes_per_token.unwrap_or_default();
            let cache = Cache { fixed: layer.kv_bytes, per_cell, ..Cache::default() };
            layers.push(LayerShape { cache, ..LayerShape::default() });
            let weight = Weight::told(format!("layers.{i}"), layer.bytes, layer.weights);
            blocks.push(super::Block { weights: vec![weight], uncut: !layer.cut_after });
        }
        Self {
            format: ModelFormat::List,
            name: list.name.clone(),
            architecture: "list".to_owned(),
            shape: Shape { layers, ..Shape::default() },
            blocks,
            beyond: Vec::new(),
            input: vec![Weight::told("input".to_owned(), list.input_bytes, 0)],
            head: vec![Weight::told("head".to_owned(), list.head_bytes, 0)],
            each_device: Vec::new(),
            tied: Vec::new(),
            missing_bytes: plimsoll_units::Bytes::ZERO,
            warnings: Vec::new(),
        }
    }
}
