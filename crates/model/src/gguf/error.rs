//! What can be wrong with a GGUF model, and where.

use std::io;
use std::path::PathBuf;

/// Why a GGUF model cannot be read. Every error names the file; those of the header also the byte and the field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file cannot be opened.
    #[error("cannot open {}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{} is not a file", file.display())]
    NotAFile {
        /// What was to be read.
        file: PathBuf,
    },
    /// The system could not deliver the bytes.
    #[error("cannot read {} at byte {offset}, {field}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What was being read.
        field: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The header says something that cannot be.
    #[error("{}, byte {offset}, {field}: {problem}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// Where the field begins.
        offset: u64,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A part of a split model is not there.
    #[error("part {part} of {parts} is missing: {} (wanted by {})", missing.display(), file.display())]
    MissingPart {
        /// The file that was named.
        file: PathBuf,
        /// The part, from 1.
        part: u64,
        /// How many there are.
        parts: u64,
        /// Where it was looked for.
        missing: PathBuf,
    },
    /// The header says that the file is one of several, but its name does not lead to the others.
    #[error(
        "{} holds one of {parts} parts (split.count), but its name does not end in -NNNNN-of-{parts:05}.gguf",
        file.display()
    )]
    PartName {
        /// The file.
        file: PathBuf,
        /// How many there are.
        parts: u64,
    },
    /// A fact about the split does not agree with the files.
    #[error("{}: {key} is {found}, expected {expected}", file.display())]
    Split {
        /// The file.
        file: PathBuf,
        /// The key of the fact.
        key: &'static str,
        /// What the header says.
        found: String,
        /// What the names or the other parts say.
        expected: String,
    },
}

/// What is wrong with a field of a GGUF header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends before the field does.
    #[error("needs {need} bytes, but the file has only {left} left")]
    Ends {
        /// How many bytes the field takes.
        need: u64,
        /// How many there are.
        left: u64,
    },
    /// Not a GGUF file.
    #[error("not a GGUF file: it begins with {found:02x?} in place of \"GGUF\"")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A version that cannot be read.
    #[error("GGUF version {found} is not supported; supported are 2 and 3")]
    Version {
        /// The version.
        found: u32,
    },
    /// A count or a length that is too large to be meant.
    #[error("is {found}; at most {limit} can be read")]
    TooMany {
        /// What the header says.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A name of no characters.
    #[error("is empty")]
    Empty,
    /// A name that is not UTF-8.
    #[error("is not valid UTF-8")]
    NotUtf8,
    /// A number that stands for no type of value.
    #[error("unknown value type {found}; known are 0 to 12")]
    ValueType {
        /// The number.
        found: u32,
    },
    /// Lists in lists in lists.
    #[error("lists are nested more than {limit} deep")]
    Nesting {
        /// The limit.
        limit: u32,
    },
    /// More than anyone needs to know about a model.
    #[error("all kept facts together take more than {limit} bytes")]
    Facts {
        /// The limit.
        limit: u64,
    },
    /// The same key or tensor again.
    #[error("stands twice; first {first}")]
    Twice {
        /// Where the first one stands.
        first: String,
    },
    /// An alignment that no engine accepts.
    #[error("is {found}; an alignment must be a power of two between 8 and 2147483648")]
    Alignment {
        /// What the header says.
        found: String,
    },
    /// A side of no length.
    #[error("is 0; a tensor has no empty sides")]
    EmptySide,
    /// More values than can be counted.
    #[error("the tensor has more than 9223372036854775807 values or bytes")]
    Overflow,
    /// A type of tensor that is not known, so that its size is not known either.
    #[error("unknown tensor type {found}")]
    TensorType {
        /// Its number.
        found: u32,
    },
    /// A row that is not a whole number of blocks.
    #[error("a row of {found} values is not a whole number of {kind} blocks of {block}")]
    Row {
        /// How long a row is.
        found: u64,
        /// The type.
        kind: &'static str,
        /// The values in a block.
        block: u64,
    },
    /// An offset that is not a multiple of the alignment.
    #[error("offset {found} is not a multiple of the alignment {alignment}")]
    Unaligned {
        /// The offset.
        found: u64,
        /// The alignment.
        alignment: u64,
    },
    /// Data that overlaps the tensor before it, or leaves a hole.
    #[error("offset {found}, but the tensors before it end at {expected}")]
    Offset {
        /// The offset.
        found: u64,
        /// Where it has to be.
        expected: u64,
    },
}

/// What is wrong at one place of a file whose name is added later.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: u64,
    pub(super) field: String,
    pub(super) cause: Cause,
}

/// Why a field could not be read.
#[derive(Debug)]
pub(super) enum Cause {
    Io(io::Error),
    Problem(Problem),
}

impl Fault {
    pub(super) fn new(offset: u64, field: impl Into<String>, problem: Problem) -> Self {
        Self { offset, field: field.into(), cause: Cause::Problem(problem) }
    }

    /// The same, with the thing named that the field belongs to.
    pub(super) fn of(mut self, owner: impl std::fmt::Display) -> Self {
        self.field = format!("{owner}, {}", self.field);
        self
    }

    pub(super) fn in_file(self, file: &std::path::Path) -> GgufError {
        let Self { offset, field, cause } = self;
        let file = file.to_owned();
        match cause {
            Cause::Io(source) => GgufError::Read { file, offset, field, source },
            Cause::Problem(problem) => GgufError::Header { file, offset, field, problem },
        }
    }
}
