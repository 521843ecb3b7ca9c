//! What a living cluster of ten thousand nodes costs.

use std::hint::black_box;
use std::time::Instant;

use plimsoll_cluster::{ClusterState, Moment, NodeResources};
use plimsoll_units::{Bytes, NodeId, PoolId};

const NODES: u32 = 10_000;

#[expect(clippy::disallowed_methods, reason = "measuring time is all this program does")]
#[expect(clippy::print_stdout, reason = "measuring time is all this program does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = (0..NODES).map(|n| NodeId::new(format!("node-{n:05}"))).collect::<Result<Vec<_>, _>>()?;
    let gpu0 = PoolId::new("gpu0")?;
    for _ in 0..5 {
        let cluster = ClusterState::new();
        let resources: Vec<_> = names
            .iter()
            .map(|name| {
                NodeResources::new(name.clone(), Bytes::gib(24), Bytes::gib(64))
                    .with_boot_id(name.as_str())
                    .with_address(name.as_str())
            })
            .collect();
        let begin = Instant::now();
        for node in resources {
            cluster.register(node)?;
        }
        let registered = begin.elapsed();

        let begin = Instant::now();
        drop(black_box(cluster.snapshot()));
        let built = begin.elapsed();

        let begin = Instant::now();
        for _ in 0..1_000_000 {
            drop(black_box(cluster.snapshot()));
        }
        let read = begin.elapsed() / 1_000_000;

        let begin = Instant::now();
        for (at, name) in (0..).zip(&names) {
            cluster.update_metrics(name, |m| m.record_free(&gpu0, Bytes::new(at), Moment::START))??;
        }
        let sampled = begin.elapsed() / NODES;

        let begin = Instant::now();
        drop(black_box(cluster.sweep(Moment::from_millis(1))));
        let swept = begin.elapsed();
        println!(
            "{NODES} nodes: register {registered:.1?}, first snapshot {built:.1?}, read {read:?}, sample {sampled:?}, sweep {swept:.1?}"
        );
    }
    Ok(())
}
