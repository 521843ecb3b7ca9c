//! Models on servers: what is read of them, and every way in which a server can fail.
#![cfg(all(feature = "http", feature = "safetensors"))]
#![cfg_attr(
    all(feature = "http", feature = "safetensors"),
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod failures;
mod models;
mod tls;

use std::error::Error;
use std::time::Duration;

use plimsoll_model::ModelSpec;
use plimsoll_model::http::{Client, Options, Url, Usage, open_url};
use plimsoll_testkit::gguf::{Value, Writer};

/// Nothing of the environment, and no waiting.
fn options() -> Options {
    Options { pause: Duration::ZERO, ..Options::default() }
}

/// The model at an address, or the error with its sources, and what was read.
fn open(address: &str, options: Options) -> (Result<ModelSpec, String>, Usage) {
    let url: Url = address.parse().unwrap();
    let client = Client::new(options);
    let model = open_url(&url, &client).map_err(|error| {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        text
    });
    (model, client.usage())
}

/// A model of three layers.
fn small() -> Writer {
    let facts = [("block_count", 3_u32), ("embedding_length", 64), ("attention.head_count", 4)];
    let writer = Writer::default().fact("general.architecture", "llama");
    let writer = facts.iter().fold(writer, |w, (key, n)| w.fact(&format!("llama.{key}"), *n));
    let names = ["token_embd", "blk.0.ffn_up", "blk.1.ffn_up", "blk.2.ffn_up", "output"];
    names.iter().fold(writer, |w, name| w.tensor(&format!("{name}.weight"), &[64, 64], 1, 8192))
}

/// The same with a vocabulary of so many entries, of about 20 bytes each in a header.
fn wordy(vocabulary: u32) -> Writer {
    let texts = (0..vocabulary).map(|n| Value::Text(format!("token{n:07}"))).collect();
    small().fact("tokenizer.ggml.tokens", Value::List(8, texts))
}
