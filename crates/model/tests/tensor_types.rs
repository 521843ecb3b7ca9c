//! What a block of each type takes.

use plimsoll_model::TensorType;

/// (number in GGUF, name, values in a block, bytes of a block)
const GGML: [(u32, &str, u64, u64); 35] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
];

/// (name in a safetensors header, bits of a value)
const DTYPES: [(&str, u64); 22] = [
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

#[test]
fn every_number_of_gguf_has_its_name_and_block() {
    for (id, name, values, bytes) in GGML {
        let kind = TensorType::from_ggml(id).unwrap();
        assert_eq!((kind.name(), kind.block(), kind.ggml_id()), (name, (values, bytes), Some(id)));
    }
    let known = (0..1000).chain([u32::MAX]).filter(|&id| TensorType::from_ggml(id).is_some()).count();
    assert_eq!(known, GGML.len());
}

#[test]
fn every_dtype_of_safetensors_has_its_width() {
    for (dtype, bits) in DTYPES {
        let kind = TensorType::from_dtype(dtype).unwrap();
        let (values, bytes) = kind.block();
        assert_eq!(bytes * 8, bits * values, "{dtype}");
        assert_eq!(kind.name(), dtype);
        assert!(bits >= 8 || values > 1, "{dtype}: a part of a byte is counted in blocks");
    }
    assert_eq!(TensorType::from_dtype("Q4_K"), None);
    assert_eq!(TensorType::from_dtype("f32"), None);
}

#[test]
fn every_type_is_known_to_one_of_the_formats() {
    for &kind in TensorType::ALL {
        assert!(kind.ggml_id().is_some() || TensorType::from_dtype(kind.name()) == Some(kind), "{kind}");
        assert_eq!(format!("{kind:>12}").trim_start(), kind.name());
    }
}
