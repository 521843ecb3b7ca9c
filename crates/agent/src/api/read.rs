//! Bodies of requests.

use std::error::Error;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::Limits;
use crate::error::ApiError;

/// The whole body of a request that says that it is JSON.
pub(super) async fn body(headers: &HeaderMap, body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the body must have the content type application/json, and has '{kind}'"),
        ));
    }
    let most = limits.body;
    let too_long = |found: &str| {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has {found} bytes, and at most {most} are read"),
        )
    };
    let told = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if let Some(told) = told
        .filter(|told| told.parse().is_ok_and(|length: u64| length > u64::try_from(most).unwrap_or(u64::MAX)))
    {
        return Err(too_long(told));
    }
    match tokio::time::timeout(limits.body_time, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_long(&error) => Err(too_long(&format!("more than {most}"))),
        Ok(Err(error)) => Err(ApiError::input(format!("the body cannot be read: {error}"))),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not come within {} s", limits.body_time.as_secs_f64()),
        )),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    error.source().is_some_and(|cause| cause.to_string().contains("length limit"))
}

/// What a body says. What is wrong with it is named with its line and column.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // A list without keys would do for a derived form.
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err(ApiError::input("the body must be a JSON object, with keys"));
    }
    serde_json::from_slice(body).map_err(|error| ApiError::input(format!("the body: {error}")))
}

/// JSON that is there already.
pub(super) fn json(status: StatusCode, body: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
