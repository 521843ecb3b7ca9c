//! The header of one file.

use std::fmt;
use std::io::Read;
use std::path::Path;

use plimsoll_units::Bytes;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::error::{Problem, SafetensorsError};
use super::json;
use crate::header::{Tensor, shown};
use crate::tensor::TensorType;

/// The longest header that is read, in bytes.
pub(super) const LONGEST_HEADER: u64 = 32 << 20;

/// The most tensors of a checkpoint, all files together.
pub(super) const MOST_TENSORS: usize = 1 << 18;

/// The longest name of a tensor, in bytes.
pub(super) const LONGEST_NAME: usize = 1024;

/// The most sides of a tensor.
const MOST_DIMS: usize = 16;

/// A header up to this long is held as a whole while it is read. Those of large checkpoints are shorter: they have many
/// files.
const WHOLE: u64 = 4 << 20;

/// The most that the tensors of a checkpoint, and what its index says of tensors not yet read, may take here, in bytes.
pub(super) const KEPT: usize = 36 << 20;

/// The tensors of all files that were read so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) tensors: Vec<Tensor>,
    /// Where the data of each tensor of the file at hand begins and ends.
    extents: Vec<(u64, u64)>,
    /// What the tensors take here, and the index with them.
    pub(super) kept: usize,
    /// The tensor that is being read.
    current: Option<String>,
}

/// Reads the header of a file of `len` bytes and adds its tensors to `table`. Returns how many bytes of data are missing.
pub(super) fn read(
    mut reader: impl Read,
    len: u64,
    file: &Path,
    table: &mut Table,
) -> Result<Bytes, SafetensorsError> {
    let bad = |problem| SafetensorsError::Header { file: file.to_owned(), problem };
    if len < 8 {
        return Err(bad(Problem::Ends { offset: 0, need: 8, left: len }));
    }
    let mut size = [0; 8];
    reader
        .read_exact(&mut size)
        .map_err(|source| SafetensorsError::Read { file: file.to_owned(), source })?;
    let size = u64::from_le_bytes(size);
    if size > LONGEST_HEADER {
        return Err(bad(Problem::TooLong { what: "the header", found: size, limit: LONGEST_HEADER }));
    }
    if size > len - 8 {
        return Err(bad(Problem::Ends { offset: 8, need: size, left: len - 8 }));
    }
    let begin = table.tensors.len();
    table.extents.clear();
    table.current = None;
    json::read(reader, (size, WHOLE), HeaderSeed { table })
        .map_err(|error| json::error(error, file, "header", table.current.as_deref()))?;
    let data = check_extents(&table.tensors[begin..], &table.extents).map_err(bad)?;
    let end = data.saturating_add(8 + size);
    if end < len {
        return Err(bad(Problem::Trailing { end, extra: len - end }));
    }
    Ok(Bytes::new(end - len))
}

/// Every tensor begins where the one before it ends, and holds what its shape takes. Returns where the last one ends.
fn check_extents(tensors: &[Tensor], extents: &[(u64, u64)]) -> Result<u64, Problem> {
    let mut order: Vec<(&(u64, u64), &Tensor)> = extents.iter().zip(tensors).collect();
    order.sort_by_key(|(extent, tensor)| (**extent, &tensor.name));
    let mut expected = 0;
    for (&(begin, end), tensor) in order {
        let need = tensor.bytes.get();
        if end.checked_sub(begin) != Some(need) {
            return Err(Problem::Extent { tensor: shown(&tensor.name), begin, end, need });
        }
        if begin != expected {
            return Err(Problem::Offset { tensor: shown(&tensor.name), found: begin, expected });
        }
        expected = end;
    }
    Ok(expected)
}

