//! What can go wrong with what keeps a ledger.

use std::path::PathBuf;
use std::time::Duration;

/// Why a book could not be read or written. Nothing changed, and nothing that was acknowledged before is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be opened or made.
    #[error("cannot open the ledger {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file is no database.
    #[error("{} is not a ledger: it is no SQLite database", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is a database of another program.
    #[error("{} is not a ledger: it belongs to another program (application id {found:#010x})", path.display())]
    NotALedger {
        /// The file.
        path: PathBuf,
        /// What it says that it is.
        found: u32,
    },
    /// The file was written by a later version.
    #[error("the ledger {} has schema version {found}; this program knows versions up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// The file may only be read.
    #[error("the ledger {} is read-only", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// There is no room for what was to be written.
    #[error("no room left to write the ledger {}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file holds something that no ledger wrote.
    #[error("the ledger {} is damaged: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Another process keeps the file.
    #[error("the ledger {} is kept busy by another process; waited {} ms", path.display(), waited.as_millis())]
    Busy {
        /// The file.
        path: PathBuf,
        /// How long was waited at least.
        waited: Duration,
    },
    /// The file was removed, or another was put in its place.
    #[error("the ledger {} was removed or replaced while it was open", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The ledger is kept by another program, which did not do what was asked. Where its answer was lost, the cause says
    /// that the change may still have been made.
    #[error("cannot read or write the ledger at {place}")]
    Remote {
        /// Where it is kept.
        place: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Reading or writing failed in another way.
    #[error("cannot read or write the ledger {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
