//! Who holds how much memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes as BodyBytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use plimsoll::answers::RefusalRecord;
use plimsoll::residency::{CoResidency, Eviction, InferenceSpec, LedgerError, Request, StoreError, Terms};
use plimsoll::units::{Bytes, PoolId};
use serde::{Deserialize, Serialize};
use tokio::sync::SemaphorePermit;

use super::memory::Refused;
use super::read;
use crate::app::App;
use crate::clock;
use crate::error::{ApiError, chain, refused};
use crate::joined::passes;

/// What is to be booked. The keys are the flags of `plimsoll reserve`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservationRequest {
    /// What the model is for.
    role: String,
    /// How much it needs: bytes, or a text such as 20GB.
    #[schema(value_type = u64)]
    needs: Bytes,
    /// The memory that it draws on; may be left out when there is one only.
    #[schema(value_type = Option<String>)]
    pool: Option<PoolId>,
    /// The name of this running copy; left out: the role.
    instance: Option<String>,
    /// Roles that may not be resident beside it.
    #[serde(default)]
    exclude: Vec<String>,
    /// Never advise to evict it.
    #[serde(default)]
    #[schema(default = false)]
    pin: bool,
    /// Who costs more to evict.
    #[serde(default)]
    #[schema(default = 0)]
    priority: u32,
    /// End by itself after so many seconds.
    #[schema(minimum = 1)]
    ttl_seconds: Option<u64>,
}

/// What was booked.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Reserved {
    /// `plimsoll.reserve/1`.
    format: &'static str,
    /// The running copy.
    instance: String,
    /// Whether that changed anything.
    changed: bool,
}

/// What was given back.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Released {
    /// `plimsoll.release/1`.
    format: &'static str,
    /// The running copies.
    instances: Vec<String>,
}

/// How long a change of a cluster waits for others: what etcd does not answer is given up soon enough all the same.
const TURN: Duration = Duration::from_secs(1);

/// The ledger does not answer.
fn store(error: &StoreError) -> ApiError {
    match error {
        StoreError::Busy { .. } => ApiError::busy(chain(error)),
        error if passes(error) => ApiError::busy(chain(error)),
        _ => ApiError::fault(chain(error)),
    }
}

/// Who holds how much memory on the agent's machine, and what is really used; in a cluster that was joined, on all machines. The
/// header `Age` says then how old that is.
#[utoipa::path(
    get,
    path = "/v1/ledger",
    responses((status = 200, description = "As `plimsoll ps --json` prints it.", body = inline(super::document::LedgerDocument)))
)]
pub(super) async fn ledger(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let work = Arc::clone(&app).blocking(|app| {
        // A cluster tells by itself that it has changed.
        if app.joined.is_none() {
            app.look_at_the_ledger();
        }
        let book = app.book().map_err(|error| store(&error))?;
        serde_json::to_vec(&*app.occupancy(&book)).map_err(|error| ApiError::fault(chain(&error)))
    });
    let body = work.await??;
    Ok(app.aged(read::json(StatusCode::OK, BodyBytes::from(body))))
}

/// Books memory on the agent's machine, so that nobody else counts on it. It lasts until it is given back, its time is up,
/// or the machine starts anew; the end of the agent does not end it.
#[utoipa::path(
    post,
    path = "/v1/reservations",
    request_body = ReservationRequest,
    responses(
        (status = 201, description = "It is booked.", body = Reserved),
        (status = 200, description = "It was booked before with the same needs.", body = Reserved),
        (status = 409, description = "It does not fit, or may not be there.", body = inline(super::document::RefusalDocument)),
        (status = 400, description = "The request is wrong.", body = crate::error::Problem),
        (status = 503, description = "The ledger does not answer, or no majority of etcd.", body = crate::error::Problem),
    )
)]
pub(super) async fn reserve(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read::body(&headers, body, &app.limits).await?;
    let request = read::parse::<ReservationRequest>(&body)?.checked()?;
    let _turn = app.turn().await?;
    Arc::clone(&app).blocking(move |app| app.reserve(&request)).await?
}

