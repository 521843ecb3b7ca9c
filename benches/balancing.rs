//! How long a living cluster takes: shares for a balancer, rebalancing, shedding, several pipelines, and the state itself.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use ghostlink_core::cluster as theirs;
use ghostlink_core::load_balance as peer;
use ghostlink_core::protocol::NodeResources as PeerResources;
use plimsoll_balance::{
    EngineRules, HostLayers, LayerSpec, ModelIndex, Objective, Pipelines, PlanOptions, SnapshotIndex,
    Strategy, Workload, distribute, moves_in_order, plan, shed_load, skew,
};
use plimsoll_benches::{INSTANCES, Instance, Random};
use plimsoll_cluster::{ClusterSnapshot, ClusterState, NodeResources};
use plimsoll_units::{Bytes, BytesPerSec, NodeId};

/// The same calls with one input after the other.
fn cycled<T>(bencher: &mut criterion::Bencher<'_>, inputs: &[T], mut job: impl FnMut(&T)) {
    let mut next = (0..inputs.len()).cycle();
    bencher.iter(|| job(&inputs[next.next().unwrap_or(0)]));
}

fn node(number: usize) -> NodeId {
    NodeId::new(format!("n{number:05}")).expect("a legal name")
}

fn gigabytes(bytes: Bytes) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the peer counts in f32 gigabytes")]
    let gigabytes = (bytes.as_f64() / 1e9) as f32;
    gigabytes
}

/// A cluster of nodes with one card each.
fn living(budgets: &[Bytes]) -> ClusterState {
    let cluster = ClusterState::new();
    for (number, &budget) in budgets.iter().enumerate() {
        cluster.register(NodeResources::new(node(number), budget, Bytes::ZERO)).expect("a new name");
    }
    cluster
}

/// The whole answer of a balancer, device by device, beside the peer's.
fn whole_plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("distribute");
    for devices in [1_000, 10_000] {
        let inputs: Vec<(SnapshotIndex, Vec<LayerSpec>)> = (0..INSTANCES)
            .map(|seed| {
                let instance = Instance::roomy(seed, 10_000, devices);
                let snapshot = living(&instance.budgets).snapshot();
                (SnapshotIndex::new(snapshot, HostLayers::Never), instance.layers)
            })
            .collect();
        group.bench_function(BenchmarkId::new("whole plan", format!("10000x{devices}")), |bencher| {
            cycled(bencher, &inputs, |(index, layers)| {
                let _ = black_box(distribute(index, black_box(layers), Strategy::Portfolio));
            });
        });
    }
    group.finish();
}

/// A plan in force, and speeds that have changed by up to a tenth since.
struct Drifted {
    model: ModelIndex,
    budgets: Vec<Bytes>,
    rates: Vec<BytesPerSec>,
    current: Vec<u32>,
}

fn drifted(seed: u64, layers: u32, devices: u32) -> Drifted {
    let instance = Instance::new(seed, layers, devices);
    let model = ModelIndex::new(&instance.layers).expect("layers in a row");
    let mut current = Vec::new();
    model.min_max_in_order(&instance.budgets, &instance.rates, &mut current).expect("it fits");
    let mut random = Random::new(seed + 1_000);
    let other = |rate: &BytesPerSec| BytesPerSec::new(rate.get() / 1_000 * (900 + random.below(201)));
    let rates = instance.rates.iter().map(other).collect();
    Drifted { model, budgets: instance.budgets, rates, current }
}

fn rebalance(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rebalance");
    for (layers, devices) in [(80, 8), (1_000, 100), (10_000, 1_000)] {
        let size = format!("{layers}x{devices}");
        let inputs: Vec<Drifted> = (0..INSTANCES).map(|seed| drifted(seed, layers, devices)).collect();
        let mut ends = Vec::new();
        group.bench_function(BenchmarkId::new("fewest bytes within 2 %", &size), |bencher| {
            cycled(bencher, &inputs, |input| {
                let Drifted { model, budgets, rates, current } = input;
                black_box(model.rebalance_in_order(budgets, rates, black_box(current), 0.02, &mut ends));
            });
        });
        let targets: Vec<(&[u32], Vec<u32>)> = inputs
            .iter()
            .map(|input| {
                let mut target = Vec::new();
                input.model.min_max_in_order(&input.budgets, &input.rates, &mut target).expect("it fits");
                (&input.current[..], target)
            })
            .collect();
        group.bench_function(BenchmarkId::new("order of moves to a new plan", &size), |bencher| {
            cycled(bencher, &targets, |(current, target)| {
                black_box(moves_in_order(black_box(current), target, 4));
            });
        });
    }
    group.finish();
}

/// How much of its capacity each node has free, in per cent: some are nearly full, some nearly empty.
fn free(count: usize) -> Vec<u64> {
    let mut random = Random::new(5);
    (0..count).map(|_| [5, 10, 15, 30, 60, 80][usize::try_from(random.below(6)).unwrap_or(0)]).collect()
}

