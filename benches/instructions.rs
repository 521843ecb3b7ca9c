//! How many instructions the five hottest paths take: the same on a busy machine as on a quiet one.

#![expect(missing_docs, reason = "what the harness generates has none")]

use std::hint::black_box;

use gungraun::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use plimsoll_balance::{EngineRules, ModelIndex, PlanOptions, Workload, plan};
use plimsoll_benches::Instance;
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_residency::{InferenceSpec, ResidencyLedger};
use plimsoll_units::{Bytes, BytesPerSec};

fn layers(count: u32) -> Vec<plimsoll_balance::LayerSpec> {
    Instance::new(1, count, 4).layers
}

#[library_benchmark]
#[bench::l10000(layers(10_000))]
fn index_a_model(layers: Vec<plimsoll_balance::LayerSpec>) -> Option<ModelIndex> {
    black_box(ModelIndex::new(black_box(&layers)).ok())
}

fn fleet(devices: u32) -> (ModelIndex, Instance, Vec<Bytes>, Vec<u32>) {
    let instance = Instance::new(1, 10_000, devices);
    let index = ModelIndex::new(&instance.layers).expect("layers in a row");
    let (budgets, ends) = (instance.largest_first(), Vec::with_capacity(instance.budgets.len()));
    (index, instance, budgets, ends)
}

#[library_benchmark]
#[bench::l10000x1000(fleet(1_000))]
fn fit_in_order((index, _, budgets, mut ends): (ModelIndex, Instance, Vec<Bytes>, Vec<u32>)) -> bool {
    black_box(index.fit_in_order(black_box(&budgets), &mut ends))
}

#[library_benchmark]
#[bench::l10000x100(fleet(100))]
fn min_max_in_order(
    (index, instance, _, mut ends): (ModelIndex, Instance, Vec<Bytes>, Vec<u32>),
) -> Option<f64> {
    let rates: &[BytesPerSec] = &instance.rates;
    black_box(index.min_max_in_order(black_box(&instance.budgets), rates, &mut ends))
}

fn home() -> (ClusterSnapshot, Workload) {
    let instance = Instance::new(1, 80, 8);
    let workload = Workload { activation_bytes: Bytes::kib(16), ..Workload::uniform(instance.footprint()) };
    (instance.snapshot().expect("legal names"), workload)
}

#[library_benchmark]
#[bench::l80x8(home())]
fn whole_plan((snapshot, workload): (ClusterSnapshot, Workload)) -> bool {
    black_box(plan(&snapshot, &workload, &EngineRules::none(), &PlanOptions::default())).is_ok()
}

fn thousand_residents() -> (ResidencyLedger, InferenceSpec) {
    let ledger = ResidencyLedger::new(Some(Bytes::gib(64)));
    let spec = |role: String| InferenceSpec::new(role, "llama.cpp").with_memory(Bytes::mib(1), Bytes::ZERO);
    for number in 0..1_000 {
        ledger
            .reserve(&format!("instance-{number:04}"), &spec(format!("role-{number:04}")))
            .expect("it fits");
    }
    (ledger, spec("guest".to_owned()))
}

#[library_benchmark]
#[bench::residents1000(thousand_residents())]
fn reserve_and_release((ledger, spec): (ResidencyLedger, InferenceSpec)) -> ResidencyLedger {
    black_box(ledger.reserve("visitor", black_box(&spec))).expect("it fits");
    ledger.release("visitor");
    ledger
}

library_benchmark_group!(
    name = hottest,
    benchmarks = [index_a_model, fit_in_order, min_max_in_order, whole_plan, reserve_and_release]
);

main!(
    // Instructions alone are compared: caches of a simulated machine say little about a real one.
    config = LibraryBenchmarkConfig::default().tool(gungraun::Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = hottest
);
