//! Members of etcd for tests, one for all tests of a program where one is enough.

#![allow(dead_code, reason = "each test uses its part")]
#![expect(clippy::disallowed_methods, reason = "real time passes here")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use plimsoll_cluster::NodeResources;
use plimsoll_etcd::{Cluster, Options};
use plimsoll_testkit::etcd::Etcd;
use plimsoll_units::{Bytes, NodeId};
use plimsoll_watcher::Subscription;

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

pub(crate) fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// A machine with a card of 24 GiB.
pub(crate) fn machine(name: &str, boot: &str) -> NodeResources {
    NodeResources::new(id(name), Bytes::gib(24), Bytes::gib(64))
        .with_boot_id(boot)
        .with_address(format!("{name}:7000"))
}

/// Waits for the event that is meant; the test hangs when it never comes, and the runner says which.
pub(crate) fn event<T>(news: &mut Subscription<T>, meant: impl Fn(&T) -> bool) -> T {
    loop {
        let event = news.next_blocking().expect("whoever tells is still there");
        if meant(&event) {
            return event;
        }
    }
}

/// Throws away the history of the store.
pub(crate) fn compact(url: &str) {
    let endpoint = url.trim_start_matches("etcd://").split(['/', ',']).next().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = etcd_client::Client::connect([endpoint], None).await.unwrap();
        let revision = client.get("x", None).await.unwrap().header().unwrap().revision();
        client.compact(revision, None).await.unwrap();
    });
}

/// What stands between us and one member, and can be cut.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// To the first member that the address names.
    pub(crate) fn to(url: &str) -> Self {
        let member = url.trim_start_matches("etcd://").split(['/', ',']).next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Mutex::new(Vec::new()));
        let (is_cut, kept) = (Arc::clone(&cut), Arc::clone(&open));
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                // A cut way swallows whatever comes: it does not say so.
                let far = if is_cut.load(Ordering::SeqCst) { None } else { TcpStream::connect(&member).ok() };
                let mut kept = kept.lock().unwrap();
                kept.push(near.try_clone().unwrap());
                if let Some(far) = far {
                    kept.push(far.try_clone().unwrap());
                    for (from, to) in [(&near, &far), (&far, &near)] {
                        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                        let is_cut = Arc::clone(&is_cut);
                        std::thread::spawn(move || pass(from, to, &is_cut));
                    }
                }
            }
        });
        Self { port, cut, open }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("etcd://127.0.0.1:{}/{name}", self.port)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on nothing passes, in neither direction; connections stay open.
    pub(crate) fn cut(&self) -> Instant {
        self.cut.store(true, Ordering::SeqCst);
        Instant::now()
    }

    /// Lets through again; what was cut is closed.
    pub(crate) fn heal(&self) {
        self.cut.store(false, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(n) = from.read(&mut bytes) {
        if n == 0 {
            break;
        }
        if !is_cut.load(Ordering::SeqCst) && to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Both));
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Numbers that are the same in every run.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap())).unwrap()
    }
}

/// Lets nobody in but the administrator and this user, and that one only below a prefix.
pub(crate) fn protect(url: &str, (user, password): (&str, &str), prefix: &str) {
    use etcd_client::{Permission, PermissionType};
    let endpoint = url.trim_start_matches("etcd://").split(['/', ',']).next().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = etcd_client::Client::connect([endpoint], None).await.unwrap();
        client.user_add("root", "of all", None).await.unwrap();
        client.role_add("root").await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.user_add(user, password, None).await.unwrap();
        client.role_add("home").await.unwrap();
        let below = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
        client.role_grant_permission("home", below).await.unwrap();
        client.user_grant_role(user, "home").await.unwrap();
        client.auth_enable().await.unwrap();
    });
}
