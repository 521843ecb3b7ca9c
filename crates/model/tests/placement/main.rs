//! What models take, against measurements, published totals and situations with known answers.

mod adapters;
mod caches;
#[cfg(feature = "safetensors")]
mod checkpoints;
mod engines;
mod families;
mod fixture;
mod hand;
#[cfg(feature = "list")]
mod lists;
mod measured;
#[cfg(all(feature = "gguf", feature = "list", feature = "safetensors"))]
mod opening;
mod properties;
mod refusals;
mod totals;
mod weights;
