//! From the plan in force to a better one with few bytes moved.

mod cut;
mod error;
mod find;
mod given;
mod hysteresis;
mod in_order;
mod line;
mod mover;
mod plot;
mod schedule;
mod stream;
mod table;
mod told;
mod types;
mod yard;

pub use error::RebalanceError;
pub use hysteresis::{Decision, Hold, Hysteresis, decide};
pub use in_order::{InOrder, RunMove, moves_in_order};
pub use types::{
    Blocked, InFlight, LinkUse, Piece, PoolPeak, Proposal, Rebalance, RebalanceOptions, Round, Schedule,
    Score, Step, TimedStep, Trade,
};

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::{Bytes, DeviceRef};

use self::find::{Finder, Found};
use self::given::{Given, Lay};
use crate::assemble::Draft;
use crate::context::Context;
use crate::door;
use crate::error::PlanError;
use crate::keep::as_good_as;
use crate::plan::{Optimality, Plan};
use crate::workload::{EngineRules, MoveWhen, PlanOptions, Workload};

/// The tolerances that [`Rebalance::trades`] lists.
const TOLERANCES: [f64; 5] = [0.0, 0.01, 0.02, 0.05, 0.1];

/// From the plan in force to one that is almost as good as the best in its order, with as few bytes moved as that takes.
///
/// The target keeps the order of the plan's devices. Devices that may no longer be used (lost, failed, drained, not asked
/// for, capped to nothing) hold nothing in it; devices that the plan does not use may come in, the fastest first, side by
/// side at whichever place among the others is best (only at the ends where there are very many). Its value is at most
/// (1 + tolerance) times the best in any of these orders, and of all such targets it has the fewest bytes to move and to
/// load. For the objectives throughput, balanced and fit that is exact as long as no two devices share a pool; for latency
/// it is what a price on bytes finds, unproven. What moves are layers with their key-value cells, the input and the head;
/// copies that every used device keeps, and the engine's buffers, are made where they are needed and count only as room.
///
/// The snapshot's pools must count what the plan in force holds (`held`): a budget is what may lie there in all.
///
/// Pure, as [`plan`](crate::plan()) is. Every target passes [`audit`](crate::audit()).
///
/// # Errors
///
/// A plan made for other layers, for other bytes, from a newer snapshot, or with devices that were never there; as many
/// moves in flight as may be; and whatever [`plan`](crate::plan()) refuses, when nothing fits in any order.
pub fn rebalance_plan(
    current: &Plan,
    snapshot: &ClusterSnapshot,
    workload: &Workload,
    rules: &EngineRules,
    plan_options: &PlanOptions,
    options: &RebalanceOptions,
) -> Result<Rebalance, RebalanceError> {
    let emptied;
    let snapshot = if options.lost.is_empty() {
        snapshot
    } else {
        emptied = without_room_on(snapshot, options);
        &emptied
    };
    let apart: usize = current.overrides.iter().map(|moved| moved.layers.len()).sum();
    let always = workload.movable.as_ref().is_some_and(|movable| movable.when == MoveWhen::Always);
    if apart > 0 || always {
        return Err(RebalanceError::PartsApart { layers: apart });
    }
    // Whole layers in force, and whole layers to come.
    let whole = Workload { movable: None, ..workload.clone() };
    let workload = &whole;
    let context = Context::new(snapshot, workload, rules, plan_options)?;
    let given = Given::read(&context, current, options)?;
    if context.items.layers() == 0 {
        return empty(&given);
    }
    let finder = Finder::new(&given);
    let Some((cuts, best)) = finder.best() else {
        return in_another_order(&given, options);
    };
    let at = |tolerance: f64| finder.fewest(&cuts, best * (1.0 + tolerance));
    let Some(target) = at(options.tolerance) else {
        return in_another_order(&given, options);
    };
    let trades = trades(&context, &at);
    let global =
        if options.propose { crate::plan(snapshot, workload, rules, plan_options).ok() } else { None };
    let proposal = global.as_ref().filter(|plan| {
        let better = plan.value.value.zip(told(&context, best));
        let host_last = context.host_comes_last();
        let on_host = |stage: &crate::plan::Stage| {
            u32::from(stage.device == host_of(&given)) * (stage.layers.end - stage.layers.start)
        };
        let less_host = host_last && context.fleet.host.is_some() && {
            let theirs: u32 = plan.stages.iter().map(on_host).sum();
            let ours: u32 = target.plan.stages.iter().map(on_host).sum();
            theirs < ours
        };
        less_host || better.is_some_and(|(value, best)| as_good_as(value) < best)
    });
    let proposal = proposal.map(|plan| proposed(&given, plan, options));
    let lower = global.as_ref().and_then(|plan| plan.value.lower_bound).unwrap_or(0.0);
    Ok(finished(&given, &target, Some(best), lower, true, trades, proposal, options))
}

