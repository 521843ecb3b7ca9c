//! Checks a plan from scratch.
//!
//! Nothing here is shared with the planners but the plain data: what a plan claims is added up again, layer by layer,
//! pool by pool.

mod finding;
mod numbers;
mod overrides;
mod passing;
mod pipelines;
mod places;

pub use finding::{Amount, End, Finding};

use plimsoll_cluster::{ClusterSnapshot, Node};
use plimsoll_model::{Footprint, LayerSpec};

use crate::plan::{Optimality, Plan, Stage};
use crate::workload::{EngineRules, PlanOptions, Workload};

/// How far a recomputed time or share may lie from the claimed one, relative to it.
const TOLERANCE: f64 = 1e-9;

/// Checks a plan against what it was made for: cover, order and legal cuts of every pipeline, what an engine allows, every pool and limit,
/// and every number it claims.
///
/// # Errors
///
/// Everything that is wrong, in the order of the stages.
pub fn audit(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    workload: &Workload,
    rules: &EngineRules,
    options: &PlanOptions,
) -> Result<(), Vec<Finding>> {
    let mut findings = Vec::new();
    if plan.basis != snapshot.generation {
        findings.push(Finding::Basis { plan: plan.basis, snapshot: snapshot.generation });
    }
    if plan.objective != options.objective || plan.strategy != options.strategy {
        findings.push(Finding::OtherRequest);
    }
    let case = Case::new(plan, snapshot, workload, rules, options);
    case.pipelines(&mut findings);
    case.order(&mut findings);
    case.places(&mut findings);
    case.pins(&mut findings);
    case.overrides(&mut findings);
    case.parts_beside(&mut findings);
    // What follows adds up what the stages hold: only where these can be told.
    if findings.is_empty() {
        case.stages(&mut findings);
        case.assumptions(&mut findings);
        case.value(&mut findings);
        case.stops(&mut findings);
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// What is checked.
struct Case<'a> {
    plan: &'a Plan,
    snapshot: &'a ClusterSnapshot,
    workload: &'a Workload,
    rules: &'a EngineRules,
    options: &'a PlanOptions,
    /// The node that runs the engine, where one has to.
    main: Option<&'a Node>,
    /// Each footprint's layers, by index.
    layers: Vec<Vec<LayerSpec>>,
    /// The stages of each pipeline: stages in a row with the same number.
    lines: Vec<&'a [Stage]>,
}

impl<'a> Case<'a> {
    fn new(
        plan: &'a Plan,
        snapshot: &'a ClusterSnapshot,
        workload: &'a Workload,
        rules: &'a EngineRules,
        options: &'a PlanOptions,
    ) -> Self {
        let sorted = |footprint: &Footprint| {
            let mut layers = footprint.layers.clone();
            layers.sort_by_key(|layer| layer.index);
            layers
        };
        let layers = workload.footprints.iter().map(sorted).collect();
        let lines = plan.stages.chunk_by(|a, b| a.pipeline == b.pipeline).collect();
        Self { plan, snapshot, workload, rules, options, main: places::main(snapshot, rules), layers, lines }
    }

    /// The claim of how good the plan is.
    fn value(&self, findings: &mut Vec<Finding>) {
        let claim = self.plan.value;
        let actual = self.actual_value();
        let far = |a: f64, b: f64| (a - b).abs() > TOLERANCE * a.abs().max(b.abs());
        match (claim.value, actual) {
            (Some(claimed), Some(actual)) if !claimed.is_finite() || far(claimed, actual) => {
                findings.push(Finding::Value { claimed: claim.value, actual: Some(actual) });
            }
            (Some(_), Some(_)) | (None, None) => {}
            (claimed, actual) => findings.push(Finding::Value { claimed, actual }),
        }
        let sound = match (claim.value, claim.lower_bound, claim.optimality) {
            (None, None, Optimality::Unproven) => true,
            (Some(value), Some(lower), optimality) => {
                let below = lower >= 0.0 && lower <= value;
                below
                    && match optimality {
                        Optimality::Proven => !far(lower, value),
                        Optimality::Within(gap) => gap > 0.0 && !far(lower * (1.0 + gap), value),
                        Optimality::Unproven => true,
                    }
            }
            _ => false,
        };
        if !sound {
            findings.push(Finding::Optimality);
        }
    }
}
