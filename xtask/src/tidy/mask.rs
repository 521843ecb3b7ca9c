//! Rust text split into code, comments and literals, so that a rule about one is not tripped by another.

/// One file three ways, each with the same length in lines and characters.
///
/// In `code`, comments are blanks and the insides of literals are underscores; in `comments`, all but comments is
/// blanks.
pub(super) struct Masked {
    pub(super) code: String,
    pub(super) comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Splits the text; never fails, an unclosed literal or comment runs to the end.
pub(super) fn mask(text: &str) -> Masked {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = Masked { code: String::new(), comments: String::new() };
    let mut at = 0;
    while at < chars.len() {
        let (length, kind) = token(&chars, at);
        for &c in &chars[at..at + length] {
            let same = |wanted: Kind, else_: char| if kind == wanted || c == '\n' { c } else { else_ };
            masked.code.push(if kind == Kind::Literal && c != '\n' { '_' } else { same(Kind::Code, ' ') });
            masked.comments.push(same(Kind::Comment, ' '));
        }
        at += length;
    }
    masked
}

/// Length and kind of what begins at `at`; the length is at least one and stays inside the text.
fn token(chars: &[char], at: usize) -> (usize, Kind) {
    let rest = &chars[at..];
    match rest {
        ['/', '/', ..] => (until(rest, |rest| rest[0] == '\n'), Kind::Comment),
        ['/', '*', ..] => (block_comment(rest), Kind::Comment),
        ['"', ..] => (string(rest), Kind::Literal),
        ['\'', '\\', ..] => {
            let after = rest.iter().skip(3).position(|c| *c == '\'');
            (after.map_or(rest.len(), |found| found + 4), Kind::Literal)
        }
        ['\'', _, '\'', ..] => (3, Kind::Literal),
        [c, ..] if c.is_alphabetic() || *c == '_' => {
            let word = until(rest, |rest| !(rest[0].is_alphanumeric() || rest[0] == '_'));
            let prefix: String = rest[..word].iter().collect();
            let hashes = rest[word..].iter().take_while(|c| **c == '#').count();
            let quoted = rest.get(word + hashes) == Some(&'"');
            if quoted && matches!(prefix.as_str(), "r" | "br" | "cr") {
                (raw_string(rest, word + hashes + 1, hashes), Kind::Literal)
            } else {
                (word, Kind::Code)
            }
        }
        _ => (1, Kind::Code),
    }
}

fn until(rest: &[char], end: impl Fn(&[char]) -> bool) -> usize {
    (0..rest.len()).find(|&i| end(&rest[i..])).unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[char], opened: usize, hashes: usize) -> usize {
    let closes = |i: usize| {
        rest[i] == '"' && rest.len() - i > hashes && rest[i + 1..=i + hashes].iter().all(|c| *c == '#')
    };
    (opened..rest.len()).find(|&i| closes(i)).map_or(rest.len(), |i| i + hashes + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_leave_the_code_and_lines_keep_their_numbers() {
        let text = "let a = \"x // y\"; // b\nlet c = r#\"q\"d\"#;\n/* e /* f */ g */ let h = '\"';\nfn i<'j>() {}\n";
        let masked = mask(text);
        assert_eq!(
            masked.code,
            "let a = ________;     \nlet c = ________;\n                  let h = ___;\nfn i<'j>() {}\n"
        );
        assert_eq!(masked.comments.lines().next(), Some("                  // b"));
        assert!(masked.comments.contains("/* e /* f */ g */"));
        assert!(!masked.comments.contains('q'));
    }

    #[test]
    fn escapes_do_not_end_a_literal() {
        assert_eq!(
            mask(r#"("\"", '\'', b"\\", '\u{41}') unsafe"#).code,
            "(____, ____, b____, ________) unsafe"
        );
    }

    #[test]
    fn a_line_comment_ends_before_its_line_break() {
        assert_eq!(mask("// a\nb").code, "    \nb");
    }

    #[test]
    fn what_is_never_closed_runs_to_the_end() {
        for text in ["\"a", "/* a", "r##\"a\"#", "'\\", "\"\\", "r#\"", "/*", "/"] {
            let masked = mask(text);
            assert_eq!(masked.code.chars().count(), text.chars().count(), "{text}");
            assert_eq!(masked.comments.chars().count(), text.chars().count(), "{text}");
        }
    }
}
