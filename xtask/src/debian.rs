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
    if protoc_works()? {
        return Ok(());
    }
    // Debian keeps the descriptions that come with it in a package of their own, which is only recommended.
    install(&["protobuf-compiler", "libprotobuf-dev"])
        .context("a build with every feature needs protoc (or PROTOC, which names it)")
}

/// Whether it compiles a description that imports one of its own: one that only tells its version may lack them.
fn protoc_works() -> Result<bool> {
    const IMPORTS: &str = "syntax = \"proto3\";\nimport \"google/protobuf/descriptor.proto\";\n\
                           message M { google.protobuf.FileOptions options = 1; }\n";
    let named = std::env::var_os("PROTOC").unwrap_or_else(|| "protoc".into());
    let folder = shell::root().join("target/protoc");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("probe.proto"), IMPORTS)?;
    let mut protoc = shell::program(named);
    protoc.current_dir(&folder).args(["--proto_path=.", "--descriptor_set_out=probe.set", "probe.proto"]);
    Ok(shell::succeeds(&mut protoc))
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
