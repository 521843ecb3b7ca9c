//! Any bytes as a safetensors file, with and without a right length in front: an error or a header that adds up.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plimsoll_model::safetensors::read_safetensors_from;

fn check(bytes: &[u8]) {
    let len = bytes.len() as u64;
    if let Ok(checkpoint) = read_safetensors_from(bytes, len, Path::new("fuzz.safetensors")) {
        let data = checkpoint.tensors.iter().map(|tensor| tensor.bytes.get()).sum::<u64>();
        let held = data - checkpoint.missing_bytes.get();
        assert!(held + 8 < len, "data lies within the header");
        assert!(checkpoint.tensors.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut whole = (bytes.len() as u64).to_le_bytes().to_vec();
    whole.extend(bytes);
    check(&whole);
});
