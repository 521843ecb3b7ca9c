//! A look at this machine, with the drivers in a child of this program: one that crashes or hangs costs a moment.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use plimsoll::profile::isolated::{self, Look, Wanted};
use plimsoll::profile::{Absence, Accelerator, DeviceMeasured};

use crate::args::LookArgs;
use crate::failure::{Failure, Outcome};

/// How long each driver may take. A machine with many cards that nobody uses takes seconds to wake them.
const LIMIT: Duration = Duration::from_secs(10);

/// The environment variable that says otherwise, in milliseconds.
const LIMIT_VARIABLE: &str = "PLIMSOLL_DRIVER_LIMIT_MS";

/// All that is there, and what is free on it.
pub(crate) fn full() -> Look {
    look(true, false)
}

/// The same, with who holds memory on the accelerators.
pub(crate) fn with_holders() -> Look {
    look(true, true)
}

/// All that is there. What is free on the accelerators is not read.
pub(crate) fn without_free() -> Look {
    look(false, false)
}

fn look(free: bool, held: bool) -> Look {
    isolated::look(Wanted { limit: limit(), free, held }, child)
}

/// How fast an accelerator's memory is, copied in for so long.
pub(crate) fn measure(accelerator: &Accelerator, budget: Duration) -> Result<DeviceMeasured, Absence> {
    isolated::measure(accelerator, (budget, limit()), child)
}

fn limit() -> Duration {
    let told = std::env::var(LIMIT_VARIABLE).ok().and_then(|text| text.parse().ok());
    told.map_or(LIMIT, Duration::from_millis)
}

/// This program again, for a question.
fn child(question: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.arg("__look").arg(question);
    command
}

/// The child's side.
pub(crate) fn answer(args: &LookArgs) -> Outcome {
    match isolated::answer(&args.question, &mut std::io::stdout().lock()) {
        Ok(()) => Ok(String::new()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::Closed),
        Err(error) => Err(Failure::Input(format!("this is for plimsoll itself: {error}"))),
    }
}
