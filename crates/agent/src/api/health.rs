//! Whether the agent is well.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::App;
use crate::error::{ApiError, chain};

/// How an agent is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// The version of the agent.
    version: &'static str,
}

const OK: Health = Health { status: "ok", version: env!("CARGO_PKG_VERSION") };

/// Whether the agent runs. Needs no token.
#[utoipa::path(
    get,
    path = "/healthz",
    responses((status = 200, description = "It runs.", body = Health)),
    security(())
)]
pub(super) async fn healthz() -> Json<Health> {
    Json(OK)
}

/// Whether the agent can answer: its ledger can be read, or its machine is in the cluster and a majority of etcd answers; and it
/// is not about to stop.
#[utoipa::path(
    get,
    path = "/readyz",
    responses(
        (status = 200, description = "It can.", body = Health),
        (status = 503, description = "It cannot, for the reason given.", body = crate::error::Problem),
    )
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    if *app.stop.borrow() {
        return Err(ApiError::busy("the agent is about to stop"));
    }
    if let Some(joined) = &app.joined {
        let trouble = joined.silent().or_else(|| Some(format!("not in the cluster: {}", joined.lost()?)));
        return match trouble {
            Some(trouble) => Err(ApiError::busy(trouble)),
            None => Ok((StatusCode::OK, Json(OK)).into_response()),
        };
    }
    let read = app.blocking(|app| app.store.view(&mut |_| ())).await?;
    read.map_err(|error| ApiError::busy(chain(&error)))?;
    Ok((StatusCode::OK, Json(OK)).into_response())
}
