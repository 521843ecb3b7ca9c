//! A cluster's registry, ledger and plan in force, kept in etcd.

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