fn host_of(given: &Given<'_>) -> DeviceRef {
    given
        .context
        .fleet
        .host
        .as_ref()
        .map_or_else(|| given.places[0].device.clone(), |host| host.place.device.clone())
}

/// The snapshot with no room on devices whose contents are lost: they may well be lost themselves.
fn without_room_on(snapshot: &ClusterSnapshot, options: &RebalanceOptions) -> ClusterSnapshot {
    let mut snapshot = snapshot.clone();
    for node in &mut snapshot.nodes {
        let id = node.id.clone();
        for device in &mut node.devices {
            if options.lost.contains(&DeviceRef { node: id.clone(), device: device.id.clone() }) {
                device.limit = Some(Bytes::ZERO);
            }
        }
    }
    snapshot
}

/// A value in the objective's unit, where there is one.
fn told(context: &Context<'_>, value: f64) -> Option<f64> {
    let unknown = context.timed() && context.equal_speeds;
    (!unknown).then_some(value)
}

fn empty(given: &Given<'_>) -> Result<Rebalance, RebalanceError> {
    let context = given.context;
    let target = crate::plan(context.snapshot, context.workload, context.rules, context.options)?;
    let score = Score { value: target.value.value, fits: true };
    let schedule = Schedule {
        rounds: Vec::new(),
        seconds: Some(0.0),
        peaks: Vec::new(),
        extra_bytes: Bytes::ZERO,
        guaranteed: true,
    };
    Ok(Rebalance {
        best_value: target.value.value,
        target,
        moved_bytes: Bytes::ZERO,
        loaded_bytes: Bytes::ZERO,
        bytes_lower_bound: Bytes::ZERO,
        bytes_optimality: Optimality::Proven,
        order_kept: true,
        before: score.clone(),
        after: score,
        stays: Vec::new(),
        schedule: Ok(schedule),
        trades: Vec::new(),
        proposal: None,
    })
}

/// Nothing in the order of the plan fits: the target is the best plan in any order.
fn in_another_order(given: &Given<'_>, options: &RebalanceOptions) -> Result<Rebalance, RebalanceError> {
    let context = given.context;
    if !options.in_flight.is_empty() {
        return Err(RebalanceError::InFlightBlock { moves: options.in_flight.len() });
    }
    let plan = crate::plan(context.snapshot, context.workload, context.rules, context.options)?;
    let draft = draft(given, &plan)
        .ok_or_else(|| PlanError::NoDevices { stopped: context.fleet.left_out.clone() })?;
    let (assembled, _) = draft.measure(context);
    let lay = find::lay(given, &assembled);
    let (moved, loaded) = given.bytes(&lay);
    let lower = plan.value.lower_bound.unwrap_or(0.0);
    let found = Found { plan: assembled, lay, moved, loaded, exact: false };
    Ok(finished(given, &found, None, lower, false, Vec::new(), None, options))
}

/// A plan as a draft; `None` where it has a device that may not be used.
fn draft(given: &Given<'_>, plan: &Plan) -> Option<Draft> {
    let context = given.context;
    let base = context.items.index(0);
    let at = |index: u32| usize::try_from(index.saturating_sub(base)).unwrap_or(usize::MAX);
    let mut draft = Draft { host: 0, devices: Vec::new() };
    for (number, stage) in plan.stages.iter().enumerate() {
        let place = &given.places[given.number(&stage.device)?];
        match place.candidate? {
            None if number == 0 => draft.host = at(stage.layers.end),
            None => return None,
            Some(device) => {
                draft.devices.push((device, at(stage.layers.start)..at(stage.layers.end), stage.head));
            }
        }
    }
    let host = context.fleet.host.as_ref();
    let begins = host.is_none_or(|host| plan.stages.first().is_some_and(|s| s.device == host.place.device));
    (begins && (host.is_none_or(|host| host.takes_layers) || draft.host == 0)).then_some(draft)
}

