//! What can be wrong with a checkpoint, and where.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_units::Bytes;

/// Something odd about a checkpoint that changes no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The index declares another total than its files hold; the files count.
    #[error(
        "{} declares a total of {} bytes, but its files hold {}; the files count",
        file.display(), declared.get(), found.get()
    )]
    TotalSize {
        /// The index.
        file: PathBuf,
        /// What it declares.
        declared: Bytes,
        /// What the headers of its files add up to.
        found: Bytes,
    },
    /// A file of the checkpoint holds tensors that the index does not list; they count all the same.
    #[error("{} holds tensors that the index does not list ({count}, first '{first}'); they count", file.display())]
    Unlisted {
        /// The file.
        file: PathBuf,
        /// The first of them in the header.
        first: String,
        /// How many there are.
        count: u64,
    },
}

/// Why a checkpoint cannot be read. Every error names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The system could not deliver the bytes.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Neither a file nor a folder.
    #[error("{} is neither a file nor a folder", file.display())]
    NotAFile {
        /// What was to be read.
        file: PathBuf,
    },
    /// A folder without a checkpoint.
    #[error("{} holds neither model.safetensors.index.json nor model.safetensors", folder.display())]
    NoCheckpoint {
        /// The folder.
        folder: PathBuf,
    },
    /// One of several files, without an index that names it and the others.
    #[error("{} is one of {parts} files, but no model.safetensors.index.json beside it names it", file.display())]
    NoIndex {
        /// The file.
        file: PathBuf,
        /// How many files its name speaks of.
        parts: u32,
    },
    /// A file that the index names is not there.
    #[error("{} is missing, named by {}", missing.display(), index.display())]
    MissingFile {
        /// The index.
        index: PathBuf,
        /// Where the file was looked for.
        missing: PathBuf,
    },
    /// The index lists a tensor in a file that does not hold it.
    #[error("{} does not hold the tensor '{tensor}' that {} lists in it", file.display(), index.display())]
    MissingTensor {
        /// The index.
        index: PathBuf,
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// Two files, or two places of one file, hold a tensor of the same name.
    #[error("the tensor '{tensor}' stands twice{}", places(first, again))]
    Twice {
        /// The tensor.
        tensor: String,
        /// One file.
        first: PathBuf,
        /// The other; the same where one file holds both.
        again: PathBuf,
    },
    /// Text that is not what it should be.
    #[error("{}, {part}, line {line} column {column}: {message}", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// Which part of the file.
        part: &'static str,
        /// Which line of that part, from 1.
        line: usize,
        /// How many bytes of that line were read.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// The header says something that cannot be.
    #[error("{}: {problem}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// Where two tensors of one name stand.
fn places(first: &Path, again: &Path) -> String {
    if first == again {
        format!(" in {}", first.display())
    } else {
        format!(": in {} and in {}", first.display(), again.display())
    }
}

/// What is wrong with a safetensors file, an index or a `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends within its header.
    #[error("byte {offset}: the header needs {need} bytes, but the file has only {left} left")]
    Ends {
        /// Where the part begins that is cut.
        offset: u64,
        /// How many bytes it takes.
        need: u64,
        /// How many there are.
        left: u64,
    },
    /// A text that is too long to be meant.
    #[error("{what} has {found} bytes; at most {limit} can be read")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// How long it is.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A file name in an index that leads out of its folder, or to another format.
    #[error("weight_map names the file {found:?}; it must be a .safetensors file in the same folder")]
    FileName {
        /// The name.
        found: String,
    },
    /// An index that lists nothing.
    #[error("weight_map lists no tensors")]
    Nothing,
    /// Data that overlaps, or leaves a hole.
    #[error("tensor '{tensor}', data_offsets: begins at {found}, but the data before it ends at {expected}")]
    Offset {
        /// The tensor.
        tensor: String,
        /// Where it begins.
        found: u64,
        /// Where it has to begin.
        expected: u64,
    },
    /// An extent that does not suit type and shape.
    #[error("tensor '{tensor}', data_offsets: {begin} to {end} does not hold the {need} bytes of its shape")]
    Extent {
        /// The tensor.
        tensor: String,
        /// Where it begins.
        begin: u64,
        /// Where it ends.
        end: u64,
        /// What type and shape take.
        need: u64,
    },
    /// Bytes that no tensor owns.
    #[error("byte {end}: the data of the tensors ends here, but the file has {extra} bytes more")]
    Trailing {
        /// Where the data ends.
        end: u64,
        /// How much is left over.
        extra: u64,
    },
}
