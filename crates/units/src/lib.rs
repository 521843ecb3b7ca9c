//! The words that plimsoll's crates share: amounts of memory, rates, ids and generations.
//!
//! A word belongs here only when two crates need it.
//!
//! # Invariants
//!
//! - [`Bytes`] has no `+` and no `-`: arithmetic is checked, or says in its name that it saturates.
//! - Text that was parsed is never rounded up: `1.5B` is one byte.
//! - A [`NodeId`], [`DeviceId`] or [`PoolId`] never holds white space, control characters or `/`, `,`, `=`, so that it
//!   can stand in a command line and in `node/device`.
//!
//! ```
//! use plimsoll_units::Bytes;
//!
//! let card: Bytes = "24GiB".parse()?;
//! assert_eq!(card, Bytes::gib(24));
//! assert_eq!(card.to_string(), "25.8 GB");
//! assert_eq!(card.checked_sub(Bytes::gib(25)), None);
//! # Ok::<(), plimsoll_units::ParseError>(())
//! ```
//!
//! Features: `serde` (numbers in, numbers out; text such as `"24GiB"` is read as well).

mod bytes;
mod ids;
mod quantity;
mod rate;

pub use bytes::{Bytes, Exact, Scaled};
pub use ids::{DeviceId, DeviceRef, Generation, IdError, NodeId, PoolId};
pub use quantity::{ParseError, ParseErrorKind};
pub use rate::BytesPerSec;
