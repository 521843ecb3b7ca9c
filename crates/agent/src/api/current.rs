//! The plan in force.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use plimsoll::balance::{PlanError, Rebalance, Step};
use plimsoll::export::PlanFile;
use plimsoll::units::{Bytes, DeviceRef};
use plimsoll::{Remedy, Standing};
use serde::{Deserialize, Serialize, Serializer};

use super::read;
use crate::app::{AdoptError, App};
use crate::error::{ApiError, chain};

/// The plan in force, and how it stands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CurrentRecord {
    /// `plimsoll.current/1`.
    format: &'static str,
    /// Which plan of the cluster it is: each that comes later is one more. Null without a plan, and where no cluster was joined.
    number: Option<u64>,
    /// How it stands; null without a plan.
    standing: Option<StandingRecord>,
    /// The plan as it was given (`plimsoll.plan/1`); null without one.
    #[schema(value_type = Option<Object>)]
    #[serde(serialize_with = "shared")]
    plan: Option<Arc<PlanFile>>,
}

/// How a plan stands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StandingRecord {
    /// At which generation of the cluster it was audited.
    generation: u64,
    /// Whether it holds.
    holds: bool,
    /// The same in a sentence.
    text: String,
    /// Why it does not hold.
    findings: Vec<String>,
    /// What has changed since it was made and leaves it standing.
    changed: Vec<String>,
    /// What to do.
    remedy: RemedyRecord,
}

/// What to do about a plan.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct RemedyRecord {
    /// `keep`, `rebalance` (move and load what `steps` says), `restart` (load `stages` anew), `replan` (it was made
    /// of a cluster that is another one now: make it again) or `stop`.
    action: &'static str,
    /// Why it can only be stopped.
    why: Option<String>,
    /// How much moves between devices.
    moved_bytes: u64,
    /// How much is loaded from where the model is stored.
    loaded_bytes: u64,
    /// What to do, in order; empty where moves wait for each other.
    steps: Vec<StepRecord>,
    /// Where everything lies then.
    stages: Vec<StageRecord>,
}

/// One thing to do.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StepRecord {
    /// `move`, `spill` (aside for a while), `drop` (to be loaded again), `load`, or `charge` (the engine's buffers change).
    action: &'static str,
    /// What of the model.
    what: String,
    /// Where it lies.
    from: Option<String>,
    /// Where it goes.
    to: Option<String>,
    /// How much it is.
    bytes: u64,
}

/// Layers on one device.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StageRecord {
    /// The device.
    device: String,
    /// The first layer, and the one after the last.
    layers: [u32; 2],
    /// What it takes there.
    bytes: u64,
}

/// Which plan is to go.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replaces {
    /// Its number in the cluster that was joined, 0 for none: where another one is in force, nothing changes.
    replaces: Option<u64>,
}

/// The plan in force, and how it stands.
#[utoipa::path(
    get,
    path = "/v1/plan/current",
    responses((status = 200, description = "The plan in force, or null.", body = CurrentRecord))
)]
pub(super) async fn show(State(app): State<Arc<App>>) -> Response {
    app.aged(Json(current(&app)).into_response())
}

/// Takes a plan into force, as it was answered by `/v1/plan` or saved with `plimsoll plan --out`. It is audited against the
/// cluster as it is now, and from then on whenever that changes. Nothing is loaded, moved or stopped. In a cluster that was
/// joined it is in force for all, in place of plan `replaces`, or of whichever is in force; one that was made before a machine came,
/// was started anew or drained is refused as stale.
#[utoipa::path(
    put,
    path = "/v1/plan/current",
    params(Replaces),
    request_body(content = inline(super::document::PlanDocument), description = "A plan."),
    responses(
        (status = 200, description = "It is in force.", body = CurrentRecord),
        (status = 409, description = "It does not hold in the cluster as it is now; what was in force stays.", body = StandingRecord),
        (status = 400, description = "It is no plan.", body = crate::error::Problem),
        (status = 503, description = "No majority of etcd answers, or the cluster changes too fast.", body = crate::error::Problem),
    )
)]
pub(super) async fn adopt(
    State(app): State<Arc<App>>,
    Query(Replaces { replaces }): Query<Replaces>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read::body(&headers, body, &app.limits).await?;
    let _turn = app.turn().await?;
    let work = Arc::clone(&app).blocking(move |app| {
        let text =
            std::str::from_utf8(&body).map_err(|error| ApiError::input(format!("the body: {error}")))?;
        let file = PlanFile::parse(text).map_err(|error| ApiError::because(&error))?;
        let found: usize = file
            .model
            .runs
            .iter()
            .map(|run| usize::try_from(run.count).unwrap_or(usize::MAX))
            .fold(0, usize::saturating_add);
        if found > app.limits.layers {
            return Err(ApiError::input(format!(
                "the plan has {found} layers, and this agent takes at most {}",
                app.limits.layers
            )));
        }
        match app.adopt(replaces, file, text) {
            Ok(standing) => {
                tracing::info!(generation = standing.generation.get(), "a plan is in force");
                Ok(Json(current(app)).into_response())
            }
            Err(error) => refused(app, error),
        }
    });
    work.await?
}

