//! Any text as a layer list in both languages: an error with a line, or layers that add up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_model::list::{LayerList, ListProblem, parse_list_json, parse_list_toml};

fn check(list: Result<LayerList, ListProblem>) {
    if let Ok(list) = list {
        assert!(list.layers.len() <= 1_000_000);
        let sum = list.layers.iter().try_fold(list.input_bytes, |sum, layer| {
            sum.checked_add(layer.bytes)?.checked_add(layer.kv_bytes)
        });
        assert!(sum.and_then(|sum| sum.checked_add(list.head_bytes)).is_some());
    }
}

fuzz_target!(|text: &str| {
    check(parse_list_toml(text));
    check(parse_list_json(text));
});
