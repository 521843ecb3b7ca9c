//! The models in a folder.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Folders are looked into so deep: model libraries have a publisher, a model and a variant.
const DEPTH: u32 = 6;

/// A list of layers is a page of text; larger files are not opened.
const LIST_BYTES: u64 = 4 << 20;

/// Whether a path is a folder whose models are meant, and not a folder that is a model.
pub(super) fn is_folder_of_models(path: &Path) -> bool {
    path.is_dir() && !is_checkpoint(path)
}

fn is_checkpoint(folder: &Path) -> bool {
    ["model.safetensors.index.json", "model.safetensors"].iter().any(|name| folder.join(name).is_file())
}

/// The models in a folder and the folders in it, by path: the first part of each GGUF, folders with a checkpoint, single
/// safetensors files, lists of layers. What is hidden is left out, and folders that links lead to.
pub(super) fn models(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = BTreeSet::new();
    look(folder, DEPTH, &mut found)?;
    Ok(found.into_iter().collect())
}

fn look(folder: &Path, depth: u32, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            if is_checkpoint(&path) {
                found.insert(path);
            } else if depth > 0 {
                // A folder that may not be read hides its models, not those of the others.
                match look(&path, depth - 1, found) {
                    Ok(()) | Err(_) => {}
                }
            }
        } else if path.is_file() {
            files.push((name, path));
        }
    }
    files.sort();
    let mut sets = BTreeSet::new();
    for (name, path) in files {
        let lower = name.to_ascii_lowercase();
        let extension = lower.rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_model = match extension {
            // Of a split file any part stands for all; the first one there is taken.
            "gguf" | "safetensors" => sets.insert(without_part(&lower).to_owned()),
            "toml" | "json" => is_list(&path, extension),
            _ => false,
        };
        if is_model {
            found.insert(path);
        }
    }
    Ok(())
}

/// `big-00002-of-00003.gguf` as `big`; other names as they are.
fn without_part(name: &str) -> &str {
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let base = stem.rsplit_once("-of-").filter(|(_, count)| digits(count));
    let base = base.and_then(|(rest, _)| rest.rsplit_once('-')).filter(|(_, part)| digits(part));
    base.map_or(name, |(base, _)| base)
}

/// Whether a text file means to be a list of layers: it has layers, and is nothing else that plimsoll writes.
fn is_list(path: &Path, extension: &str) -> bool {
    let small = std::fs::metadata(path).is_ok_and(|about| about.len() <= LIST_BYTES);
    let Some(text) = small.then(|| std::fs::read_to_string(path).ok()).flatten() else { return false };
    if extension == "json" {
        let value: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        return value.is_some_and(|value| value.get("layers").is_some() && value.get("format").is_none());
    }
    // What stands in a table is the table's: a scenario has models, and each of them has layers.
    let own = text.lines().map(str::trim_start);
    own.take_while(|line| !line.starts_with('[') || line.starts_with("[[layers]]")).any(|line| {
        line.starts_with("[[layers]]")
            || line.strip_prefix("layers").is_some_and(|rest| rest.trim_start().starts_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one_file_are_one_model() {
        assert_eq!(without_part("big-00002-of-00003.gguf"), "big");
        assert_eq!(without_part("big-q4-of-8.gguf"), "big-q4-of-8.gguf");
        assert_eq!(without_part("small.gguf"), "small.gguf");
    }
}
