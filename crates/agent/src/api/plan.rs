//! Plans.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use plimsoll::answers::RefusalRecord;
use plimsoll::balance::PlanError;
use plimsoll::cluster::ClusterSnapshot;
use plimsoll::export::stopped_text;
use plimsoll::model::{ModelSpec, list};
use plimsoll::{Adapted, Job, JobError, WordsError, suggestions};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::ask::PlanRequest;
use super::beside::{self, Files};
use super::memory::{Answer, Key, Refused};
use super::read;
use crate::app::App;
use crate::clock;
use crate::error::{ApiError, chain};

/// What is told of a refusal.
#[derive(Serialize)]
struct RefusalTold<'a> {
    of: &'static str,
    name: &'a str,
    reason: &'a str,
    short_bytes: u64,
    certificate: &'a str,
}

/// A model to plan, and where it lies.
struct Wanted {
    spec: Arc<ModelSpec>,
    /// As it stands on a command line.
    path: String,
    /// What of the model the answer depends on, beyond the request.
    state: String,
}

/// Makes a plan.
#[utoipa::path(
    post,
    path = "/v1/plan",
    request_body = PlanRequest,
    responses(
        (status = 200, description = "A plan, as `plimsoll plan --json` prints it.", body = inline(super::document::PlanDocument)),
        (status = 409, description = "It does not fit: a refusal, with its reason and what would make it fit.", body = inline(super::document::RefusalDocument)),
        (status = 400, description = "The request is wrong, or the model cannot be read.", body = crate::error::Problem),
        (status = 404, description = "There is no such model.", body = crate::error::Problem),
        (status = 413, description = "The body is too long.", body = crate::error::Problem),
        (status = 503, description = "Too much at once.", body = crate::error::Problem),
    )
)]
pub(super) async fn plan(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read::body(&headers, body, &app.limits).await?;
    let answer = App::answer(&app, body).await?;
    if let Some(refused) = &answer.refusal {
        app.note_refusal("plan", refused);
    }
    Ok(app.aged(read::json(answer.status, answer.body)))
}

impl App {
    /// The plan that this body asks for. Planning is done off the threads of the runtime, a few at once.
    async fn answer(app: &Arc<Self>, body: Bytes) -> Result<Answer, ApiError> {
        let permit =
            tokio::time::timeout(app.limits.answer_time, Arc::clone(&app.plans).acquire_owned()).await;
        let permit = match permit {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(ApiError::busy("the agent is about to stop")),
            Err(_) => {
                return Err(ApiError::busy(format!(
                    "{} plans are being made, and none of them ended within {} s",
                    app.limits.plans,
                    app.limits.answer_time.as_secs_f64()
                )));
            }
        };
        // Kept until the work ends, also where nobody waits for it any more.
        Arc::clone(app)
            .blocking(move |app| {
                let _permit = permit;
                app.planned(&body)
            })
            .await?
    }

    fn planned(&self, body: &[u8]) -> Result<Answer, ApiError> {
        let asked: PlanRequest = read::parse(body)?;
        let wanted = self.wanted(&asked)?;
        let engine = asked.engine(&wanted.spec);
        let files = Files::open(&asked, self.models.as_ref(), engine)?;
        let (version, snapshot) = self.seen();
        let generation = snapshot.generation.get();
        let key = key(body, &[&wanted.state, &files.state]);
        if let Some(answer) = self.memory.get(version, &key) {
            tracing::debug!(generation, "planned before");
            return Ok(answer);
        }
        let begun = clock::start();
        let answer = make(&asked, &wanted, &files, &snapshot);
        let took = begun.elapsed();
        self.reckoning.planned(took);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let answer = answer?;
        let reason = answer.refusal.as_ref().map(|refused| refused.reason);
        tracing::info!(model = wanted.spec.name(), generation, microseconds, refused = reason, "planned");
        self.memory.keep(version, key, answer.clone());
        Ok(answer)
    }

