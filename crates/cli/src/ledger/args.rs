//! What can be typed after the commands of the ledger.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll::model::CacheType;
use plimsoll::units::{Bytes, PoolId};

/// Which ledger.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ledger")]
pub(crate) struct LedgerArgs {
    /// The ledger's file; default: plimsoll/ledger.db under $XDG_STATE_HOME or ~/.local/state.
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,

    /// The ledger of a cluster instead, as etcd://10.0.0.7:2379/home; its pools are called NODE:POOL.
    #[arg(long, value_name = "URL", conflicts_with = "ledger")]
    pub(crate) cluster: Option<String>,

    /// What the pool may hold from now on; default: as the ledger says, for a new one what this machine has.
    #[arg(long, value_name = "BYTES")]
    pub(crate) budget: Option<Bytes>,
}

/// How much is needed, and of which memory.
#[derive(Debug, Args)]
pub(crate) struct NeedsArgs {
    /// How much it needs (20GB, 24GiB).
    #[arg(long, value_name = "BYTES", required_unless_present = "model", conflicts_with = "model")]
    pub(crate) needs: Option<Bytes>,

    /// Compute what this model needs.
    #[arg(long, value_name = "FILE", requires = "ctx")]
    pub(crate) model: Option<PathBuf>,

    /// With --model: the context of one sequence, in tokens (32768, 32k).
    #[arg(long, value_name = "N", value_parser = crate::args::parse_tokens, requires = "model")]
    pub(crate) ctx: Option<u64>,

    /// With --model: how many sequences at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parallel: u32,

    /// With --model: the form of keys in the cache.
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_type_k: CacheType,

    /// With --model: the form of values in the cache.
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_type_v: CacheType,

    /// The pool that it draws on; may be left out when there is one only.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<PoolId>,
}

#[derive(Debug, Args)]
pub(crate) struct ReserveArgs {
    /// What the model is for (coder-daily).
    #[arg(value_parser = parse_role)]
    pub(crate) role: String,

    #[command(flatten)]
    pub(crate) needs: NeedsArgs,

    /// The name of this running copy; default: the role.
    #[arg(long, value_name = "ID", value_parser = parse_role)]
    pub(crate) instance: Option<String>,

    /// A role that may not be resident beside it; may be given again.
    #[arg(long, value_name = "ROLE", value_parser = parse_role)]
    pub(crate) exclude: Vec<String>,

    /// Never advise to evict it.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Who waits less long, and costs more to evict.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) priority: u32,

    /// End by itself after this time (90s, 5m, 2h).
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "pid")]
    pub(crate) ttl: Option<Duration>,

    /// End when this process does.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Wait until it fits, at most this long where a time is given (--wait=90s).
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = parse_time)]
    pub(crate) wait: Option<Option<Duration>>,

    #[command(flatten)]
    pub(crate) ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The running copy, or the role whose copies all end.
    #[arg(value_name = "INSTANCE|ROLE")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    /// The running copy.
    pub(crate) instance: String,

    /// How much it needs from now on.
    #[arg(long, value_name = "BYTES")]
    pub(crate) needs: Bytes,

    /// Of which pool; may be left out when it holds one only.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<PoolId>,

    #[command(flatten)]
    pub(crate) ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// How much room is wanted.
    #[arg(long, value_name = "BYTES")]
    pub(crate) needs: Bytes,

    /// In which pool; default: in any of them.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<PoolId>,

    /// For which role, so that exclusions count.
    #[arg(long, value_name = "ROLE", default_value = "newcomer", value_parser = parse_role)]
    pub(crate) role: String,

    #[command(flatten)]
    pub(crate) ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Show it again every second until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) ledger: LedgerArgs,
}

/// What becomes of a command whose booking was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// It runs on, and that is said.
    Warn,
    /// It is told to end.
    Kill,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What the model is for (coder-daily).
    #[arg(value_parser = parse_role)]
    pub(crate) role: String,

    #[command(flatten)]
    pub(crate) needs: NeedsArgs,

    /// A role that may not be resident beside it; may be given again.
    #[arg(long, value_name = "ROLE", value_parser = parse_role)]
    pub(crate) exclude: Vec<String>,

    /// Never advise to evict it.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Who waits less long, and costs more to evict.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) priority: u32,

    /// With --cluster: what becomes of the command when the cluster no longer counts its memory as booked.
    #[arg(long, value_name = "WHAT", default_value = "warn")]
    pub(crate) on_lost: OnLost,

    /// Show the command this CUDA device only (CUDA0).
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// Wait until it fits, at most this long where a time is given (--wait=90s).
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = parse_time)]
    pub(crate) wait: Option<Option<Duration>>,

    #[command(flatten)]
    pub(crate) ledger: LedgerArgs,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What `run` starts itself as, to become the command.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The process with which it ends.
    pub(crate) parent: i32,

    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct RosterArgs {
    #[command(subcommand)]
    pub(crate) command: RosterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RosterCommand {
    /// Say which of its models can be resident together, and which never can.
    Check(RosterCheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RosterCheckArgs {
    /// The roster, as a TOML file.
    pub(crate) file: PathBuf,

    /// Print the sets as a matrix for the configuration of llama-swap.
    #[arg(long)]
    pub(crate) llama_swap: bool,
}

/// A name that can be shown.
fn parse_role(text: &str) -> Result<String, String> {
    if text.strip_prefix("role:").unwrap_or(text).is_empty() || text.chars().any(char::is_control) {
        return Err("a name has at least one character, and no control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// `90s`, `5m`, `2h`, `500ms`; plain digits are seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let wrong = || format!("'{text}' is not a time such as 90s, 5m, 2h or 500ms");
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => Some(n),
        "" | "s" => n.checked_mul(1000),
        "m" | "min" => n.checked_mul(60_000),
        "h" => n.checked_mul(3_600_000),
        _ => return Err(wrong()),
    };
    millis.map(Duration::from_millis).ok_or_else(|| format!("'{text}' is longer than can be said"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, millis) in
            [("90", 90_000), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1ms", 1)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "-1s", "1.5s", "1 s", "1d", "99999999999999999999", "9999999999999999h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