fn refused(app: &App, error: AdoptError) -> Result<Response, ApiError> {
    let conflict = |record: StandingRecord| Ok((StatusCode::CONFLICT, Json(record)).into_response());
    match error {
        AdoptError::Broken(standing) => conflict(record(&standing)),
        AdoptError::Superseded(text) => conflict(StandingRecord {
            generation: app.snapshot().generation.get(),
            holds: false,
            findings: vec![text.clone()],
            text,
            changed: Vec::new(),
            remedy: nothing("replan"),
        }),
        error @ AdoptError::Format(_) => Err(ApiError::because(&error)),
        error @ (AdoptError::Stale(_) | AdoptError::Unanswered(_)) => Err(ApiError::busy(chain(&error))),
    }
}

/// Forgets the plan in force: in a cluster that was joined for all, plan `replaces` or whichever it is.
#[utoipa::path(
    delete,
    path = "/v1/plan/current",
    params(Replaces),
    responses(
        (status = 200, description = "There is none any more.", body = CurrentRecord),
        (status = 409, description = "Another one is in force.", body = StandingRecord),
        (status = 503, description = "No majority of etcd answers.", body = crate::error::Problem),
    )
)]
pub(super) async fn retire(
    State(app): State<Arc<App>>,
    Query(Replaces { replaces }): Query<Replaces>,
) -> Result<Response, ApiError> {
    let _turn = app.turn().await?;
    let work = Arc::clone(&app).blocking(move |app| match app.retire(replaces) {
        Ok(_) => Ok(Json(current(app)).into_response()),
        Err(error) => refused(app, error),
    });
    work.await?
}

fn shared<S: Serializer>(plan: &Option<Arc<PlanFile>>, serializer: S) -> Result<S::Ok, S::Error> {
    plan.as_deref().serialize(serializer)
}

fn current(app: &App) -> CurrentRecord {
    let plan = app.in_force();
    CurrentRecord {
        format: "plimsoll.current/1",
        number: plan.as_ref().and_then(|plan| plan.number),
        standing: plan.as_ref().map(|plan| record(&plan.standing)),
        plan: plan.map(|plan| plan.file),
    }
}

/// How a plan stands, as it is told.
pub(crate) fn record(standing: &Standing) -> StandingRecord {
    let texts = |findings: &[plimsoll::balance::Finding]| findings.iter().map(ToString::to_string).collect();
    StandingRecord {
        generation: standing.generation.get(),
        holds: standing.holds(),
        text: standing.to_string(),
        findings: texts(&standing.checked.broken),
        changed: texts(&standing.checked.changed),
        remedy: remedy(&standing.remedy),
    }
}

fn remedy(remedy: &Remedy) -> RemedyRecord {
    match remedy {
        Remedy::Keep => nothing("keep"),
        Remedy::Rebalance(to) => RemedyRecord {
            moved_bytes: to.moved_bytes.get(),
            loaded_bytes: to.loaded_bytes.get(),
            steps: steps(to),
            stages: stages(&to.target),
            ..nothing("rebalance")
        },
        Remedy::Restart(plan) => RemedyRecord { stages: stages(plan), ..nothing("restart") },
        Remedy::Stop(why) => RemedyRecord { why: Some(stop(why)), ..nothing("stop") },
    }
}

fn nothing(action: &'static str) -> RemedyRecord {
    RemedyRecord { action, why: None, moved_bytes: 0, loaded_bytes: 0, steps: Vec::new(), stages: Vec::new() }
}

fn stop(why: &PlanError) -> String {
    chain(why)
}

fn stages(plan: &plimsoll::balance::Plan) -> Vec<StageRecord> {
    let stage = |stage: &plimsoll::balance::Stage| StageRecord {
        device: stage.device.to_string(),
        layers: [stage.layers.start, stage.layers.end],
        bytes: stage.used_bytes().get(),
    };
    plan.stages.iter().map(stage).collect()
}

fn steps(rebalance: &Rebalance) -> Vec<StepRecord> {
    let Ok(schedule) = &rebalance.schedule else { return Vec::new() };
    schedule.rounds.iter().flat_map(|round| &round.steps).map(|timed| step(&timed.step)).collect()
}

fn step(step: &Step) -> StepRecord {
    let told = |action, what: String, from: Option<&DeviceRef>, to: Option<&DeviceRef>, bytes: &Bytes| {
        let name = |device: Option<&DeviceRef>| device.map(ToString::to_string);
        StepRecord { action, what, from: name(from), to: name(to), bytes: bytes.get() }
    };
    match step {
        Step::Move { what, from, to, bytes } => told("move", what.to_string(), Some(from), Some(to), bytes),
        Step::Spill { what, from, to, bytes } => told("spill", what.to_string(), Some(from), Some(to), bytes),
        Step::Drop { what, from, bytes, .. } => told("drop", what.to_string(), Some(from), None, bytes),
        Step::Load { what, to, bytes } => told("load", what.to_string(), None, Some(to), bytes),
        Step::Charge { device, to, .. } => {
            told("charge", "the engine's buffers".to_owned(), None, Some(device), to)
        }
    }
}
