//! Random samples from many threads, impossible ones among them, while others read.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_cluster::{ClusterState, Moment, NodeResources};
use plimsoll_units::{Bytes, Generation, NodeId, PoolId};

const NODES: u64 = 16;
const THREADS: u64 = 8;

/// Numbers that look drawn and are always the same (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Any pattern of bits: NaN, infinities, negatives and numbers near zero come up.
    fn float(&mut self) -> f64 {
        match self.below(4) {
            0 => f64::from_bits(self.next()),
            1 => f64::NAN,
            2 => -1.0,
            _ => f64::from(u32::try_from(self.below(1_000)).unwrap()) / 1_000.0,
        }
    }
}

fn node(n: u64) -> NodeId {
    NodeId::new(format!("n{n:02}")).unwrap()
}

/// Twice its number of bytes and a hundred: every node is different.
fn total(n: u64) -> u64 {
    100 + 2 * n
}

/// What one thread does.
fn disturb(cluster: &ClusterState, seed: u64, steps: u64) -> u64 {
    let gpu0 = PoolId::new("gpu0").unwrap();
    let mut random = Random(seed);
    let mut refused = 0;
    for step in 0..steps {
        let n = random.below(NODES);
        let at = Moment::from_millis(step + random.below(3));
        let outcome = cluster.update_metrics(&node(n), |m| match random.below(6) {
            0 | 1 => m.record_free(&gpu0, Bytes::new(random.below(2 * total(n))), at),
            2 => m.record_latency(random.float()),
            3 => m.record_delivery_ratio(random.float()),
            4 => m.record_throughput(random.float()),
            _ => m.record_held(&gpu0, Bytes::new(random.below(2 * total(n)))),
        });
        refused += u64::from(outcome.unwrap().is_err());
        match random.below(200) {
            0 => drop(cluster.heartbeat(&node(n), at).unwrap()),
            1 => drop(cluster.sweep(at)),
            2 => drop(cluster.drain(&node(n)).unwrap()),
            3 => drop(cluster.undrain(&node(n)).unwrap()),
            _ => {}
        }
    }
    refused
}

/// What a reader checks, over and over.
fn watch(cluster: &ClusterState, done: &AtomicBool) {
    let mut last = Generation::new(0);
    while !done.load(Ordering::Acquire) {
        let at_least = cluster.generation();
        let snapshot = cluster.snapshot();
        assert!(snapshot.generation >= last && snapshot.generation >= at_least);
        last = snapshot.generation;
        snapshot.validate().unwrap();
        assert_eq!(snapshot.nodes.len(), usize::try_from(NODES).unwrap());
        let view = cluster.view();
        assert!(view.snapshot.generation >= last);
        for (n, (node, member)) in (0..).zip(view.snapshot.nodes.iter().zip(&view.members)) {
            let (pool, measured) = (&node.pools[0], &member.metrics.pools()[0]);
            assert_eq!(pool.total.get(), total(n));
            assert_eq!((pool.free, pool.held, pool.total), (measured.free, measured.held, measured.total));
            assert!(pool.free.is_none_or(|free| free <= pool.total) && pool.held <= pool.total);
            assert_eq!(node.status, member.metrics.status());
            for signal in
                [member.metrics.latency(), member.metrics.throughput(), member.metrics.delivery_ratio()]
            {
                assert!(signal.history().len() <= 32);
                assert!(signal.history().all(|sample| sample.is_finite() && sample >= 0.0));
                let average = signal.average().unwrap_or(0.0);
                assert!(signal.min().unwrap_or(0.0) <= average && average <= signal.max().unwrap_or(0.0));
            }
        }
    }
}

fn run(steps: u64) {
    let cluster = ClusterState::new();
    for n in 0..NODES {
        cluster.register(NodeResources::new(node(n), Bytes::new(total(n)), Bytes::ZERO)).unwrap();
    }
    let done = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let watchers: Vec<_> = (0..2).map(|_| scope.spawn(|| watch(&cluster, &done))).collect();
        let writers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let cluster = &cluster;
                scope.spawn(move || disturb(cluster, seed, steps))
            })
            .collect();
        let refused: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, Ordering::Release);
        watchers.into_iter().for_each(|watcher| watcher.join().unwrap());
        refused
    });
    // Both kinds came up often.
    assert!(refused > THREADS * steps / 10 && refused < THREADS * steps * 9 / 10, "{refused}");
}

#[test]
fn no_sample_of_a_million_breaks_what_readers_see() {
    run(125_000);
}
