//! Our reader against two others: the crate `gguf-rs-lib`, and the Python package `gguf`.
//!
//! `PLIMSOLL_PYTHON` names an interpreter that has the package; without it those tests are skipped, but not where `CI` is
//! set.
#![cfg(feature = "gguf")]
#![cfg_attr(feature = "gguf", expect(clippy::unwrap_used, reason = "a test fails by panicking"))]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use gguf_rs_lib::reader::GGUFFileReader;
use plimsoll_model::gguf::{read_gguf, read_gguf_from};
use plimsoll_model::{GgufHeader, TensorType, Value};
use plimsoll_testkit::gguf::{Data, Value as Fact, Writer};
use proptest::prelude::*;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf_oracle").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What the script prints, or `None` where there is no Python to ask.
fn ask(arguments: &[&str]) -> Option<String> {
    let Some(python) = std::env::var_os("PLIMSOLL_PYTHON") else {
        let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!ci, "PLIMSOLL_PYTHON is not set, so that nothing would be compared");
        // Past the capture of the test harness, and once.
        static SAID: Once = Once::new();
        let text =
            "skipped: set PLIMSOLL_PYTHON to an interpreter with the package gguf to compare with it\n";
        SAID.call_once(|| std::io::stderr().write_all(text.as_bytes()).unwrap());
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/gguf_oracle.py");
    let output = Command::new(python).arg(script).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the script failed: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A file with a tensor of every type, `rows` rows of `blocks` blocks each.
fn every_type(rows: u64, blocks: u64) -> Writer {
    let mut file = Writer::new().fact("general.architecture", "llama").fact("llama.block_count", 2);
    for &kind in TensorType::ALL {
        let Some(id) = kind.ggml_id() else { continue };
        let (values, bytes) = kind.block();
        file = file.tensor(&format!("{kind}.weight"), &[values * blocks, rows], id, bytes * blocks * rows);
    }
    file
}

/// The tensors in the form of the script.
fn lines(header: &GgufHeader) -> Vec<String> {
    let line = |t: &plimsoll_model::Tensor| {
        let dims: Vec<_> = t.dims.iter().map(u64::to_string).collect();
        format!("tensor {} {} {} {}", t.name, t.kind.ggml_id().unwrap(), t.bytes.get(), dims.join(","))
    };
    header.tensors.iter().map(line).collect()
}

/// The scalar facts in the form of the script.
fn scalars(header: &GgufHeader) -> BTreeMap<String, String> {
    let scalar = |(key, value): (&String, &Value)| {
        let text = match value {
            Value::Unsigned(n) => n.to_string(),
            Value::Signed(n) => n.to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Float(n) => format!("{n:?}"),
            _ => return None,
        };
        Some((key.clone(), text))
    };
    header.metadata.iter().filter_map(scalar).collect()
}

fn same(header: &GgufHeader, said: &[&str]) {
    let tensors: Vec<_> = said.iter().copied().filter(|line| line.starts_with("tensor ")).collect();
    assert_eq!(lines(header), tensors);
    let facts: BTreeMap<String, String> = said
        .iter()
        .filter_map(|line| line.strip_prefix("fact ")?.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(scalars(header), facts);
}

#[test]
fn block_sizes_are_those_of_the_python_package() {
    let Some(said) = ask(&["types"]) else { return };
    let mut known = 0;
    for line in said.lines() {
        let [id, name, values, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let kind = TensorType::from_ggml(id.parse().unwrap()).unwrap_or_else(|| panic!("{line} is unknown"));
        assert_eq!(kind.name(), name);
        // GGML stores Q8_1 in 36 bytes; the package says 40. No file holds it.
        if kind != TensorType::Q8_1 {
            assert_eq!(kind.block(), (values.parse().unwrap(), bytes.parse().unwrap()), "{name}");
        }
        known += 1;
    }
    assert!(known >= 34, "{known}");
}

#[test]
fn the_python_package_reads_the_same_from_our_files() {
    let folder = folder("ours");
    for (name, version, big_endian) in [("v2", 2, false), ("v3", 3, false), ("big", 3, true)] {
        let mut file = Writer { version, big_endian, ..every_type(3, 2) }
            .fact("a", Fact::I8(-3))
            .fact("b", Fact::F64(0.25))
            .fact("c", Fact::Bool(true))
            .fact("d", Fact::U64(1 << 60))
            .fact("e", Fact::List(4, vec![Fact::U32(1); 5]));
        // The package does not know this type yet, and counts another size for the other one.
        file.tensors.retain(|t| t.type_id != 42 && t.type_id != 9);
        let path = folder.join(format!("{name}.gguf"));
        file.write(&path, Data::Whole).unwrap();
        let Some(said) = ask(&["read", path.to_str().unwrap()]) else { return };
        same(&read_gguf(&path).unwrap(), &said.lines().collect::<Vec<_>>());
    }
}

#[test]
fn files_of_the_python_package_are_read_as_it_reads_them() {
    let folder = folder("theirs");
    let Some(said) = ask(&["write", folder.to_str().unwrap()]) else { return };
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in said.lines() {
        match line.strip_prefix("file ") {
            Some(name) => files.push((name, Vec::new())),
            None => files.last_mut().unwrap().1.push(line),
        }
    }
    let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
    let parts = ["split-00001-of-00003.gguf", "split-00002-of-00003.gguf", "split-00003-of-00003.gguf"];
    assert_eq!(names, [&["big.gguf", "little.gguf"][..], &parts].concat());
    for (name, said) in &files[..2] {
        same(&read_gguf(&folder.join(name)).unwrap(), said);
    }
    let tensors =
        files[2..].iter().flat_map(|(_, said)| said.iter().copied().filter(|l| l.starts_with("tensor")));
    let tensors: Vec<_> = tensors.collect();
    for part in parts {
        let header = read_gguf(&folder.join(part)).unwrap();
        assert_eq!(lines(&header), tensors);
        assert_eq!(header.metadata["split.count"].as_u64(), Some(3));
        assert_eq!(header.missing_bytes.get(), 0);
    }
}

fn both(file: &Writer) {
    let bytes = file.bytes();
    let ours = read_gguf_from(Cursor::new(&bytes), bytes.len() as u64, Path::new("m.gguf")).unwrap();
    let theirs = GGUFFileReader::new(Cursor::new(&bytes)).unwrap();
    let ours: Vec<_> = ours.tensors.iter().map(|t| (t.name.as_str(), &t.dims[..], t.bytes.get())).collect();
    let theirs: Vec<_> = theirs
        .tensor_infos()
        .iter()
        .map(|t| (t.name(), t.shape().dims(), t.checked_expected_data_size().unwrap()))
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn the_other_crate_counts_the_same_bytes_for_every_type() {
    for (rows, blocks) in [(1, 1), (3, 2), (7, 5)] {
        both(&every_type(rows, blocks));
    }
}

proptest! {
    #[test]
    fn the_other_crate_accepts_no_flipped_file_with_other_sizes(at: prop::sample::Index, bit in 0_u32..8) {
        let mut bytes = every_type(2, 1).bytes();
        let at = at.index(2500.min(bytes.len()));
        bytes[at] ^= 1 << bit;
        let ours = read_gguf_from(Cursor::new(&bytes), bytes.len() as u64, Path::new("m.gguf"));
        if let (Ok(ours), Ok(theirs)) = (ours, GGUFFileReader::new(Cursor::new(&bytes))) {
            let sizes: Vec<_> = ours.tensors.iter().map(|t| t.bytes.get()).collect();
            let expected: Vec<_> = theirs.tensor_infos().iter().map(|t| t.checked_expected_data_size().unwrap()).collect();
            prop_assert_eq!(sizes, expected);
        }
    }
}
