//! The ledger in a file that processes share.

mod rows;
mod schema;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{Book, Owners, Store, StoreError, Timestamp};

/// How a ledger file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// How long to wait for other processes.
    pub busy_timeout: Duration,
    /// What survives a power cut.
    pub durability: Durability,
    /// The most pages of 4 KiB that the file may have; `None` leaves it to the disk.
    pub max_pages: Option<u32>,
    /// Whether the file is only looked at.
    pub read_only: bool,
}

/// Five seconds, [`Durability::Normal`], no limit, read and write.
impl Default for FileOptions {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            durability: Durability::Normal,
            max_pages: None,
            read_only: false,
        }
    }
}

/// What survives a power cut. Whatever was acknowledged survives the end of any process, however it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The file stays whole; the last bookings may be lost, which the reboot ends anyway.
    #[default]
    Normal,
    /// Everything acknowledged; every booking waits for the disk.
    Full,
}

/// Who holds how much, in a file that processes share.
///
/// Every operation is one transaction that excludes all others. What was read of the file is kept, and read again only
/// when another process has written.
pub struct FileLedger {
    inner: Mutex<Inner>,
    owners: Arc<dyn Owners>,
}

struct Inner {
    connection: Connection,
    file: File,
    // The book as the file holds it, and the version of the file at which it was read.
    kept: Option<(i64, Book)>,
}

/// What errors say about the file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    path: PathBuf,
    options: FileOptions,
    // What tells the file from another at the same place.
    identity: Option<(u64, u64)>,
}

impl fmt::Debug for FileLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLedger").field("file", &self.lock().file.path).finish_non_exhaustive()
    }
}

impl FileLedger {
    /// Opens a ledger, or makes an empty one without pools. Its folder has to exist.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is no ledger, or was written by a later version.
    pub fn open(
        path: impl AsRef<Path>,
        options: FileOptions,
        owners: Arc<dyn Owners>,
    ) -> Result<Self, StoreError> {
        let mut file = File { path: path.as_ref().to_owned(), options, identity: None };
        let access = if options.read_only {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        };
        let connection = Connection::open_with_flags(&file.path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|source| file.open_error(source))?;
        schema::prepare(&connection, &file)?;
        file.identity = identity(&file.path);
        Ok(Self { inner: Mutex::new(Inner { connection, file, kept: None }), owners })
    }

    /// Reads every page and says what is wrong with the file, if anything is.
    ///
    /// # Errors
    ///
    /// Damaged, or not to be read.
    pub fn check(&self) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.kept = None;
        let said: String = inner
            .connection
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|source| inner.file.error(source))?;
        if said != "ok" {
            return Err(inner.file.corrupt(said));
        }
        inner.show(&mut |_| {})
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked has left a transaction open at worst; the next one begins by ending it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for FileLedger {
    fn transact(&self, now: Timestamp, operation: &mut dyn FnMut(&mut Book)) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.begin("BEGIN IMMEDIATE")?;
        let done = inner.change(&*self.owners, now, operation);
        inner.end(done)
    }

    fn view(&self, look: &mut dyn FnMut(&Book)) -> Result<(), StoreError> {
        self.lock().show(look)
    }
}

impl Inner {
    fn begin(&mut self, how: &str) -> Result<(), StoreError> {
        if !self.connection.is_autocommit() {
            self.roll_back();
        }
        if self.file.identity.is_some() && identity(&self.file.path) != self.file.identity {
            return Err(StoreError::Replaced { path: self.file.path.clone() });
        }
        self.connection.execute_batch(how).map_err(|source| self.file.error(source))
    }

    /// Keeps what was done, or takes it back.
    fn end(&mut self, done: Result<(), StoreError>) -> Result<(), StoreError> {
        let ended = done
            .and_then(|()| self.connection.execute_batch("COMMIT").map_err(|source| self.file.error(source)));
        if ended.is_err() {
            self.roll_back();
        }
        ended
    }

    fn roll_back(&mut self) {
        self.kept = None;
        if !self.connection.is_autocommit() {
            // When even this fails the connection is lost, and the next operation says so.
            drop(self.connection.execute_batch("ROLLBACK"));
        }
    }

    fn change(
        &mut self,
        owners: &dyn Owners,
        now: Timestamp,
        operation: &mut dyn FnMut(&mut Book),
    ) -> Result<(), StoreError> {
        let (version, mut book) = self.current()?;
        book.set_boot(owners.boot());
        book.reclaim(owners, now);
        book.expire_waits(now);
        operation(&mut book);
        book.promote(now);
        let touched = book.touched();
        rows::write(&self.connection, &self.file, &book, &touched)?;
        self.kept = Some((version, book));
        Ok(())
    }

    fn show(&mut self, look: &mut dyn FnMut(&Book)) -> Result<(), StoreError> {
        self.begin("BEGIN")?;
        let shown = self.current().map(|kept| {
            look(&kept.1);
            self.kept = Some(kept);
        });
        self.end(shown)
    }

    /// The book as the file holds it now. To be called in a transaction, and to be put back when it stays true.
    fn current(&mut self) -> Result<(i64, Book), StoreError> {
        let version = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|source| self.file.error(source))?;
        match self.kept.take() {
            Some(kept) if kept.0 == version => Ok(kept),
            _ => Ok((version, rows::read(&self.connection, &self.file)?)),
        }
    }
}

impl File {
    fn open_error(&self, source: rusqlite::Error) -> StoreError {
        match self.error(source) {
            StoreError::Io { path, source } => StoreError::Open { path, source },
            other => other,
        }
    }

    fn corrupt(&self, what: impl Into<String>) -> StoreError {
        StoreError::Corrupt { path: self.path.clone(), what: what.into() }
    }

    fn error(&self, source: rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Busy { path, waited: self.options.busy_timeout }
            }
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
            Some(ErrorCode::DiskFull) => StoreError::Full { path },
            Some(ErrorCode::NotADatabase) => StoreError::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => StoreError::Corrupt { path, what: source.to_string() },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::Open { path, source: source.into() }
            }
            // What no ledger wrote: a table that is missing, a value of another type.
            Some(ErrorCode::Unknown | ErrorCode::TypeMismatch) | None => {
                StoreError::Corrupt { path, what: source.to_string() }
            }
            Some(_) => StoreError::Io { path, source: source.into() },
        }
    }
}

/// Device and inode of a file.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<(u64, u64)> {
    None
}
