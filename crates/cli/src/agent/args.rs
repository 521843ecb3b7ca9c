//! What can be typed after `agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::ledger::args::parse_time;
use crate::live::args::PlaceArgs;

pub(crate) const EXAMPLES: &str = "Examples:
  plimsoll agent
  plimsoll agent --listen 127.0.0.1:0 --models models --cluster home.toml
  plimsoll agent --join etcd://10.0.0.7,10.0.0.8,10.0.0.9/home --rpc 10.0.0.8:50052
  plimsoll agent --listen 0.0.0.0:8710 --token-file token --log-format json
  curl http://127.0.0.1:8710/v1/cluster";

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Where to listen. Port 0 takes any that is free and says which. Without a token only this machine can be listened to.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8710")]
    pub(crate) listen: SocketAddr,

    /// Answer only those who know the token in this file (at least 16 characters; nobody else may be allowed to read it).
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Let models be named by path, below this folder only.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) models: Option<PathBuf>,

    /// Plan on the machines of this TOML file; without it, on this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,

    /// The ledger's file; default: plimsoll/ledger.db under $XDG_STATE_HOME or ~/.local/state.
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,

    /// Bring this machine into a cluster for as long as the agent runs, and answer for all of it, as
    /// etcd://10.0.0.7:2379,10.0.0.8:2379/home. A user may stand in $PLIMSOLL_ETCD_USER, as USER:PASSWORD.
    #[arg(long, value_name = "URL", conflicts_with_all = ["cluster", "ledger"], help_heading = "Joining")]
    pub(crate) join: Option<String>,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// How long the others count on this machine after it was last heard of: whole seconds, at least 2.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time, requires = "join", help_heading = "Joining")]
    pub(crate) lease: Duration,

    /// Join as the node of a TOML file for clusters that has this machine's name, not as what is found here; nothing of it is
    /// measured.
    #[arg(long, value_name = "FILE", requires = "join", help_heading = "Joining")]
    pub(crate) machine: Option<PathBuf>,

    /// Look at the hardware and at what is free on it this often (500ms, 5s, 1m). On Linux also when the kernel tells of a device.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::args::parse_interval)]
    pub(crate) interval: Duration,

    /// How the log on stderr looks. RUST_LOG says how much is logged (info).
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// An object a line, for programs.
    Json,
}
