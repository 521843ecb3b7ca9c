//! The cluster file: TOML that says which machines there are.

mod node;
mod problem;
mod read;
mod table;
mod write;

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

pub use problem::{ClusterFileError, Problem};
pub use write::write_cluster;

use crate::ClusterSnapshot;

/// How many bytes of a cluster file are read at most.
const LIMIT: u64 = 64 << 20;

/// What `free` says when nobody knows.
const UNKNOWN: &str = "unknown";

/// What a cluster file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFile {
    /// The machines and what is between them, as generation 1.
    pub snapshot: ClusterSnapshot,
}

/// Reads a cluster file.
///
/// # Errors
///
/// The file cannot be read, has more than 64 MiB, or says something that [`parse_cluster`] refuses.
pub fn read_cluster(path: impl AsRef<Path>) -> Result<ClusterFile, ClusterFileError> {
    let path = path.as_ref();
    let cannot = |source| ClusterFileError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(cannot)?;
    let mut text = String::new();
    file.take(LIMIT + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => cannot(io::Error::new(ErrorKind::InvalidData, "it is not text (UTF-8)")),
        _ => cannot(error),
    })?;
    if u64::try_from(text.len()).is_ok_and(|len| len > LIMIT) {
        return Err(ClusterFileError::TooLarge { path: path.to_owned(), limit: LIMIT });
    }
    parse_cluster(&text).map_err(|error| match error {
        ClusterFileError::Content { line, problem, .. } => {
            ClusterFileError::Content { path: Some(path.to_owned()), line, problem }
        }
        other => other,
    })
}

/// Reads the text of a cluster file.
///
/// ```toml
/// [defaults]
/// reserve = "1GiB"              # kept free on every pool that names no reserve of its own
///
/// [[node]]
/// id = "tower"
/// memory = "64GiB"              # the pool `ram` and on it the device `host`, first in order
/// memory_free = "50GiB"         # default: memory; "unknown": nothing new is placed there
/// memory_bandwidth = "80GB/s"   # optional, and so are all below
/// memory_cap = "32GiB"          # the most that may be used of it
/// reserve = "2GiB"              # kept free of it
/// drain = false                 # true: holds what it holds, takes nothing new
/// rpc = "10.0.0.7:50052"        # where its rpc server listens
/// main = true                   # runs the engine; needed only where several nodes have no rpc
///
/// [[node.device]]
/// id = "CUDA0"                  # the engine's name for it
/// name = "RTX 4090"
/// memory = "24GiB"              # a pool of its own, named as the device
/// free = "22.8GiB"              # default: memory; or "unknown"
/// cap = "20GiB"                 # the most that may be used of it
/// reserve = "1GiB"              # kept free of it
/// bandwidth = "1008GB/s"
/// backend = "cuda"              # default: by the id (CUDA0, ROCm0, Vulkan0, Metal0, CPU), else metal where unified, else cuda
/// uuid = "GPU-00000000-0000-0000-0000-000000000000"
///
/// [[link]]                      # counts in both directions, each pair once
/// between = ["tower", "mac"]
/// bandwidth = "10Gbit/s"
/// latency = "200us"
/// ```
///
/// **A device without memory of its own** draws on a pool of its node and takes neither `free` nor `reserve`; `memory`
/// and `cap` then say how much of the pool it may use at most. It is one of:
///
/// - a device with `pool = "ram"`, or with `pool` naming another device of the node that has memory of its own;
/// - a device with `backend = "cpu"`: it draws on `ram` and says that this host may hold layers even when it is remote. It
///   stands beside the device `host`, and a plan uses one of the two. On a node without `memory` it brings the pool `ram`
///   itself, and there is no device `host`;
/// - the GPU of a node with `unified = true`: `gpu0`, backend metal, unless the node lists it. It draws on `ram`, at most
///   `gpu_limit` of it, and reads it at `memory_bandwidth` unless it says otherwise.
///
/// **A carve-out.** A device with `gtt` has its `memory` as a pool of its own, and beside it stands the device `gtt`, which
/// draws on `ram`: at most `gtt`, at most all of it.
///
/// **Which node runs the engine.** The one with `main = true`, else the only node, else the only one without `rpc`: it is
/// marked in the snapshot. Where that leaves several or none, no node is marked and
/// [`ClusterSnapshot::main_node`] says why. `main = false` says nothing.
///
/// # Errors
///
/// The first problem, with its line: not TOML, an unknown key, a value of the wrong kind, no node, an id used twice or
/// not a name, more free than there is, a bandwidth of zero, an address without a good port, two mains, a link with an
/// unknown end or between nodes that are already joined.
pub fn parse_cluster(text: &str) -> Result<ClusterFile, ClusterFileError> {
    read::cluster(text).map(|snapshot| ClusterFile { snapshot }).map_err(|fault| ClusterFileError::Content {
        path: None,
        line: problem::line_of(text, fault.at),
        problem: fault.problem,
    })
}
