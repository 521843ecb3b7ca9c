//! safetensors checkpoints: headers, index and `config.json`.
//!
//! Only headers are read. A checkpoint is exactly the files that its index names, each once. Limits keep what a hostile
//! checkpoint can take below 64 MiB of memory; every refusal names the file.
//!
//! ```
//! use std::path::Path;
//!
//! use plimsoll_model::TensorType;
//! use plimsoll_model::safetensors::read_safetensors_from;
//!
//! let header = br#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
//! let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 12]].concat();
//! let checkpoint = read_safetensors_from(&file[..], file.len() as u64, Path::new("w.safetensors"))?;
//! let tensor = &checkpoint.tensors[0];
//! assert_eq!((&tensor.dims[..], tensor.kind, tensor.bytes.get()), (&[3, 2][..], TensorType::BF16, 12));
//! # Ok::<(), plimsoll_model::safetensors::SafetensorsError>(())
//! ```

mod error;
mod header;
mod index;
mod json;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_units::Bytes;
use serde_json::Value;

pub use error::{Problem, SafetensorsError, Warning};

use crate::files::{Files, OnDisk, Opened};
use crate::header::{Tensor, shown};
use crate::tensor::TensorType;
use header::Table;

/// The index of a checkpoint of several files.
const INDEX: &str = "model.safetensors.index.json";

/// The file of a checkpoint of one.
const SINGLE: &str = "model.safetensors";

/// The longest `config.json` that is read, in bytes: parsed, it takes many times as much.
const LONGEST_CONFIG: u64 = 1 << 20;

/// A checkpoint: the headers of all its files, and the model's hyperparameters beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// `config.json`, where there is one beside the weights.
    pub config: Option<Value>,
    /// The tensors of all files, by name. Sides are in GGUF's order, the contiguous one first; a scalar has one side of 1.
    pub tensors: Vec<Tensor>,
    /// How many bytes of tensor data the headers promise beyond the end of the files; zero for a whole checkpoint.
    pub missing_bytes: Bytes,
    /// What is odd, but changes no size.
    pub warnings: Vec<Warning>,
}

/// Reads a checkpoint: a folder (its index, else its only file), an index, or a single file. One file of several is read
/// through the index beside it, together with the others.
///
/// # Errors
///
/// A file that is missing or ends within its header, or a header or an index that cannot be: see [`SafetensorsError`].
pub fn read_safetensors(path: &Path) -> Result<Checkpoint, SafetensorsError> {
    read_safetensors_of(&OnDisk, path)
}

/// The same of files from elsewhere.
pub(crate) fn read_safetensors_of(files: &dyn Files, path: &Path) -> Result<Checkpoint, SafetensorsError> {
    if files.is_folder(path).map_err(|source| unreadable(path, source))? {
        let (index, single) = (path.join(INDEX), path.join(SINGLE));
        if let Some(opened) = there(open_text(files, &index))? {
            return read_index(files, &index, opened, None);
        }
        return match there(open(files, &single))? {
            Some(opened) => read_single(files, &single, opened),
            None => Err(SafetensorsError::NoCheckpoint { folder: path.to_owned() }),
        };
    }
    if path.extension().is_some_and(|extension| extension == "json") {
        return read_index(files, path, open_text(files, path)?, None);
    }
    let Some((name, parts)) = name_of_one_of_several(path) else {
        return read_single(files, path, open(files, path)?);
    };
    let index = path.with_file_name(INDEX);
    let lonely = || SafetensorsError::NoIndex { file: path.to_owned(), parts };
    let opened = there(open_text(files, &index))?.ok_or_else(lonely)?;
    read_index(files, &index, opened, Some((name, &lonely)))
}

/// Reads the header of one file of `len` bytes from anything that can be read. `file` is what errors call it.
///
/// # Errors
///
/// As [`read_safetensors`], without those of several files.
pub fn read_safetensors_from(
    reader: impl Read,
    len: u64,
    file: &Path,
) -> Result<Checkpoint, SafetensorsError> {
    let mut table = Table::default();
    let missing_bytes = header::read(reader, len, file, &mut table)?;
    finish(table, &[(0, file.to_owned())], missing_bytes)
}

fn unreadable(file: &Path, source: io::Error) -> SafetensorsError {
    SafetensorsError::Read { file: file.to_owned(), source }
}

/// A name such as `model-00001-of-00003.safetensors`, and its second number where that is more than one.
fn name_of_one_of_several(path: &Path) -> Option<(&str, u32)> {
    let name = path.file_name()?.to_str()?;
    let (rest, parts) = name.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
    let (_, part) = rest.rsplit_once('-')?;
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|_| digits.len() == 5);
    number(part)?;
    number(parts).filter(|&parts| parts > 1).map(|parts| (name, parts))
}

fn opened<'a>(path: &Path, opened: io::Result<Option<Opened<'a>>>) -> Result<Opened<'a>, SafetensorsError> {
    let opened = opened.map_err(|source| unreadable(path, source))?;
    opened.ok_or_else(|| SafetensorsError::NotAFile { file: path.to_owned() })
}

/// Opens a file of which the header is read.
fn open<'a>(files: &'a dyn Files, path: &Path) -> Result<Opened<'a>, SafetensorsError> {
    opened(path, files.open(path))
}

