//! Rebalancing: what is refused, what devices that come and go mean, what is under way.

mod kit;

use std::num::NonZeroU32;
use std::time::Duration;

use kit::{device_ref, devices, layers, node_id};
use plimsoll_balance::{
    EngineRules, InFlight, Objective, Optimality, Piece, Pin, Plan, PlanError, PlanOptions, Rebalance,
    RebalanceError, RebalanceOptions, Step, Workload, audit, moves_in_order, plan, rebalance_plan,
};
use plimsoll_cluster::{ClusterSnapshot, Link, NodeStatus};
use plimsoll_units::{Bytes, BytesPerSec, Generation};

const SECOND: Generation = Generation::FIRST.next();

fn asked(objective: Objective) -> PlanOptions {
    PlanOptions { objective, ..PlanOptions::default() }
}

fn quietly() -> RebalanceOptions {
    RebalanceOptions { propose: false, ..RebalanceOptions::default() }
}

/// Eight layers of ten bytes on four devices of one gigabyte in a second, two on each.
fn even() -> (ClusterSnapshot, Workload, Plan) {
    let cluster = devices(&[40, 40, 40, 40]);
    let workload = layers(&[10; 8]);
    let made =
        plan(&cluster, &workload, &EngineRules::none(), &asked(Objective::Throughput)).expect("it fits");
    (cluster, workload, made)
}

fn rebalanced(
    current: &Plan,
    cluster: &ClusterSnapshot,
    workload: &Workload,
    options: &PlanOptions,
    more: &RebalanceOptions,
) -> Result<Rebalance, RebalanceError> {
    let rules = EngineRules::none();
    let made = rebalance_plan(current, cluster, workload, &rules, options, more)?;
    assert_eq!(audit(&made.target, cluster, workload, &rules, options), Ok(()));
    Ok(made)
}

fn refused(
    current: &Plan,
    cluster: &ClusterSnapshot,
    workload: &Workload,
    more: &RebalanceOptions,
) -> String {
    let made = rebalanced(current, cluster, workload, &asked(Objective::Throughput), more);
    made.expect_err("it is refused").to_string()
}

fn steps(made: &Rebalance) -> Vec<&Step> {
    let schedule = made.schedule.as_ref().expect("there is a way");
    schedule.rounds.iter().flat_map(|round| round.steps.iter().map(|step| &step.step)).collect()
}

#[test]
fn a_plan_that_is_still_the_best_stays() {
    let (cluster, workload, current) = even();
    for objective in [Objective::Throughput, Objective::Balanced] {
        let made = rebalanced(&current, &cluster, &workload, &asked(objective), &quietly()).expect("it fits");
        assert_eq!(made.bytes(), Bytes::ZERO);
        assert_eq!(made.bytes_optimality, Optimality::Proven);
        assert!(steps(&made).is_empty());
        assert_eq!(made.stays.len(), 4);
        assert_eq!(made.before, made.after);
        assert_eq!(made.gain(), Some(0.0));
    }
}

#[test]
fn a_plan_from_a_newer_snapshot_is_refused() {
    let (cluster, workload, mut current) = even();
    current.basis = SECOND;
    assert_eq!(
        refused(&current, &cluster, &workload, &quietly()),
        "the plan was made from generation 2, which is newer than the snapshot's 1"
    );
}

#[test]
fn a_plan_for_another_model_is_refused_with_its_numbers() {
    let (cluster, _, current) = even();
    assert_eq!(
        refused(&current, &cluster, &layers(&[10; 9]), &quietly()),
        "the plan holds layers 0..8 and the model has 0..9"
    );
    assert_eq!(
        refused(&current, &cluster, &layers(&[10, 10, 10, 11, 10, 10, 10, 10]), &quietly()),
        "the plan has 20 bytes on n01/d0 for layers 2..4, and this model takes 21 bytes there"
    );
}

#[test]
fn a_plan_with_devices_that_were_never_there_is_refused() {
    let (cluster, workload, mut current) = even();
    current.stages[1].device = device_ref("n09", "d0");
    assert_eq!(
        refused(&current, &cluster, &workload, &quietly()),
        "the plan names n09/d0, which generation 1 does not have"
    );
    current.stages[1].device = device_ref("n00", "d0");
    assert_eq!(refused(&current, &cluster, &workload, &quietly()), "the plan names n00/d0 twice");
}

