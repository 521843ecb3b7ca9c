//! What can be typed after `agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

pub(crate) const EXAMPLES: &str = "Examples:
  plimsoll agent
  plimsoll agent --listen 127.0.0.1:0 --models models --cluster home.toml
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
