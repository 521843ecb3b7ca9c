//! What is refused of wrong GGUF files, and in which words.
#![cfg(feature = "gguf")]
#![cfg_attr(feature = "gguf", expect(clippy::unwrap_used, reason = "a test fails by panicking"))]

use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use expect_test::{Expect, expect};
use plimsoll_model::GgufHeader;
use plimsoll_model::gguf::{GgufError, read_gguf_from};
use plimsoll_testkit::gguf::{Value as Fact, Writer};

fn read(bytes: &[u8]) -> Result<GgufHeader, GgufError> {
    read_gguf_from(Cursor::new(bytes), bytes.len() as u64, Path::new("m.gguf"))
}

fn refused(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&read(bytes).unwrap_err().to_string());
}

/// A header of raw words behind the magic and version 3.
fn raw(tensors: u64, facts: u64, rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(facts.to_le_bytes());
    rest.iter().for_each(|part| bytes.extend(*part));
    // So that the counts are not refused for want of bytes.
    bytes.extend([0; 64]);
    bytes
}

fn two() -> Writer {
    Writer::new().tensor("a", &[32], 0, 128).tensor("b", &[32], 0, 128)
}

#[test]
fn a_header_that_is_cut_anywhere_is_refused_with_place_and_field() {
    let file = Writer::new()
        .fact("general.architecture", "llama")
        .fact("list", Fact::List(4, vec![Fact::U32(1); 3]))
        .fact("texts", Fact::List(8, vec!["ab".into(); 70]))
        .fact("lists", Fact::List(9, vec![Fact::List(0, vec![Fact::U8(1); 3]); 2]))
        .tensor("a", &[32, 2], 0, 256)
        .tensor("b", &[32], 8, 34);
    let header = file.header();
    assert!(read(&header).is_ok());
    for end in 0..header.len() {
        let error = read(&header[..end]).unwrap_err();
        let GgufError::Header { offset, field, .. } = &error else { panic!("cut at {end}: {error}") };
        assert!(*offset <= end as u64, "cut at {end}: {error}");
        assert!(!field.is_empty());
        let text = error.to_string();
        assert!(text.starts_with(&format!("m.gguf, byte {offset}, {field}: needs ")), "cut at {end}: {text}");
        assert!(text.ends_with(" left"), "cut at {end}: {text}");
    }
}

#[test]
fn other_files_and_versions_are_named() {
    refused(b"", expect!["m.gguf, byte 0, magic: needs 4 bytes, but the file has only 0 left"]);
    refused(
        b"PK\x03\x04abc",
        expect![[
            r#"m.gguf, byte 0, magic: not a GGUF file: it begins with [50, 4b, 03, 04] in place of "GGUF""#
        ]],
    );
    let version = |version, big_endian| Writer { version, big_endian, ..two() }.bytes();
    refused(
        &version(1, false),
        expect!["m.gguf, byte 4, version: GGUF version 1 is not supported; supported are 2 and 3"],
    );
    refused(
        &version(1, true),
        expect!["m.gguf, byte 4, version: GGUF version 1 is not supported; supported are 2 and 3"],
    );
    refused(
        &version(4, false),
        expect!["m.gguf, byte 4, version: GGUF version 4 is not supported; supported are 2 and 3"],
    );
    refused(
        &version(0, false),
        expect!["m.gguf, byte 4, version: GGUF version 0 is not supported; supported are 2 and 3"],
    );
}

#[test]
fn counts_that_cannot_be_are_refused_before_anything_is_allocated() {
    refused(
        &raw(1 << 60, 0, &[]),
        expect!["m.gguf, byte 8, number of tensors: is 1152921504606846976; at most 131072 can be read"],
    );
    refused(
        &raw(0, 1 << 60, &[]),
        expect![
            "m.gguf, byte 24, facts and tensors: needs 16140901064495857664 bytes, but the file has only 64 left"
        ],
    );
    refused(
        &raw(0, u64::MAX, &[]),
        expect![
            "m.gguf, byte 24, facts and tensors: needs 18446744073709551615 bytes, but the file has only 64 left"
        ],
    );
    refused(
        &raw(100_000, 0, &[]),
        expect!["m.gguf, byte 24, facts and tensors: needs 2500000 bytes, but the file has only 64 left"],
    );
}