#[test]
fn a_broken_plan_is_refused() {
    let (cluster, workload, current) = even();
    let mut gap = current.clone();
    gap.stages[1].layers = 3..4;
    assert!(refused(&gap, &cluster, &workload, &quietly()).contains("n01/d0"));
    let mut headless = current.clone();
    headless.stages[3].head = false;
    assert!(refused(&headless, &cluster, &workload, &quietly()).contains("n03/d0"));
    let mut glued = workload.clone();
    glued.footprints[0].layers[1].cut_after = false;
    assert!(refused(&current, &cluster, &glued, &quietly()).contains("n00/d0"));
    let mut copies = current;
    copies.stages[3].pipeline = 1;
    assert!(refused(&copies, &cluster, &workload, &quietly()).contains("this has 2"));
}

#[test]
fn a_tolerance_has_to_be_a_share() {
    let (cluster, workload, current) = even();
    for tolerance in [f64::NAN, f64::INFINITY, -0.1] {
        let options = RebalanceOptions { tolerance, ..quietly() };
        assert!(refused(&current, &cluster, &workload, &options).starts_with("a tolerance is a share"));
    }
}

#[test]
fn what_a_lost_device_held_is_loaded() {
    let (mut cluster, workload, current) = even();
    cluster.generation = SECOND;
    cluster.nodes[1].status = NodeStatus::Failed;
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &quietly());
    let made = made.expect("it fits");
    assert!(made.loaded_bytes >= Bytes::new(20));
    assert!(steps(&made).iter().any(|s| matches!(s, Step::Load { .. })));
    assert!(made.target.stages.iter().all(|s| s.device.node != node_id("n01")));
    assert_eq!(made.gain(), Some(f64::INFINITY));
    // The same when the snapshot no longer has it, or when somebody says that it is gone.
    let mut without = cluster.clone();
    without.nodes.remove(1);
    let gone = rebalanced(&current, &without, &workload, &asked(Objective::Throughput), &quietly());
    assert_eq!(gone.expect("it fits").loaded_bytes, made.loaded_bytes);
    without.generation = Generation::FIRST;
    let mut told = quietly();
    told.lost.insert(device_ref("n01", "d0"));
    for cluster in [&without, &devices(&[40, 40, 40, 40])] {
        let gone = rebalanced(&current, cluster, &workload, &asked(Objective::Throughput), &told);
        assert_eq!(gone.expect("it fits").loaded_bytes, made.loaded_bytes);
    }
}

#[test]
fn survivors_that_are_too_small_are_an_error_and_not_one_full_host() {
    let (mut cluster, workload, current) = even();
    cluster.generation = SECOND;
    for node in &mut cluster.nodes[..3] {
        node.status = NodeStatus::Failed;
    }
    let error = rebalanced(&current, &cluster, &workload, &asked(Objective::Latency), &quietly());
    assert!(matches!(error, Err(RebalanceError::Plan(PlanError::DoesNotFit(_)))), "{error:?}");
}

#[test]
fn what_a_drained_or_capped_device_held_is_moved_and_not_loaded() {
    let (mut cluster, workload, current) = even();
    cluster.generation = SECOND;
    let mut capped = asked(Objective::Throughput);
    capped.caps.insert(device_ref("n02", "d0"), Bytes::ZERO);
    let by_cap = rebalanced(&current, &cluster, &workload, &capped, &quietly()).expect("it fits");
    let others = ["n00", "n01", "n03"].map(node_id).into();
    let only = PlanOptions { only: Some(others), ..asked(Objective::Throughput) };
    let by_choice = rebalanced(&current, &cluster, &workload, &only, &quietly()).expect("it fits");
    cluster.nodes[2].drained = true;
    let drained = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &quietly());
    for made in [by_cap, by_choice, drained.expect("it fits")] {
        assert_eq!(made.loaded_bytes, Bytes::ZERO);
        assert!(made.moved_bytes >= Bytes::new(20));
        assert!(made.target.stages.iter().all(|s| s.device.node != node_id("n02")));
        assert!(!made.before.fits);
        assert!(steps(&made).iter().all(|s| matches!(s, Step::Move { .. })));
    }
}

