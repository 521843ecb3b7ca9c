//! The ledger: pairs of reserve and release in memory and on file, and advice for a full machine.
//!
//! Rows with two threads count the pairs of both: a row of 1 µs is a million pairs a second.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_residency::{
    Book, Durability, Eviction, FileLedger, FileOptions, InferenceSpec, NoOwners, Request, ResidencyLedger,
    Store, Terms, Timestamp, UNIFIED_MEMORY, eviction_advice,
};
use plimsoll_units::{Bytes, PoolId};

const RESIDENTS: u64 = 1_000;
const INPUTS: usize = 32;

/// The same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn spec(role: &str, bytes: u64) -> InferenceSpec {
    InferenceSpec::new(role, "llama.cpp").with_memory(Bytes::new(bytes), Bytes::ZERO)
}

/// A thousand roles with an instance each, every tenth with an exclusion.
fn resident(i: u64) -> (String, InferenceSpec) {
    let spec = spec(&format!("role-{i:04}"), 1_000_000);
    let spec = if i.is_multiple_of(10) { spec.excluding([format!("never-{i}")]) } else { spec };
    (format!("instance-{i:04}"), spec)
}

fn pool() -> PoolId {
    PoolId::new(UNIFIED_MEMORY).expect("it has no white space")
}

/// Names and specs that come and go beside the residents.
fn visitors(thread: usize) -> Vec<(String, InferenceSpec)> {
    (0..INPUTS)
        .map(|i| (format!("visitor-{thread}-{i:02}"), spec(&format!("guest-{thread}-{i:02}"), 5_000_000)))
        .collect()
}

/// How long `threads` threads take for so many pairs in all.
fn pairs(threads: usize, pairs: u64, pair: impl Fn(&str, &InferenceSpec) + Sync) -> Duration {
    let start = Barrier::new(threads + 1);
    let each = pairs.div_ceil(u64::try_from(threads).unwrap_or(1));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, pair) = (&start, &pair);
                scope.spawn(move || {
                    let visitors = visitors(thread);
                    start.wait();
                    for (_, (instance, spec)) in (0..each).zip(visitors.iter().cycle()) {
                        pair(instance, spec);
                    }
                })
            })
            .collect();
        start.wait();
        let begun = now();
        for worker in workers {
            drop(worker.join());
        }
        begun.elapsed()
    })
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

fn in_memory(c: &mut Criterion) {
    let ledger = ResidencyLedger::new(Some(Bytes::gib(64)));
    for (instance, spec) in (0..RESIDENTS).map(resident) {
        ledger.reserve(&instance, &spec).expect("it fits");
    }
    let mut group = c.benchmark_group("ledger in memory, 1000 residents");
    group.throughput(Throughput::Elements(1));
    for threads in [1, 2] {
        group.bench_function(format!("reserve and release, {threads} threads"), |b| {
            b.iter_custom(|n| {
                pairs(threads, n, |instance, spec| {
                    ledger.reserve(instance, spec).expect("it fits");
                    ledger.release(instance);
                })
            });
        });
    }
    group.finish();
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("residency-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the target folder can be written");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn on_file(c: &mut Criterion) {
    let folder = Folder::new();
    let mut group = c.benchmark_group("ledger on file, 1000 residents");
    group.throughput(Throughput::Elements(1));
    for (name, durability) in [("normal", Durability::Normal), ("full", Durability::Full)] {
        let options = FileOptions { durability, ..FileOptions::default() };
        let ledger =
            FileLedger::open(folder.0.join(name), options, Arc::new(NoOwners)).expect("it can be made");
        let moment = Timestamp::ZERO;
        ledger.set_budget(&pool(), Some(Bytes::gib(64)), moment).expect("it can be written");
        ledger
            .transact(moment, &mut |book| {
                for (instance, spec) in (0..RESIDENTS).map(resident) {
                    book.reserve(&Request::new(instance, spec), moment).expect("it fits");
                }
            })
            .expect("it can be written");
        for threads in [1, 2] {
            group.bench_function(format!("reserve and release, {name}, {threads} threads"), |b| {
                b.iter_custom(|n| {
                    pairs(threads, n, |instance, spec| {
                        ledger.request(&Request::new(instance, spec.clone()), moment).expect("it fits");
                        ledger.release_instance(instance, moment).expect("it can be written");
                    })
                });
            });
        }
    }
    group.finish();
}

/// 64 residents of 0.2 to 80 GB on a machine that is full, and a newcomer that needs 5 to 55 % of it.
fn full_machine(random: &mut Random) -> (Book, Request) {
    let mut book = Book::new([(pool(), None)]);
    let mut held = 0;
    for i in 0..64 {
        let bytes = 200_000_000 + random.below(79_800_000_000);
        held += bytes;
        let weights = bytes / 10 * (1 + random.below(9));
        let name = format!("resident-{i:02}");
        let spec =
            InferenceSpec::new(&name, "x").with_memory(Bytes::new(weights), Bytes::new(bytes - weights));
        let priority = u32::try_from(random.below(4)).unwrap_or_default();
        let terms = Terms { priority, ..Terms::default() };
        book.reserve(&Request::new(name, spec).on(terms), Timestamp::ZERO).expect("there is no limit");
    }
    book.set_budget(&pool(), Some(Bytes::new(held)));
    let need = held / 100 * (5 + random.below(50));
    (book, Request::new("newcomer", spec("newcomer", need)))
}

fn advice(c: &mut Criterion) {
    let mut random = Random(64);
    let inputs: Vec<_> = (0..INPUTS).map(|_| full_machine(&mut random)).collect();
    let policy = Eviction::default();
    for (book, request) in &inputs {
        assert!(eviction_advice(book, request, &policy, Timestamp::ZERO).expect("it can be done").proven);
    }
    // The mean is that of the few that are hard; the middle one is what most take.
    let fastest = |(book, request): &(Book, Request)| {
        let once = || {
            let begun = now();
            black_box(eviction_advice(book, request, &policy, Timestamp::ZERO)).expect("it can be done");
            begun.elapsed()
        };
        (0..50).map(|_| once()).min()
    };
    let mut by_time: Vec<_> = inputs.iter().map(|input| (fastest(input), input)).collect();
    by_time.sort_by_key(|(time, _)| *time);
    let (book, request) = by_time[INPUTS / 2].1;
    c.bench_function("eviction advice, 64 residents, proven, the middle of 32 inputs", |b| {
        b.iter(|| black_box(eviction_advice(book, request, &policy, Timestamp::ZERO)));
    });
    let mut next = inputs.iter().cycle();
    c.bench_function("eviction advice, 64 residents, proven", |b| {
        b.iter_batched(
            || next.next().expect("it never ends"),
            |(book, request)| black_box(eviction_advice(book, request, &policy, Timestamp::ZERO)),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, in_memory, on_file, advice);
criterion_main!(benches);
