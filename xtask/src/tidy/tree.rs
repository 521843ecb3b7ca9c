//! Which files there are: the visible top level, licences, sizes.

/// The only names at the top that do not begin with a dot.
const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "benches",
    "crates",
    "docs",
    "examples",
    "xtask",
];

/// Files without which there is nothing to hand over.
const REQUIRED: &[&str] = &["Cargo.lock", "Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The largest file that may be tracked, in bytes.
const LARGEST: usize = 1024 * 1024;

/// One file as it lies in the checkout.
pub(super) struct File {
    /// From the root, with `/` between folders.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

impl File {
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(super) fn has_extension(&self, extension: &str) -> bool {
        self.name().rsplit_once('.').is_some_and(|(_, found)| found == extension)
    }
}

/// All files that are tracked.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in &tree.files {
        let top = file.path.split('/').next().unwrap_or_default();
        if !top.starts_with('.') && !TOP_LEVEL.contains(&top) {
            problems.push(format!("{}: {top} is no name for the top level", file.path));
        }
        if file.bytes.len() > LARGEST {
            problems.push(format!("{}: {} bytes, the limit is {LARGEST}", file.path, file.bytes.len()));
        }
    }
    for required in REQUIRED {
        if !tree.files.iter().any(|file| file.path == *required && !file.bytes.is_empty()) {
            problems.push(format!("{required}: is missing or empty"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(extra: &[(&str, usize)]) -> Tree {
        let required = REQUIRED.iter().map(|path| File { path: (*path).to_owned(), bytes: vec![b'x'] });
        let extra =
            extra.iter().map(|(path, size)| File { path: (*path).to_owned(), bytes: vec![b'x'; *size] });
        Tree { files: required.chain(extra).collect() }
    }

    #[test]
    fn the_agreed_top_level_passes() {
        let agreed =
            [("crates/a/src/lib.rs", 1), (".ci/run", 1), ("docs/style.md", 1), ("examples/x.toml", LARGEST)];
        assert_eq!(check(&tree(&agreed)), Vec::<String>::new());
    }

    #[test]
    fn a_stray_name_at_the_top_fails() {
        assert_eq!(check(&tree(&[("notes.txt", 1)])), ["notes.txt: notes.txt is no name for the top level"]);
        assert_eq!(check(&tree(&[("scripts/a", 1)])), ["scripts/a: scripts is no name for the top level"]);
    }

    #[test]
    fn a_file_one_byte_over_the_limit_fails() {
        let problems = check(&tree(&[("docs/a.svg", LARGEST + 1)]));
        assert_eq!(problems, [format!("docs/a.svg: {} bytes, the limit is {LARGEST}", LARGEST + 1)]);
    }

    #[test]
    fn each_required_file_is_missed_and_an_empty_one_does_not_count() {
        for required in REQUIRED {
            let mut without = tree(&[]);
            without.files.retain(|file| file.path != *required);
            assert_eq!(check(&without), [format!("{required}: is missing or empty")]);
            without.files.push(File { path: (*required).to_owned(), bytes: Vec::new() });
            assert_eq!(check(&without), [format!("{required}: is missing or empty")]);
        }
    }
}