#[test]
fn a_new_device_comes_in_where_it_moves_least() {
    let (_, workload, current) = even();
    let mut cluster = devices(&[40, 40, 40, 40, 40]);
    cluster.generation = SECOND;
    let options = RebalanceOptions { tolerance: 0.0, ..quietly() };
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &options);
    // Five devices for eight layers are no faster than four.
    assert_eq!(made.expect("it fits").bytes(), Bytes::ZERO);
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Balanced), &options);
    assert_eq!(made.expect("it fits").bytes(), Bytes::ZERO);
    for node in &mut cluster.nodes[..4] {
        node.pools[0].total = Bytes::new(19);
        node.pools[0].free = Some(Bytes::new(19));
    }
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &options);
    let made = made.expect("it fits");
    assert_eq!(made.bytes(), Bytes::new(60), "{made:#?}");
    assert_eq!(made.target.stages.len(), 5);
}

#[test]
fn a_tolerance_trades_value_for_bytes() {
    let rates = [3, 5, 4, 6, 2, 7_u64];
    let mut cluster = devices(&[1000; 6]);
    let workload = layers(&(0..60).map(|n| 10 + n % 7).collect::<Vec<_>>());
    let options = asked(Objective::Throughput);
    let current = plan(&cluster, &workload, &EngineRules::none(), &options).expect("it fits");
    for (node, rate) in cluster.nodes.iter_mut().zip(rates) {
        node.devices[0].bandwidth = Some(BytesPerSec::new(1_000_000_000 + rate * 30_000_000));
    }
    cluster.generation = SECOND;
    let made = rebalanced(&current, &cluster, &workload, &options, &quietly()).expect("it fits");
    assert_eq!(made.trades.len(), 5);
    for pair in made.trades.windows(2) {
        assert!(pair[0].bytes >= pair[1].bytes && pair[0].tolerance < pair[1].tolerance, "{pair:?}");
    }
    assert!(made.trades[0].bytes > made.trades[4].bytes);
    let useful: Vec<_> = made.trades.iter().filter(|t| !t.dominated).collect();
    assert!(useful.windows(2).all(|pair| pair[0].bytes > pair[1].bytes && pair[0].value < pair[1].value));
    assert!(made.after.value <= made.before.value);
}

#[test]
fn latency_keeps_everything_where_it_is_when_that_is_good_enough() {
    let (cluster, workload, current) = even();
    let dear = RebalanceOptions { tolerance: 0.0, ..quietly() };
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Latency), &dear).expect("it fits");
    // Fewer hops, at the price of moving half of everything.
    assert!(made.bytes() >= Bytes::new(40) && made.after.value < made.before.value);
    let cheap = RebalanceOptions { tolerance: 1e6, ..quietly() };
    let made =
        rebalanced(&current, &cluster, &workload, &asked(Objective::Latency), &cheap).expect("it fits");
    assert_eq!((made.bytes(), made.bytes_optimality), (Bytes::ZERO, Optimality::Proven));
}

#[test]
fn times_come_from_links_and_rates() {
    let (mut cluster, workload, current) = even();
    cluster.generation = SECOND;
    cluster.nodes[3].drained = true;
    cluster.links.push(Link {
        between: [node_id("n02"), node_id("n03")],
        bandwidth: Some(BytesPerSec::new(10)),
        latency: Some(Duration::from_secs(1)),
    });
    let options = RebalanceOptions { tolerance: 0.5, ..quietly() };
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &options);
    let made = made.expect("it fits");
    let schedule = made.schedule.expect("there is a way");
    let last = schedule.rounds.last().expect("something moves");
    let link = last.links.first().expect("a link is passed");
    assert_eq!(link.between, [node_id("n02"), node_id("n03")]);
    assert_eq!(link.bytes, Bytes::new(20));
    assert!((link.seconds - 3.0).abs() < 1e-9);
    assert!(schedule.seconds.is_some_and(|s| s >= 3.0));
    // What is not known is not made up.
    cluster.nodes[3].status = NodeStatus::Failed;
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &options);
    assert_eq!(made.expect("it fits").schedule.expect("there is a way").seconds, None);
    let told = RebalanceOptions { load_rate: Some(BytesPerSec::new(1)), ..options };
    let made = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &told);
    assert!(made.expect("it fits").schedule.expect("there is a way").seconds >= Some(20.0));
}

