//! What the header of an answer says.

use ureq::http::HeaderMap;

use super::error::HttpError;

/// What a server says to tell one state of a file from the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) what: &'static str,
    pub(super) value: String,
}

/// Refuses answers whose bytes are not those of the file.
pub(super) fn check_form(headers: &HeaderMap, status: u16) -> Result<(), HttpError> {
    if let Some(encoding) = text(headers, "content-encoding").filter(|encoding| *encoding != "identity") {
        return Err(HttpError::Encoded { encoding: short(encoding) });
    }
    let is_page = text(headers, "content-type").is_some_and(|kind| kind.starts_with("text/html"));
    if is_page {
        Err(HttpError::Page)
    } else if status == 416 {
        Err(HttpError::NoRanges)
    } else {
        Ok(())
    }
}

/// What `Content-Range` says where that is an answer to what was asked: where the part ends, and how long the file is.
pub(super) fn content_range(told: Option<&str>, begin: u64, last: u64) -> Option<(u64, u64)> {
    let (range, total) = told?.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to, total): (u64, u64, u64) = (from.parse().ok()?, to.parse().ok()?, total.parse().ok()?);
    let is_whole = to == last || (to < last && total.checked_sub(1) == Some(to));
    (from == begin && to >= from && to < total && is_whole).then_some((to, total))
}

pub(super) fn wrong(begin: u64, last: u64, told: Option<&str>) -> HttpError {
    HttpError::WrongRange {
        asked: format!("{begin}-{last}"),
        told: short(told.unwrap_or("nothing of a range")),
    }
}

/// The strongest mark there is: a tag, else the time of the last change.
pub(super) fn mark(headers: &HeaderMap) -> Option<Mark> {
    let tag = text(headers, "etag").map(|tag| Mark { what: "its tag", value: short(tag) });
    let time = || text(headers, "last-modified").map(|time| Mark { what: "its time", value: short(time) });
    tag.or_else(time)
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

pub(super) fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

/// What others say, for an error.
fn short(text: &str) -> String {
    text.chars().take(120).collect()
}
