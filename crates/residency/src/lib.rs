//! Who holds how much memory, who may not sit beside whom, and who has to go to make room.
//!
//! It counts bytes: it touches no memory, and knows no engine, no plan and no hardware. A model is a role, a runtime and
//! what it needs of which pool.
//!
//! - [`Book`] is the state, as plain data, and [`admit`] the one decision that every ledger makes.
//! - [`ResidencyLedger`] keeps a book in memory: guards that give back on drop, waits without a runtime.
//! - `FileLedger` (feature `sqlite`) keeps one in a file that processes share, and survives their deaths.
//! - [`Store`] is what both can do; [`eviction_advice`], [`explain`], [`maximal_sets`] and [`attribute`] are answers.
//!
//! # Invariants
//!
//! - The sum of what is booked in a pool never exceeds the budget at which it was booked. It may be above a budget that
//!   shrank later, or by measured use; then nobody is thrown out, nobody gets in, and [`PoolUse::excess`] says how much.
//! - A refusal reserves nothing, and what stood before still stands. Several pools are held all or none.
//! - A decision never walks through the residents; only a refusal does, to name them.
//! - Within a priority, who waits first is served first: nobody overtakes another that waits for the same memory.
//! - The clock is the caller's. Which processes live is asked of [`Owners`], on every decision.
//! - [`footprint`] never wraps: needs that add up to more than can be said are [`Bytes::MAX`], which fits nowhere.
//! - `role:x` and `x` name the same role, wherever a role stands.
//!
//! ```
//! use plimsoll_residency::{Eviction, InferenceSpec, Request, ResidencyLedger, Timestamp};
//!
//! let ledger = ResidencyLedger::new(Some("96GB".parse()?));
//! let coder = InferenceSpec::new("coder-daily", "llama.cpp").with_memory("50GB".parse()?, "5GB".parse()?);
//! let planner = InferenceSpec::new("planner", "vllm").with_memory("55GB".parse()?, "0".parse()?);
//! assert_eq!(ledger.reserve("coder-1", &coder), Ok(true));
//! assert_eq!(
//!     ledger.reserve("planner-1", &planner).unwrap_err().to_string(),
//!     "unplaceable: 'planner' needs 55.0 GB but only 41.0 GB of the 96.0 GB unified-memory budget is free \
//!      (held by coder-daily 55.0 GB)"
//! );
//! let request = Request::new("planner-1", planner);
//! let advice = ledger.eviction_advice(&request, &Eviction::default(), Timestamp::ZERO).unwrap();
//! assert_eq!(advice.victims[0].role, "coder-daily");
//! # Ok::<(), plimsoll_units::ParseError>(())
//! ```
//!
//! Features: `serde` ([`InferenceSpec`], what a ledger shows, and `BookRecord`, from which a store of one's own makes a
//! book, in any format that serde knows), `sqlite` (the ledger in a file).
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
#[cfg(feature = "serde")]
mod record;
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
pub use book::{Admission, Book, Booking, Ended, Holder, PoolUse, Queued, Reclaimed, WaitEnd, admit};
pub use error::StoreError;
pub use explain::{Conflict, Explanation, Holding, Shortage, explain};
#[cfg(feature = "sqlite")]
pub use file::{Durability, FileLedger, FileOptions};
pub use memory::{InUse, Reservation, ResidencyLedger, Waiting};
pub use owner::{NoOwners, Owners, ProcessId, Standing};
pub use proc::ProcOwners;
#[cfg(feature = "serde")]
pub use record::{BookRecord, BookingRecord, Changes, RecordError, ShareRecord, WaitRecord};
pub use refusal::{CoResidency, UNIFIED_MEMORY};
pub use request::{Request, Terms};
pub use runtime::Runtime;
pub use sets::{MOST_ROLES, MOST_SETS, RoleSets, SetsError, maximal_sets};
pub use spec::{InferenceSpec, LatencyClass, Needs, footprint};
pub use store::{LedgerError, Store, Ticket, Wait};
pub use time::Timestamp;