#[test]
fn pinned_layers_stay_on_their_device() {
    let (mut cluster, workload, current) = even();
    cluster.generation = SECOND;
    for node in &mut cluster.nodes {
        node.devices[0].bandwidth = Some(BytesPerSec::new(10));
    }
    cluster.nodes[1].devices[0].bandwidth = Some(BytesPerSec::new(1));
    let options = RebalanceOptions { tolerance: 0.0, ..quietly() };
    let free = rebalanced(&current, &cluster, &workload, &asked(Objective::Throughput), &options);
    assert!(free.expect("it fits").target.stages.iter().all(|s| s.device.node != node_id("n01")));
    let pin = Pin { device: device_ref("n01", "d0"), layers: (2..3).into() };
    let pinned = PlanOptions { pins: vec![pin], ..asked(Objective::Throughput) };
    let made = rebalance_plan(&current, &cluster, &workload, &EngineRules::none(), &pinned, &options);
    let made = made.expect("it fits");
    let stage = made.target.stages.iter().find(|s| s.device.node == node_id("n01")).expect("it is used");
    assert_eq!(stage.layers, 2..3);
}

#[test]
fn moves_under_way_count_and_are_not_moved_again() {
    let (mut cluster, workload, current) = even();
    cluster.generation = SECOND;
    cluster.nodes[3].drained = true;
    let options = asked(Objective::Throughput);
    let two = NonZeroU32::new(2).expect("not zero");
    let first = rebalanced(&current, &cluster, &workload, &options, &quietly()).expect("it fits");
    let Some(Step::Move { what, from, to, .. }) = steps(&first)
        .into_iter()
        .find(|s| matches!(s, Step::Move { from, .. } if from.node == node_id("n03")))
    else {
        panic!("the drained device sends something");
    };
    let moving = InFlight { what: *what, from: from.clone(), to: to.clone() };
    let busy = RebalanceOptions { in_flight: vec![moving.clone()], ..quietly() };
    assert_eq!(
        refused(&current, &cluster, &workload, &busy),
        "1 moves are in flight and at most 1 are allowed at once"
    );
    let more = RebalanceOptions { max_concurrent: two, ..busy };
    let second = rebalanced(&current, &cluster, &workload, &options, &more).expect("it fits");
    for step in steps(&second) {
        if let Step::Move { what, .. } = step {
            let apart =
                what.layers.end <= moving.what.layers.start || moving.what.layers.end <= what.layers.start;
            assert!(apart, "{step:?}");
        }
    }
    let there = second.target.stages.iter().find(|s| s.device == moving.to).expect("it is used");
    assert!(there.layers.start <= moving.what.layers.start && moving.what.layers.end <= there.layers.end);
    assert_eq!(second.bytes().checked_add(Bytes::new(20)), Some(first.bytes()));
    let rounds = &second.schedule.as_ref().expect("there is a way").rounds;
    assert!(rounds.iter().all(|round| round.steps.len() <= 1));
    // A move that does not start where the plan has its layers is somebody else's.
    let wrong = InFlight { from: device_ref("n00", "d0"), ..moving };
    let wrong = RebalanceOptions { in_flight: vec![wrong], max_concurrent: two, ..quietly() };
    assert!(refused(&current, &cluster, &workload, &wrong).contains("does not start from the plan in force"));
}

#[test]
fn a_source_keeps_what_is_under_way() {
    // Two devices swap nothing: what leaves the first one is still there until it has arrived.
    let cluster = devices(&[40, 60]);
    let workload = layers(&[10; 4]);
    let options = asked(Objective::Balanced);
    let current = plan(&devices(&[40, 40]), &workload, &EngineRules::none(), &options).expect("it fits");
    assert_eq!(current.stages[0].layers, 0..2);
    let mut later = cluster;
    later.generation = SECOND;
    later.nodes[0].pools[0].free = Some(Bytes::new(20));
    later.nodes[0].pools[0].total = Bytes::new(20);
    let moving = InFlight {
        what: Piece { layers: (1..2).into(), input: false, head: false },
        from: current.stages[0].device.clone(),
        to: current.stages[1].device.clone(),
    };
    let more = RebalanceOptions {
        in_flight: vec![moving],
        max_concurrent: NonZeroU32::new(4).expect("not zero"),
        ..quietly()
    };
    let made = rebalanced(&current, &later, &workload, &options, &more).expect("it fits");
    let first = &made.target.stages[0];
    assert!(first.used_bytes() <= Bytes::new(10), "{first:?}");
}

