//! `cargo xtask fix`: the repairs that tools can make by themselves.

use anyhow::Result;

use crate::{debian, shell};

/// Applies clippy's own repairs, then formats.
pub(crate) fn run() -> Result<()> {
    let clippy = [
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
        "--all-features",
    ];
    debian::protoc()?;
    shell::show(shell::cargo().args(clippy))?;
    shell::show(shell::cargo().args(["fmt", "--all"]))
}
