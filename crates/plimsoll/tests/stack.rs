//! The stack on a machine that a test changes.

#![cfg(all(feature = "stack", feature = "files"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll::balance::{LoadBalanceConfig, LoadBalancer, PlanOptions};
use plimsoll::cluster::{ClusterEvent, ClusterSnapshot, ClusterState, Moment, Node, NodeStatus, Pool};
use plimsoll::model::list::parse_list_toml;
use plimsoll::model::{ModelSpec, Request};
use plimsoll::profile::{
    Accelerator, AcceleratorKind, Cores, CpuFeatures, CpuProfile, CpuTopology, FreeMemory, GpuBackend,
    Health, MemoryLayout, MemoryProfile, Presence, SystemProfile,
};
use plimsoll::residency::{InferenceSpec, Request as Booking, ResidencyLedger, Store, Timestamp};
use plimsoll::units::{Bytes, Generation, NodeId, PoolId};
use plimsoll::watcher::{LookError, Subscription, SystemProfileWatcher};
use plimsoll::{
    Engine, Job, Planned, Remedy, Stack, StackBuilder, StackError, StackEvent, subscribe_to_watcher,
};
use tokio::runtime::Handle;

const SECOND: Duration = Duration::from_secs(1);

/// A machine with 64 GiB, so many cores, and cards of 24 GiB.
fn machine(workers: u32, cards: u32) -> SystemProfile {
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
    let cores = Cores { logical: workers, allowed: workers, physical: workers, quota: None, usable: workers };
    let features = Presence::Found(CpuFeatures { avx2: true, ..CpuFeatures::default() });
    let memory = MemoryProfile { total: Bytes::gib(64), host_total: Bytes::gib(64), limit: None };
    SystemProfile {
        cpu: CpuProfile { vendor: None, brand: None, features, cores, topology: CpuTopology::default() },
        memory: Presence::Found(memory),
        accelerators: (0..cards).map(card).collect(),
        sources: Vec::new(),
    }
}

/// Everything is free.
fn all_free(profile: &SystemProfile) -> FreeMemory {
    let cards = profile.accelerators.iter().map(|card| (card.id.clone(), card.total.unwrap()));
    FreeMemory { host: Some(Bytes::gib(64)), accelerators: cards.collect() }
}

/// What a probe shows; a test changes it.
#[derive(Clone)]
struct Stage(Arc<Mutex<Result<SystemProfile, LookError>>>);

impl Stage {
    fn new(cards: u32) -> Self {
        Self(Arc::new(Mutex::new(Ok(machine(8, cards)))))
    }

    fn show(&self, shown: Result<SystemProfile, LookError>) {
        *self.0.lock().unwrap() = shown;
    }

    fn watcher(&self) -> SystemProfileWatcher {
        let shown = Arc::clone(&self.0);
        SystemProfileWatcher::with_probe(SECOND, move || shown.lock().unwrap().clone()).unwrap()
    }
}

fn tower() -> NodeId {
    NodeId::new("tower").unwrap()
}

fn builder() -> StackBuilder {
    Stack::builder(tower()).with_free(all_free)
}

fn cuda(ordinal: u32) -> PoolId {
    PoolId::new(format!("CUDA{ordinal}")).unwrap()
}

/// A plan for 10 layers of so many bytes each on what the stack has now.
fn planned(snapshot: &ClusterSnapshot, layer: Bytes) -> Planned {
    let text = format!("name = \"toy\"\nlayers = [ {{ count = 10, bytes = {} }} ]", layer.get());
    let model = ModelSpec::from_list(&parse_list_toml(&text).unwrap());
    Job::new(&model, snapshot, Engine::None, Request::default(), PlanOptions::default()).plan().unwrap()
}

