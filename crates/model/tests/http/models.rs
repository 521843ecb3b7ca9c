//! What is read of good servers.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use plimsoll_model::gguf::read_gguf_from;
use plimsoll_model::{ModelFormat, ModelSpec};
use plimsoll_testkit::gguf::{Value, part_name};
use plimsoll_testkit::safetensors::floats;

use crate::{open, options, small, wordy};
use plimsoll_testkit::http::{Answer, Server, not_found, part_of};

/// A server of these files by path; a query is passed over.
fn serving(files: BTreeMap<String, Vec<u8>>) -> Server {
    Server::new(move |request| {
        let path = request.target.split('?').next().unwrap();
        Answer::Send(files.get(path).map_or_else(not_found, |file| part_of(file, request)))
    })
}

#[test]
fn a_gguf_is_the_same_from_a_server_as_from_a_disk() {
    let file = small().bytes();
    let header = read_gguf_from(Cursor::new(&file), file.len() as u64, Path::new("m.gguf")).unwrap();
    let expected = ModelSpec::from_gguf(&header).unwrap().with_name("m".to_owned());
    let server = serving(BTreeMap::from([("/d/m.gguf".to_owned(), file.clone())]));
    let (model, usage) = open(&server.url("/d/m.gguf?download=true"), options());
    assert_eq!(model.unwrap(), expected);
    assert_eq!((usage.requests, usage.bytes), (1, file.len() as u64));
    let asked = &server.asked()[0];
    assert_eq!(asked.target, "/d/m.gguf?download=true");
    assert_eq!(
        (asked.header("range"), asked.header("accept-encoding")),
        (Some("bytes=0-65535"), Some("identity"))
    );
    assert!(asked.header("user-agent").unwrap().starts_with("plimsoll/"));
}

#[test]
fn a_store_that_names_files_by_their_digest_is_known_by_the_first_bytes() {
    let server = serving(BTreeMap::from([
        ("/v2/blobs/sha256:0af1".to_owned(), small().bytes()),
        ("/v2/blobs/sha256:ffff".to_owned(), b"{}".to_vec()),
    ]));
    let (model, _) = open(&server.url("/v2/blobs/sha256:0af1"), options());
    assert_eq!(model.unwrap().layer_count(), 3);
    let (model, _) = open(&server.url("/v2/blobs/sha256:ffff"), options());
    let refused = model.unwrap_err();
    assert!(refused.contains("sha256:ffff is none of the forms that can be read here"), "{refused}");
}

#[test]
fn of_a_large_vocabulary_few_pieces_are_read_and_lists_of_numbers_are_passed_over() {
    // 3 MB of texts, 4 MB of numbers.
    let numbers = Value::List(10, vec![Value::U64(1); 500_000]);
    let file = wordy(150_000).fact("numbers", numbers).fact("last", 1).bytes();
    let len = file.len();
    let server = serving(BTreeMap::from([("/m.gguf".to_owned(), file)]));
    let (model, usage) = open(&server.url("/m.gguf"), options());
    assert_eq!(model.unwrap().layer_count(), 3);
    // 64 KiB, 256 KiB, 1 MiB, 2 MiB, and what stands behind the numbers.
    assert_eq!(usage.requests, 5);
    assert!(len > 7_000_000 && usage.bytes < 4_000_000, "{usage:?} of {len}");
}

#[test]
fn a_split_model_is_read_whole_from_any_of_its_parts_and_the_first_one_once() {
    let parts = small().split(3);
    let files =
        parts.iter().zip(1..).map(|(part, no)| (format!("/d/{}", part_name("m", no, 3)), part.bytes()));
    let server = serving(files.collect());
    let mut models = Vec::new();
    for (no, requests) in [(1, 3), (2, 4), (3, 4)] {
        let (model, usage) = open(&server.url(&format!("/d/{}?sig=x", part_name("m", no, 3))), options());
        assert_eq!(usage.requests, requests);
        models.push(model.unwrap());
    }
    assert_eq!((models[0].layer_count(), models[0].name()), (3, "m"));
    assert!(models.iter().all(|model| *model == models[0]));
    assert!(server.asked().iter().all(|request| request.target.ends_with("?sig=x")));
}

