//! Parts of layers that an engine may keep apart from the rest.

use plimsoll_units::Bytes;

use crate::request::Padding;
use crate::spec::ModelSpec;
use crate::spec::weights::ClassBytes;

/// Some tensors of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerPart {
    /// What they take in a device's buffer.
    pub weights_bytes: Bytes,
    /// What one token reads of them: of experts only the share that is used, rounded down.
    pub read_bytes: Bytes,
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

    /// What the largest of the layers' tensors takes whose name is picked; zero where none is.
    pub fn largest_tensor(&self, padding: Padding, pick: impl Fn(&str) -> bool) -> Bytes {
        let blocks = self.blocks[..self.layer_count()].iter();
        let picked = blocks.flat_map(|block| &block.weights).filter(|weight| pick(&weight.name));
        picked.map(|weight| weight.padded(padding)).max().unwrap_or(Bytes::ZERO)
    }

    /// Whether some layer has a tensor whose name is picked.
    pub fn has_tensor(&self, pick: impl Fn(&str) -> bool) -> bool {
        self.layer_tensors().any(|tensor| pick(tensor.name))
    }
}
