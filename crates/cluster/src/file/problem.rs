//! What can be wrong with a cluster file.

use std::path::PathBuf;

use plimsoll_profile::UnknownBackend;
use plimsoll_units::{Bytes, IdError, ParseError};

/// Why a cluster file was not taken. Nothing of such a file is used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterFileError {
    /// The file cannot be read.
    #[error("cannot read the cluster file {}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any cluster.
    #[error("the cluster file {} has more than {limit} bytes", .path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// How many bytes are read at most.
        limit: u64,
    },
    /// Something in it is wrong.
    #[error("{}line {line}: {problem}", place(.path.as_ref()))]
    Content {
        /// Which file; `None` for a text.
        path: Option<PathBuf>,
        /// Which line, from 1.
        line: usize,
        /// What is wrong there.
        problem: Box<Problem>,
    },
}

fn place(path: Option<&PathBuf>) -> String {
    path.map(|p| format!("{}, ", p.display())).unwrap_or_default()
}

/// What is wrong in one place of a cluster file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the text of each variant says what it is, and its fields are the words of that text"
)]
pub enum Problem {
    /// Not TOML.
    #[error("not valid TOML: {message}")]
    Syntax { message: String },
    /// A key that has no meaning there.
    #[error("unknown key '{key}' in {table}; known are {}", .known.join(", "))]
    UnknownKey { key: String, table: String, known: &'static [&'static str] },
    /// A key without which its table means nothing.
    #[error("{table} has no '{key}'")]
    Missing { key: &'static str, table: String },
    /// A value of the wrong kind.
    #[error("'{key}' in {table} is {found}; expected {expected}")]
    Kind { key: &'static str, table: String, found: &'static str, expected: &'static str },
    /// A number below zero.
    #[error("'{key}' in {table} is negative: {value}")]
    Negative { key: &'static str, table: String, value: String },
    /// A whole number above 2^64 - 1.
    #[error("'{key}' in {table} is larger than 18446744073709551615 (2^64 - 1): {value}")]
    TooLarge { key: &'static str, table: String, value: String },
    /// A text that is no amount and no rate.
    #[error("'{key}' in {table}: {why}")]
    Amount { key: &'static str, table: String, why: ParseError },
    /// A text that is no time.
    #[error("'{key}' in {table}: '{value}' is not a time such as 200us, 1.5ms or 1s")]
    Time { key: &'static str, table: String, value: String },
    /// A text that is no name.
    #[error("'{key}' in {table}: {why}")]
    Id { key: &'static str, table: String, why: IdError },
    /// A backend that nobody knows.
    #[error("'backend' in {table}: {why}")]
    Backend { table: String, why: UnknownBackend },
    /// A rate of zero.
    #[error("'{key}' in {table} is 0 bytes in a second; leave it out when it is not known")]
    StandsStill { key: &'static str, table: String },
    /// No node at all.
    #[error("the cluster file has no [[node]]")]
    NoNodes,
    /// Two nodes of one name.
    #[error("node id '{id}' is used twice, first in line {first}")]
    NodeTwice { id: String, first: usize },
    /// Two devices of one name.
    #[error("device id '{id}' is used twice on node '{node}', first in line {first}")]
    DeviceTwice { id: String, node: String, first: usize },
    /// An id that the node needs for itself.
    #[error(
        "device id '{id}' on node '{node}' is taken by the host's own memory; choose another, such as {instead}"
    )]
    Taken { id: &'static str, node: String, instead: &'static str },
    /// A processor under the name of the GPU that a unified node without devices has.
    #[error(
        "device id '{id}' on node '{node}' is taken by the GPU of a unified node; choose another, such as {instead}"
    )]
    TakenByGpu { id: &'static str, node: String, instead: &'static str },
    /// More free than there is.
    #[error("'{key}' in {table} is {}, but there are only {} in all", .free.exact(), .total.exact())]
    FreeAboveTotal { key: &'static str, table: String, free: Bytes, total: Bytes },
    /// A key that speaks of memory which the node does not give.
    #[error("'{key}' in {table} needs the node's 'memory', which is not given")]
    NeedsMemory { key: &'static str, table: String },
    /// A share for the GPU where it does not share.
    #[error("'gpu_limit' in {table} needs 'unified = true': other GPUs are limited by their own 'cap'")]
    LimitWithoutUnified { table: String },
    /// Two GPUs on one unified memory.
    #[error("{table} is unified and has one GPU device; '{first}' and '{second}' are given")]
    TwoUnifiedGpus { table: String, first: String, second: String },
    /// A key that belongs to the pool that the device shares.
    #[error("'{key}' in {table} belongs to the memory it shares, '{pool}'; set it there")]
    OfThePool { key: &'static str, table: String, pool: String },
    /// The share of an APU that has no part of its own.
    #[error(
        "'gtt' in {table} is what an APU reaches beside its own 'memory', and this device has none of its own"
    )]
    NoCarveOut { table: String },
    /// A pool that nobody has.
    #[error("'pool' in {table} is '{pool}'; node '{node}' has {known}")]
    UnknownPool { table: String, pool: String, node: String, known: String },
    /// An address without a port, or with a bad one.
    #[error("'rpc' in {table} is '{value}': {why}; expected host:port, such as 10.0.0.7:50052")]
    Address { table: String, value: String, why: &'static str },
    /// One address for two nodes.
    #[error("'rpc' in {table} is '{value}', which node '{other}' in line {first} has already")]
    AddressTwice { table: String, value: String, other: String, first: usize },
    /// Two nodes run the engine.
    #[error("'main' in {table}: node '{other}' in line {first} is already marked; one node runs the engine")]
    TwoMains { table: String, other: String, first: usize },
    /// Not two ends.
    #[error("'between' in {table} names {count} nodes; a link has 2 ends")]
    Ends { table: String, count: usize },
    /// An end that is no node.
    #[error("'between' in {table} names the node '{node}', which the file does not have; it has {known}")]
    UnknownEnd { table: String, node: String, known: String },
    /// A link from a node to itself.
    #[error("'between' in {table} joins the node '{node}' with itself")]
    LinkToItself { table: String, node: String },
    /// A second link for the same nodes.
    #[error(
        "'between' in {table}: '{a}' and '{b}' are already joined in line {first}; a link counts in both directions"
    )]
    LinkTwice { table: String, a: String, b: String, first: usize },
}

/// A problem and where it stands, in bytes from the start of the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) problem: Box<Problem>,
}

impl Fault {
    pub(super) fn new(at: usize, problem: Problem) -> Self {
        Self { at, problem: Box::new(problem) }
    }
}

/// The line of a place, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|b| *b == b'\n').count()
}
