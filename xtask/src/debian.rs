//! What tests lack, from Debian's packages.

use std::path::Path;

use anyhow::{Context, Result, bail};

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

/// The compiler of interface descriptions: etcd's client is built with it, and with every feature on that is a part of
/// every build.
///
/// # Errors
///
/// It is not there and cannot be installed; the text says what to type.
pub(crate) fn protoc() -> Result<()> {
    let named = std::env::var_os("PROTOC").unwrap_or_else(|| "protoc".into());
    if shell::succeeds(shell::program(named).arg("--version")) {
        return Ok(());
    }
    install(&["protobuf-compiler"])
        .context("a build with every feature needs protoc (or PROTOC, which names it)")
}

/// The server whose members the tests of the cluster start.
///
/// # Errors
///
/// It is not there and cannot be installed; the text says what to type.
pub(crate) fn etcd() -> Result<()> {
    let named = std::env::var_os("PLIMSOLL_ETCD").unwrap_or_else(|| "etcd".into());
    if shell::succeeds(shell::program(named).arg("--version")) { Ok(()) } else { install(&["etcd-server"]) }
}

fn is_root() -> bool {
    shell::quiet(shell::program("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
