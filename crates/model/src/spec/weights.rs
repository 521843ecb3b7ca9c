//! Tensors as bytes of a class.

use plimsoll_units::Bytes;

use crate::header::Tensor;
use crate::kv::row_rest;
use crate::request::Padding;
use crate::tensor::TensorType;

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorClass {
    /// Projections of queries, keys, values and their output.
    Attention,
    /// The dense feed-forward part, shared experts and the router included.
    FeedForward,
    /// Experts, of which a token uses a few.
    Experts,
    /// Norms.
    Norms,
    /// The rest: recurrent mixers, embeddings, output.
    Other,
}

impl TensorClass {
    /// Its name in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::FeedForward => "ffn",
            Self::Experts => "experts",
            Self::Norms => "norms",
            Self::Other => "other",
        }
    }
}

/// The bytes of a layer by class, as they lie in a device's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassBytes {
    /// Projections of queries, keys, values and their output.
    pub attention: Bytes,
    /// The dense feed-forward part, shared experts and the router included.
    pub ffn: Bytes,
    /// Experts, of which a token uses a few.
    pub experts: Bytes,
    /// Norms.
    pub norms: Bytes,
    /// The rest.
    pub other: Bytes,
}

impl ClassBytes {
    /// All classes together, saturating.
    pub fn total(&self) -> Bytes {
        Bytes::saturating_sum([self.attention, self.ffn, self.experts, self.norms, self.other])
    }

    fn of(&mut self, class: TensorClass) -> &mut Bytes {
        match class {
            TensorClass::Attention => &mut self.attention,
            TensorClass::FeedForward => &mut self.ffn,
            TensorClass::Experts => &mut self.experts,
            TensorClass::Norms => &mut self.norms,
            TensorClass::Other => &mut self.other,
        }
    }

    pub(crate) fn count(weights: &[Weight], padding: Padding) -> Self {
        let mut classes = Self::default();
        for weight in weights {
            classes.add(weight.class, weight.padded(padding));
        }
        classes
    }

    pub(crate) fn add(&mut self, class: TensorClass, bytes: Bytes) {
        let sum = self.of(class);
        *sum = sum.saturating_add(bytes);
    }
}

/// A tensor of a model, as far as bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) name: Box<str>,
    pub(crate) class: TensorClass,
    /// What it takes in the file.
    pub(crate) bytes: Bytes,
    /// How many values it holds.
    pub(crate) elements: u64,
    /// What CUDA puts behind it.
    row_rest: Bytes,
    /// Whether it is one tensor that a buffer aligns; a list of layers tells whole layers.
    aligned: bool,
    /// Its sides, the contiguous one first; zero beyond its last.
    pub(crate) sides: [u64; 4],
    /// What adapters hold beside it, in the same buffer.
    pub(crate) pairs: Vec<Weight>,
}

impl Weight {
    pub(crate) fn of_tensor(tensor: &Tensor, class: TensorClass) -> Self {
        let width = tensor.dims.first().copied().unwrap_or(1).max(1);
        let rows = (tensor.elements() / width).max(1);
        let row_bytes = Bytes::new(tensor.bytes.get() / rows);
        let mut sides = [0; 4];
        for (side, &dim) in sides.iter_mut().zip(&tensor.dims) {
            *side = dim;
        }
        Self {
            name: tensor.name.as_str().into(),
            class,
            bytes: tensor.bytes,
            elements: tensor.elements(),
            row_rest: row_rest(width, row_bytes, is_quantised(tensor.kind)),
            aligned: true,
            sides,
            pairs: Vec::new(),
        }
    }

    /// A whole layer, or another part, told by a list.
    #[cfg(feature = "list")]
    pub(crate) fn told(name: String, bytes: Bytes, elements: u64) -> Self {
        let class = TensorClass::Other;
        Self {
            name: name.into(),
            class,
            bytes,
            elements,
            row_rest: Bytes::ZERO,
            aligned: false,
            sides: [0; 4],
            pairs: Vec::new(),
        }
    }

    /// What it takes in a device's buffer with all that adapters hold beside it.
    pub(crate) fn padded(&self, padding: Padding) -> Bytes {
        let pairs = self.pairs.iter().map(|half| half.padded_alone(padding));
        Bytes::saturating_sum(pairs.chain([self.padded_alone(padding)]))
    }

    /// What it takes in a device's buffer by itself.
    pub(crate) fn padded_alone(&self, padding: Padding) -> Bytes {
        if self.aligned { padding.tensor(self.bytes, self.row_rest) } else { self.bytes }
    }
}

impl Weight {
    /// Its sides, the contiguous one first.
    pub(crate) fn dims(&self) -> &[u64] {
        let count = self.sides.iter().take_while(|side| **side > 0).count();
        &self.sides[..count]
    }
}

/// What weights take together in a device's buffer, saturating.
pub(crate) fn padded_sum<'a>(weights: impl IntoIterator<Item = &'a Weight>, padding: Padding) -> Bytes {
    Bytes::saturating_sum(weights.into_iter().map(|w| w.padded(padding)))
}

/// Whether the engine stores values in blocks with a scale.
const fn is_quantised(kind: TensorType) -> bool {
    kind.block().0 > 1 && kind.ggml_id().is_some()
}
