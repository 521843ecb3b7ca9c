//! Values as they are written: JSON with a version, `{"v": 1, ...}`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::EtcdError;

/// The version that is written, and the latest that is understood.
pub(crate) const VERSION: u64 = 1;

#[derive(Serialize)]
struct Written<'a, T> {
    v: u64,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// A value as it is written.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(&Written { v: VERSION, value }).expect("names and numbers can always be written")
}

/// The value that stands at a key.
///
/// # Errors
///
/// Written by a later version, or by nobody of us.
pub(crate) fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, EtcdError> {
    let damaged =
        |error: serde_json::Error| EtcdError::Damaged { key: key.to_owned(), what: error.to_string() };
    let Version { v } = serde_json::from_slice(bytes).map_err(damaged)?;
    if v > VERSION {
        return Err(EtcdError::Newer { key: key.to_owned(), found: v, known: VERSION });
    }
    let mut value: serde_json::Value = serde_json::from_slice(bytes).map_err(damaged)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("v");
    }
    serde_json::from_value(value).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Thing {
        name: String,
        bytes: u64,
    }

    #[test]
    fn a_value_comes_back_with_its_version_checked() {
        let thing = Thing { name: "a".to_owned(), bytes: u64::MAX };
        let bytes = encode(&thing);
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            r#"{"v":1,"name":"a","bytes":18446744073709551615}"#
        );
        assert_eq!(decode::<Thing>("k", &bytes), Ok(thing));
    }

    #[test]
    fn what_a_later_version_wrote_is_refused_even_where_it_looks_the_same() {
        let error = decode::<Thing>("k", br#"{"v":2,"name":"a","bytes":1}"#).unwrap_err();
        assert_eq!(error, EtcdError::Newer { key: "k".to_owned(), found: 2, known: 1 });
    }

    #[test]
    fn what_nobody_wrote_is_damage() {
        for bytes in
            [&b""[..], b"[]", b"{}", br#"{"v":1}"#, br#"{"v":1,"name":"a","bytes":1,"x":0}"#, b"\xff"]
        {
            assert!(matches!(decode::<Thing>("k", bytes), Err(EtcdError::Damaged { .. })), "{bytes:?}");
        }
    }
}
