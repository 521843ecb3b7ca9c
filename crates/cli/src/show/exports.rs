//! What carries a plan out: lines to type and files to write.

use plimsoll::export::Export;

use super::{command, wrap};

/// The longest file that is shown without being asked for, in lines.
const SHORT: usize = 24;

/// What to type on which node.
pub(crate) fn commands(export: &Export) -> String {
    let mut out = String::new();
    for line in &export.lines {
        // A word that no shell can be given was refused before this.
        let words = line.quoted().unwrap_or_default();
        out.push_str(&format!("\non {}:\n{}\n", line.node, command(&words, "  ")));
    }
    for note in &export.notes {
        out.push_str(&wrap(&format!("note: {note}"), "  "));
        out.push('\n');
    }
    out
}

/// The files that the lines read; long ones by name alone, unless more is to be said.
pub(crate) fn files(export: &Export, verbose: bool) -> String {
    let mut out = String::new();
    for file in &export.files {
        let lines = file.text.lines().count();
        if verbose || lines <= SHORT {
            out.push_str(&format!("\n{}:\n{}", file.name, file.text));
        } else {
            let text =
                format!("{}: {lines} lines; --export {} writes them, -v shows them", file.name, file.name);
            out.push_str(&format!("\n{}\n", wrap(&text, "  ")));
        }
    }
    out
}

/// An export as one file: the one that the engine reads, else the lines to type as a script.
pub(crate) fn script(export: &Export) -> String {
    if let [file] = &export.files[..] {
        return file.text.clone();
    }
    let mut out = String::new();
    for line in &export.lines {
        out.push_str(&format!("# on {}\n{line}\n", line.node));
    }
    out
}
