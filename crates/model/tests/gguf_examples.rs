//! The models in `examples/`: headers of real shapes, without data.
#![cfg(feature = "gguf")]

use std::path::Path;

use plimsoll_model::TensorType;
use plimsoll_model::gguf::read_gguf;
use plimsoll_units::Bytes;

#[test]
fn each_is_read_with_all_its_data_missing() {
    for (file, name, architecture, tensors, bytes) in [
        ("llama-3.1-8b-q4_k_m", "Llama 3.1 8B", "llama", 292, 4_912_898_304),
        ("llama-3.1-70b-q4_k_m", "Llama 3.1 70B", "llama", 724, 42_512_531_712),
        ("qwen3-30b-a3b-q4_k_m", "Qwen3 30B A3B", "qwen3moe", 579, 18_550_716_416),
        ("gpt-oss-120b-mxfp4", "gpt-oss 120B", "gpt-oss", 687, 63_374_323_968),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{file}.gguf"));
        assert!(path.metadata().unwrap().len() < 50_000, "{file} is more than a header");
        let header = read_gguf(&path).unwrap();
        assert_eq!(header.metadata["general.name"].as_text(), Some(name));
        assert_eq!(header.metadata["general.architecture"].as_text(), Some(architecture));
        assert_eq!(header.tensors.len(), tensors, "{file}");
        let padded = header.tensors.iter().map(|t| t.bytes.padded_to(32));
        assert_eq!(Bytes::checked_sum(padded), Some(Bytes::new(bytes)), "{file}");
        assert_eq!(header.missing_bytes, Bytes::new(bytes), "{file}");
    }
}

#[test]
fn the_mixture_of_experts_in_mxfp4_keeps_its_experts_in_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gpt-oss-120b-mxfp4.gguf");
    let header = read_gguf(&path).unwrap();
    let experts = header.tensors.iter().filter(|t| t.kind == TensorType::MXFP4).map(|t| t.bytes);
    // 36 layers of 3 matrices of 2880 x 2880 for 128 experts, 17 bytes for 32 values.
    assert_eq!(Bytes::checked_sum(experts), Some(Bytes::new(36 * 3 * 2880 * 2880 * 128 / 32 * 17)));
}