/// Gives booked memory back.
#[utoipa::path(
    delete,
    path = "/v1/reservations/{instance}",
    params(("instance" = String, Path, description = "The running copy.")),
    responses(
        (status = 200, description = "It holds nothing any more.", body = Released),
        (status = 404, description = "It held nothing.", body = crate::error::Problem),
        (status = 503, description = "The ledger does not answer, or no majority of etcd.", body = crate::error::Problem),
    )
)]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    Path(instance): Path<String>,
) -> Result<Response, ApiError> {
    let _turn = app.turn().await?;
    let work = Arc::clone(&app).blocking(move |app| {
        let held = app.store.release_instance(&instance, clock::now()).map_err(|error| store(&error))?;
        app.look_at_the_ledger();
        if held {
            tracing::info!(instance, "released");
            let released = Released { format: "plimsoll.release/1", instances: vec![instance] };
            return Ok((StatusCode::OK, Json(released)).into_response());
        }
        let text = LedgerError::NotHeld { instance }.to_string();
        Err(ApiError::new(StatusCode::NOT_FOUND, text))
    });
    work.await?
}

impl ReservationRequest {
    fn checked(self) -> Result<Request, ApiError> {
        let names = [("role", Some(&self.role)), ("instance", self.instance.as_ref())];
        let excluded = self.exclude.iter().map(|role| ("exclude", Some(role)));
        for (key, name) in names.into_iter().chain(excluded) {
            let Some(name) = name else { continue };
            let bare = name.strip_prefix("role:").unwrap_or(name);
            if bare.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
                return Err(ApiError::input(format!(
                    "{key}: a name has from 1 to 256 bytes, and no control characters; this has {}",
                    name.len()
                )));
            }
        }
        if self.needs.is_zero() {
            return Err(ApiError::input(format!(
                "needs: '{}' needs 0 bytes, which is as good as unknown",
                self.role
            )));
        }
        if self.ttl_seconds == Some(0) {
            return Err(ApiError::input("ttl_seconds is 0, and must be at least 1"));
        }
        let exclude: BTreeSet<&String> = self.exclude.iter().collect();
        let spec = InferenceSpec::new(&self.role, "llama.cpp").excluding(exclude);
        let spec = match self.pool {
            Some(pool) => spec.with_pools([(pool, self.needs)]),
            None => spec.with_memory(self.needs, Bytes::ZERO),
        };
        let instance = self.instance.unwrap_or_else(|| spec.role.clone());
        let terms = Terms {
            owners: Vec::new(),
            lease: None,
            ttl: self.ttl_seconds.map(Duration::from_secs),
            pinned: self.pin,
            priority: self.priority,
        };
        Ok(Request::new(&instance, spec).on(terms))
    }
}

impl App {
    /// Waits until this request may change the cluster that was joined; without one there is nothing to wait for.
    pub(super) async fn turn(&self) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        let Some(joined) = &self.joined else { return Ok(None) };
        if let Some(silent) = joined.silent() {
            return Err(ApiError::busy(format!("{silent}; nothing was changed")));
        }
        match tokio::time::timeout(TURN, self.changes.acquire()).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            Ok(Err(_)) => Err(ApiError::busy("the agent is about to stop")),
            Err(_) => Err(ApiError::busy(format!(
                "another change of the cluster at {} did not end within {} ms; nothing was changed",
                joined.place(),
                TURN.as_millis()
            ))),
        }
    }

    fn reserve(&self, request: &Request) -> Result<Response, ApiError> {
        let refusal = match self.store.request(request, clock::now()) {
            Ok(changed) => {
                self.look_at_the_ledger();
                let instance = request.instance.clone();
                tracing::info!(instance, changed, "reserved");
                let status = if changed { StatusCode::CREATED } else { StatusCode::OK };
                let reserved = Reserved { format: "plimsoll.reserve/1", instance, changed };
                return Ok((status, Json(reserved)).into_response());
            }
            Err(LedgerError::Refused(refusal)) => refusal,
            Err(LedgerError::Store(error)) => return Err(store(&error)),
            Err(error) => return Err(ApiError::because(&error)),
        };
        if let CoResidency::UnknownPool { .. } = refusal {
            return Err(ApiError::input(format!("pool: {refusal}")));
        }
        let advice = self.store.advise(request, &Eviction::default(), clock::now());
        let advice = advice.map_err(|error| store(&error))?.ok().filter(|advice| !advice.victims.is_empty());
        let record = RefusalRecord::of_booking(&refusal, refusal.to_string(), advice.as_ref(), false);
        tracing::info!(instance = request.instance, reason = record.reason, "refused");
        self.note_refusal(
            "booking",
            &Refused {
                model: request.instance.clone(),
                reason: record.reason,
                short_bytes: record.short_bytes,
                certificate: record.certificate.clone(),
            },
        );
        Ok(refused(&record))
    }
}
