//! Optimal values that another solver found and proved once.

mod kit;

use std::time::Duration;

use kit::{device, node, node_id, pool};
use plimsoll_balance::{
    EngineRules, Objective, Optimality, PlanError, PlanOptions, Strategy, Verdict, audit, plan,
};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend, Link};
use plimsoll_units::BytesPerSec;

/// How the instances were made and solved stands beside them, in `corpus.py`.
const CORPUS: &str = include_str!("data/corpus.txt");

/// Optimal times are in this part of a second.
const SCALE: f64 = 720.0;

struct Instance<'a> {
    kind: &'a str,
    layers: Vec<u64>,
    devices: Vec<(u64, u64)>,
    hops: Vec<Vec<u64>>,
    /// The optimum; `None` where nothing fits.
    optimum: Option<u64>,
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(',').map(|n| n.parse().expect("a number")).collect()
}

fn parsed(line: &str) -> Instance<'_> {
    let parts: Vec<&str> = line.split(' ').collect();
    let (hops, last) = if parts.len() == 5 { (parts[3], parts[4]) } else { ("", parts[3]) };
    let devices = parts[2].split(',').map(|device| {
        let (room, rate) = device.split_once('/').expect("bytes and a rate");
        (room.parse().expect("bytes"), rate.parse().expect("a rate"))
    });
    Instance {
        kind: parts[0],
        layers: numbers(parts[1]),
        devices: devices.collect(),
        hops: hops.split(';').filter(|row| !row.is_empty()).map(numbers).collect(),
        optimum: last.parse().ok(),
    }
}

/// One node for each device, in the order of the line.
fn snapshot(instance: &Instance<'_>) -> ClusterSnapshot {
    let name = |n: usize| format!("n{n:02}");
    let one = |(number, &(room, rate)): (usize, &(u64, u64))| {
        let card = device("d0", "p", GpuBackend::Cuda, Some(rate));
        node(&name(number), vec![pool("p", room)], vec![card])
    };
    let mut snapshot = kit::snapshot(instance.devices.iter().enumerate().map(one).collect());
    for (a, row) in instance.hops.iter().enumerate() {
        for (b, &seconds) in row.iter().enumerate().skip(a + 1) {
            snapshot.links.push(Link {
                between: [node_id(&name(a)), node_id(&name(b))],
                bandwidth: Some(BytesPerSec::new(1)),
                latency: Some(Duration::from_secs(seconds)),
            });
        }
    }
    snapshot
}

fn agrees(line: &str, instance: &Instance<'_>) {
    let (objective, strategy) = match instance.kind {
        "free" => (Objective::Throughput, Strategy::Portfolio),
        "given" => (Objective::Throughput, Strategy::GivenOrder),
        "fit" => (Objective::Fit, Strategy::Portfolio),
        "latency" => (Objective::Latency, Strategy::Portfolio),
        other => panic!("{other}"),
    };
    let (snapshot, workload, rules) =
        (snapshot(instance), kit::layers(&instance.layers), EngineRules::none());
    let options = PlanOptions { objective, strategy, ..PlanOptions::default() };
    match (plan(&snapshot, &workload, &rules, &options), instance.optimum) {
        (Ok(plan), Some(optimum)) => {
            assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()), "{line}");
            let scale = if objective == Objective::Fit { 1.0 } else { SCALE };
            let optimum = kit::float(optimum) / scale;
            let value = plan.value.value.expect("it is told");
            let lower = plan.value.lower_bound.expect("it is told");
            assert!(lower <= optimum * (1.0 + 1e-12), "{lower} is above {optimum}: {line}");
            let proven = plan.value.optimality == Optimality::Proven;
            let close = (value - optimum).abs() <= 1e-12 * optimum;
            assert!(close, "{value} and not {optimum}: {line}");
            assert!(proven || strategy == Strategy::GivenOrder, "{line}");
        }
        (Err(PlanError::DoesNotFit(refusal)), None) => {
            let never = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
            assert!(never || strategy == Strategy::GivenOrder, "{line}: {refusal:?}");
        }
        (found, optimum) => panic!("{found:?} and not {optimum:?}: {line}"),
    }
}

fn every(kind: &str, count: usize) {
    let lines = CORPUS.lines().filter(|line| !line.starts_with('#'));
    let instances: Vec<_> = lines.map(|l| (l, parsed(l))).filter(|(_, i)| i.kind == kind).collect();
    assert_eq!(instances.len(), count);
    for (line, instance) in &instances {
        agrees(line, instance);
    }
}

#[test]
fn the_smallest_largest_time_in_any_order_is_the_solvers() {
    every("free", 60);
}

#[test]
fn the_fewest_devices_are_the_solvers() {
    every("fit", 50);
}

#[test]
fn the_smallest_largest_time_in_the_given_order_is_the_solvers() {
    every("given", 50);
}

#[test]
fn the_smallest_sum_of_times_and_hops_is_the_solvers() {
    every("latency", 40);
}
