//! The header of one file: facts, then the table of tensors.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::path::Path;

use plimsoll_units::Bytes;

use super::error::{Fault, Problem};
use super::source::Source;
use super::value;
use crate::header::{Tensor, Value, shown};
use crate::tensor::TensorType;

/// The most tensors of a model, all parts together. Models with every expert apart have some tens of thousands.
const MOST_TENSORS: u64 = 1 << 17;

/// The longest name of a tensor, in bytes. GGML keeps 63.
const LONGEST_NAME: u64 = 127;

/// The most sides of a tensor: GGML has no more.
const MOST_DIMS: u32 = 4;

/// What a file has when its header does not say otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The fewest bytes of a fact: length and one byte of key, type, one byte of value.
const LEAST_FACT: u64 = 8 + 1 + 4 + 1;

/// The fewest bytes of a tensor: length and one byte of name, number of sides, type, offset.
const LEAST_TENSOR: u64 = 8 + 1 + 4 + 4 + 8;

/// The tensors of all parts that were read so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) tensors: Vec<Tensor>,
    /// Where the entry of each tensor begins in its file.
    offsets: Vec<u64>,
}

/// What is said in one file beside its tensors.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) missing_bytes: Bytes,
}

/// Reads the header of one file and adds its tensors to `table`.
pub(super) fn part<R: Read + Seek>(source: &mut Source<R>, table: &mut Table) -> Result<Part, Fault> {
    version(source)?;
    let at = source.pos();
    let tensors = source.u64("number of tensors")?;
    let limit = MOST_TENSORS.saturating_sub(table.tensors.len() as u64);
    if tensors > limit {
        return Err(Fault::new(at, "number of tensors", Problem::TooMany { found: tensors, limit }));
    }
    let facts = source.u64("number of facts")?;
    let least = facts.saturating_mul(LEAST_FACT).saturating_add(tensors * LEAST_TENSOR);
    source.need(least, "facts and tensors")?;

    let (metadata, alignment) = value::facts(source, facts)?;
    let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT);
    if let Ok(more) = usize::try_from(tensors) {
        table.tensors.reserve_exact(more);
        table.offsets.reserve_exact(more);
    }
    let mut end = 0;
    let mut data_end = 0;
    for index in 0..tensors {
        let offset = source.pos();
        let name = name(source).map_err(|fault| fault.of(format_args!("tensor {index}")))?;
        let tensor = tensor(source, name, alignment, end)
            .map_err(|(name, fault)| fault.of(format_args!("tensor {index} '{}'", shown(&name))))?;
        data_end = end.saturating_add(tensor.bytes.get());
        end = data_end
            .checked_next_multiple_of(alignment)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| {
                Fault::new(
                    offset,
                    format!("tensor {index} '{}', size", shown(&tensor.name)),
                    Problem::Overflow,
                )
            })?;
        table.tensors.push(tensor);
        table.offsets.push(offset);
    }
    let data_start = Bytes::new(source.pos()).padded_to(alignment);
    let held = Bytes::new(source.len()).saturating_sub(data_start);
    Ok(Part { metadata, missing_bytes: Bytes::new(data_end).saturating_sub(held) })
}

/// Magic and version; the version also tells the byte order.
fn version<R: Read + Seek>(source: &mut Source<R>) -> Result<(), Fault> {
    let found = source.array::<4>("magic")?;
    if found != *b"GGUF" {
        return Err(Fault::new(0, "magic", Problem::Magic { found }));
    }
    let at = source.pos();
    let mut found = source.u32("version")?;
    // A small number in the other byte order has an empty lower half.
    if found != 0 && found.trailing_zeros() >= 16 {
        source.set_big_endian();
        found = found.swap_bytes();
    }
    match found {
        2 | 3 => Ok(()),
        _ => Err(Fault::new(at, "version", Problem::Version { found })),
    }
}

fn name<R: Read + Seek>(source: &mut Source<R>) -> Result<String, Fault> {
    let at = source.pos();
    let len = source.u64("length of the name")?;
    match len {
        0 => return Err(Fault::new(at, "length of the name", Problem::Empty)),
        1..=LONGEST_NAME => {}
        _ => {
            let problem = Problem::TooMany { found: len, limit: LONGEST_NAME };
            return Err(Fault::new(at, "length of the name", problem));
        }
    }
    let at = source.pos();
    String::from_utf8(source.bytes(len, "name")?).map_err(|_| Fault::new(at, "name", Problem::NotUtf8))
}

