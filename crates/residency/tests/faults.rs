//! Files that are full, read-only, damaged or not ours.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Folder, at, gb, held, pool, request};
use plimsoll_residency::{FileLedger, FileOptions, LedgerError, NoOwners, Store, StoreError};
use rusqlite::Connection;

fn open(path: &Path, options: FileOptions) -> Result<FileLedger, StoreError> {
    FileLedger::open(path, options, Arc::new(NoOwners))
}

/// A ledger with this many bookings of a gigabyte, closed again.
fn made(folder: &Folder, bookings: u32) -> PathBuf {
    let path = folder.0.join("ledger");
    let ledger = open(&path, FileOptions::default()).unwrap();
    ledger.init_pools(&[(pool("unified-memory"), Some(gb(1_000)))], at(0)).unwrap();
    for i in 0..bookings {
        ledger.request(&request(&format!("role-{i:04}"), 1), at(0)).unwrap();
    }
    path
}

fn sql(path: &Path, text: &str) {
    Connection::open(path).unwrap().execute_batch(text).unwrap();
}

#[test]
fn a_full_disk_refuses_the_next_booking_and_loses_none() {
    let folder = Folder::new();
    let path = made(&folder, 0);
    let full = FileOptions { max_pages: Some(12), ..FileOptions::default() };
    let ledger = open(&path, full).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        match ledger.request(&request(&format!("role-{acknowledged:04}"), 1), at(0)) {
            Ok(true) => acknowledged += 1,
            Ok(false) => unreachable!("every role is new"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::Store(StoreError::Full { .. })), "{error}");
    assert!(acknowledged > 10);
    assert_eq!(held(&ledger).len(), acknowledged);
    ledger.check().unwrap();
    // Giving back needs no room, and makes some.
    for i in 0..acknowledged / 2 {
        assert!(ledger.release_instance(&format!("role-{i:04}"), at(0)).unwrap());
    }
    assert!(ledger.request(&request("again", 1), at(0)).unwrap());
    drop(ledger);
    let ledger = open(&path, FileOptions::default()).unwrap();
    assert_eq!(held(&ledger).len(), acknowledged - acknowledged / 2 + 1);
    ledger.check().unwrap();
}

