//! What a JSON parser says.

/// What is wrong with a text, without the place that the parser names behind it.
pub(crate) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}
