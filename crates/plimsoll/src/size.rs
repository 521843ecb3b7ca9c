//! What a model takes of one memory, for a booking.

use plimsoll_model::{EstimateError, ModelFormat, ModelSpec, Padding, Request};
use plimsoll_units::Bytes;

use crate::engine::Engine;

/// Where a model is to be resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In one memory that holds everything: a host, or a GPU that shares the host's memory.
    OneMemory,
    /// On a device with memory of its own; what the engine keeps in the host's memory is not counted.
    Device,
}

/// What a model takes of one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its weights.
    pub weights: Bytes,
    /// Its key-value cache, and what the engine computes in.
    pub kv_and_buffers: Bytes,
}

impl Size {
    /// Both together.
    pub fn total(&self) -> Bytes {
        self.weights.saturating_add(self.kv_and_buffers)
    }
}

/// What a whole model takes in one place for this request: the layers' bytes as a plan counts them, and the compute
/// buffers that the engine is charged with. A prompt cache of the server is not counted.
///
/// A GGUF is sized as llama.cpp lays it out, everything else exactly.
///
/// # Errors
///
/// The request cannot be laid out.
pub fn size(model: &ModelSpec, request: &Request, place: Place) -> Result<Size, EstimateError> {
    let engine = match model.format() {
        ModelFormat::Gguf => Engine::LlamaCpp,
        ModelFormat::Safetensors | ModelFormat::List => Engine::None,
    };
    let request = Request { engine: engine.profile(), ..*request };
    let padding = match (engine, place) {
        (Engine::LlamaCpp, Place::Device) => Padding::Cuda,
        _ => engine.profile().padding,
    };
    let footprint = model.footprint(&request, padding)?;
    let charges = engine.rules(model, &request, &footprint, Bytes::ZERO).charges;
    // An engine that is not known keeps the input beside the first layer.
    let beside_input = place == Place::OneMemory || engine == Engine::None;
    let (ends, buffers) = if beside_input {
        let ends = footprint.input_bytes.saturating_add(footprint.head_beside_input_bytes);
        (ends, if place == Place::OneMemory { charges.host_alone } else { charges.alone })
    } else {
        (footprint.head_bytes, charges.alone)
    };
    let layers = Bytes::saturating_sum(footprint.layers.iter().map(|layer| layer.weights_bytes));
    let kv = Bytes::saturating_sum(footprint.layers.iter().map(|layer| layer.kv_bytes));
    Ok(Size {
        weights: layers.saturating_add(ends).saturating_add(footprint.each_device_bytes),
        kv_and_buffers: kv.saturating_add(buffers),
    })
}
