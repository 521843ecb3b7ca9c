//! What every ledger does, in memory and in a file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[cfg(feature = "sqlite")]
#[path = "common/on_file.rs"]
mod on_file;
mod suite;

suite::suite!(in_memory, crate::common::memory);
#[cfg(feature = "sqlite")]
suite::suite!(in_a_file, crate::on_file::file);
