//! What every ledger does, in etcd.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

#[path = "../../residency/tests/common/mod.rs"]
mod common;
mod kit;
#[path = "../../residency/tests/suite/mod.rs"]
mod suite;

use std::sync::Arc;

use common::{Case, Fake, at, gb, pool};
use plimsoll_residency::{Owners, Store as _};

suite::suite!(in_etcd, crate::made);

/// A ledger of a cluster of its own, or one in memory where there is no etcd: then the kit has said so.
fn made(pools: &[(&str, Option<u64>)]) -> Case {
    let Some(etcd) = kit::shared() else {
        return common::memory(pools);
    };
    let cluster = kit::open(&etcd.url());
    let owners = Arc::new(Fake::default());
    let session = Arc::new(cluster.session().unwrap());
    let ledger = cluster.ledger(Some(session), Arc::clone(&owners) as Arc<dyn Owners>);
    let pools: Vec<_> = pools.iter().map(|(id, budget)| (pool(id), budget.map(gb))).collect();
    ledger.init_pools(&pools, at(0)).unwrap();
    Case::new(ledger, owners).kept_by(etcd)
}