#[test]
fn the_order_in_which_devices_are_listed_makes_no_difference() {
    let mut cluster = devices(&[40, 40, 40]);
    let extra = cluster.nodes[1].devices[0].clone();
    let mut pool = cluster.nodes[1].pools[0].clone();
    pool.id = plimsoll_units::PoolId::new("q").expect("a name");
    cluster.nodes[1].pools.push(pool.clone());
    cluster.nodes[1].devices.push(plimsoll_cluster::Device {
        id: plimsoll_units::DeviceId::new("d1").expect("a name"),
        pool: pool.id,
        ..extra
    });
    let workload = layers(&[9, 3, 4, 8, 7, 6, 5, 2]);
    let options = asked(Objective::Throughput);
    let current = plan(&cluster, &workload, &EngineRules::none(), &options).expect("it fits");
    cluster.generation = SECOND;
    cluster.nodes[0].devices[0].bandwidth = Some(BytesPerSec::new(300_000_000));
    let mut turned = cluster.clone();
    turned.nodes[1].devices.reverse();
    turned.nodes[1].pools.reverse();
    let made = |cluster| {
        let made = rebalanced(&current, cluster, &workload, &options, &RebalanceOptions::default());
        let made = made.expect("it fits");
        (made.target, made.moved_bytes, made.schedule.map(|s| s.rounds))
    };
    assert_eq!(made(&cluster), made(&turned));
}

#[test]
fn a_better_order_is_proposed_with_its_bytes() {
    // One large layer at the end, and the small device is last.
    let mut cluster = devices(&[30, 10]);
    let workload = layers(&[5, 5, 20]);
    let options = asked(Objective::Balanced);
    let roomy = devices(&[30, 30]);
    let placement = plimsoll_balance::Placement {
        on_host: 0,
        devices: vec![(device_ref("n00", "d0"), 0..2), (device_ref("n01", "d0"), 2..3)],
        moved: vec![],
    };
    let rules = EngineRules::none();
    let current = plimsoll_balance::price(&roomy, &workload, &rules, &options, &placement, 0.0);
    let current = current.expect("it is a placement").plan;
    cluster.generation = SECOND;
    let made = rebalanced(&current, &cluster, &workload, &options, &RebalanceOptions::default());
    let made = made.expect("it fits on the first device");
    let proposal = made.proposal.as_ref().expect("another order is better");
    assert!(proposal.plan.value.value < made.after.value);
    assert!(proposal.bytes >= made.bytes());
}

#[test]
fn an_empty_model_moves_nothing() {
    let cluster = devices(&[10]);
    let workload = layers(&[]);
    let options = asked(Objective::Throughput);
    let current = plan(&cluster, &workload, &EngineRules::none(), &options).expect("there is nothing");
    let made = rebalanced(&current, &cluster, &workload, &options, &quietly()).expect("there is nothing");
    assert_eq!(made.bytes(), Bytes::ZERO);
    assert!(steps(&made).is_empty());
}

#[test]
fn sizes_near_the_end_of_the_numbers_do_not_wrap() {
    let half = u64::MAX / 2 - 8;
    let mut cluster = devices(&[u64::MAX, u64::MAX]);
    let workload = layers(&[half, half]);
    let options = asked(Objective::Throughput);
    let current = plan(&cluster, &workload, &EngineRules::none(), &options).expect("it fits");
    cluster.generation = SECOND;
    cluster.nodes[0].drained = true;
    let made = rebalanced(&current, &cluster, &workload, &options, &quietly()).expect("it fits");
    assert_eq!(made.moved_bytes, Bytes::new(half));
}

#[test]
fn moves_over_the_same_devices_wait_only_for_what_has_to_leave_first() {
    let moves = moves_in_order(&[4, 8, 12], &[2, 6, 12], 8);
    let told: Vec<_> = moves.iter().map(|m| (m.layers.clone(), m.from, m.to, m.round)).collect();
    assert_eq!(told, [(6..8, 1, 2, 0), (2..4, 0, 1, 1)]);
    let one_by_one = moves_in_order(&[4, 8, 12], &[6, 8, 8], 1);
    assert_eq!(one_by_one.iter().map(|m| m.round).collect::<Vec<_>>(), [0]);
}