#[test]
fn lengths_that_cannot_be_are_refused_before_anything_is_allocated() {
    let key = b"\x01\0\0\0\0\0\0\0k";
    refused(
        &raw(0, 1, &[&(1_u64 << 63).to_le_bytes()]),
        expect![
            "m.gguf, byte 24, fact 0, length of the key: is 9223372036854775808; at most 65535 can be read"
        ],
    );
    refused(
        &raw(0, 1, &[&60_000_u64.to_le_bytes()]),
        expect!["m.gguf, byte 32, fact 0, key: needs 60000 bytes, but the file has only 64 left"],
    );
    refused(&raw(0, 1, &[&[0; 8]]), expect!["m.gguf, byte 24, fact 0, length of the key: is empty"]);
    refused(
        &raw(0, 1, &[b"\x01\0\0\0\0\0\0\0\xff"]),
        expect!["m.gguf, byte 32, fact 0, key: is not valid UTF-8"],
    );
    refused(
        &raw(0, 1, &[key, &8_u32.to_le_bytes(), &(1_u64 << 30).to_le_bytes()]),
        expect!["m.gguf, byte 45, fact 0 'k', text: needs 1073741824 bytes, but the file has only 64 left"],
    );
    refused(
        &raw(0, 1, &[key, &9_u32.to_le_bytes(), &12_u32.to_le_bytes(), &(1_u64 << 61).to_le_bytes()]),
        expect![
            "m.gguf, byte 49, fact 0 'k', items: needs 18446744073709551615 bytes, but the file has only 64 left"
        ],
    );
    refused(
        &raw(0, 1, &[key, &9_u32.to_le_bytes(), &8_u32.to_le_bytes(), &2_u64.to_le_bytes(), &[255; 8]]),
        expect![
            "m.gguf, byte 57, fact 0 'k', text: needs 18446744073709551615 bytes, but the file has only 64 left"
        ],
    );
}

#[test]
fn a_header_longer_than_any_vocabulary_is_refused_even_if_the_file_holds_it() {
    /// A file of endless zeros behind its first bytes.
    struct Zeros(Cursor<Vec<u8>>);
    impl Read for Zeros {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(out)? {
                0 => {
                    out.fill(0);
                    Ok(out.len())
                }
                n => Ok(n),
            }
        }
    }
    impl Seek for Zeros {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let key = b"\x01\0\0\0\0\0\0\0k";
    let bytes = raw(0, 1, &[key, &8_u32.to_le_bytes(), &(1_u64 << 30).to_le_bytes()]);
    let error = read_gguf_from(Zeros(Cursor::new(bytes)), 1 << 40, Path::new("m.gguf")).unwrap_err();
    expect!["m.gguf, byte 45, fact 0 'k', text, length of the header: is 1073741869; at most 536870912 can be read"]
        .assert_eq(&error.to_string());
}

#[test]
fn types_of_values_that_do_not_exist_are_refused() {
    let key = b"\x01\0\0\0\0\0\0\0k";
    refused(
        &raw(0, 1, &[key, &13_u32.to_le_bytes()]),
        expect!["m.gguf, byte 37, fact 0 'k', value type: unknown value type 13; known are 0 to 12"],
    );
    refused(
        &raw(0, 1, &[key, &9_u32.to_le_bytes(), &99_u32.to_le_bytes(), &1_u64.to_le_bytes()]),
        expect!["m.gguf, byte 37, fact 0 'k', value type: unknown value type 99; known are 0 to 12"],
    );
}

#[test]
fn lists_nested_without_end_are_refused() {
    let mut deep = Vec::new();
    for _ in 0..200_000 {
        deep.extend(9_u32.to_le_bytes());
        deep.extend(1_u64.to_le_bytes());
    }
    refused(
        &raw(0, 1, &[b"\x01\0\0\0\0\0\0\0k", &9_u32.to_le_bytes(), &deep]),
        expect!["m.gguf, byte 85, fact 0 'k', list: lists are nested more than 4 deep"],
    );
}

#[test]
fn names_that_stand_twice_are_refused() {
    refused(
        &Writer::new().fact("k", 1).fact("j", 1).fact("k", 2).bytes(),
        expect!["m.gguf, byte 58, fact 2 'k': stands twice; first at byte 24"],
    );
    refused(
        &two().tensor("a", &[32], 0, 128).bytes(),
        expect!["m.gguf, byte 90, tensor 2 'a': stands twice; first in m.gguf at byte 24"],
    );
}

#[test]
fn alignments_that_no_engine_accepts_are_refused() {
    let with = |value: Fact| two().fact("general.alignment", value).bytes();
    for (value, found) in [
        (Fact::U32(0), "0"),
        (Fact::U32(4), "4"),
        (Fact::U32(24), "24"),
        (Fact::U64(1 << 32), "4294967296"),
        (Fact::I32(-32), "-32"),
        (Fact::F32(32.0), "32"),
        (Fact::Text("32".to_owned()), "the text '32'"),
        (Fact::List(4, vec![Fact::U32(32)]), "a list of 1"),
    ] {
        let error = read(&with(value)).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "m.gguf, byte 53, fact 0 'general.alignment': is {found}; \
                 an alignment must be a power of two between 8 and 2147483648"
            )
        );
    }
}

