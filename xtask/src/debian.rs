//! What tests lack, from Debian's packages.

use std::path::Path;

use anyhow::{Result, bail};

use crate::shell;

/// Installs packages where that is possible: on Debian, as root.
///
/// # Errors
///
/// Elsewhere; the text says what to type.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !Path::new("/etc/debian_version").exists() {
        bail!("install {} with the system's own tools, then repeat", packages.join(", "));
    }
    if !is_root() {
        bail!("type: sudo {line}");
    }
    println!("{line}");
    let apt = || {
        let mut apt = shell::program("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").arg("-qq");
        apt
    };
    shell::quiet(apt().arg("update"))?;
    shell::quiet(apt().args(["install", "-y", "--no-install-recommends"]).args(packages)).map(drop)
}

fn is_root() -> bool {
    shell::quiet(shell::program("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