/// One entry of the table behind its name. Its data has to begin at `expected`.
fn tensor<R: Read + Seek>(
    source: &mut Source<R>,
    name: String,
    alignment: u64,
    expected: u64,
) -> Result<Tensor, (String, Fault)> {
    match shape(source, alignment, expected) {
        Ok((dims, kind, bytes)) => Ok(Tensor { name, dims, kind, bytes }),
        Err(fault) => Err((name, fault)),
    }
}

fn shape<R: Read + Seek>(
    source: &mut Source<R>,
    alignment: u64,
    expected: u64,
) -> Result<(Vec<u64>, TensorType, Bytes), Fault> {
    let dims = dims(source)?;
    let at = source.pos();
    let id = source.u32("type")?;
    let kind =
        TensorType::from_ggml(id).ok_or_else(|| Fault::new(at, "type", Problem::TensorType { found: id }))?;
    let bytes = size(&dims, kind).map_err(|problem| Fault::new(at, "size", problem))?;
    let at = source.pos();
    let found = source.u64("offset")?;
    let problem = if !found.is_multiple_of(alignment) {
        Problem::Unaligned { found, alignment }
    } else if found != expected {
        Problem::Offset { found, expected }
    } else {
        return Ok((dims, kind, bytes));
    };
    Err(Fault::new(at, "offset", problem))
}

fn dims<R: Read + Seek>(source: &mut Source<R>) -> Result<Vec<u64>, Fault> {
    let at = source.pos();
    let count = source.u32("number of sides")?;
    if count > MOST_DIMS {
        let problem = Problem::TooMany { found: count.into(), limit: MOST_DIMS.into() };
        return Err(Fault::new(at, "number of sides", problem));
    }
    if count == 0 {
        return Ok(vec![1]);
    }
    let mut dims = Vec::with_capacity(MOST_DIMS as usize);
    for _ in 0..count {
        let at = source.pos();
        match source.u64("side")? {
            0 => return Err(Fault::new(at, "side", Problem::EmptySide)),
            side => dims.push(side),
        }
    }
    dims.shrink_to_fit();
    Ok(dims)
}

/// What a tensor takes, or why it cannot be.
fn size(dims: &[u64], kind: TensorType) -> Result<Bytes, Problem> {
    let fits = |n: &u64| i64::try_from(*n).is_ok();
    let elements = dims.iter().try_fold(1_u64, |n, &side| n.checked_mul(side)).filter(fits);
    let elements = elements.ok_or(Problem::Overflow)?;
    let (values, bytes) = kind.block();
    let row = dims.first().copied().unwrap_or(1);
    if !row.is_multiple_of(values) {
        return Err(Problem::Row { found: row, kind: kind.name(), block: values });
    }
    (elements / values).checked_mul(bytes).filter(fits).map(Bytes::new).ok_or(Problem::Overflow)
}

impl Table {
    /// Refuses two tensors of one name. Each file comes with the index of its first tensor.
    pub(super) fn check_names(&self, files: &[(usize, &Path)]) -> Result<(), Twice> {
        let mut order: Vec<usize> = (0..self.tensors.len()).collect();
        order.sort_by_key(|&i| (&self.tensors[i].name, i));
        let twice = order.windows(2).find(|pair| self.tensors[pair[0]].name == self.tensors[pair[1]].name);
        let Some(&[first, again]) = twice else { return Ok(()) };
        let file_of = |i: usize| files.iter().rposition(|(begin, _)| *begin <= i).unwrap_or(0);
        let begin = files.get(file_of(again)).map_or(0, |(begin, _)| *begin);
        let field = format!("tensor {} '{}'", again - begin, shown(&self.tensors[again].name));
        let place = files.get(file_of(first)).map(|(_, file)| file.display().to_string());
        let first = format!("in {} at byte {}", place.unwrap_or_default(), self.offsets[first]);
        Err(Twice {
            file: file_of(again),
            fault: Fault::new(self.offsets[again], field, Problem::Twice { first }),
        })
    }
}

/// A tensor that stands twice.
#[derive(Debug)]
pub(super) struct Twice {
    /// Which file holds the second one.
    pub(super) file: usize,
    pub(super) fault: Fault,
}