fn proposed(given: &Given<'_>, plan: &Plan, options: &RebalanceOptions) -> Proposal {
    let lay = draft(given, plan)
        .map_or_else(|| Lay { runs: Vec::new() }, |draft| find::lay(given, &draft.measure(given.context).0));
    let (moved, loaded) = given.bytes(&lay);
    Proposal {
        plan: plan.clone(),
        bytes: Bytes::new(moved.saturating_add(loaded)),
        schedule: schedule::schedule(given, &lay, options),
    }
}

/// What every tolerance would cost and give.
fn trades(context: &Context<'_>, at: &impl Fn(f64) -> Option<Found>) -> Vec<Trade> {
    let found = TOLERANCES.iter().filter_map(|&tolerance| at(tolerance).map(|found| (tolerance, found)));
    let mut trades: Vec<(Trade, f64)> = found
        .map(|(tolerance, found)| {
            let value = told(context, found.plan.value);
            let bytes = Bytes::new(found.bytes());
            (Trade { tolerance, bytes, value, dominated: false }, found.plan.value)
        })
        .collect();
    for at in 0..trades.len() {
        let (bytes, value) = (trades[at].0.bytes, trades[at].1);
        let dominated = trades.iter().enumerate().any(|(other, (trade, theirs))| {
            let no_worse = trade.bytes <= bytes && *theirs <= value;
            let less = trade.bytes < bytes || *theirs < value;
            // Of equal ones the first stands for all.
            no_worse && (less || other < at)
        });
        trades[at].0.dominated = dominated;
    }
    trades.into_iter().map(|(trade, _)| trade).collect()
}

#[expect(clippy::too_many_arguments, reason = "everything that a result is put together from, once")]
fn finished(
    given: &Given<'_>,
    target: &Found,
    best: Option<f64>,
    lower: f64,
    order_kept: bool,
    trades: Vec<Trade>,
    proposal: Option<Proposal>,
    options: &RebalanceOptions,
) -> Rebalance {
    let context = given.context;
    let plan = door::finished(context, &target.plan, lower);
    let forced = given.forced().min(target.bytes());
    let bound = if target.exact { target.bytes() } else { forced };
    let optimality = if bound == target.bytes() {
        Optimality::Proven
    } else if bound > 0 {
        Optimality::Within(Bytes::new(target.bytes()).as_f64() / Bytes::new(bound).as_f64() - 1.0)
    } else {
        Optimality::Unproven
    };
    Rebalance {
        moved_bytes: Bytes::new(target.moved),
        loaded_bytes: Bytes::new(target.loaded),
        bytes_lower_bound: Bytes::new(bound),
        bytes_optimality: optimality,
        best_value: best.and_then(|best| told(context, best)),
        order_kept,
        before: before(given),
        after: Score { value: plan.value.value, fits: true },
        target: plan,
        stays: stays(given, &target.lay),
        schedule: schedule::schedule(given, &target.lay, options),
        trades,
        proposal,
    }
}

/// The plan in force on the snapshot of now.
fn before(given: &Given<'_>) -> Score {
    let context = given.context;
    let mut draft = Draft { host: 0, devices: Vec::new() };
    let none = Score { value: None, fits: false };
    let parts = given.parts();
    for (number, run) in given.old.runs.iter().enumerate() {
        let layers = given.layers(&run.parts);
        match given.places[run.place].candidate {
            Some(None) if number == 0 => draft.host = layers.end,
            Some(Some(device)) => draft.devices.push((device, layers, run.parts.end == parts)),
            Some(None) | None => return none,
        }
    }
    let host = given.of_host();
    if host.is_some() && given.old.runs.first().map(|run| run.place) != host {
        return none;
    }
    let (assembled, short) = draft.measure(context);
    Score { value: told(context, assembled.value), fits: short == 0 }
}

/// What stays where it is.
fn stays(given: &Given<'_>, target: &Lay) -> Vec<(DeviceRef, Piece)> {
    let mut stays = Vec::new();
    for (place, parts) in given.settled() {
        for run in target.runs.iter().filter(|run| run.place == place) {
            let both = parts.start.max(run.parts.start)..parts.end.min(run.parts.end);
            if !both.is_empty() {
                stays.push((given.places[place].device.clone(), given.piece(&both)));
            }
        }
    }
    stays
}
