//! `cargo xtask release`: whether this version can go out, and the tag that lets it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;

use crate::{shell, verify};

/// Where people who upgrade look.
const CHANGELOG: &str = "docs/changelog.md";

/// Whether to do it.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// Verify everything and make the tag; without this nothing is changed.
    #[arg(long)]
    execute: bool,
}

/// Checks in order, cheap ones first; without `--execute` it ends by saying what it would do.
pub(crate) fn run(args: &ReleaseArgs) -> Result<()> {
    let metadata = shell::metadata()?;
    let facade = metadata.packages.iter().find(|package| package.name == "plimsoll");
    let version = facade.context("there is no package plimsoll")?.version.to_string();
    let tag = format!("v{version}");
    println!("version {version}");

    let changelog = std::fs::read_to_string(shell::root().join(CHANGELOG)).context(CHANGELOG)?;
    let date = dated_section(&changelog, &version)?;
    println!("{CHANGELOG} has a section of {date}");
    if !shell::git(&["status", "--porcelain"])?.is_empty() {
        bail!("the tree has changes that are not committed");
    }
    if !shell::git(&["tag", "--list", &tag])?.trim().is_empty() {
        bail!("the tag {tag} exists: raise `version` in Cargo.toml, and the `=` versions beside it");
    }

    forget_unpacked(&metadata, &version)?;
    let mut package = shell::cargo();
    package.args(["package", "--workspace", "--locked"]);
    // A build that is kept by name and version, too, would stand for what is packaged now.
    let check = metadata.target_directory.join("package-check");
    if check.as_std_path().is_dir() {
        std::fs::remove_dir_all(&check).with_context(|| format!("cannot remove {check}"))?;
    }
    package.arg("--target-dir").arg(&check);
    for beside in metadata.packages.iter().filter(|package| !shell::is_published(package)) {
        package.args(["--exclude", &beside.name]);
    }
    println!("{}", shell::typed(&package));
    shell::show(&mut package)?;

    if !args.execute {
        println!(
            "dry run: `cargo xtask release --execute` runs `cargo xtask verify` and makes the tag {tag}"
        );
        return Ok(());
    }
    verify::everything()?;
    shell::git(&["tag", "--annotate", &tag, "--message", &format!("plimsoll {version}")])?;
    println!("tagged {tag}; `git push origin {tag}` shows it to others");
    Ok(())
}

/// The date of the version's section, which must have one and must say something.
fn dated_section(changelog: &str, version: &str) -> Result<String> {
    let begin = format!("## {version}");
    let heading = changelog.lines().position(|line| line.split(" (").next() == Some(begin.as_str()));
    let heading = heading.with_context(|| format!("{CHANGELOG} has no section `{begin}`"))?;
    let mut lines = changelog.lines().skip(heading);
    let title = lines.next().unwrap_or_default();
    let date = title.strip_prefix(&begin).unwrap_or_default().trim().trim_matches(['(', ')']);
    let is_date = date.len() == 10
        && date
            .bytes()
            .enumerate()
            .all(|(at, b)| if at == 4 || at == 7 { b == b'-' } else { b.is_ascii_digit() });
    if !is_date {
        bail!("`{title}` in {CHANGELOG} has no date: write `{begin} (YYYY-MM-DD)`");
    }
    let said = lines.take_while(|line| !line.starts_with("## "));
    if said.filter(|line| !line.starts_with('#')).all(|line| line.trim().is_empty()) {
        bail!("the section `{title}` in {CHANGELOG} is empty");
    }
    Ok(date.to_owned())
}

/// Removes what cargo unpacked of our crates when they were packaged before.
///
/// Cargo keeps an unpacked crate by name and version, so a second try at the same version would be checked against the
/// sources of the first one. A version that is not tagged was never published: nothing is lost.
fn forget_unpacked(metadata: &Metadata, version: &str) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let Some(sources) = home.map(|home| home.join("registry").join("src")) else { return Ok(()) };
    let Ok(registries) = std::fs::read_dir(&sources) else { return Ok(()) };
    for registry in registries {
        let registry = registry.with_context(|| format!("cannot list {}", sources.display()))?.path();
        for package in metadata.packages.iter().filter(|package| shell::is_published(package)) {
            let unpacked = registry.join(format!("{}-{version}", package.name));
            if unpacked.is_dir() {
                std::fs::remove_dir_all(&unpacked)
                    .with_context(|| format!("cannot remove {}", unpacked.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(changelog: &str) -> String {
        dated_section(changelog, "0.1.0").unwrap_err().to_string()
    }

    #[test]
    fn a_dated_section_that_says_something_passes() {
        let changelog =
            "# Changelog\n\n## 0.1.0 (2026-12-01)\n\n### Added\n\n- A.\n\n## 0.0.9 (2026-01-01)\n";
        assert_eq!(dated_section(changelog, "0.1.0").unwrap(), "2026-12-01");
    }

    #[test]
    fn a_section_without_a_date_is_refused() {
        for title in ["## 0.1.0 (unreleased)", "## 0.1.0", "## 0.1.0 (2026-1-01)", "## 0.1.0 (2026/12/01)"] {
            assert!(refusal(&format!("{title}\n\n- A.\n")).contains("has no date"), "{title}");
        }
    }

    #[test]
    fn a_section_with_headings_alone_is_refused() {
        assert!(
            refusal("## 0.1.0 (2026-12-01)\n\n### Added\n\n## 0.0.9 (2026-01-01)\n\n- A.\n")
                .contains("is empty")
        );
    }

    #[test]
    fn another_version_is_no_substitute() {
        assert!(refusal("## 0.1.01 (2026-12-01)\n\n- A.\n").contains("has no section `## 0.1.0`"));
    }
}
