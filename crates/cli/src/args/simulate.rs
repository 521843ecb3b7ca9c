//! What can be typed of simulating.

use std::path::PathBuf;

use clap::Args;

pub(super) const SIMULATE_EXAMPLES: &str = "Examples:
  plimsoll simulate examples/scenarios/node-loss.toml
  plimsoll simulate examples/scenarios/random-losses.toml --seed 7 --svg losses.svg";

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The scenario, as a TOML file: nodes, models, and what happens when.
    pub(crate) scenario: PathBuf,

    /// Draw chance from this seed and not from the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Draw what every model did when.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
