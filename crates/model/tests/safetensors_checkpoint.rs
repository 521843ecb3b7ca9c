//! What is read of checkpoints of several files, and what is refused in which words.
#![cfg(feature = "safetensors")]
#![cfg_attr(feature = "safetensors", expect(clippy::unwrap_used, reason = "a test fails by panicking"))]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use plimsoll_model::safetensors::{SafetensorsError, Warning, read_safetensors};
use plimsoll_testkit::safetensors::floats;
use plimsoll_units::Bytes;
use serde_json::json;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("safetensors_checkpoint").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The error without the folder.
fn refusal(path: &Path) -> String {
    let folder = if path.is_dir() { path } else { path.parent().unwrap() };
    let error = read_safetensors(path).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.display()), "").replace(&folder.display().to_string(), ".")
}

/// Two files with an index and a `config.json`.
fn sharded(name: &str) -> PathBuf {
    let folder = folder(name);
    let first = floats(&[("model.embed_tokens.weight", 10), ("model.layers.0.mlp.up_proj.weight", 6)]);
    let second = floats(&[("lm_head.weight", 10)]);
    fs::write(folder.join("model-00001-of-00002.safetensors"), first).unwrap();
    fs::write(folder.join("model-00002-of-00002.safetensors"), second).unwrap();
    index(&folder, |_| {});
    fs::write(folder.join("config.json"), r#"{"model_type":"llama","num_hidden_layers":1}"#).unwrap();
    folder
}

fn index(folder: &Path, change: impl Fn(&mut serde_json::Value)) {
    let mut index = json!({
        "metadata": { "total_size": 104 },
        "weight_map": {
            "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
            "model.layers.0.mlp.up_proj.weight": "model-00001-of-00002.safetensors",
            "lm_head.weight": "model-00002-of-00002.safetensors",
        }
    });
    change(&mut index);
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn a_folder_an_index_and_any_of_its_files_give_the_same_checkpoint() {
    let folder = sharded("same");
    let checkpoint = read_safetensors(&folder).unwrap();
    let names: Vec<_> = checkpoint.tensors.iter().map(|t| (t.name.as_str(), t.bytes.get())).collect();
    assert_eq!(
        names,
        [
            ("lm_head.weight", 40),
            ("model.embed_tokens.weight", 40),
            ("model.layers.0.mlp.up_proj.weight", 24)
        ]
    );
    assert_eq!(checkpoint.config.as_ref().unwrap()["num_hidden_layers"], 1);
    assert_eq!(checkpoint.warnings, []);
    for path in [
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ] {
        assert_eq!(read_safetensors(&folder.join(path)).unwrap(), checkpoint, "{path}");
    }
}

#[test]
fn only_what_the_index_names_counts_however_much_lies_beside_it() {
    let folder = sharded("beside");
    let checkpoint = read_safetensors(&folder).unwrap();
    let all = floats(&[
        ("model.embed_tokens.weight", 10),
        ("model.layers.0.mlp.up_proj.weight", 6),
        ("lm_head.weight", 10),
    ]);
    for name in ["consolidated.safetensors", "model.safetensors", "model-00003-of-00003.safetensors"] {
        fs::write(folder.join(name), &all).unwrap();
    }
    assert_eq!(read_safetensors(&folder).unwrap(), checkpoint);
}

#[test]
fn a_folder_without_an_index_is_its_only_file() {
    let folder = folder("single");
    assert_eq!(refusal(&folder), ". holds neither model.safetensors.index.json nor model.safetensors");
    fs::write(folder.join("model.safetensors"), floats(&[("a", 5)])).unwrap();
    let checkpoint = read_safetensors(&folder).unwrap();
    assert_eq!((checkpoint.tensors.len(), checkpoint.config), (1, None));
    fs::write(folder.join("config.json"), "{").unwrap();
    expect!["config.json, hyperparameters, line 1 column 1: EOF while parsing an object"]
        .assert_eq(&refusal(&folder));
}

#[test]
fn one_of_several_files_is_never_taken_for_the_whole() {
    let folder = sharded("one_of_several");
    let part = folder.join("model-00001-of-00002.safetensors");
    let stranger = folder.join("model-00001-of-00004.safetensors");
    fs::copy(&part, &stranger).unwrap();
    let expected = "is one of 4 files, but no model.safetensors.index.json beside it names it";
    assert_eq!(refusal(&stranger), format!("model-00001-of-00004.safetensors {expected}"));
    fs::remove_file(folder.join("model.safetensors.index.json")).unwrap();
    assert!(matches!(read_safetensors(&part), Err(SafetensorsError::NoIndex { parts: 2, .. })));
}

#[test]
fn a_file_that_is_missing_is_named() {
    let folder = sharded("missing_file");
    fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    assert_eq!(
        refusal(&folder),
        "model-00002-of-00002.safetensors is missing, named by model.safetensors.index.json"
    );
}

#[test]
fn missing_bytes_of_all_files_add_up() {
    let folder = sharded("missing_bytes");
    for name in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        let path = folder.join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    }
    assert_eq!(read_safetensors(&folder).unwrap().missing_bytes, Bytes::new(14));
}

#[test]
fn an_index_that_does_not_agree_with_its_files_is_refused() {
    let folder = sharded("disagree");
    index(&folder, |index| {
        index["weight_map"]["model.norm.weight"] = json!("model-00002-of-00002.safetensors");
    });
    expect!["model-00002-of-00002.safetensors does not hold the tensor 'model.norm.weight' that model.safetensors.index.json lists in it"]
        .assert_eq(&refusal(&folder));
    index(&folder, |index| {
        index["weight_map"]["lm_head.weight"] = json!("model-00001-of-00002.safetensors");
        index["weight_map"]["model.norm.weight"] = json!("model-00002-of-00002.safetensors");
    });
    expect!["model-00001-of-00002.safetensors does not hold the tensor 'lm_head.weight' that model.safetensors.index.json lists in it"]
        .assert_eq(&refusal(&folder));
    // A tensor in two files.
    index(&folder, |_| {});
    let both = floats(&[("lm_head.weight", 10), ("model.embed_tokens.weight", 10)]);
    fs::write(folder.join("model-00002-of-00002.safetensors"), both).unwrap();
    expect!["the tensor 'model.embed_tokens.weight' stands twice: in model-00001-of-00002.safetensors and in model-00002-of-00002.safetensors"]
        .assert_eq(&refusal(&folder));
}

#[test]
fn a_file_name_never_leads_out_of_the_folder() {
    let folder = sharded("names");
    for name in [
        "../secret.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "..safetensors",
        "/etc/passwd",
        "model.bin",
        "",
        "c:x.safetensors",
    ] {
        index(&folder, |index| index["weight_map"]["lm_head.weight"] = json!(name));
        let expected = "it must be a .safetensors file in the same folder";
        assert_eq!(
            refusal(&folder),
            format!("model.safetensors.index.json: weight_map names the file {name:?}; {expected}")
        );
    }
}

#[test]
fn an_index_that_cannot_be_is_refused() {
    let folder = sharded("index");
    let with = |text: &str, expected: Expect| {
        fs::write(folder.join("model.safetensors.index.json"), text).unwrap();
        expected.assert_eq(&refusal(&folder));
    };
    with("{}", expect!["model.safetensors.index.json, index, line 1 column 2: missing field `weight_map`"]);
    with(r#"{"weight_map":{}}"#, expect!["model.safetensors.index.json: weight_map lists no tensors"]);
    with(
        r#"{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}"#,
        expect![
            "model.safetensors.index.json, index, line 1 column 55: weight_map lists the tensor 'a' twice"
        ],
    );
    with(
        r#"{"weight_map":{"a":"x.safetensors"},"weight_map":{}}"#,
        expect!["model.safetensors.index.json, index, line 1 column 48: duplicate field `weight_map`"],
    );
    with(
        r#"{"weight_map":{"a":1}}"#,
        expect![
            "model.safetensors.index.json, index, line 1 column 20: invalid type: integer `1`, expected a name"
        ],
    );
    with(
        r#"{"weight_map":["a"]}"#,
        expect![
            "model.safetensors.index.json, index, line 1 column 14: invalid type: sequence, expected an object of file names by tensor"
        ],
    );
}

#[test]
fn a_declared_total_that_disagrees_is_a_warning_with_both_numbers() {
    let folder = sharded("total");
    for declared in [json!(200), json!(200.0)] {
        index(&folder, |index| index["metadata"]["total_size"] = declared.clone());
        let checkpoint = read_safetensors(&folder).unwrap();
        let [warning] = &checkpoint.warnings[..] else { panic!("{:?}", checkpoint.warnings) };
        assert!(matches!(warning, Warning::TotalSize { declared, found, .. }
            if (declared.get(), found.get()) == (200, 104)));
        assert!(
            warning
                .to_string()
                .ends_with("declares a total of 200 bytes, but its files hold 104; the files count")
        );
    }
    for declared in [json!(104.0), json!(104)] {
        let metadata = json!({ "total_size": declared, "total_parameters": 26 });
        index(&folder, |index| index["metadata"] = metadata.clone());
        assert_eq!(read_safetensors(&folder).unwrap().warnings, []);
    }
    index(&folder, |index| index["metadata"] = json!(null));
    assert_eq!(read_safetensors(&folder).unwrap().warnings, []);
}

#[test]
fn tensors_that_the_index_does_not_list_count_with_a_warning() {
    let folder = sharded("unlisted");
    let more = floats(&[("lm_head.weight", 10), ("x", 1), ("y", 1)]);
    fs::write(folder.join("model-00002-of-00002.safetensors"), more).unwrap();
    let checkpoint = read_safetensors(&folder).unwrap();
    assert_eq!(checkpoint.tensors.len(), 5);
    let [Warning::Unlisted { first, count, .. }, Warning::TotalSize { found, .. }] = &checkpoint.warnings[..]
    else {
        panic!("{:?}", checkpoint.warnings)
    };
    assert_eq!((first.as_str(), *count, found.get()), ("x", 2, 112));
}

#[test]
fn texts_that_are_too_long_are_refused_before_they_are_read() {
    let folder = sharded("too_long");
    File::create(folder.join("config.json")).unwrap().set_len((1 << 20) + 1).unwrap();
    assert_eq!(refusal(&folder), "config.json: the text has 1048577 bytes; at most 1048576 can be read");
    File::create(folder.join("model.safetensors.index.json")).unwrap().set_len((32 << 20) + 1).unwrap();
    expect!["model.safetensors.index.json: the index has 33554433 bytes; at most 33554432 can be read"]
        .assert_eq(&refusal(&folder));
}