/// What a tensor of this shape takes, or why it cannot be.
fn size(shape: &[u64], kind: TensorType) -> Result<Bytes, String> {
    let fits = |n: &u64| i64::try_from(*n).is_ok();
    let overflow = || format!("shape: more than {} values or bytes", i64::MAX);
    let elements = shape.iter().try_fold(1_u64, |n, &side| n.checked_mul(side)).filter(fits);
    let elements = elements.ok_or_else(overflow)?;
    let (values, bytes) = kind.block();
    if !elements.is_multiple_of(values) {
        return Err(format!("shape: {elements} values of {kind} do not fill whole bytes"));
    }
    (elements / values).checked_mul(bytes).filter(fits).map(Bytes::new).ok_or_else(overflow)
}

struct HeaderSeed<'a> {
    table: &'a mut Table,
}

impl<'de> DeserializeSeed<'de> for HeaderSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let table = self.table;
        let mut has_metadata = false;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            if name == "__metadata__" {
                if has_metadata {
                    return Err(A::Error::duplicate_field("__metadata__"));
                }
                has_metadata = true;
                map.next_value::<json::Texts>()?;
                continue;
            }
            let name = &*table.current.insert(name);
            let entry: Entry = map.next_value()?;
            let bytes = size(&entry.shape, entry.kind).map_err(A::Error::custom)?;
            let mut dims = entry.shape;
            dims.reverse();
            if dims.is_empty() {
                dims.push(1);
            }
            dims.shrink_to_fit();
            table.kept += name.len() + size_of::<Tensor>() + dims.len() * 8;
            if table.kept > KEPT || table.tensors.len() >= MOST_TENSORS {
                return Err(A::Error::custom(format_args!(
                    "the checkpoint has more tensors than can be kept: at most {MOST_TENSORS}, in {KEPT} bytes"
                )));
            }
            table.extents.push((entry.begin, entry.end));
            let name = table.current.take().unwrap_or_default();
            table.tensors.push(Tensor { name, dims, kind: entry.kind, bytes });
        }
        Ok(())
    }
}

/// A name that is not too long.
pub(super) struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<String, E> {
        if name.len() > LONGEST_NAME {
            let len = name.len();
            return Err(E::custom(format_args!(
                "a name has {len} bytes; at most {LONGEST_NAME} can be read"
            )));
        }
        Ok(name.to_owned())
    }
}

/// What a header says of a tensor.
struct Entry {
    kind: TensorType,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let (mut kind, mut shape, mut extent) = (None, None, None);
        while let Some(field) = map.next_key::<Field>()? {
            let twice = match field {
                Field::Dtype => kind.replace(map.next_value::<Dtype>()?.0).is_some(),
                Field::Shape => shape.replace(map.next_value::<Shape>()?.0).is_some(),
                Field::DataOffsets => extent.replace(map.next_value::<[u64; 2]>()?).is_some(),
            };
            if twice {
                return Err(A::Error::duplicate_field(field.name()));
            }
        }
        let missing = |field: Field| move || A::Error::missing_field(field.name());
        let [begin, end] = extent.ok_or_else(missing(Field::DataOffsets))?;
        Ok(Entry {
            kind: kind.ok_or_else(missing(Field::Dtype))?,
            shape: shape.ok_or_else(missing(Field::Shape))?,
            begin,
            end,
        })
    }
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Field {
    Dtype,
    Shape,
    DataOffsets,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Dtype => "dtype",
            Self::Shape => "shape",
            Self::DataOffsets => "data_offsets",
        }
    }
}

struct Dtype(TensorType);

impl<'de> Deserialize<'de> for Dtype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = NameSeed.deserialize(deserializer)?;
        TensorType::from_dtype(&name)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format_args!("unknown dtype '{}'", shown(&name))))
    }
}

struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sides;
        impl<'de> Visitor<'de> for Sides {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST_DIMS} sides")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(side) = seq.next_element()? {
                    if shape.len() == MOST_DIMS {
                        return Err(A::Error::invalid_length(MOST_DIMS + 1, &self));
                    }
                    shape.push(side);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(Sides)
    }
}
