//! JSON from a stream with bounded memory, and objects that are read as maps.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::error::SafetensorsError;
use crate::header::shown;
use crate::json::without_place;

/// The longest string that is read. The metadata of a trained adapter may take some hundred kilobytes.
const LONGEST_STRING: u64 = 4 << 20;

/// Ends a stream at a string that is too long: a parser holds a string until it is whole.
#[derive(Debug)]
struct ShortStrings<R> {
    inner: R,
    in_string: bool,
    escaped: bool,
    len: u64,
}

impl<R: Read> Read for ShortStrings<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        for &byte in out.iter().take(n) {
            if !self.in_string {
                self.in_string = byte == b'"';
                self.len = 0;
                continue;
            }
            self.len += 1;
            if self.len > LONGEST_STRING {
                let text = format!("a string has more than {LONGEST_STRING} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if self.escaped {
                self.escaped = false;
            } else {
                self.escaped = byte == b'\\';
                self.in_string = byte != b'"';
            }
        }
        Ok(n)
    }
}

/// Reads one JSON text of `len` bytes to its end. Up to `whole` bytes it is held as a whole, which is several times
/// faster than from a stream.
pub(super) fn read<T>(
    reader: impl Read,
    (len, whole): (u64, u64),
    seed: impl for<'de> DeserializeSeed<'de, Value = T>,
) -> Result<T, serde_json::Error> {
    if len <= whole {
        let mut text = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        reader.take(len).read_to_end(&mut text).map_err(serde_json::Error::io)?;
        let mut json = serde_json::Deserializer::from_slice(&text);
        let value = seed.deserialize(&mut json)?;
        json.end()?;
        return Ok(value);
    }
    let guarded = ShortStrings { inner: reader.take(len), in_string: false, escaped: false, len: 0 };
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(64 << 10, guarded));
    let value = seed.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// The error of a text in `file`; `inside` names what was being read.
pub(super) fn error(
    error: serde_json::Error,
    file: &Path,
    part: &'static str,
    inside: Option<&str>,
) -> SafetensorsError {
    let file = file.to_owned();
    if error.is_io() {
        return SafetensorsError::Read { file, source: error.into() };
    }
    let (line, column) = (error.line(), error.column());
    let message = without_place(&error);
    let message = match inside {
        Some(name) => format!("tensor '{}': {message}", shown(name)),
        None => message,
    };
    SafetensorsError::Json { file, part, line, column, message }
}

/// An object of texts that nobody needs.
#[derive(Debug)]
pub(super) struct Texts;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value::<Text>()?;
        }
        Ok(self)
    }
}

/// A text that nobody needs.
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;
        impl Visitor<'_> for AnyText {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, _: &str) -> Result<Text, E> {
                Ok(Text)
            }
        }
        deserializer.deserialize_str(AnyText)
    }
}
