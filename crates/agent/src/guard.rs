//! Who may ask: this machine's own programs, or whoever knows the token.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{Instrument, info_span};

use crate::app::App;
use crate::error::ApiError;

/// What answers carry so that a log can be searched for them.
const REQUEST_ID: &str = "x-request-id";

static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Lets a request through to its answer, or says why not.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let id = format!("{}-r{number}", app.journal.life());
    let span = info_span!("request", id, method = %request.method(), path = request.uri().path());
    let mut response = answer(&app, request, next).instrument(span.clone()).await;
    let status = response.status().as_u16();
    span.in_scope(|| tracing::debug!(status, "answered"));
    app.reckoning.answered(status);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

async fn answer(app: &App, request: Request, next: Next) -> Response {
    if let Err(error) = may_ask(app, &request) {
        return error.into_response();
    }
    let Ok(_place) = app.requests.try_acquire() else {
        let most = app.limits.requests;
        return ApiError::busy(format!("{most} requests are being answered, and that is the most"))
            .into_response();
    };
    match tokio::time::timeout(app.limits.answer_time, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let seconds = app.limits.answer_time.as_secs_f64();
            ApiError::busy(format!("no answer within {seconds} s")).into_response()
        }
    }
}

fn may_ask(app: &App, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let path = request.uri().path();
    let no = |text: String| Err(ApiError::new(StatusCode::FORBIDDEN, text));
    let host = one(headers, "host")?.ok_or_else(|| ApiError::input("the request has no Host header"))?;
    // A name that somebody made point here, to speak to us out of a page of theirs.
    if app.loopback && !is_loopback(host, app.port) {
        return no(format!("the Host '{host}' is not this machine, and only this machine is listened to"));
    }
    if let Some(origin) = one(headers, "origin")?
        && !origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
            .is_some_and(|from| from.eq_ignore_ascii_case(host))
    {
        return no(format!("a page of '{origin}' may not ask"));
    }
    // The page itself may be opened from anywhere: it holds no data.
    let open = path == "/" || path == "/healthz";
    let elsewhere =
        one(headers, "sec-fetch-site")?.is_some_and(|site| site != "same-origin" && site != "none");
    if elsewhere && !(open && request.method() == Method::GET) {
        return no("a page of another site may not ask".to_owned());
    }
    match &app.token {
        Some(token) if !open => {
            let told = one(headers, "authorization")?.and_then(|told| told.split_once(' '));
            let told = told.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            match told {
                Some((_, told)) if token.is(told.trim().as_bytes()) => Ok(()),
                Some(_) => Err(ApiError::new(StatusCode::UNAUTHORIZED, "the token is another one")),
                None => Err(ApiError::new(
                    StatusCode::UNAUTHORIZED,
                    "this needs a token: Authorization: Bearer …",
                )),
            }
        }
        _ => Ok(()),
    }
}

/// The one header of this name. Of several, who knows which one counts.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(ApiError::input(format!("the header {name} is given more than once")));
    }
    let text = first.to_str().map_err(|_| ApiError::input(format!("the header {name} is not plain text")))?;
    Ok(Some(text))
}

/// Whether a Host header names this machine from within, with our port or none.
fn is_loopback(host: &str, port: u16) -> bool {
    let parts = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']'),
        None => Some(host.split_at(host.find(':').unwrap_or(host.len()))),
    };
    let Some((name, told)) = parts else { return false };
    let ours = told.is_empty() || told.strip_prefix(':').is_some_and(|told| told.parse() == Ok(port));
    let local = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    ours && local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_let_through() {
        for good in ["localhost", "LocalHost:80", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:80"] {
            assert!(is_loopback(good, 80), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:81",
            "localhost:",
            "localhost:x",
            "10.0.0.1",
            "0.0.0.0",
            "[::1",
            "[::]",
            "[::1]80",
            "localhost:80:80",
            "@localhost",
            "localhost/",
            "127.0.0.1:80@evil",
        ] {
            // Without a number after it, a port is none of ours.
            assert!(!is_loopback(bad, 80), "{bad}");
        }
    }
}
