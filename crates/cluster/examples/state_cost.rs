//! What a living cluster of ten thousand nodes costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_cluster::{ClusterState, Moment, NodeResources};
use plimsoll_units::{Bytes, NodeId, PoolId};

const NODES: u32 = 10_000;
const ROUNDS: usize = 21;

#[expect(clippy::disallowed_methods, reason = "measuring time is all this program does")]
fn timed<T>(times: &mut Vec<Duration>, job: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = job();
    times.push(begin.elapsed());
    result
}

#[expect(clippy::print_stdout, reason = "measuring time is all this program does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = (0..NODES).map(|n| NodeId::new(format!("node-{n:05}"))).collect::<Result<Vec<_>, _>>()?;
    let gpu0 = PoolId::new("gpu0")?;
    let mut rows: [(&str, Vec<Duration>); 5] =
        ["register all", "first snapshot", "a million reads", "a sample of each", "sweep"]
            .map(|what| (what, Vec::new()));
    for _ in 0..ROUNDS {
        let [register, first, read, sample, sweep] = &mut rows;
        let cluster = ClusterState::new();
        let node = |name: &NodeId| {
            NodeResources::new(name.clone(), Bytes::gib(24), Bytes::gib(64))
                .with_boot_id(name.as_str())
                .with_address(name.as_str())
        };
        let resources: Vec<_> = names.iter().map(node).collect();
        timed(&mut register.1, || {
            resources.into_iter().try_for_each(|node| cluster.register(node).map(drop))
        })?;
        timed(&mut first.1, || drop(black_box(cluster.snapshot())));
        timed(&mut read.1, || (0..1_000_000).for_each(|_| drop(black_box(cluster.snapshot()))));
        timed(&mut sample.1, || {
            for (at, name) in (0..).zip(&names) {
                let free = Bytes::new(at);
                drop(cluster.update_metrics(name, |m| m.record_free(&gpu0, free, Moment::START)));
            }
        });
        timed(&mut sweep.1, || drop(black_box(cluster.sweep(Moment::from_millis(1)))));
    }
    println!("{NODES} nodes, median and best of {ROUNDS}:");
    for (what, times) in &mut rows {
        times.sort_unstable();
        println!("  {what:16} {:>9.2?} {:>9.2?}", times[ROUNDS / 2], times[0]);
    }
    Ok(())
}
