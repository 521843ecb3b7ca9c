//! What is read of right GGUF files.
#![cfg(feature = "gguf")]
#![cfg_attr(feature = "gguf", expect(clippy::unwrap_used, reason = "a test fails by panicking"))]

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use plimsoll_model::gguf::{GgufError, read_gguf, read_gguf_from};
use plimsoll_model::{GgufHeader, TensorType, Value};
use plimsoll_testkit::gguf::{Data, Value as Fact, Writer, part_name};
use plimsoll_units::Bytes;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<GgufHeader, GgufError> {
    read_gguf_from(Cursor::new(bytes), bytes.len() as u64, Path::new("m.gguf"))
}

/// A fresh folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// One fact of every type, and tensors of several types.
fn full() -> Writer {
    Writer::new()
        .fact("general.architecture", "llama")
        .fact("u8", Fact::U8(255))
        .fact("i8", Fact::I8(-128))
        .fact("u16", Fact::U16(65_535))
        .fact("i16", Fact::I16(-32_768))
        .fact("u32", Fact::U32(4_000_000_000))
        .fact("i32", Fact::I32(-2_000_000_000))
        .fact("f32", Fact::F32(0.5))
        .fact("yes", Fact::Bool(true))
        .fact("no", Fact::Bool(false))
        .fact("u64", Fact::U64(u64::MAX))
        .fact("i64", Fact::I64(i64::MIN))
        .fact("f64", Fact::F64(1e-300))
        .fact("text", Fact::Raw(b"a\xffb".to_vec()))
        .fact("layers", Fact::List(4, vec![Fact::U32(8), Fact::U32(0), Fact::U32(8)]))
        .fact("tags", Fact::List(8, vec!["a".into(), "b".into()]))
        .fact("none", Fact::List(12, vec![]))
        .fact(
            "nested",
            Fact::List(9, vec![Fact::List(0, vec![Fact::U8(1); 3]), Fact::List(8, vec!["x".into()])]),
        )
        .tensor("token_embd.weight", &[256, 10], 12, 1_440)
        .tensor("blk.0.attn_norm.weight", &[3], 0, 12)
        .tensor("blk.0.ffn_up_exps.weight", &[32, 2, 5], 39, 170)
        .tensor("scale", &[], 30, 2)
        .tensor("output.weight", &[256, 2, 1, 1], 14, 420)
}

fn check_full(header: &GgufHeader) {
    let fact = |key: &str| header.metadata.get(key).cloned();
    assert_eq!(fact("general.architecture").unwrap().as_text(), Some("llama"));
    assert_eq!(fact("u8"), Some(Value::Unsigned(255)));
    assert_eq!(fact("i8"), Some(Value::Signed(-128)));
    assert_eq!(fact("u16"), Some(Value::Unsigned(65_535)));
    assert_eq!(fact("i16"), Some(Value::Signed(-32_768)));
    assert_eq!(fact("u32"), Some(Value::Unsigned(4_000_000_000)));
    assert_eq!(fact("i32"), Some(Value::Signed(-2_000_000_000)));
    assert_eq!(fact("f32"), Some(Value::Float(0.5)));
    assert_eq!(fact("yes"), Some(Value::Bool(true)));
    assert_eq!(fact("no"), Some(Value::Bool(false)));
    assert_eq!(fact("u64"), Some(Value::Unsigned(u64::MAX)));
    assert_eq!(fact("i64"), Some(Value::Signed(i64::MIN)));
    assert_eq!(fact("f64"), Some(Value::Float(1e-300)));
    assert_eq!(fact("text").unwrap().as_text(), Some("a\u{fffd}b"));
    let layers = [8, 0, 8].map(Value::Unsigned).to_vec();
    assert_eq!(fact("layers"), Some(Value::List(layers)));
    assert_eq!(fact("tags").unwrap().as_list().unwrap().len(), 2);
    assert_eq!(fact("none"), Some(Value::List(vec![])));
    assert_eq!(fact("nested"), Some(Value::Skipped { len: 2 }));
    let tensors: Vec<_> =
        header.tensors.iter().map(|t| (t.name.as_str(), &t.dims[..], t.kind, t.bytes.get())).collect();
    assert_eq!(
        tensors,
        [
            ("token_embd.weight", &[256, 10][..], TensorType::Q4_K, 1_440),
            ("blk.0.attn_norm.weight", &[3], TensorType::F32, 12),
            ("blk.0.ffn_up_exps.weight", &[32, 2, 5], TensorType::MXFP4, 170),
            ("scale", &[1], TensorType::BF16, 2),
            ("output.weight", &[256, 2, 1, 1], TensorType::Q6_K, 420),
        ]
    );
}

