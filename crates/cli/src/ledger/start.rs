//! What `plimsoll run` starts: this program, about to become the command.
//!
//! In between it asks the system to end it together with `run`: a command that outlived its booking would use memory
//! that others are promised.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::args::StartArgs;
use crate::failure::{Failure, Outcome};

pub(crate) fn start(args: &StartArgs) -> Outcome {
    end_with(args.parent)?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::Input("no command is given".to_owned()));
    };
    let error = Command::new(program).args(rest).exec();
    let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    let stderr = format!("cannot start {}: {error}", program.to_string_lossy());
    Err(Failure::Ended { status, stdout: String::new(), stderr })
}

#[cfg(target_os = "linux")]
fn end_with(parent: i32) -> Result<(), Failure> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    // Where the system refuses, the command only outlives a `run` that is killed.
    let _refused = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before we asked.
    match getppid() {
        Some(pid) if pid.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Failure::Ended { status: 125, stdout: String::new(), stderr: String::new() }),
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with(_parent: i32) -> Result<(), Failure> {
    Ok(())
}
