//! Rules for Rust files: headers, length, stand-ins, exceptions with reasons, where `unsafe` may be.

use super::mask::{Masked, mask};
use super::text::{line_of, words};

/// The longest Rust file, in lines.
const LONGEST: usize = 800;

/// The only files that may say `unsafe`: the extended control register and the two drivers.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/profile/src/xcr0.rs",
    "crates/profile/src/gpu/cuda.rs",
    "crates/profile/src/gpu/nvml.rs",
    "crates/profile/src/gpu/vulkan.rs",
];

/// Macros that stand for code that is not there, or print by accident.
const STAND_INS: &[&str] = &["dbg", "todo", "unimplemented"];

/// Marks for later, which nobody reads later.
const MARKS: &[&str] = &["FIXME", "TODO", "XXX"];

pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.starts_with("//!") {
        problems.push(format!("{path}:1: the file must begin with `//!` and say what it is"));
    }
    let lines = text.lines().count();
    if lines > LONGEST {
        problems.push(format!("{path}: {lines} lines, the limit is {LONGEST}"));
    }
    let Masked { code, comments } = mask(text);
    for (at, word) in words(&code) {
        let after = &code[at + word.len()..];
        if STAND_INS.contains(&word) && after.starts_with('!') {
            problems
                .push(format!("{path}:{}: `{word}!` stands for code that is not there", line_of(&code, at)));
        }
        if word == "unsafe" && !MAY_BE_UNSAFE.contains(&path) {
            problems.push(format!(
                "{path}:{}: `unsafe` is kept to {}",
                line_of(&code, at),
                MAY_BE_UNSAFE.join(", ")
            ));
        }
    }
    for (at, word) in words(&comments).filter(|(_, word)| MARKS.contains(word)) {
        problems.push(format!("{path}:{}: {word}: do it now, or say why not", line_of(&comments, at)));
    }
    problems.extend(attributes(path, &code));
    for (number, line) in code.lines().enumerate() {
        if line.contains('\t') {
            problems.push(format!("{path}:{}: a tab", number + 1));
        }
    }
    problems
}

/// `#[ignore]`, `#[allow(..)]` and `#[expect(..)]` must each say why.
fn attributes(path: &str, code: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, _) in code.match_indices("#[").chain(code.match_indices("#![")) {
        let attribute = closed(&code[at..]);
        let named: Vec<&str> = words(attribute).map(|(_, word)| word).collect();
        let lint = named.iter().find(|word| matches!(**word, "allow" | "expect"));
        if let Some(lint) = lint.filter(|_| !named.contains(&"reason")) {
            problems.push(format!("{path}:{}: `{lint}` without a reason", line_of(code, at)));
        }
        let bare = attribute.find("ignore").is_some_and(|found| {
            named.contains(&"ignore") && !attribute[found + "ignore".len()..].trim_start().starts_with('=')
        });
        if bare {
            problems.push(format!("{path}:{}: `ignore` without a reason", line_of(code, at)));
        }
    }
    problems
}

/// The text up to the bracket that closes the first one.
fn closed(text: &str) -> &str {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth <= 1 => return &text[..=at],
            ']' => depth -= 1,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/model/src/gguf.rs";

    fn problems(body: &str) -> Vec<String> {
        check(PATH, &format!("//! A file.\n{body}\n"))
    }

    #[test]
    fn an_ordinary_file_passes() {
        let body = "/// Not `todo!()`, nor unsafe.\n#[expect(clippy::a, reason = \"b\")]\nfn f() { g(\"unsafe dbg!( TODO\") }";
        assert_eq!(problems(body), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_header_fails() {
        let expected = format!("{PATH}:1: the file must begin with `//!` and say what it is");
        assert_eq!(check(PATH, "use std::fmt;\n"), [expected.as_str()]);
        assert_eq!(check(PATH, "// no\n"), [expected.as_str()]);
        assert_eq!(check(PATH, ""), [expected.as_str()]);
    }

    #[test]
    fn the_limit_on_length_is_exact() {
        let long = |lines: usize| check(PATH, &format!("//! A.\n{}", "\n".repeat(lines - 1)));
        assert_eq!(long(LONGEST), Vec::<String>::new());
        assert_eq!(long(LONGEST + 1), [format!("{PATH}: {} lines, the limit is {LONGEST}", LONGEST + 1)]);
    }

    #[test]
    fn stand_ins_fail_and_names_that_contain_them_pass() {
        for stand_in in STAND_INS {
            let expected = format!("{PATH}:2: `{stand_in}!` stands for code that is not there");
            assert_eq!(problems(&format!("fn f() {{ {stand_in}!() }}")), [expected]);
        }
        assert_eq!(problems("fn todo() { my_todo!() }"), Vec::<String>::new());
    }

    #[test]
    fn unsafe_code_passes_in_the_files_for_it_and_fails_elsewhere() {
        let text = "//! A file.\n#[expect(unsafe_code, reason = \"a\")]\nfn f() { unsafe { g() } }\n";
        for path in MAY_BE_UNSAFE {
            assert_eq!(check(path, text), Vec::<String>::new());
        }
        let found = check(PATH, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{PATH}:3: `unsafe` is kept to ")), "{found:?}");
    }

    #[test]
    fn marks_in_comments_fail_as_whole_words_only() {
        for mark in MARKS {
            assert_eq!(
                problems(&format!("// {mark}: later")),
                [format!("{PATH}:2: {mark}: do it now, or say why not")]
            );
        }
        assert_eq!(problems("// XXXL and todos"), Vec::<String>::new());
    }

    #[test]
    fn exceptions_without_a_reason_fail() {
        assert_eq!(
            problems("#[allow(dead_code)]\nfn f() {}"),
            [format!("{PATH}:2: `allow` without a reason")]
        );
        assert_eq!(problems("#![expect(a,\n  b)]"), [format!("{PATH}:2: `expect` without a reason")]);
        assert_eq!(
            problems("#[cfg_attr(test, allow(a))]\nfn f() {}"),
            [format!("{PATH}:2: `allow` without a reason")]
        );
        assert_eq!(
            problems("#[test]\n#[ignore]\nfn f() {}"),
            [format!("{PATH}:3: `ignore` without a reason")]
        );
        assert_eq!(problems("#[test]\n#[ignore = \"needs a driver\"]\nfn f() {}"), Vec::<String>::new());
        assert_eq!(
            problems("#[cfg_attr(miri, ignore)]\nfn f() {}"),
            [format!("{PATH}:2: `ignore` without a reason")]
        );
    }

    #[test]
    fn a_tab_in_code_fails_and_one_in_a_literal_passes() {
        assert_eq!(problems("fn f() {\n\tg(\"\t\")\n}"), [format!("{PATH}:3: a tab")]);
        assert_eq!(problems("const A: &str = \"\t\";"), Vec::<String>::new());
    }
}
