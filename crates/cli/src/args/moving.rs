//! What can be typed of fitting, comparing and moving.

use std::path::PathBuf;

use clap::Args;
use plimsoll::units::BytesPerSec;

use super::{LimitArgs, OffloadArgs, RequestArgs};

pub(super) const FIT_EXAMPLES: &str = "Examples:
  plimsoll fit model.gguf --cluster home.toml --parallel 4
  plimsoll fit model.gguf --cache-type-k q8_0 --cache-type-v q8_0
  plimsoll fit ~/models --ctx 32k";

pub(super) const DIFF_EXAMPLES: &str = "Examples:
  plimsoll diff plan.json better.json";

pub(super) const REBALANCE_EXAMPLES: &str = "Examples:
  plimsoll rebalance plan.json --cluster home.toml
  plimsoll rebalance --cluster etcd://10.0.0.7/home --apply
  plimsoll rebalance plan.json --cluster home.toml --tolerance 5% --out better.json";

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// A model as `plan` takes it (a file, a folder of one model, an address), or a folder with models.
    #[arg(value_name = "MODEL|FOLDER")]
    pub(crate) model: PathBuf,

    /// The machines, as a TOML file or as llama-swap tells them (JSON, or its http(s) address); this machine when not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) offload: OffloadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A plan that was saved with `plan --out`, or the plan in force of a cluster (etcd://10.0.0.7:2379/home).
    pub(crate) old: PathBuf,

    /// Another plan for the same model.
    pub(crate) new: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RebalanceArgs {
    /// The plan in force, saved with `plan --out`; left out, the one of the cluster (--cluster etcd://…).
    #[arg(required_unless_present = "cluster")]
    pub(crate) plan: Option<PathBuf>,

    /// The machines as they are now, as a TOML file; this machine when not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,

    /// How much worse than the best the new plan may be, where that saves moves.
    #[arg(long, value_name = "SHARE", default_value = "2%", value_parser = parse_share)]
    pub(crate) tolerance: f64,

    /// How many moves may run at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrent: u32,

    /// How fast layers are copied between two devices of one node (12GB/s), for the times.
    #[arg(long, value_name = "RATE")]
    pub(crate) local_rate: Option<BytesPerSec>,

    /// How fast layers are read from the model file (2GB/s), for the times.
    #[arg(long, value_name = "RATE")]
    pub(crate) load_rate: Option<BytesPerSec>,

    /// Save the new plan as a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Put the new plan in force in the cluster (--cluster etcd://…). Nothing is moved.
    #[arg(long, requires = "cluster")]
    pub(crate) apply: bool,
}

/// A share in per cent (`2%`), or as it is (`0.02`).
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_end(), 100.0));
    match number.parse::<f64>() {
        Ok(share) if share.is_finite() && share >= 0.0 => Ok(share / whole),
        _ => Err(format!("'{text}' is not a share (2% or 0.02)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_may_be_said_in_per_cent() {
        assert_eq!(parse_share("2%"), Ok(0.02));
        assert_eq!(parse_share("0.5 %"), Ok(0.005));
        assert_eq!(parse_share("0"), Ok(0.0));
        for bad in ["", "%", "-1%", "nan", "inf", "two"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }
}