/// Opens an index.
fn open_text<'a>(files: &'a dyn Files, path: &Path) -> Result<Opened<'a>, SafetensorsError> {
    opened(path, files.open_text(path, header::LONGEST_HEADER))
}

/// Nothing where there is no such file.
fn there(opened: Result<Opened<'_>, SafetensorsError>) -> Result<Option<Opened<'_>>, SafetensorsError> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(SafetensorsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(SafetensorsError::NotAFile { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_single(
    files: &dyn Files,
    path: &Path,
    (file, len): Opened<'_>,
) -> Result<Checkpoint, SafetensorsError> {
    let checkpoint = read_safetensors_from(file, len, path)?;
    Ok(Checkpoint { config: config_beside(files, path)?, ..checkpoint })
}

/// Says that a file is not one of the checkpoint's.
type Lonely<'a> = &'a dyn Fn() -> SafetensorsError;

/// Reads all files that an index names; `wanted` has to be one of them.
fn read_index(
    source: &dyn Files,
    path: &Path,
    (file, len): Opened<'_>,
    wanted: Option<(&str, Lonely<'_>)>,
) -> Result<Checkpoint, SafetensorsError> {
    let mut index = index::read(file, len, path)?;
    if let Some((name, lonely)) = wanted
        && !index.files.iter().any(|file| file == name)
    {
        return Err(lonely());
    }
    let names = std::mem::take(&mut index.files);
    let mut table = Table::default();
    table.kept = index.kept;
    table.tensors.reserve_exact(index.file_of.len());
    let mut files: Vec<(usize, PathBuf)> = Vec::new();
    let mut missing_bytes = Bytes::ZERO;
    let mut warnings = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let begin = table.tensors.len();
        let at = path.with_file_name(name);
        let (file, len) = open(source, &at).map_err(|error| match error {
            SafetensorsError::Read { file: missing, source } if source.kind() == io::ErrorKind::NotFound => {
                SafetensorsError::MissingFile { index: path.to_owned(), missing }
            }
            other => other,
        })?;
        missing_bytes = missing_bytes.saturating_add(header::read(file, len, &at, &mut table)?);
        let mut unlisted: Option<(String, u64)> = None;
        let kept = index.kept;
        for tensor in &table.tensors[begin..] {
            if !index.found(&tensor.name, number) {
                unlisted.get_or_insert_with(|| (shown(&tensor.name), 0)).1 += 1;
            }
        }
        table.kept -= kept - index.kept;
        if let Some((first, count)) = unlisted {
            warnings.push(Warning::Unlisted { file: at.clone(), first, count });
        }
        files.push((begin, at));
    }
    let checkpoint = finish(table, &files, missing_bytes)?;
    if let Some((tensor, number)) = index.file_of.pop_first() {
        let file = path.with_file_name(&names[number]);
        return Err(SafetensorsError::MissingTensor { index: path.to_owned(), file, tensor: shown(&tensor) });
    }
    let found = Bytes::saturating_sum(checkpoint.tensors.iter().map(|tensor| tensor.bytes));
    if let Some(declared) = index.total.map(Bytes::new).filter(|&declared| declared != found) {
        warnings.push(Warning::TotalSize { file: path.to_owned(), declared, found });
    }
    Ok(Checkpoint { config: config_beside(source, path)?, warnings, ..checkpoint })
}

/// Refuses tensors that stand twice and sorts them. Each file comes with the index of its first tensor.
fn finish(
    mut table: Table,
    files: &[(usize, PathBuf)],
    missing_bytes: Bytes,
) -> Result<Checkpoint, SafetensorsError> {
    let tensors = &mut table.tensors;
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    // Names have long beginnings in common, so comparing them is most of the work: sorted once, in runs where they are.
    order.sort_by(|&a, &b| tensors[a].name.cmp(&tensors[b].name));
    let twice = order.windows(2).find(|pair| tensors[pair[0]].name == tensors[pair[1]].name);
    if let Some(&[first, again]) = twice {
        let file_of = |i: usize| {
            let file = files.iter().rev().find(|(begin, _)| *begin <= i);
            file.map(|(_, file)| file.clone()).unwrap_or_default()
        };
        let tensor = shown(&tensors[first].name);
        return Err(SafetensorsError::Twice { tensor, first: file_of(first), again: file_of(again) });
    }
    let taken = || Tensor { name: String::new(), dims: Vec::new(), kind: TensorType::U8, bytes: Bytes::ZERO };
    let tensors = order.into_iter().map(|i| std::mem::replace(&mut tensors[i], taken())).collect();
    Ok(Checkpoint { config: None, tensors, missing_bytes, warnings: Vec::new() })
}

/// `config.json` in the folder of `path`.
fn config_beside(files: &dyn Files, path: &Path) -> Result<Option<Value>, SafetensorsError> {
    let path = path.with_file_name("config.json");
    let (file, found) = match opened(&path, files.open_text(&path, LONGEST_CONFIG)) {
        Ok(opened) => opened,
        Err(SafetensorsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if found > LONGEST_CONFIG {
        let problem = Problem::TooLong { what: "the text", found, limit: LONGEST_CONFIG };
        return Err(SafetensorsError::Header { file: path, problem });
    }
    let mut text = Vec::new();
    file.take(LONGEST_CONFIG).read_to_end(&mut text).map_err(|source| unreadable(&path, source))?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| json::error(error, &path, "hyperparameters", None))
}