    fn wanted(&self, asked: &PlanRequest) -> Result<Wanted, ApiError> {
        match (&asked.model, &asked.list) {
            (Some(name), None) => {
                let models = beside::folder(self.models.as_ref(), name)?;
                let found = models.open(name).map_err(|error| beside::wrong(&error))?;
                let path = beside::text(name, &found.path)?;
                Ok(Wanted { spec: found.spec, path, state: found.state.key() })
            }
            (None, Some(text)) => {
                let list = list::parse_list_json(text.get()).map_err(|error| ApiError::because(&error))?;
                match list.layers.len() {
                    0 => return Err(ApiError::input("the layer list has no layers")),
                    found if found > self.limits.layers => {
                        return Err(ApiError::input(format!(
                            "the layer list has {found} layers, and this agent plans at most {}",
                            self.limits.layers
                        )));
                    }
                    _ => {}
                }
                let spec = Arc::new(ModelSpec::from_list(&list));
                Ok(Wanted { spec, path: String::new(), state: String::new() })
            }
            (Some(_), Some(_)) => {
                Err(ApiError::input("model and list are both given; one of them says what to plan"))
            }
            (None, None) => Err(ApiError::input(
                "neither model (a path below the folder of models) nor list (a layer list) is given",
            )),
        }
    }

    /// Counts a refusal, and tells it to those who listen.
    pub(super) fn note_refusal(&self, of: &'static str, refused: &Refused) {
        self.reckoning.refused(refused.reason);
        self.journal.note(
            "refusal",
            &RefusalTold {
                of,
                name: &refused.model,
                reason: refused.reason,
                short_bytes: refused.short_bytes,
                certificate: &refused.certificate,
            },
        );
    }
}

fn key(body: &[u8], states: &[&str]) -> Key {
    let mut hash = Sha256::new();
    hash.update(body);
    for state in states {
        hash.update([0]);
        hash.update(state);
    }
    hash.finalize().into()
}

/// The answer to a request that was understood.
fn make(
    asked: &PlanRequest,
    wanted: &Wanted,
    files: &Files,
    snapshot: &ClusterSnapshot,
) -> Result<Answer, ApiError> {
    let engine = asked.engine(&wanted.spec);
    let options = asked.options(snapshot)?;
    let adapted = files.adapted(&wanted.spec)?;
    if adapted.is_some()
        && let Err(error) = engine.takes_adapters()
    {
        return refusal(wanted, &RefusalRecord::excluded(error.to_string()));
    }
    let model = adapted.as_ref().map_or(&*wanted.spec, Adapted::model);
    let mut job = Job::new(model, snapshot, engine, asked.request(engine)?, options)
        .with_offload(asked.offload())
        .with_beside(files.beside()?);
    if let Some(adapted) = &adapted {
        job = job.with_adapters(adapted);
    }
    let planned = match job.plan() {
        Ok(planned) => planned,
        Err(error @ JobError::Audit(_)) => return Err(ApiError::fault(error.to_string())),
        Err(JobError::Plan(PlanError::NoDevices { stopped })) => {
            let why: Vec<String> = stopped
                .iter()
                .map(|stopped| format!("{}: {}", stopped.device, stopped_text(&stopped.reason)))
                .collect();
            let certificate = match why.as_slice() {
                [] => "the cluster has no device with memory".to_owned(),
                why => format!("no device may be used: {}", why.join("; ")),
            };
            return refusal(wanted, &RefusalRecord::nothing_usable(certificate, &stopped));
        }
        Err(error @ (JobError::Engine(_) | JobError::Plan(PlanError::PartDoesNotFit { .. }))) => {
            return refusal(wanted, &RefusalRecord::excluded(error.to_string()));
        }
        Err(error) => {
            let Some(refused) = error.refusal() else { return Err(ApiError::because(&error)) };
            return refusal(wanted, &RefusalRecord::of_plan(refused, &suggestions(&job, refused)));
        }
    };
    let export = match planned.export(&wanted.path, snapshot) {
        Ok(export) => export,
        Err(WordsError::Engine(error)) => {
            return refusal(wanted, &RefusalRecord::excluded(error.to_string()));
        }
        Err(error) => return Err(ApiError::because(&error)),
    };
    let text = planned.to_file_with(export.as_ref(), &wanted.path).and_then(|file| file.to_text());
    let text = text.map_err(|error| ApiError::fault(chain(&error)))?;
    Ok(Answer { status: StatusCode::OK, body: Bytes::from(text), refusal: None })
}

fn refusal(wanted: &Wanted, record: &RefusalRecord) -> Result<Answer, ApiError> {
    let body = serde_json::to_vec(record).map_err(|error| ApiError::fault(chain(&error)))?;
    let refused = Refused {
        model: wanted.spec.name().to_owned(),
        reason: record.reason,
        short_bytes: record.short_bytes,
        certificate: record.certificate.clone(),
    };
    Ok(Answer { status: StatusCode::CONFLICT, body: Bytes::from(body), refusal: Some(Arc::new(refused)) })
}