#[test]
fn every_type_of_fact_is_read_in_both_versions_and_byte_orders() {
    for version in [2, 3] {
        for big_endian in [false, true] {
            let header = read(&Writer { version, big_endian, ..full() }.bytes()).unwrap();
            check_full(&header);
            assert_eq!(header.missing_bytes, Bytes::ZERO);
        }
    }
}

#[test]
fn long_lists_and_texts_are_passed_over_and_what_follows_is_still_read() {
    let file = Writer::new()
        .fact("kept", Fact::List(0, vec![Fact::U8(7); 4096]))
        .fact("numbers", Fact::List(0, vec![Fact::U8(7); 4097]))
        .fact("kept texts", Fact::List(8, vec!["t".into(); 64]))
        .fact("texts", Fact::List(8, vec!["token".into(); 65]))
        .fact("lists", Fact::List(9, vec![Fact::List(5, vec![Fact::I32(1); 9]); 100]))
        .fact("kept text", Fact::Text("x".repeat(65_536)))
        .fact("text", Fact::Text("x".repeat(65_537)))
        .fact("last", 5)
        .tensor("t", &[1], 0, 4);
    let header = read(&file.bytes()).unwrap();
    let list_len = |key: &str| header.metadata[key].as_list().map(<[Value]>::len);
    assert_eq!(list_len("kept"), Some(4096));
    assert_eq!(header.metadata["numbers"], Value::Skipped { len: 4097 });
    assert_eq!(list_len("kept texts"), Some(64));
    assert_eq!(header.metadata["texts"], Value::Skipped { len: 65 });
    assert_eq!(header.metadata["lists"], Value::Skipped { len: 100 });
    assert_eq!(header.metadata["kept text"].as_text().map(str::len), Some(65_536));
    assert_eq!(header.metadata["text"], Value::Skipped { len: 65_537 });
    assert_eq!(header.metadata["last"].as_u64(), Some(5));
}

#[test]
fn a_file_that_ends_within_its_data_is_read_with_the_missing_bytes() {
    let file = full();
    let (header, padded, whole) = (file.header().len(), file.header_padded().len(), file.bytes());
    // 1440, 12 to 32, 170 to 192, 2 to 32, 420: the padding behind the last tensor is nobody's data.
    let data = 1_440 + 32 + 192 + 32 + 420;
    for end in header..=whole.len() {
        let cut = read(&whole[..end]).unwrap();
        check_full(&cut);
        let held = end.saturating_sub(padded) as u64;
        assert_eq!(cut.missing_bytes.get(), data.max(held) - held, "cut at {end}");
    }
}

#[test]
fn a_file_without_tensors_misses_nothing() {
    let file = Writer::new().fact("general.architecture", "llama");
    let header = read(&file.header()).unwrap();
    assert_eq!((header.tensors.len(), header.missing_bytes), (0, Bytes::ZERO));
}

#[test]
fn offsets_follow_the_alignment_that_the_file_names() {
    for alignment in [8, 32, 64, 4096] {
        let file = Writer::new().aligned(alignment).tensor("a", &[3], 0, 12).tensor("b", &[3], 0, 12);
        assert_eq!(read(&file.bytes()).unwrap().tensors.len(), 2, "{alignment}");
        assert_eq!(file.data_bytes(), u64::from(alignment.max(16)) * 2);
    }
}

#[test]
fn a_split_model_is_read_whole_from_any_of_its_parts() {
    let folder = folder("any_part");
    let mut file = full();
    file.tensors.truncate(4);
    for parts in [1, 2, 3, 4] {
        let paths = file.write_split(&folder, "m", parts, Data::Whole).unwrap();
        let first = read_gguf(&paths[0]).unwrap();
        assert_eq!(first.tensors.len(), 4);
        assert_eq!(first.metadata["u8"], Value::Unsigned(255));
        assert_eq!(first.missing_bytes, Bytes::ZERO);
        for path in &paths {
            assert_eq!(read_gguf(path).unwrap(), first);
        }
    }
}

