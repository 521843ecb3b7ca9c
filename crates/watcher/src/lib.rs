//! What changed between two looks at a machine.
//!
//! It compares profiles that others took. It never looks itself, and it does not know who listens.
//!
//! # Invariants
//!
//! - Equal profiles have no changes.
//! - A device is the same device while its stable id is the same, whatever its number.
//! - The same two profiles give the same texts in the same order.
//!
//! ```
//! use plimsoll_profile::SystemProfile;
//! use plimsoll_watcher::describe_changes;
//!
//! let before = SystemProfile::detect_fast();
//! let mut after = before.clone();
//! after.cpu.cores.usable += 2;
//! assert!(describe_changes(&before, &before).is_empty());
//! let change = &describe_changes(&before, &after)[0];
//! assert!(change.starts_with("usable cores: "), "{change}");
//! ```
//!
//! Features: none.

mod changes;

pub use changes::describe_changes;
