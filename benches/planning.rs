//! How long planning takes, beside the published peer where it has a counterpart.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ghostlink_core::cluster::ClusterState;
use ghostlink_core::load_balance::{LoadBalanceConfig, LoadBalancer};
use ghostlink_core::protocol::NodeResources;
use plimsoll_balance::{
    Charges, EngineRules, HostUse, ModelIndex, Objective, PlanOptions, StageCharges, Workload, plan,
};
use plimsoll_benches::{INSTANCES, Instance};
use plimsoll_units::Bytes;

fn instances(layers: u32, devices: u32) -> Vec<Instance> {
    (0..INSTANCES).map(|seed| Instance::new(seed, layers, devices)).collect()
}

/// Calls `job` with one input after the other.
fn cycled<T>(bencher: &mut criterion::Bencher<'_>, inputs: &[T], mut job: impl FnMut(&T)) {
    let mut next = (0..inputs.len()).cycle();
    bencher.iter(|| job(&inputs[next.next().unwrap_or(0)]));
}

/// Greedy by size: boundaries from handles that are kept, and the peer's own plan.
fn distribute(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("distribute");
    for (layers, devices) in [(10_000, 1_000), (10_000, 10_000)] {
        let inputs = instances(layers, devices);
        let id = |name: &str| BenchmarkId::new(name, format!("{layers}x{devices}"));
        group.throughput(Throughput::Elements(u64::from(layers)));

        let warm: Vec<(ModelIndex, Vec<Bytes>)> = inputs
            .iter()
            .map(|i| (ModelIndex::new(&i.layers).expect("layers in a row"), i.largest_first()))
            .collect();
        let mut ends = Vec::new();
        group.bench_function(id("warm"), |bencher| {
            cycled(bencher, &warm, |(index, budgets)| {
                black_box(index.fit_in_order(black_box(budgets), &mut ends));
            });
        });
        group.bench_function(id("cold"), |bencher| {
            cycled(bencher, &inputs, |input| {
                let index = ModelIndex::new(black_box(&input.layers)).expect("layers in a row");
                black_box(index.fit_in_order(&input.largest_first(), &mut ends));
            });
        });
        let peers: Vec<_> = inputs.iter().map(peer).collect();
        group.bench_function(id("peer"), |bencher| {
            cycled(bencher, &peers, |(balancer, layers)| {
                let _ = black_box(balancer.distribute_layers(black_box(layers)));
            });
        });
    }
    group.finish();
}

#[expect(clippy::cast_possible_truncation, reason = "the peer counts in f32 gigabytes")]
fn peer(instance: &Instance) -> (LoadBalancer, Vec<ghostlink_core::planning::LayerSpec>) {
    let gigabytes = |bytes: Bytes| (bytes.as_f64() / 1e9) as f32;
    let cluster = Arc::new(ClusterState::new());
    for (number, &budget) in instance.budgets.iter().enumerate() {
        cluster.register(NodeResources::new(format!("n{number:05}"), gigabytes(budget), 0.0, "8.9", None));
    }
    let layers = instance.layers.iter().enumerate().map(|(index, layer)| {
        ghostlink_core::planning::LayerSpec { index, vram_gb: gigabytes(layer.weights_bytes), num_weights: 0 }
    });
    (LoadBalancer::new(cluster, LoadBalanceConfig::default()), layers.collect())
}

fn min_max(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("min-max");
    for devices in [4, 100, 1_000] {
        let inputs = instances(10_000, devices);
        let warm: Vec<_> =
            inputs.iter().map(|i| (ModelIndex::new(&i.layers).expect("layers in a row"), i)).collect();
        let mut ends = Vec::new();
        group.bench_function(BenchmarkId::new("given order, exact", format!("10000x{devices}")), |bencher| {
            cycled(bencher, &warm, |(index, input)| {
                black_box(index.min_max_in_order(black_box(&input.budgets), &input.rates, &mut ends));
            });
        });
    }
    group.finish();
}

/// Whole plans, from snapshot to stages.
fn whole(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan 80x8");
    let inputs: Vec<_> = (0..INSTANCES)
        .map(|seed| {
            let instance = Instance::new(seed, 80, 8);
            let workload =
                Workload { activation_bytes: Bytes::kib(16), ..Workload::uniform(instance.footprint()) };
            (instance.snapshot().expect("legal names"), workload)
        })
        .collect();
    let rules = EngineRules::none();
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        group.bench_function(format!("{objective:?}").to_lowercase(), |bencher| {
            cycled(bencher, &inputs, |(snapshot, workload)| {
                let _ = black_box(plan(black_box(snapshot), workload, &rules, &options));
            });
        });
    }
    group.finish();
    around_a_host(criterion);
}

/// The same where an engine's main host has to take part of the model.
fn around_a_host(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan 80x8 around a host");
    let inputs: Vec<_> = (0..INSTANCES)
        .map(|seed| {
            let instance = Instance::new(seed, 80, 8).with_less_room(2);
            let workload =
                Workload { activation_bytes: Bytes::kib(16), ..Workload::uniform(instance.footprint()) };
            (instance.tower().expect("legal names"), workload)
        })
        .collect();
    let each = StageCharges { each: Bytes::mib(500), first_more: Bytes::mib(60), last_more: Bytes::mib(90) };
    let charges = Charges {
        host: Bytes::mib(200),
        alone: Bytes::mib(600),
        split: each,
        partial: each,
        ..Charges::default()
    };
    let rules = EngineRules {
        host: HostUse::FirstLayersOfMain,
        max_devices: Some(15),
        margin: Bytes::gib(1),
        charges,
    };
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        group.bench_function(format!("{objective:?}").to_lowercase(), |bencher| {
            cycled(bencher, &inputs, |(snapshot, workload)| {
                let _ = black_box(plan(black_box(snapshot), workload, &rules, &options));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, distribute, min_max, whole);
criterion_main!(benches);
