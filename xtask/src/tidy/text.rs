//! Rules for every text file: white space, machine paths, addresses of package registries.

use super::mask::mask;

/// Folders of one person's machine.
const MACHINE: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("../sha", "red")];

/// Scratch folders, which only tests may name.
const SCRATCH: &str = concat!("/t", "mp/");

/// Where packages come from is the reader's choice, so no text names such a host.
const HOSTS: &[&str] = &[concat!("crates", ".io"), concat!("py", "pi.org"), concat!("npm", "js")];

/// Written by cargo, with the addresses that it used.
const WRITTEN_BY_CARGO: &str = "Cargo.lock";

pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == WRITTEN_BY_CARGO {
        return problems;
    }
    let prose = name.ends_with(".md");
    let rust = name.ends_with(".rs");
    if prose || rust {
        // Inside a literal, white space is content.
        let code = if rust { mask(text).code } else { String::new() };
        let mut shown = code.lines();
        for (number, line) in text.lines().enumerate() {
            let content = shown.next().is_some_and(|code| code.ends_with('_'));
            if line.ends_with([' ', '\t']) && !content {
                problems.push(format!("{path}:{}: white space at the end", number + 1));
            }
            if prose && line.contains('\t') {
                problems.push(format!("{path}:{}: a tab", number + 1));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            problems.push(format!("{path}: no line break at the end"));
        }
    }
    let scratch_from =
        if in_tests(path) { text.len() } else { text.find("#[cfg(test)]").unwrap_or(text.len()) };
    let scratch_in = if in_tests(path) { "" } else { &text[..scratch_from] };
    let found =
        MACHINE.iter().flat_map(|path| at_word_start(text, path)).chain(at_word_start(scratch_in, SCRATCH));
    for (at, machine) in found {
        problems.push(format!("{path}:{}: {machine} is a path of one machine", line_of(text, at)));
    }
    for host in HOSTS {
        for (at, _) in text.match_indices(host) {
            problems.push(format!("{path}:{}: {host} names a package registry", line_of(text, at)));
        }
    }
    problems
}

fn in_tests(path: &str) -> bool {
    path.split('/').any(|folder| folder == "tests")
}

/// Where the path occurs as the beginning of a path, not inside a longer one.
fn at_word_start<'t>(text: &'t str, path: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    text.match_indices(path).filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '>'))
    })
}

/// The number of the line at this byte, from one.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Words as programs have them, each with where it begins.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let begins = at + text[at..].find(part_of_word)?;
        let ends = text[begins..].find(|c| !part_of_word(c)).map_or(text.len(), |length| begins + length);
        at = ends;
        Some((begins, &text[begins..ends]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_passes() {
        let text = "One line.\nsrc/root/a and /proc/1/root and model/work/a.\n";
        assert_eq!(check("docs/a.md", text), Vec::<String>::new());
        assert_eq!(check("crates/a/tests/golden.txt", "padded  \n\tand indented"), Vec::<String>::new());
    }

    #[test]
    fn white_space_at_the_end_of_a_line_fails_in_prose_and_code() {
        assert_eq!(check("docs/a.md", "a \nb\n"), ["docs/a.md:1: white space at the end"]);
        assert_eq!(check("a.rs", "//! A.\nfn f() {} \n"), ["a.rs:2: white space at the end"]);
        assert_eq!(check("a.rs", "//! A. \n"), ["a.rs:1: white space at the end"]);
    }

    #[test]
    fn white_space_inside_a_literal_is_content() {
        assert_eq!(check("a.rs", "//! A.\nconst A: &str = \"b  \n c\";\n"), Vec::<String>::new());
    }

    #[test]
    fn a_tab_in_prose_fails() {
        assert_eq!(check("docs/a.md", "a\tb\n"), ["docs/a.md:1: a tab"]);
    }

    #[test]
    fn the_last_line_ends() {
        assert_eq!(check("docs/a.md", "a"), ["docs/a.md: no line break at the end"]);
    }

    #[test]
    fn paths_of_one_machine_fail() {
        for machine in MACHINE {
            let expected = format!("docs/a.toml:2: {machine} is a path of one machine");
            assert_eq!(check("docs/a.toml", &format!("a\nb = \"{machine}c\"\n")), [expected]);
        }
    }

    #[test]
    fn only_tests_may_name_a_scratch_folder() {
        let text = format!("//! A.\nconst A: &str = \"{SCRATCH}a\";\n");
        assert_eq!(check("crates/a/tests/a.rs", &text), Vec::<String>::new());
        assert_eq!(check("a.rs", &text), [format!("a.rs:2: {SCRATCH} is a path of one machine")]);
        let in_test = format!("//! A.\n#[cfg(test)]\nmod tests {{\nconst A: &str = \"{SCRATCH}a\";\n}}\n");
        assert_eq!(check("a.rs", &in_test), Vec::<String>::new());
    }

    #[test]
    fn hosts_of_registries_fail_everywhere_but_in_the_lock_file() {
        for host in HOSTS {
            let text = format!("a\nsee {host}\n");
            assert_eq!(check("docs/a.md", &text), [format!("docs/a.md:2: {host} names a package registry")]);
            assert_eq!(check("Cargo.lock", &text), Vec::<String>::new());
        }
    }

    #[test]
    fn words_are_whole_and_know_where_they_begin() {
        assert_eq!(words("a_b::c(d1)é").collect::<Vec<_>>(), [(0, "a_b"), (5, "c"), (7, "d1"), (10, "é")]);
        assert_eq!(words("..").count(), 0);
    }
}
