//! Seeded generators and model files for plimsoll's own tests.
//!
//! It is no part of the product and is not published; what it writes is plain bytes, told in plain numbers, so that no
//! reader is tested with its own words.

pub mod adapter;
#[cfg(unix)]
pub mod etcd;
pub mod gguf;
pub mod http;
pub mod safetensors;
