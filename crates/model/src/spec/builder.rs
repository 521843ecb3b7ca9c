//! Puts the tensors of a model where they belong.

use plimsoll_units::Bytes;

use crate::arch::Shape;
use crate::header::Tensor;
use crate::spec::names::Place;
use crate::spec::weights::Weight;
use crate::spec::{Block, ModelFormat, ModelSpec, ModelWarning, SpecError, TensorClass};

/// A model in the making.
pub(crate) struct Builder {
    spec: ModelSpec,
    unplaced: Vec<Weight>,
}

impl Builder {
    pub(crate) fn new(format: ModelFormat, name: Option<&str>, architecture: &str, shape: Shape) -> Self {
        let blocks = shape.layers.iter().map(|_| Block::default()).collect();
        let spec = ModelSpec {
            format,
            name: name.unwrap_or(architecture).to_owned(),
            architecture: architecture.to_owned(),
            shape,
            blocks,
            beyond: Vec::new(),
            input: Vec::new(),
            head: Vec::new(),
            each_device: Vec::new(),
            tied: Vec::new(),
            missing_bytes: Bytes::ZERO,
            warnings: Vec::new(),
        };
        Self { spec, unplaced: Vec::new() }
    }

    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = ModelWarning>) {
        self.spec.warnings.extend(warnings);
    }

    pub(crate) fn tensor(
        &mut self,
        tensor: &Tensor,
        place: Place,
        class: TensorClass,
    ) -> Result<(), SpecError> {
        let weight = Weight::of_tensor(tensor, class);
        match place {
            Place::Block(layer) => {
                let layers = self.spec.blocks.len();
                let block = usize::try_from(layer).ok().and_then(|i| self.spec.blocks.get_mut(i));
                let out_of_range =
                    || SpecError::LayerOutOfRange { tensor: tensor.name.clone(), layer, layers };
                block.ok_or_else(out_of_range)?.weights.push(weight);
            }
            Place::Input => self.spec.input.push(weight),
            Place::Head => self.spec.head.push(weight),
            Place::EachDevice => self.spec.each_device.push(weight),
            #[cfg(feature = "safetensors")]
            Place::Nextn => self.spec.beyond.push(weight),
            Place::Beside | Place::Unknown => self.unplaced.push(weight),
        }
        Ok(())
    }

    pub(crate) fn missing(&mut self, bytes: Bytes) {
        self.spec.missing_bytes = bytes;
        if !bytes.is_zero() {
            self.spec.warnings.push(ModelWarning::MissingBytes { bytes });
        }
    }

    /// The model. Without an output matrix its token embedding stands in, unless `tie` says that it has no output.
    ///
    /// # Errors
    ///
    /// Neither an output matrix nor a token embedding, or more bytes than 64 bits count.
    pub(crate) fn finish(mut self, tie: Option<&Tie>) -> Result<ModelSpec, SpecError> {
        if let Some(first) = self.unplaced.first() {
            let bytes = Bytes::saturating_sum(self.unplaced.iter().map(|w| w.bytes));
            let (tensor, count) = (first.name.to_string(), self.unplaced.len());
            self.spec.warnings.push(ModelWarning::Unplaced { tensor, count, bytes });
            self.spec.input.append(&mut self.unplaced);
        }
        if let Some(tie) = tie
            && !self.spec.head.iter().any(|w| (tie.is_output)(&w.name))
        {
            let embedding = self.spec.input.iter().find(|w| (tie.is_embedding)(&w.name));
            let embedding = embedding.ok_or(SpecError::MissingTensor { name: tie.what })?;
            self.spec.tied.push(embedding.clone());
        }
        let num_bytes = self.spec.all_weights().map(|w| w.bytes);
        Bytes::checked_sum(num_bytes).ok_or(SpecError::TooLarge { what: "the model" })?;
        Ok(self.spec)
    }
}

/// How a model without an output matrix uses its token embedding for it.
pub(crate) struct Tie {
    /// Whether a tensor is the output matrix.
    pub(crate) is_output: fn(&str) -> bool,
    /// Whether a tensor is the token embedding.
    pub(crate) is_embedding: fn(&str) -> bool,
    /// What is missing when there is neither.
    pub(crate) what: &'static str,
}
