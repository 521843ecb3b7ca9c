//! What can be wrong with a checkpoint, and where.

use std::io;
use std::path::PathBuf;

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
    #[error("{} holds {count} tensors that the index does not list, first '{first}'; they count", file.display())]
    Unlisted {
        /// The file.
        file: PathBuf,
        /// The first of them by name.
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
}
