//! Every tensor of a model by name, and where it belongs.

use plimsoll_units::Bytes;

use crate::spec::ModelSpec;

/// Where a tensor of a model belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorPlace {
    /// A layer, by its index.
    Layer(u32),
    /// With the token embedding; whatever sees or hears beside the model as well.
    Input,
    /// With the output matrix.
    Head,
    /// On every device that holds a layer.
    EachDevice,
    /// With the blocks for next-token prediction.
    NextToken,
}

/// A tensor and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedTensor<'a> {
    /// Its name in the files.
    pub name: &'a str,
    /// Where it belongs.
    pub place: TensorPlace,
    /// What it takes in the files.
    pub bytes: Bytes,
}

impl ModelSpec {
    /// All its tensors, under the names that the files give them. A tied matrix comes once, as part of the input.
    pub fn tensors(&self) -> impl Iterator<Item = PlacedTensor<'_>> {
        let layers = self.layer_count();
        let blocks = (0_u32..).zip(&self.blocks).enumerate().flat_map(move |(number, (index, block))| {
            let place = if number < layers { TensorPlace::Layer(index) } else { TensorPlace::NextToken };
            block.weights.iter().map(move |weight| (weight, place))
        });
        let input = self.input.iter().map(|weight| (weight, TensorPlace::Input));
        let head = self.head.iter().map(|weight| (weight, TensorPlace::Head));
        let each = self.each_device.iter().map(|weight| (weight, TensorPlace::EachDevice));
        let beyond = self.beyond.iter().map(|weight| (weight, TensorPlace::NextToken));
        let all = input.chain(blocks).chain(head).chain(each).chain(beyond);
        all.map(|(weight, place)| PlacedTensor { name: &weight.name, place, bytes: weight.bytes })
    }
}
