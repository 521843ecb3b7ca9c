//! Members of etcd for tests, one for all tests of a program where one is enough.

#![allow(dead_code, reason = "each test uses its part")]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use plimsoll_etcd::{Cluster, Options};
use plimsoll_testkit::etcd::Etcd;

/// One member, shared by the tests that run at the same time; the last one ends it.
#[derive(Debug)]
pub(crate) struct Shared {
    etcd: Etcd,
}

impl Shared {
    /// Of a cluster that nobody else has.
    pub(crate) fn url(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.etcd.url(&format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

pub(crate) fn shared() -> Option<Arc<Shared>> {
    static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(Shared { etcd: members(1)? });
    *shared = Arc::downgrade(&started);
    Some(started)
}

/// So many members of one's own.
pub(crate) fn members(count: usize) -> Option<Etcd> {
    Etcd::start(Path::new(env!("CARGO_TARGET_TMPDIR")), count)
}

/// Opens a cluster whose members may still be starting.
pub(crate) fn open(url: &str) -> Cluster {
    open_with(url, Options::default())
}

pub(crate) fn open_with(url: &str, options: Options) -> Cluster {
    let url: plimsoll_etcd::ClusterUrl = url.parse().unwrap();
    let patient = Options { patience: Duration::from_secs(30), ..options.clone() };
    Cluster::open(url.clone(), patient).unwrap();
    Cluster::open(url, options).unwrap()
}
