//! The door: a snapshot and a workload in, a plan or the reasons why there is none out.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_cluster::speeds::AssumedBy;
use plimsoll_units::DeviceRef;

use crate::assemble::Assembled;
use crate::context::Context;
use crate::error::PlanError;
use crate::experts::{self, Outcome};
use crate::keep::TIE;
use crate::plan::{Assumption, Optimality, Plan, PlanValue, Stage};
use crate::search::Search;
use crate::workload::{EngineRules, PlanOptions, Workload};
use crate::{pipelines, refuse, stopped};

/// What floating point may have taken from a bound that is reached, and what a plan that was taken on a tie may lie above
/// the least value.
const ROUNDING: f64 = 2.0 * TIE;

/// Where everything goes under an engine's rules, or why it goes nowhere.
///
/// Pure: the same input gives the same plan, and except under [`Strategy::GivenOrder`](crate::Strategy::GivenOrder) the
/// order in which the snapshot lists nodes and devices makes no difference.
///
/// Among plans of the same value the one with the smaller next largest stage times or shares is taken (not for latency),
/// then fewer layers on the main host, fewer devices, and the smaller device names. Where speeds do not count (fit,
/// balanced) or are not known, layers lie on the main host only where no device takes them, before anything else.
///
/// A stage's time is what a token reads of its layers and of the head, divided by the device's bandwidth.
/// [`PlanOptions::transfers`] says whether what passes between stages counts as well.
///
/// # Errors
///
/// An inconsistent input, or nothing to place layers on, or layers that do not fit: see [`PlanError`].
pub fn plan(
    snapshot: &ClusterSnapshot,
    workload: &Workload,
    rules: &EngineRules,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    pipelines::check(rules, options)?;
    experts::check(workload, rules)?;
    let context = Context::new(snapshot, workload, rules, options)?;
    let host_takes_layers = context.fleet.host.as_ref().is_some_and(|host| host.takes_layers);
    if context.fleet.devices.is_empty() && !host_takes_layers {
        return Err(PlanError::NoDevices { stopped: context.fleet.left_out.clone() });
    }
    if context.items.layers() == 0 {
        return Ok(empty(&context));
    }
    let (best, search) = if options.pipelines.may_be_several() {
        pipelines::run(&context)
    } else {
        let mut search = Search::run(&context);
        (search.best(), search)
    };
    let moved = experts::moved(&context, best.as_ref());
    let (lower, stands) = match &moved {
        Some(moved) if moved.whole_stands => (search.lower.min(moved.lower), true),
        Some(moved) => (moved.lower, false),
        None => (search.lower, true),
    };
    let unmoved =
        |looked_at| Box::new(refuse::with_parts(refuse::refusal(&context, &search), &context, looked_at));
    match (moved, best) {
        (Some(Outcome { better: Some((best, overrides)), .. }), _) => {
            Ok(Plan { overrides, ..finished(&context, &best, lower) })
        }
        (_, Some(best)) if stands => Ok(finished(&context, &best, lower)),
        (moved, _) => Err(PlanError::DoesNotFit(unmoved(moved.map(|moved| moved.complete)))),
    }
}

fn empty(context: &Context<'_>) -> Plan {
    Plan {
        basis: context.snapshot.generation,
        objective: context.options.objective,
        strategy: context.options.strategy,
        stages: Vec::new(),
        overrides: Vec::new(),
        parts: context.options.parts.clone(),
        value: PlanValue { value: Some(0.0), lower_bound: Some(0.0), optimality: Optimality::Proven },
        assumed: Vec::new(),
        stopped: context.fleet.left_out.clone(),
    }
}

pub(crate) fn finished(context: &Context<'_>, best: &Assembled, lower: f64) -> Plan {
    Plan {
        basis: context.snapshot.generation,
        objective: context.options.objective,
        strategy: context.options.strategy,
        stages: best.stages.clone(),
        overrides: Vec::new(),
        parts: context.options.parts.clone(),
        value: valued(context, best.value, lower),
        assumed: assumed(context, &best.stages),
        stopped: stopped::of_plan(context, best),
    }
}

fn valued(context: &Context<'_>, value: f64, lower: f64) -> PlanValue {
    if context.timed() && context.equal_speeds {
        return PlanValue { value: None, lower_bound: None, optimality: Optimality::Unproven };
    }
    let lower = lower.clamp(0.0, value);
    let (lower, optimality) = if lower >= value * (1.0 - ROUNDING) {
        (value, Optimality::Proven)
    } else if lower > 0.0 {
        (lower, Optimality::Within(value / lower - 1.0))
    } else {
        (lower, Optimality::Unproven)
    };
    PlanValue { value: Some(value), lower_bound: Some(lower), optimality }
}

/// What the plan rests on that the snapshot does not say.
///
/// Speeds of all devices that could hold something where speed decides; otherwise only of those that do.
fn assumed(context: &Context<'_>, stages: &[Stage]) -> Vec<Assumption> {
    let holding = stages.iter().filter(|stage| stage.head || !stage.layers.is_empty());
    let used: BTreeSet<&DeviceRef> = holding.map(|stage| &stage.device).collect();
    let mut places: Vec<_> = context.places().collect();
    places.sort_by(|a, b| a.device.cmp(&b.device));
    let mut assumed = Vec::new();
    for place in places {
        let device = &place.device;
        match place.speed {
            None => {
                assumed.push(Assumption::UnknownSpeed { device: device.clone() });
            }
            Some(speed) if !context.equal_speeds && (context.timed() || used.contains(device)) => {
                if let Some(by) = speed.assumed {
                    let by_name = by == AssumedBy::Name;
                    assumed.push(Assumption::Bandwidth { device: device.clone(), rate: speed.rate, by_name });
                }
            }
            Some(_) => {}
        }
    }
    let mut links = BTreeMap::new();
    for pair in stages.windows(2).filter(|pair| pair[0].pipeline == pair[1].pipeline) {
        for (between, way) in context.links.passed(&pair[0].device.node, &pair[1].device.node) {
            if way.assumed {
                links.insert(between.map(Clone::clone), way);
            }
        }
    }
    let links = links.into_iter();
    assumed.extend(links.map(|(between, way)| Assumption::Link {
        between,
        rate: way.rate,
        latency: way.latency,
    }));
    assumed
}
