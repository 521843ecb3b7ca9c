//! What is read of layer lists, and what is refused in which words.
#![cfg(feature = "list")]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_model::list::{
    LayerList, ListProblem, ListedLayer, parse_list_json, parse_list_toml, read_list,
};
use plimsoll_units::Bytes;
use proptest::prelude::*;

fn layer(bytes: u64) -> ListedLayer {
    ListedLayer {
        bytes: Bytes::new(bytes),
        kv_bytes: Bytes::ZERO,
        kv_bytes_per_token: None,
        weights: 0,
        cut_after: true,
    }
}

fn toy() -> LayerList {
    let full = ListedLayer {
        kv_bytes: Bytes::new(7),
        kv_bytes_per_token: Some(Bytes::new(4096)),
        weights: 9,
        ..layer(3_000_000_000)
    };
    let bound = ListedLayer { cut_after: false, ..layer(3) };
    LayerList {
        name: "toy".to_owned(),
        input_bytes: Bytes::kib(1),
        head_bytes: Bytes::new(5),
        layers: vec![layer(14), full, bound, bound, bound],
    }
}

const TOML: &str = r#"
name = "toy"
input_bytes = "1KiB"
head_bytes = 5
layers = [
    { bytes = 14 },
    { bytes = "3GB", kv_bytes = 7, kv_bytes_per_token = 4096, weights = 9 },
    { count = 3, bytes = 3, cut = false },
]
"#;

const JSON: &str = r#"{
    "name": "toy", "input_bytes": "1KiB", "head_bytes": 5,
    "layers": [
        { "bytes": 14 },
        { "bytes": "3GB", "kv_bytes": 7, "kv_bytes_per_token": 4096, "weights": 9 },
        { "count": 3, "bytes": 3, "cut": false }
    ]
}"#;

#[test]
fn toml_and_json_say_the_same() {
    assert_eq!(parse_list_toml(TOML), Ok(toy()));
    assert_eq!(parse_list_json(JSON), Ok(toy()));
}

#[test]
fn the_short_form_of_tables_is_read_too() {
    let list =
        parse_list_toml("name = 'toy'\n[[layers]]\nbytes = 1\n[[layers]]\ncount = 2\nbytes = 2\n").unwrap();
    assert_eq!(list.layers, [layer(1), layer(2), layer(2)]);
}