#[test]
fn tensors_of_unknown_type_or_impossible_shape_are_refused() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, u32::MAX] {
        let error = read(&Writer::new().tensor("t", &[32], id, 32).bytes()).unwrap_err().to_string();
        assert_eq!(error, format!("m.gguf, byte 45, tensor 0 't', type: unknown tensor type {id}"));
    }
    let one = |dims: &[u64], id| Writer::new().tensor("t", dims, id, 32).bytes();
    refused(
        &one(&[32, 0], 0),
        expect!["m.gguf, byte 45, tensor 0 't', side: is 0; a tensor has no empty sides"],
    );
    refused(
        &one(&[1; 5], 0),
        expect!["m.gguf, byte 33, tensor 0 't', number of sides: is 5; at most 4 can be read"],
    );
    let overflow = expect![
        "m.gguf, byte 53, tensor 0 't', size: the tensor has more than 9223372036854775807 values or bytes"
    ];
    refused(&one(&[1 << 32, 1 << 32], 0), overflow);
    // The values can be counted, their bytes cannot.
    let overflow = expect![
        "m.gguf, byte 45, tensor 0 't', size: the tensor has more than 9223372036854775807 values or bytes"
    ];
    refused(&one(&[1 << 62], 0), overflow);
    refused(
        &one(&[128, 2], 12),
        expect![
            "m.gguf, byte 53, tensor 0 't', size: a row of 128 values is not a whole number of Q4_K blocks of 256"
        ],
    );
    // All tensors together cannot be counted.
    let many = Writer::new().tensor("a", &[1 << 60], 0, 1 << 62).tensor("b", &[1 << 60], 0, 1 << 62);
    refused(
        &[many.header(), vec![0; 64]].concat(),
        expect![
            "m.gguf, byte 57, tensor 1 'b', size: the tensor has more than 9223372036854775807 values or bytes"
        ],
    );
}

#[test]
fn names_of_tensors_have_a_limit() {
    let named = |len: usize| Writer::new().tensor(&"x".repeat(len), &[32], 0, 128).bytes();
    assert!(read(&named(127)).is_ok());
    refused(
        &named(128),
        expect!["m.gguf, byte 24, tensor 0, length of the name: is 128; at most 127 can be read"],
    );
    refused(&named(0), expect!["m.gguf, byte 24, tensor 0, length of the name: is empty"]);
    let error = read(&Writer::new().tensor("a\u{1b}[2J", &[32], 99, 128).bytes()).unwrap_err().to_string();
    assert!(error.contains(r"'a\u{1b}[2J'"), "a terminal must not be told what to do: {error:?}");
}

#[test]
fn data_that_overlaps_leaves_holes_or_lies_beyond_everything_is_refused() {
    let second_at = |offset| Writer::new().tensor("a", &[33], 0, 132).tensor_at("b", &[32], 0, 128, offset);
    assert!(read(&second_at(160).bytes()).is_ok());
    refused(
        &second_at(128).bytes(),
        expect!["m.gguf, byte 82, tensor 1 'b', offset: offset 128, but the tensors before it end at 160"],
    );
    refused(
        &second_at(0).bytes(),
        expect!["m.gguf, byte 82, tensor 1 'b', offset: offset 0, but the tensors before it end at 160"],
    );
    refused(
        &second_at(192).bytes(),
        expect!["m.gguf, byte 82, tensor 1 'b', offset: offset 192, but the tensors before it end at 160"],
    );
    refused(
        &second_at(132).bytes(),
        expect!["m.gguf, byte 82, tensor 1 'b', offset: offset 132 is not a multiple of the alignment 32"],
    );
    refused(
        &second_at(1 << 63).bytes(),
        expect![
            "m.gguf, byte 82, tensor 1 'b', offset: offset 9223372036854775808, but the tensors before it end at 160"
        ],
    );
}

#[test]
fn facts_together_have_a_limit() {
    let mut file = Writer::new();
    for i in 0..100 {
        file = file.fact(&format!("k{i}"), Fact::List(0, vec![Fact::U8(0); 4096]));
    }
    let error = read(&file.bytes()).unwrap_err().to_string();
    assert!(error.ends_with("list: all kept facts together take more than 8388608 bytes"), "{error}");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error_of_the_system() {
    let bytes = two().bytes();
    let error =
        read_gguf_from(Cursor::new(&bytes[..30]), bytes.len() as u64, Path::new("m.gguf")).unwrap_err();
    assert!(matches!(error, GgufError::Read { .. }), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}