fn loaded(count: usize) -> Arc<ClusterSnapshot> {
    let cluster = living(&vec![Bytes::gib(24); count]);
    let mut snapshot = ClusterSnapshot::clone(&cluster.snapshot());
    for (node, percent) in snapshot.nodes.iter_mut().zip(free(count)) {
        for pool in &mut node.pools {
            pool.free = Some(Bytes::new(pool.total.get() / 100 * percent));
        }
    }
    Arc::new(snapshot)
}

fn peer_loaded(count: usize) -> peer::LoadBalancer {
    let cluster = Arc::new(theirs::ClusterState::new());
    for number in 0..count {
        let card = PeerResources::new(format!("n{number:05}"), gigabytes(Bytes::gib(24)), 0.0, "8.9", None);
        cluster.register(card);
    }
    for (number, percent) in free(count).into_iter().enumerate() {
        let percent = u16::try_from(percent).unwrap_or(0);
        cluster.get_metrics_mut(&format!("n{number:05}"), |node| {
            node.available_vram_gb = node.total_vram_gb * f32::from(percent) / 100.0;
        });
    }
    let config = peer::LoadBalanceConfig { max_concurrent_rebalances: usize::MAX, ..Default::default() };
    peer::LoadBalancer::new(cluster, config)
}

fn shed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shed");
    group.sample_size(20);
    for count in [1_000, 10_000] {
        let (ours, theirs) = (loaded(count), peer_loaded(count));
        group.bench_function(BenchmarkId::new("all", count), |bencher| {
            bencher.iter(|| black_box(shed_load(black_box(&ours), None, usize::MAX)));
        });
        group.bench_function(BenchmarkId::new("peer", count), |bencher| {
            bencher.iter(|| black_box(theirs.shed_load()));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("skew");
    for count in [1_000, 10_000] {
        let ours = loaded(count);
        group.bench_function(BenchmarkId::new("all", count), |bencher| {
            bencher.iter(|| black_box(skew(black_box(&ours), 1.25)));
        });
    }
    group.finish();
}

/// Copies of one model on fleets of a few kinds of card: GB, GB/s.
fn pipelines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pipelines");
    group.sample_size(10);
    let kinds = [(80, 2039), (40, 1555), (24, 300), (16, 320), (24, 1008), (48, 960), (32, 1792), (24, 936)];
    let options = PlanOptions {
        objective: Objective::Throughput,
        pipelines: Pipelines::Auto,
        ..PlanOptions::default()
    };
    for count in [24, 42, 200] {
        let instance = Instance::new(1, 80, 1);
        let mut fleet = Instance { budgets: Vec::new(), rates: Vec::new(), ..instance };
        let each = Bytes::new(140_000_000_000 / 80);
        fleet.layers = (0..80).map(|index| LayerSpec::of_weights(index, each)).collect();
        let of = if count == 24 { &kinds[1..4] } else { &kinds[..] };
        for number in 0..count {
            let (room, rate) = of[number % of.len()];
            fleet.budgets.push(Bytes::new(room * 1_000_000_000));
            fleet.rates.push(BytesPerSec::new(rate * 1_000_000_000));
        }
        let snapshot = fleet.snapshot().expect("legal names");
        let workload = Workload::uniform(fleet.footprint());
        group.bench_function(BenchmarkId::new("as many as serve most", count), |bencher| {
            bencher.iter(|| {
                let _ = black_box(plan(black_box(&snapshot), &workload, &EngineRules::none(), &options));
            });
        });
    }
    group.finish();
}

fn cluster(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cluster");
    let count = 10_000_usize;
    let cluster = living(&vec![Bytes::gib(24); count]);
    cluster.snapshot();
    group.bench_function(BenchmarkId::new("read a snapshot", count), |bencher| {
        bencher.iter(|| black_box(cluster.snapshot()));
    });
    group.finish();
    let mut group = criterion.benchmark_group("register");
    group.sample_size(20);
    let nodes = || -> Vec<NodeResources> {
        (0..count).map(|number| NodeResources::new(node(number), Bytes::gib(24), Bytes::gib(64))).collect()
    };
    group.bench_function(BenchmarkId::new("all", count), |bencher| {
        bencher.iter_batched(
            nodes,
            |nodes| {
                let cluster = ClusterState::new();
                for node in nodes {
                    cluster.register(node).expect("a new name");
                }
                cluster
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function(BenchmarkId::new("peer", count), |bencher| {
        bencher.iter_batched(
            || -> Vec<PeerResources> {
                let card = |number| PeerResources::new(format!("n{number:05}"), 24.0, 64.0, "8.9", None);
                (0..count).map(card).collect()
            },
            |nodes| {
                let cluster = theirs::ClusterState::new();
                for node in nodes {
                    cluster.register(node);
                }
                cluster
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group! {
    name = benches;
    // Many rows: less time for each than by default.
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = whole_plan, rebalance, shed, pipelines, cluster
}
criterion_main!(benches);
