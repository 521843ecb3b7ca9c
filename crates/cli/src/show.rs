//! What people read: tables that fit a terminal, and sentences.

mod exports;
mod parts;
mod plan;
mod report;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use plimsoll::balance::{Objective, Stage, Stopped};
use plimsoll::export::stopped_text;
use plimsoll::units::Bytes;

pub(crate) use exports::{commands, files, script};
pub(crate) use plan::{of_budget, plan};
pub(crate) use report::{indices, left_out};

/// The width that output is laid out for: the terminal's, at least 60 and at most 100 columns; 80 where there is none.
pub(crate) fn width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    terminal.unwrap_or(80).clamp(60, 100)
}

/// A line, broken at words where it is longer than the width; later lines begin with `indent`.
pub(crate) fn wrap(line: &str, indent: &str) -> String {
    let first = line.len() - line.trim_start().len();
    let later = format!("{}{indent}", " ".repeat(first));
    let options = textwrap::Options::new(width())
        .subsequent_indent(&later)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(line, options)
}

/// A cell of a table on lines of at most `most` characters, broken at blanks alone: ranges of layers stay whole.
pub(crate) fn lines(text: &str, most: usize) -> String {
    let options = textwrap::Options::new(most)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}

/// A command that is longer than the width goes on over several lines, as a shell reads it.
pub(crate) fn command(words: &[String], indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for (n, word) in words.iter().enumerate() {
        let last = words.len() - 1;
        // A flag and its value stay together.
        let value = words.get(n + 1).filter(|next| word.starts_with('-') && !next.starts_with('-'));
        let needed = word.len() + value.map_or(0, |v| v.len() + 1) + if n == last { 0 } else { 2 };
        let line = lines.last_mut().map_or(0, |line| line.len());
        if n > 0 && line + 1 + needed > width() && !is_value(words, n) {
            if let Some(line) = lines.last_mut() {
                line.push_str(" \\");
            }
            lines.push(format!("{indent}  {word}"));
        } else if let Some(line) = lines.last_mut() {
            if n > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Whether a word is the value of the flag before it.
fn is_value(words: &[String], n: usize) -> bool {
    let flag =
        n.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|before| before.starts_with('-'));
    flag && words.get(n).is_some_and(|word| !word.starts_with('-'))
}

/// A table without lines, as wide as it needs to be, headed in lower case.
pub(crate) fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|h| (*h).to_owned()));
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The text of a table, without white space at the ends of lines.
pub(crate) fn text(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n") + "\n"
}

/// What stopped a device, on a line.
pub(crate) fn stopped_line(stopped: &Stopped) -> String {
    let short = if stopped.short_bytes.is_zero() {
        String::new()
    } else {
        format!(" ({} bytes short)", stopped.short_bytes.get())
    };
    format!("{}: {}{short}", stopped.device, stopped_text(&stopped.reason))
}

/// Text from a file, on one line and without characters that a terminal acts on.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// At most `most` characters, the middle left out.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let end = most / 2;
    let start = most.saturating_sub(end + 1);
    let first: String = text.chars().take(start).collect();
    let last: String = text.chars().skip(length - end).collect();
    format!("{first}…{last}")
}

/// What a stage holds, in parts: `input`, `0-39`, `head`.
pub(crate) fn holds(stage: &Stage, before_layers: &str) -> Vec<String> {
    let mut parts = Vec::new();
    if stage.input {
        parts.push("input".to_owned());
    }
    if !stage.layers.is_empty() {
        parts.push(format!("{before_layers}{}", layer_range(&stage.layers)));
    }
    if stage.head {
        parts.push("head".to_owned());
    }
    parts
}

/// A half-open range of layers, last one included as people say it: `0-39`, or `7` for a single layer.
pub(crate) fn layer_range(layers: &std::ops::Range<u32>) -> String {
    match layers.end.saturating_sub(layers.start) {
        0 => String::new(),
        1 => layers.start.to_string(),
        _ => format!("{}-{}", layers.start, layers.end - 1),
    }
}

/// The value of a plan in a few words.
pub(crate) fn value_text(objective: Objective, value: f64) -> Option<String> {
    match objective {
        Objective::Latency if value > 0.0 => Some(format!("{} per token", seconds(value))),
        Objective::Throughput if value > 0.0 => Some(format!("up to {:.1} tokens/s", 1.0 / value)),
        Objective::Latency | Objective::Throughput => None,
        Objective::Balanced => Some(format!("the fullest device {:.1} % full", value * 100.0)),
        Objective::Fit => Some(format!("{value:.0} device(s)")),
    }
}

/// Seconds as people read them: `46.1 ms`, `1.20 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.1} µs", seconds * 1e6)
    }
}

/// A share of something, in per cent with no digits; what is not quite full is not 100 %.
pub(crate) fn per_cent(part: Bytes, whole: Bytes) -> String {
    if whole.is_zero() {
        return "–".to_owned();
    }
    let share = u128::from(part.get()) * 100 / u128::from(whole.get());
    format!("{share}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_goes_on_over_lines_and_keeps_flags_with_their_values() {
        let words: Vec<String> =
            "llama-server -m models/some-very-long-name-of-a-model.gguf -c 32768 -np 1 --device CUDA0,CUDA1 -ngl 33 --kv-unified"
                .split(' ')
                .map(str::to_owned)
                .collect();
        let text = command(&words, "  ");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.lines().rev().skip(1).all(|line| line.ends_with(" \\")), "{text}");
        // Read as a shell does: a backslash before a line break is nothing.
        let joined = text.replace("\\\n", " ");
        assert_eq!(shlex::split(&joined).unwrap(), words);
        assert!(!text.contains("--device \\"), "{text}");
    }

    #[test]
    fn a_cell_is_broken_between_ranges() {
        assert_eq!(lines("0-9, 12, 27-31", 12), "0-9, 12,\n27-31");
    }

    #[test]
    fn times_and_shares_read_well() {
        assert_eq!(seconds(0.0461), "46.1 ms");
        assert_eq!(seconds(1.2), "1.20 s");
        assert_eq!(seconds(0.000_012), "12.0 µs");
        assert_eq!(per_cent(Bytes::new(999), Bytes::new(1000)), "99%");
        assert_eq!(per_cent(Bytes::ZERO, Bytes::ZERO), "–");
    }
}
