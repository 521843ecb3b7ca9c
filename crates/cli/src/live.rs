//! Clusters that are kept in etcd: `--cluster etcd://…`, and `plimsoll node`.

pub(crate) mod args;
#[cfg(feature = "etcd")]
mod force;
#[cfg(all(feature = "agent", feature = "etcd"))]
mod join;
#[cfg(feature = "etcd")]
mod node;
#[cfg(feature = "etcd")]
mod open;
#[cfg(feature = "etcd")]
mod watch;

use std::path::Path;

#[cfg(feature = "etcd")]
pub(crate) use force::{apply, in_force, replacing};
#[cfg(all(feature = "agent", feature = "etcd"))]
pub(crate) use join::join;
#[cfg(feature = "etcd")]
pub(crate) use node::node;
#[cfg(feature = "etcd")]
pub(crate) use open::{Lease, ledger, snapshot};
#[cfg(feature = "etcd")]
pub(crate) use watch::watch;

#[cfg(all(feature = "agent", not(feature = "etcd")))]
pub(crate) use without::join;
#[cfg(not(feature = "etcd"))]
pub(crate) use without::{Lease, apply, in_force, ledger, node, replacing, snapshot, watch};

/// Whether what was typed for a cluster is the address of one in etcd, right or wrong, and not a file.
pub(crate) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("etcd://") || text.starts_with("etcds://"))
}

/// A cluster as it may be shown: without a user and a password.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let hidden = text.split_once("://").filter(|_| is_url(path)).and_then(|(scheme, rest)| {
        let (_, rest) =
            rest.split('/').next()?.rsplit_once('@').map(|(user, _)| rest.split_at(user.len() + 1))?;
        Some(format!("{scheme}://{rest}"))
    });
    hidden.unwrap_or(text)
}

/// What this command says when it was built without etcd's client.
#[cfg(not(feature = "etcd"))]
mod without {
    use std::path::Path;
    use std::sync::Arc;

    use plimsoll::cluster::ClusterSnapshot;
    use plimsoll::export::PlanFile;
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

    pub(crate) fn replacing(_url: &Path) -> Result<ClusterSnapshot, Failure> {
        Err(without())
    }

    pub(crate) fn in_force(_url: &Path) -> Result<(u64, PlanFile), Failure> {
        Err(without())
    }

    pub(crate) fn apply(
        _url: &Path,
        _replaces: Option<u64>,
        _file: &PlanFile,
        _text: &str,
    ) -> Result<(), Failure> {
        Err(without())
    }

    pub(crate) fn watch(_url: &str, _cli: &Cli) -> Outcome {
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
    ) -> Result<(plimsoll::units::NodeId, plimsoll_agent::Source), Failure> {
        Err(without())
    }

    pub(crate) fn node(_args: &NodeArgs, _cli: &Cli) -> Outcome {
        Err(without())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_shown_without_a_password() {
        for (typed, told) in [
            ("etcd://anna:p@ss@10.0.0.7,10.0.0.8/home", "etcd://10.0.0.7,10.0.0.8/home"),
            ("etcd://10.0.0.7/home", "etcd://10.0.0.7/home"),
            ("home@work.toml", "home@work.toml"),
        ] {
            assert_eq!(shown(Path::new(typed)), told);
        }
    }
}
