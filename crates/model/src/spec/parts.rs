//! Parts of layers that an engine may keep apart from the rest.

use plimsoll_units::Bytes;

use crate::header::GgufHeader;
use crate::request::Padding;
use crate::spec::ModelSpec;
use crate::spec::weights::{ClassBytes, TensorClass, Weight};

/// Some tensors of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerPart {
    /// What they take in a device's buffer.
    pub weights_bytes: Bytes,
    /// What one token reads of them: of experts only the share that is used, rounded down.
    pub read_bytes: Bytes,
}

/// What all tensors of a header take in a device's buffer: of a file that is no model of its own, a projector say.
pub fn tensor_bytes(header: &GgufHeader, padding: Padding) -> Bytes {
    let weights = header.tensors.iter().map(|tensor| Weight::of_tensor(tensor, TensorClass::Other));
    Bytes::saturating_sum(weights.map(|weight| weight.padded(padding)))
}

impl ModelSpec {
    /// The tensors of each layer whose names are picked, next-token blocks left out: one part for each layer, empty where
    /// none is.
    pub fn layer_parts(&self, padding: Padding, pick: impl Fn(&str) -> bool) -> Vec<LayerPart> {
        let blocks = self.blocks[..self.layer_count()].iter();
        let part = blocks.map(|block| {
            let mut classes = ClassBytes::default();
            for weight in block.weights.iter().filter(|weight| pick(&weight.name)) {
                classes.add(weight.class, weight.padded(padding));
            }
            LayerPart { weights_bytes: classes.total(), read_bytes: self.read_bytes(&classes) }
        });
        part.collect()
    }

    /// The names of the tensors that belong to no layer: those of the input, and those of the head.
    pub fn end_tensors(&self) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
        (self.input.iter().map(|weight| &*weight.name), self.head.iter().map(|weight| &*weight.name))
    }

    /// What the largest of the layers' tensors takes whose name is picked, without what adapters hold beside it; zero where
    /// none is.
    pub fn largest_tensor(&self, padding: Padding, pick: impl Fn(&str) -> bool) -> Bytes {
        let blocks = self.blocks[..self.layer_count()].iter();
        let picked = blocks.flat_map(|block| &block.weights).filter(|weight| pick(&weight.name));
        picked.map(|weight| weight.padded_alone(padding)).max().unwrap_or(Bytes::ZERO)
    }

    /// Whether some layer has a tensor whose name is picked.
    pub fn has_tensor(&self, pick: impl Fn(&str) -> bool) -> bool {
        self.layer_tensors().any(|tensor| pick(tensor.name))
    }
}
