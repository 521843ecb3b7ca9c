//! A cluster in etcd, from its machines to the plan in force.
#![cfg(all(unix, feature = "etcd", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use plimsoll::balance::PlanOptions;
use plimsoll::cluster::NodeResources;
use plimsoll::etcd::{Options, PlanError, ledger_pool};
use plimsoll::live::Live;
use plimsoll::residency::{InferenceSpec, NoOwners, Request, Store as _, Timestamp};
use plimsoll::units::{Bytes, Generation, NodeId, PoolId};
use plimsoll::{Engine, Job, model};
use plimsoll_testkit::etcd::Etcd;

fn machine(name: &str) -> NodeResources {
    NodeResources::new(NodeId::new(name).unwrap(), Bytes::gib(24), Bytes::ZERO)
        .with_boot_id("1")
        .with_address(format!("{name}:7000"))
}

fn gib(n: u32) -> Bytes {
    Bytes::gib(n)
}

#[test]
fn a_plan_is_made_of_what_is_not_booked_and_put_in_force_while_the_machines_are_the_same() {
    let Some(etcd) = Etcd::start(Path::new(env!("CARGO_TARGET_TMPDIR")), 1) else { return };
    let url = etcd.url("home");
    let patient = Options { patience: Duration::from_secs(30), ..Options::default() };
    let home = Live::open(&url, patient).unwrap();
    let now = Timestamp::from_millis(1);
    let tower = home.enter(machine("tower"), gib(1), now).unwrap();
    let gpu0 = PoolId::new("gpu0").unwrap();
    // Something else uses 4 GiB of the card, and 8 are booked and not loaded yet: 12 are left.
    tower.report(&[(gpu0.clone(), gib(20))], now).unwrap();
    let ledger = home.ledger(None, NoOwners);
    let pool = ledger_pool("tower", "gpu0").unwrap();
    assert_eq!(ledger.book().unwrap().pool(pool.as_str()).unwrap().budget, Some(gib(23)));
    let coder = InferenceSpec::new("coder", "llama.cpp").with_pools([(pool, gib(8))]);
    ledger.request(&Request::new("coder", coder), now).unwrap();
    let seen = home.seen().unwrap();
    assert_eq!(seen.snapshot.nodes[0].pools[0].free, Some(gib(13)), "12 and what the planner keeps free");
    assert_eq!(seen.snapshot.generation, seen.basis.generation);

    let plan = |snapshot: &plimsoll::cluster::ClusterSnapshot| {
        let toy = "name = \"toy\"\nlayers = [ { count = 4, bytes = \"1GiB\" } ]";
        let model = model::ModelSpec::from_list(&model::list::parse_list_toml(toy).unwrap());
        let options = PlanOptions { reserve: Some(gib(1)), ..PlanOptions::default() };
        let job = Job::new(&model, snapshot, Engine::None, model::Request::default(), options);
        let file = job.plan().unwrap().to_file(None).unwrap();
        let text = file.to_text().unwrap();
        (file, text)
    };
    let (file, text) = plan(&seen.snapshot);
    assert_eq!(file.basis.generation, seen.basis.generation);
    let first = home.put_in_force(None, &seen.basis, &file, &text).unwrap();
    assert_eq!(home.plan_in_force().unwrap(), Some((first, file.clone())));
    // Another machine came: a plan of before is stale, and one of now replaces the first.
    let _mac = home.enter(machine("mac"), gib(1), now).unwrap();
    let error = home.put_in_force(Some(Generation::new(1)), &seen.basis, &file, &text).unwrap_err();
    assert!(matches!(error, PlanError::Stale { .. }), "{error}");
    let seen = home.seen().unwrap();
    let (file, text) = plan(&seen.snapshot);
    let second = home.put_in_force(Some(Generation::new(1)), &seen.basis, &file, &text).unwrap();
    assert_eq!(second.generation, Generation::new(2));
}