#[test]
fn missing_bytes_of_all_parts_add_up() {
    let folder = folder("missing_bytes");
    let paths = full().write_split(&folder, "m", 2, Data::First(0)).unwrap();
    // 1440, 32 and 170 in the first, 32 and 420 in the second.
    assert_eq!(read_gguf(&paths[1]).unwrap().missing_bytes.get(), 1_440 + 32 + 170 + 32 + 420);
}

#[test]
fn a_split_model_with_a_wrong_part_is_refused() {
    let file = full();
    let refused = |name: &str, spoil: &dyn Fn(&Path, &[Writer]), expected: &str| {
        let folder = folder(name);
        let parts = file.split(3);
        for (part, no) in parts.iter().zip(1..) {
            part.write(&folder.join(part_name("m", no, 3)), Data::Whole).unwrap();
        }
        spoil(&folder, &parts);
        for no in 1..=3 {
            let path = folder.join(part_name("m", no, 3));
            if !path.exists() {
                continue;
            }
            let error = read_gguf(&path).unwrap_err().to_string();
            let error = error.replace(&format!("{}/", folder.display()), "");
            let named = expected.replace("{path}", &part_name("m", no, 3));
            assert_eq!(error, named, "{name}, from part {no}");
        }
    };
    let rewrite = |folder: &Path, no: u16, part: Writer| {
        part.write(&folder.join(part_name("m", no, 3)), Data::Whole).unwrap();
    };
    let set = |part: &Writer, key: &str, value: Fact| {
        let mut part = part.clone();
        part.facts.iter_mut().find(|(k, _)| k == key).unwrap().1 = value;
        part
    };
    refused(
        "part_missing",
        &|folder, _| fs::remove_file(folder.join(part_name("m", 2, 3))).unwrap(),
        "part 2 of 3 is missing: m-00002-of-00003.gguf (wanted by {path})",
    );
    refused(
        "part_twice",
        &|folder, _| {
            fs::copy(folder.join(part_name("m", 1, 3)), folder.join(part_name("m", 2, 3))).unwrap();
        },
        "m-00002-of-00003.gguf: split.no is 0, expected 1",
    );
    refused(
        "parts_swapped",
        &|folder, parts| {
            rewrite(folder, 2, parts[2].clone());
            rewrite(folder, 3, parts[1].clone());
        },
        "m-00002-of-00003.gguf: split.no is 2, expected 1",
    );
    refused(
        "count_of_another_split",
        &|folder, parts| rewrite(folder, 3, set(&parts[2], "split.count", Fact::U16(4))),
        "m-00003-of-00003.gguf: split.count is 4, expected 3",
    );
    refused(
        "total_too_large",
        &|folder, parts| rewrite(folder, 2, set(&parts[1], "split.tensors.count", Fact::I32(6))),
        "m-00002-of-00003.gguf: split.tensors.count is 6, expected 5",
    );
    refused(
        "total_negative",
        &|folder, parts| rewrite(folder, 2, set(&parts[1], "split.tensors.count", Fact::I32(-1))),
        "m-00002-of-00003.gguf: split.tensors.count is -1, expected a count",
    );
    refused(
        "no_facts",
        &|folder, parts| rewrite(folder, 2, Writer { facts: vec![], ..parts[1].clone() }),
        "m-00002-of-00003.gguf: split.count is not there, expected 3",
    );
    refused(
        "tensor_in_two_parts",
        &|folder, parts| {
            let mut part = parts[2].clone();
            part.tensors[0] = parts[0].tensors[1].clone();
            rewrite(folder, 3, part);
        },
        "m-00003-of-00003.gguf, byte 106, tensor 0 'blk.0.attn_norm.weight': \
         stands twice; first in m-00001-of-00003.gguf at byte 638",
    );
}

#[test]
fn a_part_under_another_name_is_refused_and_not_taken_for_the_whole() {
    let folder = folder("renamed");
    let parts = full().split(3);
    let renamed = folder.join("model.gguf");
    parts[0].write(&renamed, Data::Whole).unwrap();
    let error = read_gguf(&renamed).unwrap_err();
    assert!(matches!(error, GgufError::PartName { parts: 3, .. }), "{error}");
    assert!(error.to_string().ends_with("its name does not end in -NNNNN-of-00003.gguf"), "{error}");
    // Nor is a whole model that calls itself a part.
    let whole = folder.join(part_name("w", 1, 2));
    full().write(&whole, Data::Whole).unwrap();
    full().write(&folder.join(part_name("w", 2, 2)), Data::Whole).unwrap();
    let error = read_gguf(&whole).unwrap_err().to_string();
    assert!(error.ends_with("w-00001-of-00002.gguf: split.count is not there, expected 2"), "{error}");
    // Nor a part beyond the last.
    parts[2].write(&folder.join(part_name("n", 4, 3)), Data::Whole).unwrap();
    assert!(read_gguf(&folder.join(part_name("n", 4, 3))).is_err());
    assert!(read_gguf(&folder.join(part_name("n", 0, 3))).is_err());
}

