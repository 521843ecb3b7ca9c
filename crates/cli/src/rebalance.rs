//! `plimsoll rebalance`.

use crate::args::{Cli, RebalanceArgs};
use crate::failure::{Failure, Outcome};

pub(crate) fn run(_args: &RebalanceArgs, _cli: &Cli) -> Outcome {
    Err(Failure::Input(String::new()))
}
