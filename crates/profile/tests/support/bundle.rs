//! Captured machines: one text each, laid out as a tree of files.
//!
//! `--- PATH` stands before the text of each file. Three sections are short for many files or for none: `cpus` has a line
//! `numbers package core` for each group of logical processors on one core, `dirs` names directories, and `cpuid` holds
//! recorded registers.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the tree of a machine lies, made anew.
pub(crate) fn laid_out(name: &str, text: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bundles").join(name);
    if root.exists() {
        fs::remove_dir_all(&root).unwrap();
    }
    fs::create_dir_all(&root).unwrap();
    let write = |path: String, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (path, text) in sections(text) {
        match path {
            "cpus" => {
                for line in text.lines() {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    for cpu in words[0].split(',') {
                        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
                        write(format!("{topology}/physical_package_id"), words[1]);
                        write(format!("{topology}/core_id"), words[2]);
                    }
                }
            }
            "dirs" => text.lines().for_each(|dir| fs::create_dir_all(root.join(dir)).unwrap()),
            "cpuid" => {}
            _ => write(path.to_owned(), text),
        }
    }
    root
}

/// The sections of a text, each with what stands behind its mark.
pub(crate) fn sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("--- ").skip(1).map(|part| part.split_once('\n').unwrap())
}
