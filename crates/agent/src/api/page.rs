//! The page that shows it all.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use axum::response::{Html, IntoResponse, Response};
use sha2::{Digest, Sha256};

/// The page: one file, which asks for nothing from anywhere but this agent.
const PAGE: &str = include_str!("page.html");

/// What the page may do: run its own script, wear its own style, ask this agent.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(between(PAGE, "<script>", "</script>")),
        hash(between(PAGE, "<style>", "</style>"))
    )
});

/// A page for people: bars, the plan in force, and what happens. Without a token it shows no data.
#[utoipa::path(
    get,
    path = "/",
    responses((status = 200, description = "A page.", body = String, content_type = "text/html")),
    security(())
)]
pub(super) async fn page() -> Response {
    let headers: [(HeaderName, &str); 4] = [
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    (headers, Html(PAGE)).into_response()
}

/// The text between two marks; nothing where they are not there.
fn between<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let inner = text.split_once(open).and_then(|(_, rest)| rest.split_once(close));
    inner.map_or("", |(inner, _)| inner)
}

/// How a policy names a text.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(text)))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|place| u32::from(chunk.get(place).copied().unwrap_or(0)));
        let bits = a << 16 | b << 8 | c;
        for place in 0..4_u32 {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or(0);
            let filled = usize::try_from(place).unwrap_or(0) <= chunk.len();
            let written =
                if filled { out.write_char(char::from(DIGITS[digit])) } else { out.write_char('=') };
            // Writing to a string does not fail.
            if written.is_err() {
                break;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        for mark in [
            "http://",
            "https://",
            "//cdn",
            "@import",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!PAGE.contains(mark), "{mark}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        assert!(!between(PAGE, "<script>", "</script>").is_empty());
        assert!(!PAGE.contains(" style=\"") && !PAGE.contains(" onclick="), "the policy would not let them");
        assert!(POLICY.contains("script-src 'sha256-"));
    }
}
