//! The load line for models: what fits where, before it runs.
//!
//! This is the facade: every crate of the stack under one name, and the wiring between them. [`Job`] is the main job, from
//! a model, a cluster and a request to a [`Planned`] that knows its bytes, its speed and its command line. Take one of
//! the smaller crates instead where one is enough: they stand alone.
//!
//! # Invariants
//!
//! - A plan that [`Job::plan`] returns has passed [`balance::audit`], which shares no code with the planners.
//! - A suggestion of a refusal was planned again: it works.
//! - Nothing here loads a model: headers only. Nothing that decides reads a clock.
//!
#![cfg_attr(feature = "files", doc = "```")]
#![cfg_attr(not(feature = "files"), doc = "```ignore")]
//! use plimsoll::balance::PlanOptions;
//! use plimsoll::{Engine, Job, cluster, model};
//!
//! let list = model::list::parse_list_toml("name = \"toy\"\nlayers = [ { count = 8, bytes = \"3GB\" } ]")?;
//! let home = cluster::file::parse_cluster(
//!     "[[node]]\nid = \"tower\"\n\
//!      [[node.device]]\nid = \"CUDA0\"\nmemory = \"16GB\"\nbandwidth = \"900GB/s\"\n\
//!      [[node.device]]\nid = \"CUDA1\"\nmemory = \"12GB\"\nbandwidth = \"400GB/s\"\n",
//! )?.snapshot;
//! let model = model::ModelSpec::from_list(&list);
//! let job = Job::new(&model, &home, Engine::None, model::Request::default(), PlanOptions::default());
//! let planned = job.plan()?;
//! assert_eq!(planned.plan.stages[0].layers, 0..5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features, on by default: `answers` (what programs are told as JSON), `cpu`, `cuda` and `nvml` (what this machine is), `gguf` and `safetensors` (model files), `files`
//! (cluster files, layer lists, rosters), `ledger` (a ledger in a file that processes share), `stack` (`Stack`: a
//! machine that is watched, wired to cluster, balancer, ledger and plan), `watch` (what changes on this machine). Off by default: `etcd`
//! (`live`: a cluster that is kept in etcd; building it needs protoc), `etcd-tls` (the same, encrypted), `isolated` (a look at the drivers in a child process), `vulkan` (cards of other makers) and
//! `metal` (Apple's).

mod adapters;
#[cfg(feature = "answers")]
pub mod answers;
mod carried;
mod context;
mod diff;
mod engine;
mod experts;
mod exports;
mod fit;
mod flags;
mod job;
#[cfg(feature = "etcd")]
pub mod live;
mod parts;
mod ranks;
mod rebalance;
mod resident;
#[cfg(feature = "files")]
pub mod roster;
mod size;
#[cfg(feature = "stack")]
mod stack;
mod suggest;

pub use plimsoll_balance as balance;
pub use plimsoll_cluster as cluster;
#[cfg(feature = "etcd")]
pub use plimsoll_etcd as etcd;
pub use plimsoll_export as export;
pub use plimsoll_model as model;
pub use plimsoll_profile as profile;
pub use plimsoll_residency as residency;
pub use plimsoll_simulate as simulate;
pub use plimsoll_units as units;
pub use plimsoll_watcher as watcher;

pub use adapters::{AdaptError, Adapted, Adapter, adapters_of};
pub use context::ContextChoice;
pub use diff::{DeviceDiff, Diff, DiffError, Held, Moved, What, diff};
pub use engine::{Engine, UnknownEngine};
pub use experts::{Offload, PartPlace};
pub use exports::WordsError;
pub use fit::{Fit, Largest, Limit};
pub use flags::{Meaning, MeaningError, meaning, meaning_beside};
pub use job::{CheckError, Checked, DigestError, Job, JobError, Planned, check, digest_for};
pub use parts::{Beside, BesideError, Draft, Projector};
pub use rebalance::{MoveError, Rebalanced, holding, rebalance};
pub use resident::Processes;
pub use size::{Place, Size, size};
#[cfg(feature = "stack")]
pub use stack::{Remedy, Stack, StackBuilder, StackError, StackEvent, Standing, subscribe_to_watcher};
pub use suggest::{Change, Suggestion, suggestions};
