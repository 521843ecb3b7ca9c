//! The load line of a machine, over HTTP: plans, bookings, events, and a page to look at.
//!
//! It answers for one machine and its ledger, and plans on that machine, on machines that a file describes, or on a cluster
//! that somebody else keeps ([`Source`]). It is no scheduler and no proxy: it loads, moves and stops nothing, and what it
//! decides is decided in the `plimsoll` crate.
//!
//! # Invariants
//!
//! - Without a token only this machine is listened to, under its own names, and no page of another site may ask.
//! - Wrong input is an answer that names what is wrong, never a fault; nothing that is sent makes it panic.
//! - Everything that can be sent is bounded: bodies, time, connections, requests, event streams and what they have not read.
//! - A slow reader of events holds nobody up; what it loses is counted.
//! - Planning, drivers and the ledger's file are never waited for on a thread of the runtime.
//! - The end of the agent ends no booking.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use plimsoll::answers::Occupancy;
//! use plimsoll::profile::{FreeMemory, SystemProfile};
//! use plimsoll::residency::ResidencyLedger;
//! use plimsoll::units::{Bytes, NodeId};
//! use plimsoll::watcher::SystemProfileWatcher;
//! use plimsoll_agent::{Agent, Config, Setup, Source};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! runtime.block_on(async {
//!     let probe = || Ok(SystemProfile::detect_fast());
//!     let setup = Setup {
//!         id: NodeId::new("here")?,
//!         watcher: SystemProfileWatcher::with_probe(Duration::from_secs(5), probe)?,
//!         free: Box::new(FreeMemory::read),
//!         ledger: Arc::new(ResidencyLedger::with_pools([])),
//!         kept_free: Bytes::gib(1),
//!         measure: Box::new(|book| Occupancy::new(book, &book.holders(), &[], "ram", Vec::new())),
//!         source: Source::Machine,
//!     };
//!     let agent = Agent::bind(Config::default(), setup).await?;
//!     assert!(agent.address().ip().is_loopback() && agent.address().port() != 0);
//!     agent.run(async {}).await;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features: `etcd` (a place in a cluster that is kept in etcd, [`Source`]; building it needs protoc).

#[cfg(not(feature = "etcd"))]
#[path = "alone.rs"]
mod joined;

mod api;
mod app;
mod clock;
mod config;
mod error;
mod guard;
#[cfg(feature = "etcd")]
mod joined;
mod journal;
mod keeper;
mod models;
#[cfg(feature = "etcd")]
mod news;
mod server;
mod source;
mod stall;
mod token;

pub use api::{Copies, PlanRequest};
pub use app::{FreeProbe, Measure, Setup};
pub use config::{Config, Limits};
#[cfg(feature = "etcd")]
pub use joined::Joining;
pub use models::ModelsError;
pub use server::{Agent, StartError};
pub use source::Source;
pub use token::{Token, TokenError};
