//! What is read of single safetensors files, and what is refused in which words.
#![cfg(feature = "safetensors")]
#![cfg_attr(feature = "safetensors", expect(clippy::unwrap_used, reason = "a test fails by panicking"))]

use std::path::Path;

use expect_test::{Expect, expect};
use plimsoll_model::TensorType;
use plimsoll_model::safetensors::{Checkpoint, SafetensorsError, read_safetensors_from};
use plimsoll_testkit::safetensors::{file, floats};
use plimsoll_units::Bytes;
use proptest::prelude::*;
use serde_json::json;

fn read(bytes: &[u8]) -> Result<Checkpoint, SafetensorsError> {
    read_safetensors_from(bytes, bytes.len() as u64, Path::new("m.safetensors"))
}

fn refused(header: &str, data: usize, expected: Expect) {
    expected.assert_eq(&read(&file(header, data)).unwrap_err().to_string());
}

#[test]
fn sides_come_with_the_contiguous_one_first_and_scalars_have_one() {
    let header = r#"{
        "b":{"dtype":"BF16","shape":[3,2,5],"data_offsets":[0,60]},
        "a":{"dtype":"F8_E4M3","shape":[],"data_offsets":[60,61]},
        "empty":{"dtype":"F32","shape":[4,0],"data_offsets":[61,61]},
        "packed":{"dtype":"I32","shape":[2,4],"data_offsets":[69,101]},
        "blocks":{"dtype":"F4","shape":[4,4],"data_offsets":[61,69]}
    }  "#;
    let checkpoint = read(&file(header, 101)).unwrap();
    let tensors: Vec<_> = checkpoint
        .tensors
        .iter()
        .map(|t| (t.name.as_str(), &t.dims[..], t.kind, t.bytes.get(), t.elements()))
        .collect();
    assert_eq!(
        tensors,
        [
            ("a", &[1][..], TensorType::F8_E4M3, 1, 1),
            ("b", &[5, 2, 3], TensorType::BF16, 60, 30),
            ("blocks", &[4, 4], TensorType::F4, 8, 16),
            ("empty", &[0, 4], TensorType::F32, 0, 0),
            ("packed", &[4, 2], TensorType::I32, 32, 8),
        ]
    );
    assert_eq!(checkpoint.missing_bytes, Bytes::ZERO);
}

#[test]
fn a_header_that_is_cut_is_refused_and_cut_data_is_missing() {
    let whole = floats(&[("a", 5), ("b", 3)]);
    let data = whole.len() - 32;
    for end in 0..whole.len() {
        let cut = read(&whole[..end]);
        if end < data {
            let error = cut.unwrap_err().to_string();
            let place = if end < 8 { 0 } else { 8 };
            assert!(error.starts_with(&format!("m.safetensors: byte {place}: the header needs ")), "{error}");
        } else {
            assert_eq!(cut.unwrap().missing_bytes.get(), (whole.len() - end) as u64);
        }
    }
}

#[test]
fn a_long_header_is_read_like_a_short_one() {
    let header = r#"{"a\u00e9\"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}"#;
    let long = |end: &str| file(&format!("{header}{}{end}", " ".repeat(5 << 20)), 9);
    let checkpoint = read(&file(&format!("{header}}}"), 9)).unwrap();
    assert_eq!(checkpoint.tensors[0].name, "aé\"");
    assert_eq!(read(&long("}")).unwrap(), checkpoint);
    assert!(read(&long("")).unwrap_err().to_string().ends_with("EOF while parsing an object"));
    let text = format!(",\"{}\":1}}", "x".repeat((4 << 20) + 1));
    let error = read(&long(&text)).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "a string has more than 4194304 bytes");
}