#[test]
fn a_read_only_ledger_can_be_looked_at() {
    let folder = Folder::new();
    let path = made(&folder, 2);
    let ledger = open(&path, FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
    assert_eq!(held(&ledger).len(), 2);
    let error = ledger.request(&request("c", 1), at(0)).unwrap_err();
    assert!(matches!(error, LedgerError::Store(StoreError::ReadOnly { .. })), "{error}");
    assert!(error.to_string().ends_with("ledger is read-only"), "{error}");
    assert_eq!(held(&ledger).len(), 2);
    // It sees what others write.
    open(&path, FileOptions::default()).unwrap().release_instance("role-0000", at(0)).unwrap();
    assert_eq!(held(&ledger).len(), 1);
}

#[test]
fn a_ledger_that_is_not_there_cannot_be_looked_at() {
    let folder = Folder::new();
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    let error = open(&folder.0.join("none"), read_only).unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
    let error = open(&folder.0.join("none/none"), FileOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
    fs::write(folder.0.join("empty"), "").unwrap();
    let error = open(&folder.0.join("empty"), read_only).unwrap_err();
    assert!(matches!(error, StoreError::NotALedger { .. }), "{error}");
}

#[test]
fn damage_is_noticed_wherever_it_is_and_never_a_smaller_number() {
    let folder = Folder::new();
    let path = made(&folder, 200);
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 8, "{pages}");
    for page in 0..pages {
        let mut damaged = whole.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        let _ = fs::remove_file(folder.0.join("ledger-wal"));
        let _ = fs::remove_file(folder.0.join("ledger-shm"));
        match open(&path, FileOptions::default()).and_then(|ledger| ledger.list()) {
            Ok(list) => {
                // Only a page that holds nothing may be anything.
                assert_eq!(list.len(), 200, "page {page}");
            }
            Err(StoreError::Corrupt { .. } | StoreError::NotADatabase { .. }) => {}
            Err(other) => panic!("page {page}: {other}"),
        }
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(open(&path, FileOptions::default()).unwrap().list().unwrap().len(), 200);
}

#[test]
fn a_file_that_ends_early_is_damaged() {
    let folder = Folder::new();
    let path = made(&folder, 200);
    let whole = fs::read(&path).unwrap();
    for pages in [1, 2, 5] {
        fs::write(&path, &whole[..pages * 4096]).unwrap();
        let error = open(&path, FileOptions::default()).and_then(|ledger| ledger.list()).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{pages} pages: {error}");
    }
}

#[test]
fn another_file_is_left_as_it_is() {
    let folder = Folder::new();
    let text = folder.0.join("text");
    fs::write(&text, "not a database at all, but longer than a header of one hundred bytes ".repeat(20))
        .unwrap();
    let error = open(&text, FileOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    let other = folder.0.join("other");
    sql(&other, "PRAGMA application_id = 1234; CREATE TABLE t (x);");
    let error = open(&other, FileOptions::default()).unwrap_err();
    assert!(error.to_string().contains("belongs to another program (application id 0x000004d2)"), "{error}");
    let unnamed = folder.0.join("unnamed");
    sql(&unnamed, "CREATE TABLE t (x);");
    let before = fs::read(&unnamed).unwrap();
    assert!(matches!(open(&unnamed, FileOptions::default()), Err(StoreError::NotALedger { .. })));
    assert_eq!(fs::read(&unnamed).unwrap(), before);
}

#[test]
fn a_later_version_is_refused_with_both_named() {
    let folder = Folder::new();
    let path = made(&folder, 1);
    sql(&path, "PRAGMA user_version = 99;");
    let error = open(&path, FileOptions::default()).unwrap_err();
    assert!(
        error.to_string().ends_with("has schema version 99; this program knows versions up to 1"),
        "{error}"
    );
    sql(&path, "PRAGMA user_version = 1;");
    assert_eq!(open(&path, FileOptions::default()).unwrap().list().unwrap().len(), 1);
}

#[test]
fn what_no_ledger_wrote_is_damage() {
    let folder = Folder::new();
    let path = made(&folder, 2);
    for (damage, what) in [
        ("UPDATE bookings SET spec = '{' WHERE instance = 'role-0001'", "spec of 'role-0001'"),
        ("UPDATE bookings SET shares = '[{\"pool\":\"gone\",\"booked\":1}]'", "unknown pool 'gone'"),
        ("UPDATE bookings SET priority = -1", "priority is -1"),
        ("UPDATE bookings SET owners = '[1]'", "owners of"),
        ("UPDATE pools SET id = 'a b'", "white space"),
        ("DELETE FROM counters", "no rows"),
        ("DROP TABLE waiters", "no such table"),
    ] {
        let copy = folder.0.join("copy");
        fs::copy(&path, &copy).unwrap();
        sql(&copy, damage);
        let ledger = open(&copy, FileOptions::default()).unwrap();
        let error = ledger.list().unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { what: told, .. } if told.contains(what)),
            "{damage}: {error}"
        );
        let error = ledger.request(&request("c", 1), at(0)).unwrap_err();
        assert!(matches!(error, LedgerError::Store(StoreError::Corrupt { .. })), "{damage}: {error}");
        drop(ledger);
        for name in ["copy", "copy-wal", "copy-shm"] {
            let _ = fs::remove_file(folder.0.join(name));
        }
    }
}

#[test]
fn a_ledger_that_another_keeps_is_busy_and_works_afterwards() {
    let folder = Folder::new();
    let path = made(&folder, 0);
    let impatient = FileOptions { busy_timeout: Duration::from_millis(1), ..FileOptions::default() };
    let ledger = open(&path, impatient).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = ledger.request(&request("a", 1), at(0)).unwrap_err();
    assert!(error.to_string().ends_with("is kept busy by another process; waited 1 ms"), "{error}");
    assert_eq!(held(&ledger), []);
    other.execute_batch("COMMIT").unwrap();
    assert!(ledger.request(&request("a", 1), at(0)).unwrap());
}

#[test]
fn a_file_that_was_put_away_is_not_written_any_more() {
    let folder = Folder::new();
    let path = made(&folder, 1);
    let ledger = open(&path, FileOptions::default()).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(ledger.list(), Err(StoreError::Replaced { .. })));
    let another = open(&path, FileOptions::default()).unwrap();
    assert_eq!(another.list().unwrap(), []);
    let error = ledger.request(&request("a", 1), at(0)).unwrap_err();
    assert!(matches!(error, LedgerError::Store(StoreError::Replaced { .. })), "{error}");
}

#[test]
fn budgets_are_in_the_file_and_change_only_on_request() {
    let folder = Folder::new();
    let path = made(&folder, 0);
    let ledger = open(&path, FileOptions::default()).unwrap();
    let pools = ledger.init_pools(&[(pool("other"), Some(gb(5)))], at(0)).unwrap();
    assert_eq!((pools.len(), pools[0].budget), (1, Some(gb(1_000))));
    ledger.set_budget(&pool("unified-memory"), None, at(0)).unwrap();
    let again = open(&path, FileOptions::default()).unwrap();
    assert_eq!(again.book().unwrap().pool("unified-memory").unwrap().budget, None);
}