#[test]
fn a_list_may_have_no_layers() {
    let empty = LayerList { input_bytes: Bytes::new(1), ..LayerList::default() };
    assert_eq!(parse_list_toml("input_bytes = 1\nlayers = []"), Ok(empty.clone()));
    assert_eq!(parse_list_json(r#"{"input_bytes":1,"layers":[{"count":0,"bytes":5}]}"#), Ok(empty));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, line, message) in [
        ("name = 'x'\nlayers = []\nlayrs = 1\n", 3, "unknown field `layrs`"),
        ("layers = [\n  { bytes = 1 },\n  { bytes = 1, kv = 2 },\n]", 3, "unknown field `kv`"),
        ("layers = [\n  { bytes = 1 },\n  { count = 2 },\n]", 3, "missing field `bytes`"),
        ("name = 'x'\n", 1, "missing field `layers`"),
        ("layers = [{ bytes = -1 }]", 1, "an amount of memory cannot be negative: -1"),
        ("\n\nlayers = [{ bytes = '3 parsecs' }]", 3, "'3 parsecs' is not an amount of memory: unknown unit"),
        ("layers = [{ bytes = 1.5 }]", 1, "expected a count of bytes"),
        ("layers = [{ bytes = 1, count = -1 }]", 1, "expected u64"),
        ("layers = [{ bytes = 1, cut = 'no' }]", 1, "expected a boolean"),
        ("layers = [\n{ bytes = 1, bytes = 2 }]", 2, "duplicate key"),
        ("layers = [\n", 1, "unclosed array"),
    ] {
        let error = parse_list_toml(text).unwrap_err();
        let ListProblem::Text { line: found, message: said } = &error else { panic!("{error}") };
        assert!(said.contains(message), "{text:?}: {said}");
        assert!(!said.contains('\n'), "{said:?}");
        assert_eq!(*found, line, "{text:?}: {error}");
    }
    for (text, line, message) in [
        ("{\n\"layers\":[],\n\"layrs\":1}", 3, "unknown field `layrs`"),
        ("{\"layers\":[\n{\"bytes\":1,\"bytes\":2}]}", 2, "duplicate field `bytes`"),
        ("{\"layers\":[\n{}]}", 2, "missing field `bytes`"),
        ("{\"layers\":[{\"bytes\":-1}]}", 1, "an amount of memory cannot be negative: -1"),
        ("{\"layers\":[]} x", 1, "trailing characters"),
        ("[\"x\",0,0,[]]", 1, "invalid type: sequence, expected keys with values"),
        ("{\"layers\":[[1,5]]}", 1, "invalid type: sequence, expected keys with values"),
        ("", 1, "EOF"),
    ] {
        let error = parse_list_json(text).unwrap_err();
        let ListProblem::Text { line: found, message: said } = &error else { panic!("{error}") };
        assert!(said.contains(message), "{text:?}: {said}");
        assert!((*found).max(1) == line, "{text:?}: {error}");
    }
    let error = parse_list_toml("layers = []\nlayrs = 1").unwrap_err().to_string();
    assert!(
        error.starts_with("layer list, line 2: unknown field `layrs`, expected one of `name`"),
        "{error}"
    );
}

#[test]
fn more_layers_than_any_model_has_are_refused_before_they_are_made() {
    let most = parse_list_toml("layers = [{ bytes = 0, count = 999_999 }, { bytes = 0 }]").unwrap();
    assert_eq!(most.layers.len(), 1_000_000);
    let with = |count: u64| {
        parse_list_json(&format!(r#"{{"layers":[{{"bytes":0,"count":{count}}},{{"bytes":0}}]}}"#))
    };
    assert_eq!(with(1_000_000), Err(ListProblem::TooManyLayers { found: 1_000_001 }));
    let error = with(u64::MAX).unwrap_err().to_string();
    assert_eq!(error, "layer list: 18446744073709551615 layers; at most 1000000 are allowed");
}

#[test]
fn sums_that_do_not_fit_are_refused_with_the_layer() {
    let half = 1_u64 << 63;
    for (text, layer) in [
        (format!(r#"{{"layers":[{{"bytes":{half}}},{{"bytes":1}},{{"bytes":{half}}}]}}"#), 2),
        (format!(r#"{{"layers":[{{"bytes":{half},"kv_bytes":{half}}}]}}"#), 0),
        (format!(r#"{{"layers":[{{"bytes":1,"kv_bytes_per_token":{half},"count":2}}]}}"#), 1),
        (format!(r#"{{"layers":[{{"bytes":1,"weights":{half},"count":2}}]}}"#), 1),
        (format!(r#"{{"input_bytes":{half},"head_bytes":{half},"layers":[]}}"#), 0),
        (format!(r#"{{"input_bytes":{half},"layers":[{{"bytes":{half}}}]}}"#), 0),
    ] {
        assert_eq!(parse_list_json(&text), Err(ListProblem::Overflow { layer }), "{text}");
    }
}

#[test]
fn a_file_is_read_by_its_extension_and_lends_its_name() {
    let folder: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("list");
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    assert_eq!(read_list(&write("a.toml", TOML)).unwrap(), toy());
    assert_eq!(read_list(&write("a.json", JSON)).unwrap(), toy());
    assert_eq!(read_list(&write("my model.toml", "layers = []")).unwrap().name, "my model");
    let refused =
        |path: &Path| read_list(path).unwrap_err().to_string().replace(&format!("{}/", folder.display()), "");
    assert_eq!(refused(&write("a.yaml", "")), "the layer list a.yaml must end in .toml or .json");
    assert_eq!(refused(&folder.join("none.toml")), "cannot read the layer list none.toml");
    assert!(refused(&write("b.toml", "x = 1")).starts_with("b.toml: layer list, line 1: unknown field `x`"));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[{}\\[\\]=\":,a-z0-9_ \n]{0,80}") {
        let _ = parse_list_toml(&text);
        let _ = parse_list_json(&text);
    }

    #[test]
    fn counts_expand_to_that_many_layers(counts in prop::collection::vec(0_usize..20, 0..10)) {
        let layers: Vec<_> = counts.iter().enumerate().map(|(i, n)| format!("{{ bytes = {i}, count = {n} }}")).collect();
        let list = parse_list_toml(&format!("layers = [{}]", layers.join(","))).unwrap();
        prop_assert_eq!(list.layers.len(), counts.iter().sum::<usize>());
        let sum: usize = counts.iter().enumerate().map(|(i, n)| i * n).sum();
        let found = Bytes::checked_sum(list.layers.iter().map(|l| l.bytes)).unwrap();
        prop_assert_eq!(found.get(), sum as u64);
    }
}