#[test]
fn headers_that_cannot_be_are_refused() {
    refused(
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        8,
        expect!["the tensor 'a' stands twice in m.safetensors"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
        12,
        expect!["m.safetensors: tensor 'b', data_offsets: begins at 4, but the data before it ends at 8"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
        12,
        expect!["m.safetensors: tensor 'a', data_offsets: begins at 4, but the data before it ends at 0"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
        4,
        expect!["m.safetensors: tensor 'a', data_offsets: 0 to 4 does not hold the 8 bytes of its shape"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
        8,
        expect!["m.safetensors: tensor 'a', data_offsets: 8 to 0 does not hold the 8 bytes of its shape"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
        0,
        expect![
            "m.safetensors, header, line 1 column 74: tensor 'a': shape: more than 9223372036854775807 values or bytes"
        ],
    );
    refused(
        r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}"#,
        2,
        expect![
            "m.safetensors, header, line 1 column 53: tensor 'a': shape: 3 values of F4 do not fill whole bytes"
        ],
    );
    refused(
        r#"{"a":{"dtype":"Q4_K","shape":[2],"data_offsets":[0,4]}}"#,
        4,
        expect!["m.safetensors, header, line 1 column 20: tensor 'a': unknown dtype 'Q4_K'"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,4]}}"#,
        4,
        expect![
            "m.safetensors, header, line 1 column 31: tensor 'a': invalid value: integer `-2`, expected u64"
        ],
    );
    refused(
        r#"{"a":{"dtype":"F32","data_offsets":[0,4]}}"#,
        4,
        expect!["m.safetensors, header, line 1 column 41: tensor 'a': missing field `shape`"],
    );
    refused(
        r#"{"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}"#,
        4,
        expect!["m.safetensors, header, line 1 column 43: tensor 'a': duplicate field `shape`"],
    );
    refused(
        r#"{"a":["F32",[1],[0,4]]}"#,
        4,
        expect![
            "m.safetensors, header, line 1 column 5: tensor 'a': invalid type: sequence, expected an object of dtype, shape and data_offsets"
        ],
    );
    refused(
        r#"{"__metadata__":{"format":1}}"#,
        0,
        expect!["m.safetensors, header, line 1 column 27: invalid type: integer `1`, expected a text"],
    );
    refused(
        r#"{"__metadata__":{},"__metadata__":{}}"#,
        0,
        expect!["m.safetensors, header, line 1 column 33: duplicate field `__metadata__`"],
    );
    refused(
        r"[]",
        0,
        expect![
            "m.safetensors, header, line 1 column 0: invalid type: sequence, expected an object of tensors by name"
        ],
    );
    refused("", 0, expect!["m.safetensors, header, line 1 column 0: EOF while parsing a value"]);
    refused("{} x", 0, expect!["m.safetensors, header, line 1 column 4: trailing characters"]);
    refused(
        "{}",
        5,
        expect!["m.safetensors: byte 10: the data of the tensors ends here, but the file has 5 bytes more"],
    );
    refused(
        &"[".repeat(100_000),
        0,
        expect![
            "m.safetensors, header, line 1 column 0: invalid type: sequence, expected an object of tensors by name"
        ],
    );
    refused(
        &format!(r#"{{"a":{}"#, r#"{"dtype":"#.repeat(100_000)),
        0,
        expect!["m.safetensors, header, line 1 column 14: tensor 'a': invalid type: map, expected a name"],
    );
    refused(
        &format!(r#"{{"{}":1}}"#, "x".repeat(1025)),
        0,
        expect!["m.safetensors, header, line 1 column 1028: a name has 1025 bytes; at most 1024 can be read"],
    );
}

#[test]
fn a_header_length_that_cannot_be_is_refused_before_it_is_allocated() {
    let with = |len: u64| [&len.to_le_bytes()[..], &[0; 100]].concat();
    for (len, expected) in [
        (101, "m.safetensors: byte 8: the header needs 101 bytes, but the file has only 100 left"),
        (1 << 63, "m.safetensors: the header has 9223372036854775808 bytes; at most 33554432 can be read"),
        (u64::MAX, "m.safetensors: the header has 18446744073709551615 bytes; at most 33554432 can be read"),
    ] {
        assert_eq!(read(&with(len)).unwrap_err().to_string(), expected);
    }
}

/// What the crate `safetensors` counts, or `None` where it refuses the file.
fn other(bytes: &[u8]) -> Option<Vec<(String, u64, Vec<usize>)>> {
    let (_, metadata) = safetensors::SafeTensors::read_metadata(bytes).ok()?;
    let mut tensors: Vec<_> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| {
            let dims = info.shape.iter().rev().copied().collect();
            (name, (info.data_offsets.1 - info.data_offsets.0) as u64, dims)
        })
        .collect();
    tensors.sort();
    Some(tensors)
}

prop_compose! {
    fn any_file()(tensors in prop::collection::vec((0_usize..4, prop::collection::vec(1_usize..5, 1..4)), 0..6)) -> Vec<u8> {
        let mut end = 0;
        let mut header = serde_json::Map::new();
        for (i, (kind, shape)) in tensors.iter().enumerate() {
            let (dtype, width) = [("F32", 4), ("BF16", 2), ("U8", 1), ("I64", 8)][*kind];
            let begin = end;
            end += shape.iter().product::<usize>() * width;
            header.insert(format!("t{i}"), json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, end] }));
        }
        file(&serde_json::Value::Object(header).to_string(), end)
    }
}

proptest! {
    #[test]
    fn the_other_crate_reads_the_same(bytes in any_file()) {
        let ours = read(&bytes).unwrap();
        let ours: Vec<_> = ours.tensors.iter().map(|t| {
            (t.name.clone(), t.bytes.get(), t.dims.iter().map(|&d| usize::try_from(d).unwrap()).collect())
        }).collect();
        prop_assert_eq!(Some(ours), other(&bytes));
    }

    #[test]
    fn flipped_bytes_never_panic_and_nothing_is_accepted_that_the_other_crate_refuses(
        bytes in any_file(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = bytes;
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(ours) = read(&bytes) && ours.missing_bytes == Bytes::ZERO {
            prop_assert_eq!(other(&bytes).map(|tensors| tensors.len()), Some(ours.tensors.len()));
        }
    }
}
