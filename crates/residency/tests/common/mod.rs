//! Ledgers of every kind, and processes that live and die as a test says.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use plimsoll_residency::{
    InferenceSpec, Owners, ProcessId, Request, ResidencyLedger, Standing, Store, Terms, Timestamp,
};
use plimsoll_units::{Bytes, PoolId};

/// Processes that live until a test says otherwise.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    standings: Mutex<BTreeMap<ProcessId, Standing>>,
}

/// The boot in which every test runs.
pub(crate) const BOOT: &str = "this-boot";

impl Fake {
    pub(crate) fn set(&self, process: &ProcessId, standing: Standing) {
        self.standings.lock().unwrap().insert(process.clone(), standing);
    }

    /// Forgets what was said about anybody.
    pub(crate) fn revive(&self) {
        self.standings.lock().unwrap().clear();
    }
}

impl Owners for Fake {
    fn boot(&self) -> Option<&str> {
        Some(BOOT)
    }

    fn standing(&self, process: &ProcessId) -> Standing {
        self.standings.lock().unwrap().get(process).copied().unwrap_or(if process.boot == BOOT {
            Standing::Alive
        } else {
            Standing::Elsewhere
        })
    }
}

/// A ledger and the processes that it sees.
pub(crate) struct Case {
    pub(crate) store: Box<dyn Store>,
    pub(crate) owners: Arc<Fake>,
    // Removed, or ended, when the case ends.
    _keeper: Option<Box<dyn Send + Sync>>,
}

impl std::ops::Deref for Case {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Case {
    pub(crate) fn new(store: impl Store + 'static, owners: Arc<Fake>) -> Self {
        Self { store: Box::new(store), owners, _keeper: None }
    }

    /// The same, with what has to stay as long as the ledger.
    pub(crate) fn kept_by(self, keeper: impl Send + Sync + 'static) -> Self {
        Self { _keeper: Some(Box::new(keeper)), ..self }
    }
}

/// A ledger in memory.
pub(crate) fn memory(pools: &[(&str, Option<u64>)]) -> Case {
    let owners = Arc::new(Fake::default());
    let asked: Arc<dyn Owners> = Arc::clone(&owners) as Arc<dyn Owners>;
    let store =
        ResidencyLedger::with_owners(pools.iter().map(|(id, budget)| (pool(id), budget.map(gb))), asked);
    Case::new(store, owners)
}

/// A folder that is removed at the end.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ledger-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn gb(n: u64) -> Bytes {
    Bytes::new(n * 1_000_000_000)
}

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub(crate) fn pool(id: &str) -> PoolId {
    PoolId::new(id).unwrap()
}

/// A role that needs so many gigabytes of a single memory.
pub(crate) fn spec(role: &str, needs: u64) -> InferenceSpec {
    InferenceSpec::new(role, "llama.cpp").with_memory(gb(needs), Bytes::ZERO)
}

/// An instance named like its role.
pub(crate) fn request(role: &str, needs: u64) -> Request {
    Request::new(role, spec(role, needs))
}

/// A process of this boot.
pub(crate) fn process(pid: u32) -> ProcessId {
    ProcessId { boot: BOOT.to_owned(), namespace: 1, pid, start: u64::from(pid) * 10 }
}

pub(crate) fn owned_by(process: &ProcessId) -> Terms {
    Terms { owners: vec![process.clone()], ..Terms::default() }
}

/// Instances and their gigabytes, in order.
pub(crate) fn held(store: &dyn Store) -> Vec<(String, u64)> {
    let list = store.list().unwrap();
    list.iter().map(|held| (held.instance().to_owned(), held.bytes().get() / 1_000_000_000)).collect()
}
