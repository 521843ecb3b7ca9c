//! Answers that say no, and why.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll::answers::RefusalRecord;
use serde::Serialize;

/// What is wrong with a request, or with the agent.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    text: String,
}

/// The body of an answer that says what went wrong.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Problem {
    /// What is wrong, where, and both numbers where there are numbers.
    error: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Wrong input.
    pub(crate) fn input(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Wrong input, with all its causes.
    pub(crate) fn because(error: &dyn std::error::Error) -> Self {
        Self::input(chain(error))
    }

    /// Too much at once: ask again.
    pub(crate) fn busy(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// Something that the agent stands on does not answer, or a fault of its own.
    pub(crate) fn fault(text: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// Work that was begun and never came back.
    pub(crate) fn panicked() -> Self {
        Self::fault("the work panicked: a fault of plimsoll itself, not of the request")
    }
}

/// An error with its causes, in a line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() && self.status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(status = self.status.as_u16(), "{}", self.text);
        }
        let mut response = (self.status, Json(Problem { error: self.text })).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // What is left of the body is not read.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

/// A refusal: the request was understood, and what there is does not allow it.
pub(crate) fn refused(record: &RefusalRecord) -> Response {
    (StatusCode::CONFLICT, Json(record)).into_response()
}
