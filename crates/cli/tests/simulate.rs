//! The scenarios of `examples/scenarios`, to the letter, and what a person may do wrong.
//!
//! What they print is kept in `tests/scenarios`; `SNAPSHOTS=overwrite` writes it anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snapbox::{Data, assert_data_eq};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("simulate").args(args).current_dir(root()).env("NO_COLOR", "1");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a scenario, and compares what is told of it with what was told when somebody last looked.
fn is_as_ever(name: &str) {
    let output = simulate(&[&format!("examples/scenarios/{name}.toml"), "-v"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("violations      none"), "{told}");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/scenarios/{name}.txt"));
    assert_data_eq!(told, Data::read_from(&kept, None));
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            is_as_ever($name);
        })*

        #[test]
        fn every_scenario_of_the_examples_is_run() {
            let mut found: Vec<String> = std::fs::read_dir(root().join("examples/scenarios"))
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            found.sort();
            let mut known = vec![$($name),*];
            known.sort_unstable();
            assert_eq!(found, known);
        }
    };
}

scenarios! {
    layers_of_a_lost_node_are_loaded_elsewhere_and_spread_out_again: "node-loss",
    a_flapping_node_moves_nothing_until_it_fails: "flapping-node",
    a_rolling_drain_never_stops_the_model: "rolling-drain",
    a_slow_link_is_gone_around: "slow-link",
    a_hot_model_pushes_out_no_more_than_it_must: "hot-model",
    a_new_node_is_used_once_it_pays: "new-node",
    layers_make_way_for_another_program: "memory-drift",
    a_model_without_a_place_waits_for_the_card: "last-card",
    half_a_day_of_losses_ends_without_a_violation: "random-losses",
    ten_thousand_nodes_are_a_scenario_too: "mixed-fleet",
}

#[test]
fn json_tells_the_same_and_is_the_same_every_time() {
    let args = ["examples/scenarios/node-loss.toml", "--json"];
    let output = simulate(&args);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["format"], "plimsoll.simulation/1");
    assert_eq!((&told["moves"], &told["models"][0]["name"]), (&2.into(), &"forty".into()));
    let spans = told["models"][0]["spans"].as_array().unwrap();
    let all: f64 =
        spans.iter().map(|span| span["until"].as_f64().unwrap() - span["from"].as_f64().unwrap()).sum();
    assert!((all - 3600.0).abs() < 1e-6, "{all}");
    assert_eq!(simulate(&args).stdout, output.stdout);
}

#[test]
fn another_seed_is_another_course_of_things() {
    let of = |seed| simulate(&["examples/scenarios/random-losses.toml", "--json", "--seed", seed]);
    let (one, two) = (of("1"), of("2"));
    assert!(one.status.success() && two.status.success());
    assert_ne!(one.stdout, two.stdout);
}

#[test]
fn the_picture_shows_every_model_and_what_it_did() {
    let folder = std::env::temp_dir().join(format!("plimsoll-simulate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let svg = folder.join("run.svg");
    let output = simulate(&["examples/scenarios/hot-model.toml", "--svg", svg.to_str().unwrap()]);
    let drawn = std::fs::read_to_string(&svg).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success());
    for expected in ["<svg ", ">hot<", ">chat<", "serving from 0:20:09 to 0:35:00", "waiting from 0:20:00"] {
        assert!(drawn.contains(expected), "{expected}");
    }
}

#[test]
fn what_cannot_be_run_ends_with_status_two_and_says_why() {
    for (args, expected) in [
        (&["no-such-file.toml"][..], "cannot read no-such-file.toml"),
        (&["examples/five-nodes.toml", "--svg", "examples/five-nodes.toml"], "would be written over"),
        (&["examples/forty-layers.toml"], "examples/forty-layers.toml: line 3: unknown field `layers`"),
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(expected), "{args:?}: {}", text(&output.stderr));
    }
}
