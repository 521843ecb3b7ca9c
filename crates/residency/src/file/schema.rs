//! The tables of a ledger file, and how an older file gets them.

use rusqlite::Connection;

use super::{Durability, File};
use crate::StoreError;

/// `PLIM`, by which a file is known as a ledger.
const APPLICATION_ID: u32 = 0x504c_494d;

/// What makes each version out of the one before; the first makes the first. A step that was released never changes.
const STEPS: &[&str] = &["
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO counters VALUES ('next_ticket', 0);
    CREATE TABLE pools (id TEXT PRIMARY KEY, budget INTEGER) STRICT, WITHOUT ROWID;
    CREATE TABLE bookings (
        instance TEXT PRIMARY KEY,
        spec TEXT NOT NULL,
        shares TEXT NOT NULL,
        owners TEXT NOT NULL,
        pinned INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        lease_ms INTEGER,
        ttl_ms INTEGER,
        since INTEGER NOT NULL,
        lease_until INTEGER,
        expires INTEGER,
        boot TEXT,
        in_use INTEGER NOT NULL,
        ticket INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE waiters (
        ticket INTEGER PRIMARY KEY,
        instance TEXT NOT NULL,
        spec TEXT NOT NULL,
        owners TEXT NOT NULL,
        pinned INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        lease_ms INTEGER,
        ttl_ms INTEGER,
        since INTEGER NOT NULL,
        lease_until INTEGER,
        deadline INTEGER
    ) STRICT;
"];

/// Makes sure that the file is a ledger of the version that is known here, and sets the connection up.
pub(super) fn prepare(connection: &Connection, file: &File) -> Result<(), StoreError> {
    let told = |source| file.error(source);
    connection.busy_timeout(file.options.busy_timeout).map_err(told)?;
    // Damage is noticed where it is met, and nothing in a file is run as code.
    connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;").map_err(told)?;
    let found = version(connection, file)?;
    if file.options.read_only {
        return if found == 0 { Err(not_a_ledger(file, 0)) } else { Ok(()) };
    }
    write_ahead(connection, file)?;
    let synchronous = match file.options.durability {
        Durability::Normal => "NORMAL",
        Durability::Full => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous).map_err(told)?;
    if let Some(pages) = file.options.max_pages {
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).map_err(told)?;
    }
    migrate(connection, file, STEPS)
}

/// The schema version; 0 for an empty file.
fn version(connection: &Connection, file: &File) -> Result<i64, StoreError> {
    let told = |source| file.open_error(source);
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(told);
    let found = number("PRAGMA user_version")?;
    // Signed in the file.
    let id = i32::try_from(number("PRAGMA application_id")?).unwrap_or_default().cast_unsigned();
    if id == APPLICATION_ID {
        return Ok(found);
    }
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if id == 0 && found == 0 && tables == 0 { Ok(0) } else { Err(not_a_ledger(file, id)) }
}

fn not_a_ledger(file: &File, found: u32) -> StoreError {
    StoreError::NotALedger { path: file.path.clone(), found }
}

/// Switches the file to write-ahead logging, once for ever. That needs it alone, and SQLite does not wait for that.
fn write_ahead(connection: &Connection, file: &File) -> Result<(), StoreError> {
    let step = std::time::Duration::from_millis(5);
    let mut waited = std::time::Duration::ZERO;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(_) => return Ok(()),
            Err(source) => match file.error(source) {
                StoreError::Busy { .. } if waited < file.options.busy_timeout => {
                    std::thread::sleep(step);
                    waited += step;
                }
                error => return Err(error),
            },
        }
    }
}

/// Brings the file to the last of these versions, in one transaction.
fn migrate(connection: &Connection, file: &File, steps: &[&str]) -> Result<(), StoreError> {
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    if check(connection, file, known)? == known {
        return Ok(());
    }
    let told = |source| file.error(source);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(told)?;
    let migrated = (|| {
        // Another process may have been first.
        let found = check(connection, file, known)?;
        let done = usize::try_from(found).unwrap_or_default();
        for step in steps.iter().skip(done) {
            connection.execute_batch(step).map_err(told)?;
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID.cast_signed()).map_err(told)?;
        connection.pragma_update(None, "user_version", known).map_err(told)?;
        connection.execute_batch("COMMIT").map_err(told)
    })();
    if migrated.is_err() && !connection.is_autocommit() {
        drop(connection.execute_batch("ROLLBACK"));
    }
    migrated
}

fn check(connection: &Connection, file: &File, known: i64) -> Result<i64, StoreError> {
    let found = version(connection, file)?;
    if found > known {
        return Err(StoreError::Newer { path: file.path.clone(), found, known });
    }
    if found < 0 {
        return Err(file.corrupt(format!("schema version {found}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::FileOptions;
    use super::*;

    #[test]
    fn an_older_file_gets_what_is_new_and_keeps_what_it_has() {
        let connection = Connection::open_in_memory().unwrap();
        let file = File { path: "ledger".into(), options: FileOptions::default(), identity: None };
        migrate(&connection, &file, &STEPS[..1]).unwrap();
        connection.execute("INSERT INTO pools VALUES ('CUDA0', 5)", []).unwrap();
        let steps = [STEPS[0], "ALTER TABLE pools ADD COLUMN note TEXT", "UPDATE pools SET note = 'new'"];
        migrate(&connection, &file, &steps).unwrap();
        let row = connection.query_row("SELECT id, budget, note FROM pools", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
        });
        assert_eq!(row, Ok(("CUDA0".to_owned(), 5, "new".to_owned())));
        assert_eq!(version(&connection, &file).unwrap(), 3);
        // Back to a program that knows less.
        let error = migrate(&connection, &file, STEPS).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 3, known: 1, .. }), "{error}");
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_at_its_version() {
        let connection = Connection::open_in_memory().unwrap();
        let file = File { path: "ledger".into(), options: FileOptions::default(), identity: None };
        migrate(&connection, &file, &STEPS[..1]).unwrap();
        let steps = [STEPS[0], "CREATE TABLE half (x) STRICT"];
        assert!(migrate(&connection, &file, &steps).is_err());
        assert_eq!(version(&connection, &file).unwrap(), 1);
        migrate(&connection, &file, STEPS).unwrap();
    }
}
