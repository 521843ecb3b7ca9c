//! What can be asked of an agent, and what it answers.

mod ask;
mod beside;
mod cluster;
mod current;
mod document;
mod events;
mod health;
mod ledger;
mod memory;
mod metrics;
mod page;
mod plan;
mod profile;
mod read;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};

use crate::app::App;
use crate::error::ApiError;
use crate::guard;

pub use ask::{Copies, PlanRequest};
pub(crate) use current::{StandingRecord, record as standing_record};
pub(crate) use memory::PlanMemory;
pub(crate) use metrics::Reckoning;

/// Everything that can be asked, behind the guard.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(document::openapi))
        .route("/v1/profile", get(profile::profile))
        .route("/v1/cluster", get(cluster::cluster))
        .route("/v1/ledger", get(ledger::ledger))
        .route("/v1/reservations", post(ledger::reserve))
        .route("/v1/reservations/{instance}", delete(ledger::release))
        .route("/v1/plan", post(plan::plan))
        .route("/v1/plan/current", get(current::show).put(current::adopt).delete(current::retire))
        .route("/v1/events", get(events::events))
        .fallback(|| async {
            ApiError::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; /openapi.json says what there is",
            )
        })
        .method_not_allowed_fallback(|| async {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path has other methods; /openapi.json says which",
            )
        })
        .layer(axum::middleware::from_fn_with_state(Arc::clone(app), guard::guard))
        .with_state(Arc::clone(app))
}
