//! A cluster's registry, ledger and plan in force, kept in etcd.
//!
//! Several machines agree on who is there ([`Registry`]), who holds how much memory ([`EtcdLedger`]) and which plan is in
//! force ([`Plans`]). It has no consensus, no membership and no storage of its own: leases of etcd tell who lives, its
//! transactions admit, its watches tell what changes. What is decided is decided elsewhere: admission by
//! [`plimsoll_residency`], who is who by [`plimsoll_cluster`]. It moves no layers and starts no engines.
//!
//! Calls block. A small runtime of its own runs behind them, and ends with the last handle.
//!
//! # Invariants
//!
//! - A change is one transaction under guards, made at most once: where an answer is lost, what stands there is read back
//!   under a majority's word, and the same guarded change is sent again only if it was not made.
//! - At every revision of the store, what is booked of a pool is at most its budget, however many machines book at once
//!   and whatever fails. A split over several pools is booked whole or not at all.
//! - What a process owns ends with its lease; nobody else has to notice. A lease that was lost is never taken back.
//! - Nothing that a later version wrote is guessed at.
//! - A user and a password are shown nowhere: not in errors, not by `Debug`.
//! - Without a majority nothing is promised: changes are refused within [`Options::patience`], and what was seen last is
//!   shown with its age.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use plimsoll_etcd::{Cluster, ManyMachines, Options, ledger_pool};
//! use plimsoll_residency::{InferenceSpec, ProcOwners, Request, Store, Timestamp};
//!
//! let home = Cluster::open("etcd://10.0.0.7,10.0.0.8,10.0.0.9/home".parse()?, Options::default())?;
//! let ledger = home.ledger(None, Arc::new(ManyMachines(ProcOwners::new())));
//! // A model that is split over two machines: both, or neither.
//! let halves = [(ledger_pool("tower", "CUDA0")?, "20GB".parse()?), (ledger_pool("mac", "ram")?, "30GB".parse()?)];
//! let coder = InferenceSpec::new("coder", "llama.cpp").with_pools(halves);
//! ledger.request(&Request::new("coder", coder), Timestamp::from_millis(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features: `tls` (`etcds://`, certificates). Building it needs `protoc`; the version of etcd is 3.4 or later.

mod bridge;
mod classify;
mod cluster;
mod connection;
mod error;
mod feed;
mod keys;
mod ledger;
mod options;
mod plans;
mod registry;
mod session;
mod url;
mod wire;
mod writes;

pub use cluster::Cluster;
pub use error::EtcdError;
pub use ledger::{Dated, EtcdLedger, ManyMachines};
pub use options::Options;
#[cfg(feature = "tls")]
pub use options::Tls;
pub use plans::{PlanError, PlanInForce, Plans};
pub use registry::{
    Agent, AgentState, Basis, DrainError, JoinError, Members, Mirror, Registry, RegistryEvent, ledger_pool,
};
pub use session::{Lost, Session};
pub use url::{ClusterUrl, Credentials, UrlError};
