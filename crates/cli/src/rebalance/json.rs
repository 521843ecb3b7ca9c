//! A rebalancing for programs.

use plimsoll::Rebalanced;
use plimsoll::balance::{Optimality, Piece, Round, Schedule, Score, Step, TimedStep, Trade};
use plimsoll::export::PlanFile;
use serde::Serialize;

use crate::args::RebalanceArgs;
use crate::failure::{Failure, Outcome};

#[derive(Serialize)]
struct Record<'a> {
    format: &'a str,
    model: &'a str,
    holds: bool,
    findings: &'a [String],
    tolerance: f64,
    order_kept: bool,
    before: ScoreRecord,
    after: ScoreRecord,
    best_value: Option<f64>,
    total_bytes: u64,
    moved_bytes: u64,
    loaded_bytes: u64,
    bytes_lower_bound: u64,
    bytes_proven: bool,
    schedule: Option<ScheduleRecord>,
    blocked: Option<BlockedRecord>,
    trades: Vec<TradeRecord>,
    proposal: Option<ProposalRecord>,
    plan: PlanFile,
}

/// The value is in the objective's unit, as in a plan file.
#[derive(Serialize)]
struct ScoreRecord {
    value: Option<f64>,
    fits: bool,
}

#[derive(Serialize)]
struct ScheduleRecord {
    seconds: Option<f64>,
    extra_bytes: u64,
    guaranteed: bool,
    rounds: Vec<RoundRecord>,
}

#[derive(Serialize)]
struct RoundRecord {
    seconds: Option<f64>,
    steps: Vec<StepRecord>,
}

/// `what` is `move`, `spill`, `drop`, `load` or `charge`; of a charge, `from_bytes` are what it was before.
#[derive(Default, Serialize)]
struct StepRecord {
    what: &'static str,
    layers: Option<[u32; 2]>,
    input: bool,
    head: bool,
    from: Option<String>,
    to: Option<String>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_bytes: Option<u64>,
    seconds: Option<f64>,
}

#[derive(Serialize)]
struct BlockedRecord {
    cycle: Vec<String>,
    scratch_bytes: u64,
}

#[derive(Serialize)]
struct TradeRecord {
    tolerance: f64,
    bytes: u64,
    value: Option<f64>,
    dominated: bool,
}

#[derive(Serialize)]
struct ProposalRecord {
    value: Option<f64>,
    bytes: u64,
    order: Vec<String>,
    seconds: Option<f64>,
}

pub(super) fn record(args: &RebalanceArgs, done: &Rebalanced, plan: PlanFile, broken: &[String]) -> Outcome {
    let rebalance = &done.rebalance;
    let score = |score: &Score| ScoreRecord { value: score.value, fits: score.fits };
    let schedule = rebalance.schedule.as_ref();
    let record = Record {
        format: "plimsoll.rebalance/1",
        model: done.planned.name(),
        holds: broken.is_empty(),
        findings: broken,
        tolerance: args.tolerance,
        order_kept: rebalance.order_kept,
        before: score(&rebalance.before),
        after: score(&rebalance.after),
        best_value: rebalance.best_value,
        total_bytes: done.total.get(),
        moved_bytes: rebalance.moved_bytes.get(),
        loaded_bytes: rebalance.loaded_bytes.get(),
        bytes_lower_bound: rebalance.bytes_lower_bound.get(),
        bytes_proven: rebalance.bytes_optimality == Optimality::Proven,
        schedule: schedule.ok().map(schedule_record),
        blocked: schedule.err().map(|blocked| BlockedRecord {
            cycle: blocked.cycle.iter().map(ToString::to_string).collect(),
            scratch_bytes: blocked.scratch_bytes.get(),
        }),
        trades: rebalance.trades.iter().map(trade).collect(),
        proposal: rebalance.proposal.as_ref().map(|proposal| ProposalRecord {
            value: proposal.plan.value.value,
            bytes: proposal.bytes.get(),
            order: proposal.plan.stages.iter().map(|stage| stage.device.to_string()).collect(),
            seconds: proposal.schedule.as_ref().ok().and_then(|schedule| schedule.seconds),
        }),
        plan,
    };
    Ok(serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n")
}

fn trade(trade: &Trade) -> TradeRecord {
    let Trade { tolerance, bytes, value, dominated } = *trade;
    TradeRecord { tolerance, bytes: bytes.get(), value, dominated }
}

fn schedule_record(schedule: &Schedule) -> ScheduleRecord {
    let round =
        |round: &Round| RoundRecord { seconds: round.seconds, steps: round.steps.iter().map(step).collect() };
    ScheduleRecord {
        seconds: schedule.seconds,
        extra_bytes: schedule.extra_bytes.get(),
        guaranteed: schedule.guaranteed,
        rounds: schedule.rounds.iter().map(round).collect(),
    }
}

fn step(timed: &TimedStep) -> StepRecord {
    let of = |what: &Piece| StepRecord {
        layers: (what.layers.start < what.layers.end).then_some([what.layers.start, what.layers.end]),
        input: what.input,
        head: what.head,
        seconds: timed.seconds,
        ..StepRecord::default()
    };
    match &timed.step {
        Step::Move { what, from, to, bytes } => StepRecord {
            what: "move",
            from: Some(from.to_string()),
            to: Some(to.to_string()),
            bytes: bytes.get(),
            ..of(what)
        },
        Step::Spill { what, from, to, bytes } => StepRecord {
            what: "spill",
            from: Some(from.to_string()),
            to: Some(to.to_string()),
            bytes: bytes.get(),
            ..of(what)
        },
        Step::Drop { what, from, bytes, kv_bytes } => StepRecord {
            what: "drop",
            from: Some(from.to_string()),
            bytes: bytes.get(),
            kv_bytes: Some(kv_bytes.get()),
            ..of(what)
        },
        Step::Load { what, to, bytes } => {
            StepRecord { what: "load", to: Some(to.to_string()), bytes: bytes.get(), ..of(what) }
        }
        Step::Charge { device, from, to } => StepRecord {
            what: "charge",
            to: Some(device.to_string()),
            bytes: to.get(),
            from_bytes: Some(from.get()),
            seconds: timed.seconds,
            ..StepRecord::default()
        },
    }
}
