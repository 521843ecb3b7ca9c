//! An agent on a machine that a test changes, and a client that does exactly what it is told.

#![allow(dead_code, reason = "every test file uses a part of it")]

#[cfg(unix)]
pub(crate) mod browser;
pub(crate) mod http;
pub(crate) mod schema;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll::answers::Occupancy;
use plimsoll::cluster::{ClusterSnapshot, file::parse_cluster};
use plimsoll::profile::{
    Accelerator, AcceleratorKind, Cores, CpuFeatures, CpuProfile, CpuTopology, FreeMemory, GpuBackend,
    Health, MemoryLayout, MemoryProfile, Presence, SystemProfile,
};
use plimsoll::residency::ResidencyLedger;
use plimsoll::units::{Bytes, NodeId};
use plimsoll::watcher::SystemProfileWatcher;
use plimsoll_agent::{Agent, Config, Limits, Setup, Source, Token};
use tokio::sync::oneshot;

pub(crate) use http::Client;

/// The token of tests that have one.
pub(crate) const TOKEN: &str = "0123456789abcdef-0123456789abcdef";

/// A machine with 64 GiB, eight cores, and so many cards of 24 GiB.
pub(crate) fn machine(cards: u32) -> SystemProfile {
    let card = |ordinal| Accelerator {
        ordinal,
        id: format!("GPU-{ordinal}"),
        uuid: Some(format!("GPU-{ordinal}")),
        pci: None,
        name: Some("RTX 4090".to_owned()),
        backend: GpuBackend::Cuda,
        kind: AcceleratorKind::Discrete,
        total: Some(Bytes::gib(24)),
        compute_capability: None,
        multiprocessors: None,
        bandwidth: None,
        health: Health::Healthy,
        layout: MemoryLayout::default(),
    };
    let cores = Cores { logical: 8, allowed: 8, physical: 8, quota: None, usable: 8 };
    let features = Presence::Found(CpuFeatures { avx2: true, ..CpuFeatures::default() });
    let memory = MemoryProfile { total: Bytes::gib(64), host_total: Bytes::gib(64), limit: None };
    SystemProfile {
        cpu: CpuProfile { vendor: None, brand: None, features, cores, topology: CpuTopology::default() },
        memory: Presence::Found(memory),
        accelerators: (0..cards).map(card).collect(),
        sources: Vec::new(),
    }
}

/// What a probe shows; a test changes it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    shown: Arc<Mutex<SystemProfile>>,
    taken: Arc<Mutex<Bytes>>,
    watcher: SystemProfileWatcher,
}

impl Machine {
    pub(crate) fn new(cards: u32) -> Self {
        let shown = Arc::new(Mutex::new(machine(cards)));
        let probe = Arc::clone(&shown);
        // It looks when it is told to, and else hardly ever.
        let hour = Duration::from_secs(3600);
        let watcher =
            SystemProfileWatcher::with_probe(hour, move || Ok(probe.lock().unwrap().clone())).unwrap();
        Self { shown, taken: Arc::default(), watcher }
    }

    /// Shows so many cards from now on.
    pub(crate) fn show(&self, cards: u32) {
        *self.shown.lock().unwrap() = machine(cards);
        self.watcher.look_soon();
    }

    /// Takes so much of every card.
    pub(crate) fn take(&self, bytes: Bytes) {
        *self.taken.lock().unwrap() = bytes;
    }
}

/// How a test wants its agent.
pub(crate) struct Wanted {
    pub(crate) config: Config,
    pub(crate) source: Source,
    pub(crate) machine: Machine,
    pub(crate) ledger: Arc<ResidencyLedger>,
    /// How often it was measured what is used.
    pub(crate) measured: Arc<AtomicU64>,
}

impl Wanted {
    /// Two cards, the machine alone, no token, and looks often.
    pub(crate) fn usual() -> Self {
        let often = Duration::from_millis(20);
        let limits = Limits { look_interval: often, ledger_interval: often, ..Limits::default() };
        Self {
            config: Config { limits, ..Config::default() },
            source: Source::Machine,
            machine: Machine::new(2),
            ledger: Arc::new(ResidencyLedger::with_pools([])),
            measured: Arc::default(),
        }
    }

    pub(crate) fn with_token(mut self) -> Self {
        self.config.token = Some(Token::new(TOKEN).unwrap());
        self
    }

    pub(crate) fn limited(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    pub(crate) fn on(mut self, cluster: &str) -> Self {
        self.source = Source::described(&cluster_of(cluster)).unwrap();
        self
    }

    pub(crate) fn with_models(mut self, folder: &std::path::Path) -> Self {
        self.config.models = Some(folder.to_owned());
        self
    }

    pub(crate) fn listening(mut self, address: SocketAddr) -> Self {
        self.config.listen = address;
        self
    }

    pub(crate) fn serve(self) -> Served {
        let (machine, ledger) = (self.machine.clone(), Arc::clone(&self.ledger));
        let (stop, stopped) = oneshot::channel();
        let (told, bound) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let taken = Arc::clone(&self.machine.taken);
                let setup = Setup {
                    id: NodeId::new("tower").unwrap(),
                    watcher: self.machine.watcher.clone(),
                    free: Box::new(move |profile| free(profile, *taken.lock().unwrap())),
                    ledger: self.ledger,
                    kept_free: Bytes::gib(1),
                    measure: Box::new(move |book| {
                        self.measured.fetch_add(1, Ordering::Relaxed);
                        Occupancy::new(book, &book.holders(), &[], "ram", Vec::new())
                    }),
                    source: self.source,
                };
                let agent = Agent::bind(self.config, setup).await.unwrap();
                told.send(agent.address()).unwrap();
                agent.run(async { drop(stopped.await) }).await;
            });
        });
        let address = bound.recv().expect("an agent that starts says where it listens");
        Served { address, machine, ledger, stop: Some(stop), thread: Some(thread) }
    }
}

fn free(profile: &SystemProfile, taken: Bytes) -> FreeMemory {
    let cards = profile.accelerators.iter();
    let cards = cards.map(|card| (card.id.clone(), card.total.unwrap().saturating_sub(taken)));
    FreeMemory { host: Some(Bytes::gib(64)), accelerators: cards.collect() }
}

pub(crate) fn cluster_of(text: &str) -> ClusterSnapshot {
    parse_cluster(text).unwrap().snapshot
}

/// An agent that answers until this is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) machine: Machine,
    pub(crate) ledger: Arc<ResidencyLedger>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn client(&self) -> Client {
        Client::of(self.address)
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            drop(stop);
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("an agent ends without a panic");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A request for a plan of so many equal layers.
pub(crate) fn toy(layers: u32, bytes: &str) -> String {
    format!(
        "{{\"list\": {{\"name\": \"toy\", \"layers\": [{{\"count\": {layers}, \"bytes\": \"{bytes}\"}}]}}}}"
    )
}

/// An empty folder of its own, gone with this value.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
