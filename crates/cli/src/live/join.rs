//! An agent's place in a cluster.

use std::time::Duration;

use plimsoll::cluster::Node;
use plimsoll::etcd::Options;
use plimsoll::residency::{Owners as _, ProcOwners};
use plimsoll::units::NodeId;
use plimsoll_agent::{Joining, Source};

use super::open::open_with;
use crate::agent::args::AgentArgs;
use crate::failure::Failure;
use crate::input;

/// How long a request is tried: a change that waits for another is refused within 5 s all the same.
const PATIENCE: Duration = Duration::from_millis(3500);

/// How long a machine that has failed is still shown.
const GRACE: Duration = Duration::from_secs(60);

/// The cluster that an agent is to join, and this machine's name there.
pub(crate) fn join(
    url: &str,
    args: &AgentArgs,
    described: Option<Node>,
) -> Result<(NodeId, Source), Failure> {
    if args.lease.subsec_nanos() != 0 {
        return Err(Failure::Input(format!("--lease: a lease lasts whole seconds, not {:?}", args.lease)));
    }
    let options = Options { lease: args.lease, patience: PATIENCE, ..Options::default() };
    let live = open_with(url, "--join", options)?;
    let host = input::node_name();
    let place = &args.place;
    let name = place.name.clone().unwrap_or_else(|| host.clone());
    // Several machines that a file describes may be played on one computer, and are not one machine for that.
    let address = if described.is_some() { &name } else { &host };
    let joining = Joining {
        live,
        address: place.address.clone().unwrap_or_else(|| address.to_string()),
        described,
        boot_id: ProcOwners::new().boot().map(str::to_owned),
        rpc: place.rpc.clone(),
        main: place.main,
        grace: GRACE,
    };
    Ok((name, Source::Joined(Box::new(joining))))
}
