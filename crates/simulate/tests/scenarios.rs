//! Scenarios as text, and what must hold of every run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::Path;
use std::time::Duration;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_cluster::file::ClusterFileError;
use plimsoll_model::{ModelSpec, OpenError};
use plimsoll_simulate::{Mood, Report, ScenarioError, Source, parse_scenario, simulate};
use plimsoll_units::Bytes;
use proptest::prelude::*;

/// No files at all.
struct Nowhere;

impl Source for Nowhere {
    fn cluster(&self, path: &Path) -> Result<ClusterSnapshot, ClusterFileError> {
        plimsoll_cluster::file::read_cluster(path).map(|file| file.snapshot)
    }

    fn model(&self, path: &Path) -> Result<ModelSpec, OpenError> {
        plimsoll_model::open(path)
    }
}

const TWO: &str = r#"
name = "two"
duration = "10m"

[[node]]
id = "a"
[[node.device]]
id = "gpu0"
memory = "24GB"
bandwidth = "1000GB/s"

[[node]]
id = "b"
[[node.device]]
id = "gpu0"
memory = "24GB"
bandwidth = "500GB/s"

[[model]]
name = "twenty"
layers = [ { count = 20, bytes = "1GB" } ]
"#;

fn run(text: &str) -> Report {
    let scenario = parse_scenario(text, &Nowhere).unwrap_or_else(|error| panic!("{error}: {:?}", error));
    simulate(&scenario, &mut || Duration::ZERO).unwrap()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_model_is_loaded_at_the_rate_of_the_store_and_then_serves_to_the_end() {
    let report = run(TWO);
    let model = &report.models[0];
    // 20 GB at 2 GB/s.
    let moods: Vec<(u64, Mood)> = model.spans.iter().map(|span| (span.from.as_secs(), span.mood)).collect();
    assert_eq!(moods, [(0, Mood::Loading), (10, Mood::Serving)]);
    assert_eq!((model.wanted, model.served), (seconds(600), seconds(590)));
    assert_eq!((model.placed, model.moves), (1, 0));
    assert_eq!(report.violations, Vec::<String>::new());
}

#[test]
fn a_lost_node_is_missed_after_three_silent_looks_and_its_layers_are_loaded_elsewhere() {
    let report = run(&format!("{TWO}\n[[event]]\nat = \"200s\"\nlose = \"a\"\n"));
    let moods: Vec<(u64, Mood)> =
        report.models[0].spans.iter().map(|span| (span.from.as_secs(), span.mood)).collect();
    let expected = [
        (0, Mood::Loading),
        (10, Mood::Serving),
        (200, Mood::Stalled),
        (220, Mood::Loading),
        (230, Mood::Serving),
    ];
    assert_eq!(moods, expected);
    assert_eq!(report.loaded_bytes(), Bytes::new(40_000_000_000));
    assert_eq!(report.violations, Vec::<String>::new());
}

#[test]
fn a_node_that_is_cut_off_for_less_than_it_takes_to_fail_costs_no_move() {
    let report = run(&format!(
        "{TWO}\n[[flap]]\nnode = \"a\"\nfrom = \"100s\"\nuntil = \"300s\"\nevery = \"100s\"\ndown = \"15s\"\n"
    ));
    assert_eq!((report.moves(), report.models[0].placed), (0, 1));
    assert_eq!(report.models[0].served, seconds(590 - 2 * 15));
}

#[test]
fn nobody_is_pushed_out_in_vain() {
    let crowd = "[[model]]\nname = \"huge\"\npriority = 9\nfrom = \"60s\"\nlayers = [ { count = 60, bytes = \"1GB\" } ]\n";
    let report = run(&format!("{TWO}\n{crowd}"));
    assert_eq!(report.models[0].evicted, 0);
    assert_eq!(report.models[1].placed, 0);
    assert_eq!(report.refusals["proven infeasible"], 1, "{:?}", report.refusals);
}

#[test]
fn who_makes_room_comes_back_when_there_is_room_again() {
    let hot = "[[model]]\nname = \"hot\"\npriority = 9\nfrom = \"100s\"\nuntil = \"200s\"\n\
               layers = [ { count = 30, bytes = \"1GB\" } ]\n";
    let report = run(&format!("{TWO}\n{hot}"));
    let cold = &report.models[0];
    assert_eq!((cold.evicted, cold.placed), (1, 2));
    assert_eq!(report.models[1].served, seconds(85));
    assert_eq!(cold.spans.last().map(|span| span.mood), Some(Mood::Serving));
}

#[test]
fn chance_comes_from_the_seed_alone() {
    let text = |seed| {
        format!(
            "seed = {seed}\n{TWO}\n[random]\nlosses_per_hour = 30\nrepair = \"30s\"\ndrifts_per_hour = 60\ndrift_share = 0.5\n"
        )
    };
    assert_eq!(run(&text(1)), run(&text(1)));
    assert_ne!(run(&text(1)).noted, run(&text(2)).noted);
}

#[test]
fn a_fleet_has_as_many_nodes_as_it_says_under_names_of_one_length() {
    let text = "[[fleet]]\nprefix = \"n\"\ncount = 12\n[[fleet.device]]\nid = \"gpu0\"\nmemory = \"8GB\"\n";
    let scenario = parse_scenario(text, &Nowhere).unwrap();
    let ids: Vec<&str> = scenario.start.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!((ids.len(), ids[0], ids[11]), (12, "n00", "n11"));
}

#[test]
fn what_is_wrong_with_a_text_is_said_with_its_line() {
    let cases = [
        ("duration = \"1 day\"\n", "line 1: '1 day' is not a time such as 90s, 5m, 2h or 500ms"),
        ("\nsample = true\n", "line 2: 'a value of another kind' is not a time such as 90s, 5m, 2h or 500ms"),
        ("\n\nnodes = []\n", "line 3: unknown field `nodes`"),
        ("duration = \"0s\"\n", "the duration is zero"),
        ("duration = \"9000h\"\nsample = \"1s\"\n", "is 32400000 looks; at most 1000000 are run"),
        ("[limits]\nfailed_after = \"5s\"\n", "which is sooner"),
        ("[[event]]\nat = 5\nlose = \"x\"\n", "at 5 s node 'x' loses its power, and there is no such node"),
        ("\n[[event]]\nat = 5\nlose = \"x\"\ncut = \"x\"\n", "line 2: an event is exactly one of"),
        ("\n[[model]]\nname = \"m\"\n", "line 2: model 'm' needs either file or layers"),
        ("[[model]]\nname = \"m\"\nlayers = []\n", "model 'm' has no layers"),
        (
            "[random]\nlosses_per_hour = -1.0\n",
            "losses_per_hour is -1, and must be a number from 0 to 100000",
        ),
        ("[[fleet]]\nprefix = \"n\"\ncount = 0\n", "line 1: a fleet has 1 to 100000 nodes, and 'n' has 0"),
        ("[[node]]\nid = \"a\"\nmemory = \"-1\"\n", "[[node]]"),
        ("cluster = \"no such file.toml\"\n", "the cluster file no such file.toml"),
    ];
    for (text, expected) in cases {
        let error = parse_scenario(text, &Nowhere).unwrap_err();
        assert!(error.to_string().contains(expected), "{text:?} gives {error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = plimsoll_simulate::read_scenario(Path::new("no such scenario.toml")).unwrap_err();
    assert!(matches!(error, ScenarioError::Read { .. }));
    assert!(error.to_string().contains("no such scenario.toml"), "{error}");
}

/// A small cluster with a few models, and what happens to it.
fn any_scenario() -> impl Strategy<Value = String> {
    let nodes = prop::collection::vec((4_u32..40, 100_u32..2000, 0_u32..4), 2..6);
    let models = prop::collection::vec((1_u32..30, 1_u32..20, 0_u32..3, 0_u32..300, 0_usize..4), 1..4);
    let events = prop::collection::vec((0_u32..600, 0_usize..5, 0_usize..7, 0_u32..30), 0..8);
    (nodes, models, events, 0_u64..1000).prop_map(|(nodes, models, events, seed)| {
        let mut text = format!("seed = {seed}\nduration = \"10m\"\n");
        for (n, (memory, speed, reserve)) in nodes.iter().enumerate() {
            text += &format!(
                "[[node]]\nid = \"n{n}\"\n[[node.device]]\nid = \"gpu0\"\nmemory = \"{memory}GB\"\nreserve = \"{reserve}GB\"\n\
                 bandwidth = \"{speed}GB/s\"\n"
            );
        }
        for (n, (layers, tenths, priority, from, objective)) in models.iter().enumerate() {
            let objective = ["fit", "throughput", "latency", "balanced"][*objective];
            text += &format!(
                "[[model]]\nname = \"m{n}\"\nlayers = [ {{ count = {layers}, bytes = \"{tenths}00MB\", kv_bytes = \"10MB\" }} ]\n\
                 priority = {priority}\nfrom = \"{from}s\"\nobjective = \"{objective}\"\n"
            );
        }
        for (at, node, what, gigabytes) in &events {
            let node = format!("n{}", node % nodes.len());
            let what = match what {
                0 => format!("lose = \"{node}\""),
                1 => format!("cut = \"{node}\""),
                2 => format!("return = \"{node}\""),
                3 => format!("drain = \"{node}\""),
                4 => format!("undrain = \"{node}\""),
                5 => format!("link = {{ between = [\"n0\", \"n1\"], bandwidth = \"{}Mbit/s\" }}", gigabytes + 1),
                _ => format!("outside = {{ node = \"{node}\", pool = \"gpu0\", bytes = \"{gigabytes}GB\" }}"),
            };
            text += &format!("[[event]]\nat = \"{at}s\"\n{what}\n");
        }
        text + "[random]\nlosses_per_hour = 10\nrepair = \"1m\"\ndrifts_per_hour = 20\ndrift_share = 0.6\n"
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_no_decision_fails_the_checks_and_time_adds_up(text in any_scenario()) {
        let report = run(&text);
        prop_assert_eq!(&report.violations, &Vec::<String>::new());
        for model in &report.models {
            let spans: Duration = model.spans.iter().map(|span| span.until - span.from).sum();
            let serving = model.spans.iter().filter(|span| span.mood.serves());
            let serving: Duration = serving.map(|span| span.until - span.from).sum();
            prop_assert_eq!((spans, serving), (model.wanted, model.served));
            prop_assert!(model.spans.iter().zip(model.spans.iter().skip(1)).all(|(a, b)| a.until == b.from));
            prop_assert!(model.placed > 0 || (model.moves == 0 && model.loaded_bytes.is_zero()));
        }
        prop_assert_eq!(run(&text), report);
    }
}
