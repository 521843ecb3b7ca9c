//! The index of a checkpoint of several files.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::error::{Problem, SafetensorsError};
use super::header::{KEPT, LONGEST_HEADER, MOST_TENSORS, NameSeed};
use super::json;
use crate::header::shown;

/// What an entry takes here beside its name.
const PER_ENTRY: usize = 48;

/// An index up to this long is held as a whole while it is read.
const WHOLE: u64 = 16 << 20;

/// What an index says.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The files by name; none leads out of the folder.
    pub(super) files: Vec<String>,
    /// Which file holds which tensor.
    pub(super) file_of: BTreeMap<Box<str>, usize>,
    /// The declared total of bytes.
    pub(super) total: Option<u64>,
    /// What all of it takes here.
    pub(super) kept: usize,
}

impl Index {
    /// Strikes a tensor that was found in the file with this number; false where the index does not list it there.
    pub(super) fn found(&mut self, tensor: &str, number: usize) -> bool {
        match self.file_of.remove_entry(tensor) {
            Some((_, file)) if file == number => {
                self.kept = self.kept.saturating_sub(entry(tensor));
                true
            }
            Some((name, file)) => {
                self.file_of.insert(name, file);
                false
            }
            None => false,
        }
    }
}

/// What an entry takes here.
const fn entry(tensor: &str) -> usize {
    tensor.len() + PER_ENTRY
}

/// Reads an index of `len` bytes.
pub(super) fn read(reader: impl Read, len: u64, file: &Path) -> Result<Index, SafetensorsError> {
    let bad = |problem| SafetensorsError::Header { file: file.to_owned(), problem };
    if len > LONGEST_HEADER {
        return Err(bad(Problem::TooLong { what: "the index", found: len, limit: LONGEST_HEADER }));
    }
    let index = json::read(reader, (len, WHOLE), IndexSeed)
        .map_err(|error| json::error(error, file, "index", None))?;
    if index.files.is_empty() {
        return Err(bad(Problem::Nothing));
    }
    match index.files.iter().find(|name| !stays_in_its_folder(name)) {
        Some(name) => Err(bad(Problem::FileName { found: name.clone() })),
        None => Ok(index),
    }
}

fn stays_in_its_folder(name: &str) -> bool {
    name.ends_with(".safetensors") && !name.contains(['/', '\\', ':', '\0']) && !name.contains("..")
}

struct IndexSeed;

impl<'de> DeserializeSeed<'de> for IndexSeed {
    type Value = Index;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Index, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexSeed {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        let (mut index, mut total) = (None, None);
        while let Some(key) = map.next_key_seed(NameSeed)? {
            match key.as_str() {
                "weight_map" if index.is_some() => return Err(A::Error::duplicate_field("weight_map")),
                "weight_map" => index = Some(map.next_value_seed(WeightMapSeed)?),
                "metadata" => total = map.next_value::<Option<Metadata>>()?.and_then(|m| m.total),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let index: Index = index.ok_or_else(|| A::Error::missing_field("weight_map"))?;
        Ok(Index { total, ..index })
    }
}

struct WeightMapSeed;

impl<'de> DeserializeSeed<'de> for WeightMapSeed {
    type Value = Index;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Index, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMapSeed {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of file names by tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        let mut files: BTreeMap<String, usize> = BTreeMap::new();
        let mut file_of = BTreeMap::new();
        let mut kept = 0;
        while let Some(tensor) = map.next_key_seed(NameSeed)? {
            let file = map.next_value_seed(NameSeed)?;
            kept += entry(&tensor);
            let next = files.len();
            let number = *files.entry(file).or_insert_with_key(|file| {
                kept += 2 * entry(file);
                next
            });
            if kept > KEPT || file_of.len() >= MOST_TENSORS {
                return Err(A::Error::custom(format_args!(
                    "weight_map lists more tensors than can be kept: at most {MOST_TENSORS}, in {KEPT} bytes"
                )));
            }
            if file_of.contains_key(tensor.as_str()) {
                return Err(A::Error::custom(format_args!(
                    "weight_map lists the tensor '{}' twice",
                    shown(&tensor)
                )));
            }
            file_of.insert(tensor.into_boxed_str(), number);
        }
        // In the order of their names, whatever the order of the tensors.
        let mut rank = vec![0; files.len()];
        for (place, number) in files.values().enumerate() {
            rank[*number] = place;
        }
        file_of.values_mut().for_each(|number| *number = rank[*number]);
        Ok(Index { files: files.into_keys().collect(), file_of, total: None, kept })
    }
}

/// The part of an index's metadata that is of use.
struct Metadata {
    total: Option<u64>,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Facts;
        impl<'de> Visitor<'de> for Facts {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut total = None;
                while let Some(key) = map.next_key_seed(NameSeed)? {
                    if key == "total_size" {
                        total = map.next_value::<Total>()?.0;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Metadata { total })
            }
        }
        deserializer.deserialize_map(Facts)
    }
}

/// A count of bytes; some writers give it as a floating-point number.
struct Total(Option<u64>);

impl<'de> Deserialize<'de> for Total {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Total;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count of bytes")
            }

            fn visit_u64<E>(self, n: u64) -> Result<Total, E> {
                Ok(Total(Some(n)))
            }

            fn visit_f64<E>(self, n: f64) -> Result<Total, E> {
                // Written without a fraction, a whole number below 2^53 is exact.
                let whole = n.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&n);
                Ok(Total(whole.then(|| format!("{n:.0}").parse().ok()).flatten()))
            }
        }
        deserializer.deserialize_any(Number)
    }
}
