//! llama.cpp's rule of February 2025.

use plimsoll_export::llama_cpp::{ModelFacts, Place, older_assign, older_command};
use plimsoll_model::{Request, ResolvedContext};
use plimsoll_units::DeviceRef;

use crate::kit::{Dice, cluster, id, node, plan, value};

#[test]
fn the_older_rule_takes_the_head_only_with_all_blocks() {
    let on_host = |blocks, layers| {
        let places = older_assign(blocks, layers, &[1.0]);
        let host = places.iter().filter(|place| **place == Place::Host).count();
        (host, places.last() == Some(&Place::Host))
    };
    // 32 of 32 blocks: the head stays; 33: everything; 1: the last block and not the head.
    assert_eq!(on_host(32, 32), (1, true));
    assert_eq!(on_host(32, 33), (0, false));
    assert_eq!(on_host(32, 99), (0, false));
    assert_eq!(on_host(32, 1), (32, true));
    assert_eq!(older_assign(32, 1, &[1.0])[31], Place::Device(0));
    assert_eq!(on_host(32, 0), (33, true));
}

#[test]
fn what_is_emitted_for_the_older_rule_is_the_plan_again() {
    let snapshot = cluster(vec![node("a", None, 6), node("b", Some("10.0.0.7:50052"), 1)]);
    let mut partial = 0;
    for seed in 0..2000 {
        let mut dice = Dice::new(seed);
        let layers = u32::try_from(dice.below(150)).unwrap() + 1;
        let nextn = u32::try_from(dice.below(2)).unwrap();
        let cards = usize::try_from(dice.below(6)).unwrap() + 1;
        let mut devices: Vec<DeviceRef> = (0..cards).map(|c| id("a", &format!("CUDA{c}"))).collect();
        if dice.below(3) == 0 {
            devices.push(id("b", "CUDA0"));
        }
        if dice.below(2) == 0 {
            devices.insert(0, id("a", "host"));
        }
        let plan = plan(&mut dice, layers, &devices);
        let context = ResolvedContext { total: 8192, per_sequence: 8192, streams: 1 };
        let facts = ModelFacts { path: "m.gguf", nextn, context, cache_ram: None };
        let command = older_command(&plan, &snapshot, &Request::default(), &facts).unwrap();
        let words = &command.server.words;
        assert!(!words.iter().any(|word| word == "--fit" || word == "--cache-ram"), "{words:?}");
        let named = value(words, "--device").unwrap().split(',').filter(|name| *name != "none");
        let named: Vec<DeviceRef> =
            named.map(|name| if name == "RPC0" { id("b", "CUDA0") } else { id("a", name) }).collect();
        let split: Vec<f32> =
            value(words, "-ts").map_or(vec![], |list| list.split(',').map(|n| n.parse().unwrap()).collect());
        let places = older_assign(layers + nextn, value(words, "-ngl").unwrap().parse().unwrap(), &split);
        let name = |place: &Place| match place {
            Place::Host => id("a", "host"),
            Place::Device(n) => named[*n].clone(),
        };
        let places: Vec<DeviceRef> = places.iter().map(name).collect();
        for stage in &plan.stages {
            for layer in stage.layers.clone() {
                assert_eq!(places[usize::try_from(layer).unwrap()], stage.device, "{seed}: {words:?}");
            }
        }
        let on_host = plan.stages[0].device == id("a", "host");
        let head = if on_host { id("a", "host") } else { plan.stages.last().unwrap().device.clone() };
        assert_eq!(*places.last().unwrap(), head, "{seed}: {words:?}");
        partial += u32::from(on_host);
    }
    assert!(partial > 500, "{partial}");
}

#[test]
fn a_server_of_that_time_shows_one_device() {
    let snapshot = cluster(vec![node("a", None, 1), node("b", Some("10.0.0.7:50052"), 2)]);
    let devices = [id("a", "CUDA0"), id("b", "CUDA0"), id("b", "CUDA1")];
    let plan = plan(&mut Dice::new(3), 12, &devices);
    let context = ResolvedContext { total: 8192, per_sequence: 8192, streams: 1 };
    let facts = ModelFacts { path: "m.gguf", nextn: 0, context, cache_ram: None };
    let error = older_command(&plan, &snapshot, &Request::default(), &facts).unwrap_err().to_string();
    assert!(error.contains("2 devices of b"), "{error}");
}
