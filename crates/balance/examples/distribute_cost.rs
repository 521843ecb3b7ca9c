//! What sharing ten thousand layers out costs, with all that was prepared and without.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_balance::{
    HostLayers, LayerSpec, LoadBalanceConfig, LoadBalancer, ModelIndex, SnapshotIndex, Strategy, distribute,
};
use plimsoll_cluster::{ClusterState, NodeResources};
use plimsoll_units::{Bytes, NodeId};

/// Numbers that look drawn and are always the same (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// The median and the twentieth part from below of many runs.
#[expect(clippy::disallowed_methods, reason = "measuring time is all this program does")]
fn timed(mut job: impl FnMut()) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let begin = Instant::now();
            job();
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    (times[100], times[10])
}

#[expect(clippy::print_stdout, reason = "measuring time is all this program does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for nodes in [1_000_u64, 10_000] {
        let mut random = Random(nodes);
        let cluster = Arc::new(ClusterState::new());
        let mut room = 0;
        for number in 0..nodes {
            let bytes = [8_u64, 16, 24, 48, 80][usize::try_from(random.below(5))?] * 1_000_000_000;
            room += bytes;
            let id = NodeId::new(format!("n{number:05}"))?;
            cluster.register(NodeResources::new(id, Bytes::new(bytes), Bytes::ZERO))?;
        }
        let mean = room * 3 / 10 / 10_000;
        let layers: Vec<LayerSpec> = (0..10_000)
            .map(|i| LayerSpec::of_weights(i, Bytes::new(mean / 2 + random.below(mean))))
            .collect();
        let snapshot = cluster.snapshot();
        let index = SnapshotIndex::new(Arc::clone(&snapshot), HostLayers::Never);
        let model = ModelIndex::new(&layers)?;
        let balancer = LoadBalancer::new(cluster, LoadBalanceConfig::default())?;
        let sums = timed(|| drop(black_box(ModelIndex::new(black_box(&layers)))));
        let plan = distribute(&index, &layers, Strategy::CapacityDescending)?;
        println!("10000 layers on {} of {nodes} nodes, median and p5:", plan.distributions().len());
        let mut ends = Vec::new();
        let warm = timed(|| {
            black_box(model.fit_in_order(black_box(index.budgets()), &mut ends));
        });
        println!("  boundaries, all prepared       {warm:.1?}");
        println!("  sums of the layers             {sums:.1?}");
        let full = timed(|| drop(black_box(balancer.distribute_layers(black_box(&layers)))));
        println!("  whole plan, cluster prepared   {full:.1?}");
        let cold = timed(|| {
            let index = SnapshotIndex::new(Arc::clone(&snapshot), HostLayers::Never);
            drop(black_box(distribute(&index, black_box(&layers), Strategy::Portfolio)));
        });
        println!("  whole plan, nothing prepared   {cold:.1?}");
        let index = timed(|| drop(black_box(SnapshotIndex::new(Arc::clone(&snapshot), HostLayers::Never))));
        println!("  of that, the cluster           {index:.1?}");
    }
    Ok(())
}
