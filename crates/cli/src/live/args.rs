//! What can be typed after `plimsoll node`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll::units::NodeId;

use crate::ledger::args::parse_time;

pub(crate) const NODE_EXAMPLES: &str = "Examples:
  plimsoll node join --cluster etcd://10.0.0.7,10.0.0.8,10.0.0.9/home --rpc 10.0.0.8:50052
  plimsoll node ls --cluster etcd://10.0.0.7/home
  plimsoll node plan --cluster etcd://10.0.0.7/home
  plimsoll node plan --set plan.json --cluster etcd://10.0.0.7/home
  plimsoll node drain mac --cluster etcd://10.0.0.7/home";

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Bring this machine into a cluster for as long as this command runs, and say what is free on it.
    Join(JoinArgs),
    /// Show who is there.
    Ls(ClusterArgs),
    /// Place nothing new on a machine from now on; what it holds stays.
    Drain(DrainArgs),
    /// Place things on a machine again.
    Undrain(DrainArgs),
    /// Show the plan in force and how it stands, put another one in force, or forget it.
    ///
    /// Exit status: 1 where the plan in force no longer holds, or the other one was not put in force.
    Plan(PlanInForceArgs),
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Where it is kept, as etcd://10.0.0.7:2379,10.0.0.8:2379/home. A user may stand in $PLIMSOLL_ETCD_USER, as
    /// USER:PASSWORD.
    #[arg(long, value_name = "URL")]
    pub(crate) cluster: String,
}

#[derive(Debug, Args)]
pub(crate) struct PlanInForceArgs {
    /// Put this plan in force, saved with `plan --out`; refused when the machines have changed since it was made.
    #[arg(long, value_name = "PLAN", conflicts_with = "forget")]
    pub(crate) set: Option<PathBuf>,

    /// There is to be none any more. No engine is stopped.
    #[arg(long)]
    pub(crate) forget: bool,

    /// Only where this plan is the one in force (0: none is); default: whichever it is.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) replaces: Option<u64>,

    /// Save the plan in force as a file.
    #[arg(long, value_name = "FILE", conflicts_with = "forget")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// The machine.
    pub(crate) node: NodeId,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// How a machine is known in a cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "Joining")]
pub(crate) struct PlaceArgs {
    /// What this machine is called there; default: its host name.
    #[arg(long, value_name = "NODE")]
    pub(crate) name: Option<NodeId>,

    /// Where it can be reached: what tells it from another of its name; default: its host name.
    ///
    /// A machine that comes with the same address under another name takes the place of its former self.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<String>,

    /// Where its rpc server listens, for engines that need one.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) rpc: Option<String>,

    /// It runs the engine.
    #[arg(long)]
    pub(crate) main: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// How often to say what is free (5s, 1m).
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub(crate) interval: Duration,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
