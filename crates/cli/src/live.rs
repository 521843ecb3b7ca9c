//! Clusters that are kept in etcd: `--cluster etcd://…`, and `plimsoll node`.

pub(crate) mod args;
#[cfg(all(feature = "agent", feature = "etcd"))]
mod join;
#[cfg(feature = "etcd")]
mod node;
#[cfg(feature = "etcd")]
mod open;

use std::path::Path;

#[cfg(all(feature = "agent", feature = "etcd"))]
pub(crate) use join::join;
#[cfg(feature = "etcd")]
pub(crate) use node::node;
#[cfg(feature = "etcd")]
pub(crate) use open::{Lease, ledger, snapshot};

#[cfg(all(feature = "agent", not(feature = "etcd")))]
pub(crate) use without::join;
#[cfg(not(feature = "etcd"))]
pub(crate) use without::{Lease, ledger, node, snapshot};

/// Whether what was typed for a cluster is the address of one in etcd, right or wrong, and not a file.
pub(crate) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("etcd://") || text.starts_with("etcds://"))
}

/// What this command says when it was built without etcd's client.
#[cfg(not(feature = "etcd"))]
mod without {
    use std::path::Path;
    use std::sync::Arc;

    use plimsoll::cluster::ClusterSnapshot;
    use plimsoll::residency::{ProcOwners, Store};

    use super::args::NodeArgs;
    use crate::args::Cli;
    use crate::failure::{Failure, Outcome};

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum Lease {}

    impl Lease {
        pub(crate) fn lost(&self) -> Option<String> {
            match *self {}
        }
    }

    fn without() -> Failure {
        Failure::Input(
            "this plimsoll was built without clusters in etcd\n\
             To build one with them (protoc has to be there): cargo install plimsoll-cli --features etcd"
                .to_owned(),
        )
    }

    pub(crate) fn snapshot(_url: &Path) -> Result<ClusterSnapshot, Failure> {
        Err(without())
    }

    pub(crate) fn ledger(_url: &str, _owners: &Arc<ProcOwners>) -> Result<(Box<dyn Store>, Lease), Failure> {
        Err(without())
    }

    #[cfg(feature = "agent")]
    pub(crate) fn join(
        _url: &str,
        _args: &crate::agent::args::AgentArgs,
        _described: Option<plimsoll::cluster::Node>,
    ) -> Result<(plimsoll::units::NodeId, plimsoll_agent::Source, Arc<dyn Store>), Failure> {
        Err(without())
    }

    pub(crate) fn node(_args: &NodeArgs, _cli: &Cli) -> Outcome {
        Err(without())
    }
}
