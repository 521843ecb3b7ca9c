//! Who holds how much memory: what a resident model is and what it needs.
//!
//! It knows no engine, no plan and no hardware: a model is a role, a runtime and some bytes.
//!
//! # Invariants
//!
//! - [`footprint`] never wraps: needs that add up to more than can be said are [`Bytes::MAX`], which fits nowhere.
//! - `role:x` and `x` name the same role, wherever a role stands.
//! - A written [`InferenceSpec`] comes back equal, and one with an unknown field is refused.
//!
//! ```
//! use plimsoll_residency::{InferenceSpec, footprint};
//! use plimsoll_units::Bytes;
//!
//! let coder = InferenceSpec::new("coder-daily", "llama.cpp")
//!     .with_memory("18GB".parse()?, "2GB".parse()?)
//!     .excluding(["planner"]);
//! assert_eq!(footprint(&coder), "20GB".parse()?);
//! assert!(coder.excludes_role("role:planner"));
//! # Ok::<(), plimsoll_units::ParseError>(())
//! ```
//!
//! Features: `serde` ([`InferenceSpec`] in any format that serde knows).
//!
//! [`Bytes::MAX`]: plimsoll_units::Bytes::MAX

mod advise;
mod attribute;
mod book;
mod error;
mod explain;
#[cfg(feature = "sqlite")]
mod file;
mod memory;
mod owner;
mod proc;
mod refusal;
mod request;
mod runtime;
mod sets;
#[cfg(test)]
mod shuttled;
mod spec;
mod store;
mod sync;
#[cfg(feature = "serde")]
mod text;
mod time;

pub use advise::{Advice, Eviction, Kept, KeptBecause, NoAdvice, Victim, eviction_advice};
pub use attribute::{Attribution, OutsideUse, attribute};
pub use book::PoolShare;
pub use book::{Admission, Book, Booking, Ended, PoolUse, Queued, Reclaimed, WaitEnd, admit};
pub use error::StoreError;
pub use explain::{Conflict, Explanation, Holding, Shortage, explain};
#[cfg(feature = "sqlite")]
pub use file::{Durability, FileLedger, FileOptions};
pub use memory::{InUse, Reservation, ResidencyLedger, Waiting};
pub use owner::{NoOwners, Owners, ProcessId, Standing};
pub use proc::ProcOwners;
pub use refusal::{CoResidency, UNIFIED_MEMORY};
pub use request::{Request, Terms};
pub use runtime::Runtime;
pub use sets::{MOST_ROLES, MOST_SETS, RoleSets, SetsError, maximal_sets};
pub use spec::{InferenceSpec, LatencyClass, Needs, footprint};
pub use store::{LedgerError, Store, Ticket, Wait};
pub use time::Timestamp;
