//! What is emitted for engines other than llama.cpp means the same plan under each engine's own rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod accelerate;
mod kit;
mod older;
mod others;
mod ranks;
