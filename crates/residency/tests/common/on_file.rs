//! Ledgers in files.

use std::sync::Arc;

use plimsoll_residency::{FileLedger, FileOptions, Owners, Store as _};

use super::common::{Case, Fake, Folder, at, gb, pool};

/// A ledger in a file of its own.
pub(crate) fn file(pools: &[(&str, Option<u64>)]) -> Case {
    let folder = Folder::new();
    let owners = Arc::new(Fake::default());
    let asked: Arc<dyn Owners> = Arc::clone(&owners) as Arc<dyn Owners>;
    let store = FileLedger::open(folder.0.join("ledger"), FileOptions::default(), asked).unwrap();
    let pools: Vec<_> = pools.iter().map(|(id, budget)| (pool(id), budget.map(gb))).collect();
    store.init_pools(&pools, at(0)).unwrap();
    Case::new(store, owners).kept_by(folder)
}