#[test]
fn a_folder_or_nothing_is_no_model() {
    let folder = folder("no_file");
    assert!(matches!(read_gguf(&folder), Err(GgufError::NotAFile { .. })));
    assert!(matches!(read_gguf(&folder.join("m.gguf")), Err(GgufError::Open { .. })));
}

/// Any number, text or list of them.
fn any_fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        any::<u8>().prop_map(Fact::U8),
        any::<i16>().prop_map(Fact::I16),
        any::<u32>().prop_map(Fact::U32),
        any::<i64>().prop_map(Fact::I64),
        any::<bool>().prop_map(Fact::Bool),
        (-1e30_f32..1e30).prop_map(Fact::F32),
        ".{0,20}".prop_map(Fact::Text),
        prop::collection::vec(any::<i32>().prop_map(Fact::I32), 0..9).prop_map(|items| Fact::List(5, items)),
        prop::collection::vec("[a-z]{0,5}".prop_map(Fact::Text), 0..9).prop_map(|items| Fact::List(8, items)),
    ]
}

fn as_read(fact: &Fact) -> Value {
    match fact {
        Fact::U8(n) => Value::Unsigned((*n).into()),
        Fact::I16(n) => Value::Signed((*n).into()),
        Fact::U32(n) => Value::Unsigned((*n).into()),
        Fact::I32(n) => Value::Signed((*n).into()),
        Fact::I64(n) => Value::Signed(*n),
        Fact::Bool(b) => Value::Bool(*b),
        Fact::F32(n) => Value::Float((*n).into()),
        Fact::Text(text) => Value::Text(text.clone()),
        Fact::List(_, items) => Value::List(items.iter().map(as_read).collect()),
        _ => unreachable!("not generated"),
    }
}

prop_compose! {
    fn any_file()(
        facts in prop::collection::vec(any_fact(), 0..8),
        tensors in prop::collection::vec((1_u64..40, 1_u64..5, 0_usize..4), 0..8),
        version in 2_u32..4,
        big_endian: bool,
        alignment in prop_oneof![Just(None), (3_u32..9).prop_map(|n| Some(1 << n))],
    ) -> Writer {
        let mut file = Writer { version, big_endian, ..Writer::new() };
        if let Some(alignment) = alignment {
            file = file.aligned(alignment);
        }
        for (i, fact) in facts.into_iter().enumerate() {
            file = file.fact(&format!("key.{i}"), fact);
        }
        for (i, (side, rows, kind)) in tensors.into_iter().enumerate() {
            // (number, values in a block, bytes of a block)
            let (id, values, bytes) = [(0, 1, 4), (8, 32, 34), (12, 256, 144), (40, 64, 36)][kind];
            file = file.tensor(&format!("t{i}"), &[side * values, rows], id, side * rows * bytes);
        }
        file
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(file in any_file()) {
        let header = read(&file.bytes()).unwrap();
        prop_assert_eq!(header.metadata.len(), file.facts.len());
        for (key, fact) in &file.facts {
            prop_assert_eq!(&header.metadata[key], &as_read(fact));
        }
        let read: Vec<_> = header.tensors.iter().map(|t| (&t.name, &t.dims, t.kind.ggml_id(), t.bytes.get())).collect();
        let written: Vec<_> = file.tensors.iter().map(|t| (&t.name, &t.dims, Some(t.type_id), t.bytes)).collect();
        prop_assert_eq!(read, written);
        prop_assert_eq!(header.missing_bytes, Bytes::ZERO);
    }

    #[test]
    fn flipped_bytes_never_panic(file in any_file(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = file.bytes();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Err(error) = read(&bytes) {
            prop_assert!(error.to_string().starts_with("m.gguf, byte "), "{}", error);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
        let mut led = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        led.extend(bytes);
        let _ = read(&led);
    }
}