#[test]
fn a_part_that_is_not_there_is_named() {
    let parts = small().split(2);
    let server = serving(BTreeMap::from([(format!("/{}", part_name("m", 1, 2)), parts[0].bytes())]));
    let (model, _) = open(&server.url("/m-00001-of-00002.gguf?sig=secret"), options());
    let at = server.url("/m-0000");
    assert_eq!(
        model.unwrap_err(),
        format!("part 2 of 2 is missing: {at}2-of-00002.gguf (wanted by {at}1-of-00002.gguf)")
    );
}

fn checkpoint() -> BTreeMap<String, Vec<u8>> {
    let first = floats(&[("model.embed_tokens.weight", 10), ("model.layers.0.mlp.up_proj.weight", 6)]);
    let second = floats(&[("lm_head.weight", 10)]);
    let index = r#"{"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors",
        "model.layers.0.mlp.up_proj.weight": "model-00001-of-00002.safetensors",
        "lm_head.weight": "model-00002-of-00002.safetensors"}}"#;
    let config = r#"{"model_type":"llama","num_hidden_layers":1,"hidden_size":64,"num_attention_heads":4}"#;
    [
        ("model-00001-of-00002.safetensors", first),
        ("model-00002-of-00002.safetensors", second),
        ("model.safetensors.index.json", index.into()),
        ("config.json", config.into()),
    ]
    .map(|(name, bytes)| (format!("/toy/{name}"), bytes))
    .into()
}

#[test]
fn a_checkpoint_is_read_from_its_index_its_folder_or_any_of_its_files() {
    let server = serving(checkpoint());
    let mut models = Vec::new();
    for name in ["model.safetensors.index.json", "", "model-00002-of-00002.safetensors"] {
        let (model, usage) = open(&server.url(&format!("/toy/{name}")), options());
        assert_eq!(usage.requests, 4, "{name}");
        models.push(model.unwrap());
    }
    assert_eq!((models[0].format(), models[0].layer_count()), (ModelFormat::Safetensors, 1));
    assert!(models.iter().all(|model| *model == models[0]));
    assert_eq!(models[0].name(), "toy");
}

#[test]
fn a_checkpoint_of_one_file_is_found_below_an_address_that_ends_in_a_slash() {
    let mut files = checkpoint();
    files.retain(|name, _| name.ends_with("config.json"));
    let tensors = [("model.embed_tokens.weight", 10), ("model.layers.0.mlp.up_proj.weight", 6)];
    files.insert("/toy/model.safetensors".to_owned(), floats(&tensors));
    let server = serving(files);
    assert_eq!(open(&server.url("/toy/"), options()).0.unwrap().layer_count(), 1);
    let refused = open(&server.url("/other/"), options()).0.unwrap_err();
    let at = server.url("/other/");
    assert_eq!(refused, format!("{at} holds neither model.safetensors.index.json nor model.safetensors"));
}

#[test]
fn a_file_that_an_index_names_and_the_server_does_not_have_is_named() {
    let mut files = checkpoint();
    files.remove("/toy/model-00002-of-00002.safetensors");
    let server = serving(files);
    let (model, _) = open(&server.url("/toy/model.safetensors.index.json"), options());
    let at = server.url("/toy/model");
    assert_eq!(
        model.unwrap_err(),
        format!("{at}-00002-of-00002.safetensors is missing, named by {at}.safetensors.index.json")
    );
}

#[test]
fn an_index_without_its_configuration_is_refused_as_on_a_disk() {
    let mut files = checkpoint();
    files.remove("/toy/config.json");
    let server = serving(files);
    let refused = open(&server.url("/toy/model.safetensors.index.json"), options()).0.unwrap_err();
    assert!(refused.contains("config.json"), "{refused}");
}
