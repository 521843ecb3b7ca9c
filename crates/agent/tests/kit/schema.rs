//! Whether JSON has the shape that a document says it has.

use serde_json::Value;

/// What is wrong with `value` under `schema`, in `document`; nothing when it has that shape.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = document.pointer(name.strip_prefix('#').unwrap());
        let target = target.unwrap_or_else(|| panic!("{name} is not in the document"));
        return check(document, target, value, at);
    }
    for all in ["oneOf", "anyOf"] {
        if let Some(schemas) = schema[all].as_array() {
            let one = schemas.iter().any(|schema| check(document, schema, value, at).is_empty());
            return if one { Vec::new() } else { vec![format!("{at}: none of {all} fits {value}")] };
        }
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().map(|one| one.as_str().unwrap()).collect(),
        _ => return Vec::new(),
    };
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_u64() || n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = types.contains(&is) || (is == "integer" && types.contains(&"number"));
    if !fits {
        return vec![format!("{at}: {value} is {is}, and should be {types:?}")];
    }
    let mut wrong = Vec::new();
    if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for key in schema["required"].as_array().into_iter().flatten() {
            let key = key.as_str().unwrap();
            if !object.contains_key(key) {
                wrong.push(format!("{at}: {key} is missing"));
            }
        }
        for (key, value) in object {
            match properties.get(key) {
                Some(schema) => wrong.extend(check(document, schema, value, &format!("{at}.{key}"))),
                None => wrong.push(format!("{at}: {key} is not described")),
            }
        }
    }
    if let (Some(items), true) = (value.as_array(), schema["items"].is_object()) {
        let checked = items.iter().enumerate();
        wrong.extend(
            checked.flat_map(|(n, item)| check(document, &schema["items"], item, &format!("{at}[{n}]"))),
        );
    }
    wrong
}
