//! What every file of the tree keeps to, beyond what the compiler and clippy can see.

mod manifest;
mod mask;
mod rust;
mod text;
mod tree;

use anyhow::{Context, Result, bail};

use crate::shell;
use tree::{File, Tree};

/// Checks the files that git knows and says so.
pub(crate) fn run() -> Result<()> {
    println!("tidy: {}", checked()?);
    Ok(())
}

/// What was checked, when nothing is wrong.
pub(crate) fn checked() -> Result<String> {
    let tree = tracked()?;
    let problems = check(&tree);
    if !problems.is_empty() {
        bail!("{}\nproblems: {}; the rules are in docs/style.md", problems.join("\n"), problems.len());
    }
    Ok(format!("{} files", tree.files.len()))
}

fn tracked() -> Result<Tree> {
    let mut files = Vec::new();
    for path in shell::git(&["ls-files", "-z"])?.split_terminator('\0') {
        let on_disk = shell::root().join(path);
        // A file that is deleted but not yet committed is no longer there to check.
        if on_disk.is_file() {
            let bytes = std::fs::read(&on_disk).with_context(|| format!("cannot read {path}"))?;
            files.push(File { path: path.to_owned(), bytes });
        }
    }
    Ok(Tree { files })
}

/// Everything that is wrong, as `path:line: what`.
fn check(tree: &Tree) -> Vec<String> {
    let mut problems = tree::check(tree);
    for file in &tree.files {
        let Ok(text) = std::str::from_utf8(&file.bytes) else { continue };
        problems.extend(text::check(&file.path, text));
        if file.has_extension("rs") {
            problems.extend(rust::check(&file.path, text));
        }
        if file.name() == "Cargo.toml" {
            problems.extend(manifest::check(&file.path, text));
        }
    }
    problems
}