/// The next event that is wanted; what comes before it is passed over.
async fn wait_for<T>(events: &mut Subscription<StackEvent>, wanted: impl Fn(&StackEvent) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(&events.next().await.unwrap()) {
            return found;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_tunes_the_balancer_registers_the_node_and_gives_the_ledger_its_budgets() {
    let ledger = Arc::new(ResidencyLedger::with_pools([]));
    let mut stack = builder().with_ledger(ledger.clone(), Bytes::gib(1)).start(&Stage::new(2).watcher());
    let mut events = stack.subscribe();
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        told.push(event.to_string());
    }
    assert_eq!(
        told,
        [
            "tuned to 8 worker(s), acceleration gpu",
            "pool 'CUDA0' may hold 24.7 GB",
            "pool 'CUDA1' may hold 24.7 GB",
            "pool 'ram' may hold 67.6 GB",
            "node 'tower' joined",
        ]
    );
    assert_eq!(stack.balancer().config().max_layers_per_assignment, 16);
    let snapshot = stack.cluster().snapshot();
    let free: Vec<_> = snapshot.nodes[0].pools.iter().map(|pool| pool.free.unwrap()).collect();
    assert_eq!(free, [Bytes::gib(64), Bytes::gib(24), Bytes::gib(24)]);
    assert!(snapshot.nodes[0].main);
    let budgets: Vec<_> = ledger.pools().into_iter().map(|pool| pool.budget.unwrap()).collect();
    assert_eq!(budgets, [Bytes::gib(23), Bytes::gib(23), Bytes::gib(63)]);
    assert!(stack.standing().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_card_that_disappears_reaches_the_node_the_budgets_and_the_plan_in_force() {
    let (stage, ledger) = (Stage::new(2), Arc::new(ResidencyLedger::with_pools([])));
    let watcher = stage.watcher();
    let mut stack = builder().with_ledger(ledger.clone(), Bytes::ZERO).start(&watcher);
    let planned = planned(&stack.cluster().snapshot(), Bytes::gib(4));
    assert!(planned.plan.stages.iter().any(|stage| stage.device.device.as_str() == "CUDA1"));
    let standing = stack.adopt(planned).unwrap();
    assert!(standing.holds() && matches!(standing.remedy, Remedy::Keep));
    let spec = InferenceSpec::new("coder", "llama.cpp").with_pools([(cuda(1), Bytes::gib(10))]);
    ledger.request(&Booking::new("coder", spec), Timestamp::ZERO).unwrap();

    let mut events = stack.subscribe();
    stage.show(Ok(machine(8, 1)));
    let gone = wait_for(&mut events, |event| match event {
        StackEvent::Hardware { description } => Some(description.clone()),
        _ => None,
    });
    assert_eq!(gone.await, "GPU 1 'RTX 4090' GPU-1 gone");
    let budget = wait_for(&mut events, |event| match event {
        StackEvent::Budget { pool, budget, excess } => Some((pool.clone(), *budget, *excess)),
        _ => None,
    });
    assert_eq!(budget.await, (cuda(1), Bytes::ZERO, Bytes::gib(10)));
    let node = wait_for(&mut events, |event| match event {
        StackEvent::Node(event) => Some(event.clone()),
        _ => None,
    });
    assert_eq!(node.await, ClusterEvent::CameBack { node: tower(), rebooted: false });
    let standing = wait_for(&mut events, |event| match event {
        StackEvent::Plan(standing) => Some(Arc::clone(standing)),
        _ => None,
    });
    let standing = standing.await;
    assert!(!standing.holds());
    assert!(standing.to_string().contains("tower/CUDA1"), "{standing}");
    // 40 GiB on a card of 24 and the host: what lay on the lost card is loaded again.
    match &standing.remedy {
        Remedy::Rebalance(rebalance) => {
            assert!(!rebalance.loaded_bytes.is_zero());
            let stages = &rebalance.target.stages;
            assert!(stages.iter().all(|stage| stage.device.device.as_str() != "CUDA1"));
        }
        other => panic!("{other:?}"),
    }
    let snapshot = stack.cluster().snapshot();
    assert_eq!(snapshot.nodes[0].pools.len(), 2);
    assert_eq!(ledger.pools()[1].budget, Some(Bytes::ZERO));

    // It comes back.
    stage.show(Ok(machine(8, 2)));
    let standing = wait_for(&mut events, |event| match event {
        StackEvent::Plan(standing) => Some(Arc::clone(standing)),
        _ => None,
    });
    assert!(standing.await.holds());
    assert_eq!(ledger.pools()[1].budget, Some(Bytes::gib(24)));
    assert!(stack.retire() && !stack.retire());
    assert!(stack.standing().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_no_longer_fits_is_to_be_stopped() {
    let stage = Stage::new(2);
    let mut stack = builder().start(&stage.watcher());
    stack.adopt(planned(&stack.cluster().snapshot(), Bytes::gib(10))).unwrap();
    let mut events = stack.subscribe();
    stage.show(Ok(machine(8, 0)));
    let standing = wait_for(&mut events, |event| match event {
        StackEvent::Plan(standing) => Some(Arc::clone(standing)),
        _ => None,
    });
    let standing = standing.await;
    assert!(matches!(standing.remedy, Remedy::Stop(_)), "{standing}");
    assert!(standing.to_string().contains("; it cannot go on: "), "{standing}");
}

#[tokio::test(start_paused = true)]
async fn what_is_free_is_looked_at_again_when_asked_and_what_the_plan_holds_counts_as_ours() {
    let free = Arc::new(Mutex::new(Bytes::gib(24)));
    let told = Arc::clone(&free);
    let stack = Stack::builder(tower()).with_free(move |profile| {
        let mut all = all_free(profile);
        all.accelerators.insert("GPU-0".to_owned(), *told.lock().unwrap());
        all
    });
    let mut stack = stack.start(&Stage::new(1).watcher());
    stack.adopt(planned(&stack.cluster().snapshot(), Bytes::gib(2))).unwrap();
    let mut events = stack.subscribe();
    while events.try_next().is_some() {}
    let pool = |stack: &Stack| stack.cluster().snapshot().nodes[0].pools[1].clone();
    // The plan's 20 GiB are loaded.
    *free.lock().unwrap() = Bytes::gib(4);
    stack.refresh().await;
    assert_eq!((pool(&stack).free, pool(&stack).held), (Some(Bytes::gib(4)), Bytes::gib(20)));
    assert!(stack.standing().unwrap().holds());
    assert!(events.try_next().is_none(), "nothing that anybody has to know");
    // Nobody has more than there is.
    *free.lock().unwrap() = Bytes::gib(25);
    stack.refresh().await;
    assert_eq!((pool(&stack).free, pool(&stack).held), (Some(Bytes::gib(24)), Bytes::ZERO));
}

#[tokio::test(start_paused = true)]
async fn errors_are_told_and_the_next_change_is_taken_in() {
    let stage = Stage::new(1);
    let cluster = Arc::new(ClusterState::new());
    let mut stack = builder().with_cluster(Arc::clone(&cluster)).start(&stage.watcher());
    let mut events = stack.subscribe();
    let failed = |event: &StackEvent| match event {
        StackEvent::Failed(error) => Some(Arc::clone(error)),
        _ => None,
    };
    stage.show(Err(LookError::failed("no driver")));
    let error = wait_for(&mut events, failed).await;
    assert!(matches!(&*error, StackError::Look(_)), "{error}");
    stage.show(Ok(machine(4, 2)));
    let workers = wait_for(&mut events, |event| match event {
        StackEvent::Tuned { workers, .. } => Some(*workers),
        _ => None,
    });
    assert_eq!(workers.await, 4);
    // The node comes after the tuning.
    wait_for(&mut events, |event| matches!(event, StackEvent::Node(_)).then_some(())).await;
    assert_eq!(cluster.snapshot().nodes[0].pools.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn where_another_node_runs_the_engine_this_one_does_not() {
    let pool = Pool {
        id: PoolId::new("ram").unwrap(),
        total: Bytes::gib(8),
        reserve: None,
        cap: None,
        free: Some(Bytes::gib(8)),
        held: Bytes::ZERO,
    };
    let hub = Node {
        id: NodeId::new("hub").unwrap(),
        status: NodeStatus::Active,
        drained: false,
        main: true,
        rpc: None,
        pools: vec![pool],
        devices: Vec::new(),
    };
    let home = ClusterSnapshot { generation: Generation::FIRST, nodes: vec![hub], links: Vec::new() };
    let cluster = Arc::new(ClusterState::from_snapshot(&home).unwrap());
    let stack = builder().with_cluster(cluster).start(&Stage::new(1).watcher());
    let snapshot = stack.cluster().snapshot();
    let mains: Vec<_> = snapshot.nodes.iter().map(|node| (node.id.as_str(), node.main)).collect();
    assert_eq!(mains, [("hub", true), ("tower", false)]);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_stack_lives_on_once_it_is_dropped() {
    let metrics = Handle::current().metrics();
    let (stage, ledger) = (Stage::new(1), Arc::new(ResidencyLedger::with_pools([])));
    let watcher = stage.watcher();
    let mut stack = builder().with_ledger(ledger.clone(), Bytes::ZERO).start(&watcher);
    let mut events = stack.subscribe();
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(metrics.num_alive_tasks(), 2);
    drop(stack);
    while metrics.num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
    while events.next().await.is_some() {}
    stage.show(Ok(machine(8, 0)));
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(watcher.current_profile().accelerators.len(), 1, "nobody looks any more");
    assert_eq!(ledger.pools()[0].budget, Some(Bytes::gib(24)));
}

#[tokio::test(start_paused = true)]
async fn a_balancer_alone_is_tuned_for_as_long_as_its_task_lives() {
    let stage = Stage::new(1);
    let watcher = stage.watcher();
    let cluster = Arc::new(ClusterState::new());
    let balancer = Arc::new(LoadBalancer::new(cluster, LoadBalanceConfig::default()).unwrap());
    let task = subscribe_to_watcher(&balancer, &watcher);
    let settle = || async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        balancer.config().max_layers_per_assignment
    };
    assert_eq!(settle().await, 16);
    stage.show(Ok(machine(3, 1)));
    assert!(watcher.poll_once().await.unwrap());
    assert_eq!(settle().await, 6);
    drop(task);
    settle().await;
    stage.show(Ok(machine(5, 1)));
    assert!(watcher.poll_once().await.unwrap());
    assert_eq!(settle().await, 6);
}

#[tokio::test(start_paused = true)]
async fn each_look_takes_in_what_is_free_and_leaves_what_only_wobbles() {
    let free = Arc::new(Mutex::new(Bytes::gib(20)));
    let shown = Arc::clone(&free);
    let probe = move |_: &SystemProfile| {
        let card = ("GPU-0".to_owned(), *shown.lock().unwrap());
        FreeMemory { host: Some(Bytes::gib(64)), accelerators: [card].into() }
    };
    let stack = builder().with_free(probe).start(&Stage::new(1).watcher());
    let cluster = stack.cluster();
    let now = || (cluster.snapshot().nodes[0].pools[1].free.unwrap(), cluster.snapshot().generation);
    let (known, generation) = now();
    assert_eq!(known, Bytes::gib(20));
    // A sixty-fourth of 24 GiB more is what others give back and take again.
    *free.lock().unwrap() = Bytes::gib(20).checked_add(Bytes::mib(384)).unwrap();
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(now(), (known, generation));
    // Less is less, however little; and more is more.
    for now_free in [Bytes::gib(20).checked_sub(Bytes::mib(1)).unwrap(), Bytes::gib(22), Bytes::gib(3)] {
        *free.lock().unwrap() = now_free;
        tokio::time::sleep(3 * SECOND).await;
        assert_eq!(now().0, now_free);
    }
    assert!(now().1 > generation);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_looked_at_is_alive_and_one_that_cannot_be_is_not() {
    let stage = Stage::new(1);
    let mut stack = builder().start(&stage.watcher());
    let mut events = stack.subscribe();
    let cluster = Arc::clone(stack.cluster());
    let status = || cluster.snapshot().nodes[0].status;
    let late = Moment::after_start(Duration::from_secs(3600));
    cluster.sweep(late);
    assert_eq!(status(), NodeStatus::Failed);
    let back = wait_for(&mut events, |event| match event {
        StackEvent::Node(ClusterEvent::Status { to, .. }) => Some(*to),
        _ => None,
    });
    assert_eq!((back.await, status()), (NodeStatus::Active, NodeStatus::Active));
    stage.show(Err(LookError::failed("no driver")));
    let failed = |event: &StackEvent| matches!(event, StackEvent::Failed(_)).then_some(());
    wait_for(&mut events, failed).await;
    cluster.sweep(late);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(status(), NodeStatus::Failed);
}
