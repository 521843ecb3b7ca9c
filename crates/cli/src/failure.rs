//! How a command ends when it does not end well.

use std::fmt::Display;
use std::path::Path;

/// What goes to whom, and with which exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was understood and the answer is no: status 1. The text for stdout (JSON) and that for stderr.
    Refused { stdout: String, stderr: String },
    /// It ends with a status of its own: that of a command that was run, or the one that says why none was.
    Ended { status: u8, stdout: String, stderr: String },
    /// Wrong usage or unreadable input: status 2.
    Input(String),
    /// A fault of plimsoll: status 3.
    Internal(String),
    /// Nobody reads the output any more: no fault of anybody's.
    Closed,
}

impl Failure {
    pub(crate) fn input(error: impl Into<anyhow::Error>) -> Self {
        Self::Input(format!("{:#}", error.into()))
    }

    pub(crate) fn internal(error: impl Display) -> Self {
        Self::Internal(error.to_string())
    }

    /// A file that cannot be written.
    pub(crate) fn write(path: &Path, error: &std::io::Error) -> Self {
        Self::Input(format!("cannot write {}: {error}", path.display()))
    }
}

/// A command ends with what goes to stdout, or with a failure.
pub(crate) type Outcome = Result<String, Failure>;
