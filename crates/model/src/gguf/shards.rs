//! The parts of a split model: found by name, checked by what they say of themselves.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_units::Bytes;

use super::error::GgufError;
use super::parse::{self, Part, Table};
use super::source::Source;
use crate::files::Files;
use crate::header::{GgufHeader, Value};

/// How the name of a part ends: `-00001-of-00003.gguf`.
struct PartName {
    /// What stands before.
    stem: String,
    /// Which part, from 1.
    part: u64,
    /// Of how many.
    parts: u64,
}

impl PartName {
    fn of(path: &Path) -> Option<Self> {
        let rest = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, parts) = number_behind(rest, "-of-")?;
        let (stem, part) = number_behind(rest, "-")?;
        Some(Self { stem: stem.to_owned(), part, parts })
    }

    fn sibling(&self, path: &Path, part: u64) -> PathBuf {
        path.with_file_name(format!("{}-{part:05}-of-{:05}.gguf", self.stem, self.parts))
    }
}

/// Five digits at the end, with `mark` before them.
fn number_behind<'a>(text: &'a str, mark: &str) -> Option<(&'a str, u64)> {
    let at = text.len().checked_sub(5).filter(|&at| text.is_char_boundary(at))?;
    let (rest, digits) = text.split_at(at);
    let rest = rest.strip_suffix(mark)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    Some((rest, digits.parse().ok()?))
}

/// Reads the header of one file and adds its tensors to `table`.
fn read_part(files: &dyn Files, path: &Path, table: &mut Table) -> Result<Part, GgufError> {
    let opened = files.open(path).map_err(|source| GgufError::Open { file: path.to_owned(), source })?;
    let (file, len) = opened.ok_or_else(|| GgufError::NotAFile { file: path.to_owned() })?;
    parse::part(&mut Source::new(file, len), table).map_err(|fault| fault.in_file(path))
}

/// Reads `path` and, where it is one of several parts, all the others.
pub(super) fn read(files: &dyn Files, path: &Path) -> Result<GgufHeader, GgufError> {
    let mut table = Table::default();
    let part = read_part(files, path, &mut table)?;
    let name = PartName::of(path).filter(|name| name.parts > 1 || part.metadata.contains_key("split.count"));
    let parts = count(&part.metadata, path, "split.count")?;
    let Some(name) = name else {
        return match parts {
            None | Some(0 | 1) => finish(table, part.metadata, part.missing_bytes, &[(0, path)]),
            Some(parts) => Err(GgufError::PartName { file: path.to_owned(), parts }),
        };
    };
    if !(1..=name.parts).contains(&name.part) {
        let expected = format!("1 to {}", name.parts);
        return Err(disagrees(path, "the number of the part in the name", name.part, expected));
    }
    let mut all = Parts::new(files);
    // The parts are read in their order. The first one has the vocabulary, which is not read twice; another one at hand is.
    let mut at_hand = (name.part == 1).then_some(part);
    if at_hand.is_none() {
        table = Table::default();
    }
    for part in 1..=name.parts {
        all.add(path, &name, (part, at_hand.take()), &mut table)?;
    }
    let tensors = table.tensors.len() as u64;
    for (file, total) in &all.totals {
        if *total != tensors {
            return Err(disagrees(file, "split.tensors.count", total, tensors));
        }
    }
    let files: Vec<(usize, &Path)> = all.read.iter().map(|(begin, file)| (*begin, file.as_path())).collect();
    finish(table, all.metadata, all.missing_bytes, &files)
}

/// What was gathered from the parts so far, beside their tensors.
struct Parts<'a> {
    /// Where they come from.
    files: &'a dyn Files,
    /// The facts of part 1; the others only repeat those of the split.
    metadata: BTreeMap<String, Value>,
    missing_bytes: Bytes,
    /// Each file with the index of its first tensor.
    read: Vec<(usize, PathBuf)>,
    /// The total number of tensors that a part speaks of.
    totals: Vec<(PathBuf, u64)>,
}

impl<'a> Parts<'a> {
    fn new(files: &'a dyn Files) -> Self {
        let (metadata, read, totals) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { files, metadata, missing_bytes: Bytes::ZERO, read, totals }
    }

    /// Takes in one part, which is read unless it is at hand with its tensors in the table.
    fn add(
        &mut self,
        path: &Path,
        name: &PartName,
        (part, at_hand): (u64, Option<Part>),
        table: &mut Table,
    ) -> Result<(), GgufError> {
        let file = name.sibling(path, part);
        let begin = if at_hand.is_some() { 0 } else { table.tensors.len() };
        self.read.push((begin, file.clone()));
        let read = match at_hand {
            Some(read) => read,
            None => read_part(self.files, &file, table).map_err(|error| match error {
                GgufError::Open { file: missing, source } if source.kind() == io::ErrorKind::NotFound => {
                    GgufError::MissingPart { file: path.to_owned(), part, parts: name.parts, missing }
                }
                other => other,
            })?,
        };
        let expect = |key, expected| match count(&read.metadata, &file, key)? {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(disagrees(&file, key, found, expected)),
            None => Err(disagrees(&file, key, "not there", expected)),
        };
        expect("split.count", name.parts)?;
        expect("split.no", part.saturating_sub(1))?;
        if let Some(total) = count(&read.metadata, &file, "split.tensors.count")? {
            self.totals.push((file, total));
        }
        self.missing_bytes = self.missing_bytes.saturating_add(read.missing_bytes);
        if part == 1 {
            self.metadata = read.metadata;
        }
        Ok(())
    }
}

/// A count among the facts, where there is one.
fn count(
    metadata: &BTreeMap<String, Value>,
    file: &Path,
    key: &'static str,
) -> Result<Option<u64>, GgufError> {
    let Some(value) = metadata.get(key) else { return Ok(None) };
    match value.as_u64() {
        Some(n) => Ok(Some(n)),
        None => Err(disagrees(file, key, value.spoken(), "a count")),
    }
}

fn disagrees(file: &Path, key: &'static str, found: impl ToString, expected: impl ToString) -> GgufError {
    let (found, expected) = (found.to_string(), expected.to_string());
    GgufError::Split { file: file.to_owned(), key, found, expected }
}

/// Refuses tensors that stand twice.
pub(super) fn finish(
    table: Table,
    metadata: BTreeMap<String, Value>,
    missing_bytes: Bytes,
    files: &[(usize, &Path)],
) -> Result<GgufHeader, GgufError> {
    table.check_names(files).map_err(|twice| {
        let file = files.get(twice.file).map_or(Path::new(""), |(_, file)| file);
        twice.fault.in_file(file)
    })?;
    Ok(GgufHeader { metadata, tensors: table.tensors, missing_bytes })
}
