//! Any bytes as a GGUF file: an error or a header that adds up, never a panic.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plimsoll_model::gguf::read_gguf_from;

fuzz_target!(|bytes: &[u8]| {
    let len = bytes.len() as u64;
    match read_gguf_from(Cursor::new(bytes), len, Path::new("fuzz.gguf")) {
        Ok(header) => {
            let data = header.tensors.iter().map(|tensor| tensor.bytes.get()).sum::<u64>();
            let header_bytes = len.saturating_sub(data - header.missing_bytes.get().min(data));
            assert!(header_bytes >= 24, "data lies within the header");
            assert!(header.tensors.iter().all(|tensor| !tensor.dims.is_empty() && !tensor.bytes.is_zero()));
        }
        Err(error) => assert!(error.to_string().contains("fuzz.gguf, byte ")),
    }
    // What is cut off is an error, or the same header with more missing.
    if let Some((_, cut)) = bytes.split_last() {
        let _ = read_gguf_from(Cursor::new(cut), len - 1, Path::new("fuzz.gguf"));
    }
});
