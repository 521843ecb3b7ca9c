//! Looks at a machine again and again, and tells subscribers what changed.
//!
//! It watches whatever a probe shows: this machine, or a script in a test. It plans nothing, and it does not know who
//! listens. Only this crate stands on an asynchronous runtime; [`SystemProfileWatcher::start_thread`] and
//! [`Subscription::next_blocking`] serve programs that have none.
//!
//! # Invariants
//!
//! - A subscriber sees first what the machine is, then every change; one that is slow loses what is oldest, never what is
//!   newest, and is never cut off.
//! - A look that fails changes nothing but a count.
//! - A probe never runs on a thread of the runtime, and never twice at once.
//! - What is started in the background ends when its owner is dropped.
//! - Equal profiles have no changes. A device is the same device while its stable id is the same, whatever its number.
//!
//! ```
//! use std::time::Duration;
//!
//! use plimsoll_profile::SystemProfile;
//! use plimsoll_watcher::{ProfileChange, SystemProfileWatcher};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! runtime.block_on(async {
//!     let probe = || Ok(SystemProfile::detect_fast());
//!     let watcher = SystemProfileWatcher::with_probe(Duration::from_secs(5), probe)?;
//!     let mut subscription = watcher.subscribe();
//!     let task = watcher.start_background();
//!     let first = subscription.next().await;
//!     assert_eq!(first, Some(ProfileChange::Updated(watcher.current_profile())));
//!     drop(task);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features: `detect` (`SystemProfileWatcher::new`, which watches this machine with every probe that is compiled in).

mod changes;
mod damp;
mod hot_plug;
mod look;
mod subscription;
mod task;
mod watcher;

pub use changes::describe_changes;
pub use look::LookError;
pub use subscription::{Announcer, ProfileChange, Subscription};
pub use task::{OwnedTask, WatchThread, off_the_runtime};
pub use watcher::{Looks, SystemProfileWatcher};
