//! Models from paths, in all forms.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_model::{ModelFormat, OpenError, SpecError, open};
use plimsoll_testkit::gguf::{Data, Writer};
use plimsoll_units::Bytes;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn gguf() -> Writer {
    let facts = [("block_count", 3_u32), ("embedding_length", 64), ("attention.head_count", 4)];
    let writer = Writer::default().fact("general.architecture", "llama");
    let writer = facts.iter().fold(writer, |w, (key, n)| w.fact(&format!("llama.{key}"), *n));
    let names = ["token_embd", "blk.0.ffn_up", "blk.1.ffn_up", "blk.2.ffn_up", "output"];
    names.iter().fold(writer, |w, name| w.tensor(&format!("{name}.weight"), &[64, 64], 1, 8192))
}

fn safetensors(names: &[&str]) -> Vec<u8> {
    let entry = |(i, name): (usize, &&str)| {
        format!(
            r#""{name}":{{"dtype":"BF16","shape":[64,64],"data_offsets":[{},{}]}}"#,
            i * 8192,
            (i + 1) * 8192
        )
    };
    let header = format!("{{{}}}", names.iter().enumerate().map(entry).collect::<Vec<_>>().join(","));
    let mut file = u64::try_from(header.len()).expect("a length").to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + names.len() * 8192, 0);
    file
}

#[test]
fn a_gguf_is_opened_by_any_of_its_parts_and_weighs_all_of_them() {
    let folder = folder("parts");
    gguf().write(&folder.join("whole.gguf"), Data::Whole).expect("a file");
    let parts = gguf().write_split(&folder, "big", 3, Data::Whole).expect("files");
    let whole = open(&folder.join("whole.gguf")).expect("a model");
    assert_eq!((whole.name(), whole.format(), whole.layer_count()), ("whole", ModelFormat::Gguf, 3));
    assert_eq!(whole.file_bytes(), Bytes::new(5 * 8192));
    for part in &parts {
        let spec = open(part).expect("a model");
        assert_eq!(spec.name(), "big");
        assert_eq!(spec.with_name("whole"), whole);
    }
    fs::remove_file(&parts[1]).expect("a file");
    let error = open(&parts[0]).expect_err("a part is missing");
    assert!(matches!(error, OpenError::Gguf(_)), "{error}");
}

#[test]
fn a_gguf_is_known_by_its_first_bytes_whatever_its_name() {
    let path = folder("magic").join("blob");
    gguf().write(&path, Data::Whole).expect("a file");
    assert_eq!(open(&path).expect("a model").layer_count(), 3);
}

#[test]
fn a_checkpoint_weighs_the_files_of_its_index_and_no_others() {
    let folder = folder("toy-checkpoint");
    let config =
        r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}"#;
    let (first, second) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    let names = [
        "model.embed_tokens.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
    ];
    fs::write(folder.join("config.json"), config).expect("a file");
    fs::write(folder.join(first), safetensors(&names[..1])).expect("a file");
    fs::write(folder.join(second), safetensors(&names[1..])).expect("a file");
    // The same weights again in one file, which the index does not name.
    fs::write(folder.join("consolidated.safetensors"), safetensors(&names)).expect("a file");
    let map = format!(r#""{}":"{first}","{}":"{second}","{}":"{second}""#, names[0], names[1], names[2]);
    let index = folder.join("model.safetensors.index.json");
    fs::write(&index, format!(r#"{{"metadata":{{"total_size":24576}},"weight_map":{{{map}}}}}"#))
        .expect("a file");
    for path in [folder.clone(), index, folder.join(second)] {
        let spec = open(&path).expect("a model");
        assert_eq!(spec.format(), ModelFormat::Safetensors);
        assert_eq!((spec.name(), spec.warnings()), ("toy-checkpoint", &[][..]));
        assert_eq!(spec.file_bytes(), Bytes::new(3 * 8192));
    }
}

#[test]
fn a_list_is_opened_by_its_extension() {
    let path = folder("list").join("toy.toml");
    fs::write(&path, "layers = [ { count = 4, bytes = 3 } ]").expect("a file");
    let spec = open(&path).expect("a model");
    assert_eq!((spec.name(), spec.format(), spec.layer_count()), ("toy", ModelFormat::List, 4));
}

#[test]
fn what_is_no_model_is_refused_with_its_path() {
    let folder = folder("others");
    let missing = folder.join("missing.gguf");
    assert!(matches!(open(&missing), Err(OpenError::Read { path, .. }) if path == missing));
    let text = folder.join("notes.txt");
    fs::write(&text, "hello").expect("a file");
    let error = open(&text).expect_err("no model");
    assert!(matches!(&error, OpenError::UnknownForm { path } if *path == text));
    assert!(
        error.to_string().ends_with("(a GGUF, a safetensors checkpoint, a .toml or .json list of layers)")
    );
    let vocabulary = folder.join("vocabulary.gguf");
    Writer::default().fact("general.architecture", "llama").write(&vocabulary, Data::Whole).expect("a file");
    let error = open(&vocabulary).expect_err("no model");
    assert!(matches!(error, OpenError::Spec { source: SpecError::MissingKeys { .. }, .. }), "{error}");
}
