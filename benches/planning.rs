//! How long planning takes, beside the published peer where it has a counterpart.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ghostlink_core::cluster::ClusterState;
use ghostlink_core::load_balance::{LoadBalanceConfig, LoadBalancer};
use ghostlink_core::protocol::NodeResources;
use plimsoll_balance::{
    Charges, ClusterIndex, EngineRules, HostUse, ModelIndex, Objective, PlanOptions, StageCharges, Workload,
    plan,
};
use plimsoll_benches::{INSTANCES, Instance, Random};
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::{Bytes, DeviceId, DeviceRef, NodeId};

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
        let inputs: Vec<_> = (0..INSTANCES).map(|seed| Instance::roomy(seed, layers, devices)).collect();
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

/// Layers and devices of the rows that show how time grows.
const SIZES: [(u32, u32); 13] = [
    (80, 4),
    (80, 8),
    (1_000, 4),
    (1_000, 100),
    (1_000, 1_000),
    (10_000, 4),
    (10_000, 100),
    (10_000, 1_000),
    (10_000, 10_000),
    (100_000, 4),
    (100_000, 100),
    (100_000, 1_000),
    (100_000, 10_000),
];

/// What every pass over layers costs at least: tells how fast a machine is.
fn machine(criterion: &mut Criterion) {
    let mut random = Random::new(1);
    let pairs: Vec<(u64, u64)> =
        (0..10_000).map(|_| (random.below(1 << 40), random.below(1 << 40))).collect();
    criterion.benchmark_group("machine").bench_function(
        BenchmarkId::new("add up 16 bytes each", pairs.len()),
        |bencher| {
            bencher.iter(|| black_box(&pairs).iter().fold(0_u64, |sum, (a, b)| sum.wrapping_add(a ^ b)));
        },
    );
}

fn warm(instances: &[Instance]) -> Vec<(ModelIndex, ClusterIndex)> {
    let device = |number: usize| DeviceRef {
        node: NodeId::new(format!("n{number:05}")).expect("a legal name"),
        device: DeviceId::new("d").expect("a legal name"),
    };
    let index = |instance: &Instance| {
        let devices = instance.budgets.iter().zip(&instance.rates).enumerate();
        (
            ModelIndex::new(&instance.layers).expect("layers in a row"),
            ClusterIndex::from_devices(devices.map(|(number, (&room, &rate))| (device(number), room, rate))),
        )
    };
    instances.iter().map(index).collect()
}

/// How time grows with layers and devices, from handles that are kept.
fn growth(criterion: &mut Criterion) {
    for (layers, devices) in SIZES {
        let inputs = warm(&instances(layers, devices));
        let size = format!("{layers}x{devices}");
        let mut ends = Vec::new();
        criterion.benchmark_group("fit").bench_function(BenchmarkId::new("warm", &size), |bencher| {
            cycled(bencher, &inputs, |(model, cluster)| {
                black_box(cluster.fit(black_box(model), &mut ends));
            });
        });
        criterion.benchmark_group("min-max").bench_function(
            BenchmarkId::new("given order, exact", &size),
            |bencher| {
                cycled(bencher, &inputs, |(model, cluster)| {
                    black_box(cluster.min_max(black_box(model), &mut ends));
                });
            },
        );
    }
}

/// Whole plans where the order is free.
fn order_free(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order free");
    let throughput = PlanOptions { objective: Objective::Throughput, ..PlanOptions::default() };
    let sizes = [
        ("exact", 80, 8),
        ("exact", 80, 12),
        ("exact", 80, 16),
        ("sampled", 1_000, 100),
        ("sampled", 10_000, 1_000),
        ("sampled", 10_000, 10_000),
        ("sampled", 100_000, 1_000),
    ];
    for (name, layers, devices) in sizes {
        let inputs: Vec<_> = instances(layers, devices).iter().map(posed).collect();
        group.sample_size(if devices > 12 { 10 } else { 50 });
        group.bench_function(BenchmarkId::new(name, format!("{layers}x{devices}")), |bencher| {
            cycled(bencher, &inputs, |(snapshot, workload)| {
                let _ = black_box(plan(black_box(snapshot), workload, &EngineRules::none(), &throughput));
            });
        });
    }
    let fit = PlanOptions { objective: Objective::Fit, ..PlanOptions::default() };
    let inputs: Vec<_> = (0..INSTANCES).map(|seed| posed(&Instance::tight(seed, 80, 12, 102))).collect();
    group.bench_function(BenchmarkId::new("fit with 2 % to spare", "80x12"), |bencher| {
        cycled(bencher, &inputs, |(snapshot, workload)| {
            let _ = black_box(plan(black_box(snapshot), workload, &EngineRules::none(), &fit));
        });
    });
    let inputs: Vec<_> = instances(10_000, 1_000).iter().map(posed).collect();
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("fewest devices", "10000x1000"), |bencher| {
        cycled(bencher, &inputs, |(snapshot, workload)| {
            let _ = black_box(plan(black_box(snapshot), workload, &EngineRules::none(), &fit));
        });
    });
    let latency = PlanOptions { objective: Objective::Latency, ..PlanOptions::default() };
    for (layers, devices) in [(80, 8), (1_000, 100), (10_000, 1_000)] {
        let inputs: Vec<_> = instances(layers, devices).iter().map(posed).collect();
        group.sample_size(if devices > 12 { 10 } else { 50 });
        group.bench_function(BenchmarkId::new("latency", format!("{layers}x{devices}")), |bencher| {
            cycled(bencher, &inputs, |(snapshot, workload)| {
                let _ = black_box(plan(black_box(snapshot), workload, &EngineRules::none(), &latency));
            });
        });
    }
    group.finish();
}

/// An instance as planners take it.
fn posed(instance: &Instance) -> (ClusterSnapshot, Workload) {
    let workload = Workload { activation_bytes: Bytes::kib(16), ..Workload::uniform(instance.footprint()) };
    (instance.snapshot().expect("legal names"), workload)
}

/// Whole plans, from snapshot to stages.
fn whole(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan 80x8");
    let inputs: Vec<_> = instances(80, 8).iter().map(posed).collect();
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

criterion_group! {
    name = benches;
    // Many rows: less time for each than by default.
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = machine, distribute, growth, order_free, whole
}
criterion_main!(benches);
