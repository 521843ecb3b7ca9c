//! How much memory a hostile model can take: all allocations of this process are counted.
#![cfg(all(feature = "gguf", feature = "safetensors"))]
#![cfg_attr(
    all(feature = "gguf", feature = "safetensors"),
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};

use peak_alloc::PeakAlloc;
use plimsoll_model::gguf::{read_gguf, read_gguf_from};
use plimsoll_model::safetensors::read_safetensors;
use plimsoll_testkit::gguf::{Data, Value as Fact, Writer, large};

// A block that grows counts twice while it is copied.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const LIMIT: usize = 64 << 20;

/// The most that `work` held at once beyond what was held before, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    work();
    MEMORY.peak_usage() - before
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile_allocations").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// One test, so that nothing else allocates beside it.
#[test]
fn no_model_takes_more_than_64_mib() {
    a_large_model_takes_little();
    hostile_gguf();
    hostile_safetensors();
    hostile_index();
}

fn a_large_model_takes_little() {
    let path = folder("large").join("m.gguf");
    large(1_000, 150_000).write(&path, Data::First(0)).unwrap();
    let taken = peak(|| assert_eq!(read_gguf(&path).unwrap().tensors.len(), 1_000));
    assert!(taken < 1 << 20, "{taken}");
}

/// Reads a file from memory; returns whether it is accepted.
fn gguf(what: &str, bytes: &[u8]) -> bool {
    let mut accepted = false;
    let read =
        || accepted = read_gguf_from(Cursor::new(bytes), bytes.len() as u64, Path::new("m.gguf")).is_ok();
    let taken = peak(read);
    assert!(taken <= LIMIT, "{what}: {taken} bytes");
    accepted
}

fn hostile_gguf() {
    let mut counts = b"GGUF\x03\0\0\0".to_vec();
    counts.extend([0xff; 16]);
    counts.resize(1 << 20, 0);
    assert!(!gguf("counts", &counts));
    for limit in [1_u64 << 30, 1 << 40, 1 << 63, u64::MAX] {
        let mut text =
            b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k\x08\0\0\0".to_vec();
        text.extend(limit.to_le_bytes());
        assert!(!gguf("text", &text));
    }
    let mut lists = Writer::new();
    for i in 0..1_000 {
        lists = lists.fact(&i.to_string(), Fact::List(0, vec![Fact::U8(0); 4096]));
    }
    assert!(!gguf("lists", &lists.header()));
    let mut texts = Writer::new();
    for i in 0..300 {
        texts = texts.fact(&i.to_string(), Fact::Raw(vec![0xff; 65_536]));
    }
    assert!(!gguf("invalid texts", &texts.header()));
    let mut keys = Writer::new();
    for i in 0..200 {
        keys = keys.fact(&format!("{i:065535}"), Fact::U8(0));
    }
    assert!(!gguf("keys", &keys.header()));
    let mut facts = Writer::new();
    for i in 0..100_000 {
        facts = facts.fact(&i.to_string(), Fact::U8(0));
    }
    assert!(!gguf("facts", &facts.header()));
    // As many tensors as are read, with the longest names, all sides, and as many facts as are kept.
    let mut tensors = Writer::new();
    for i in 0..31_000 {
        tensors = tensors.fact(&i.to_string(), Fact::U8(0));
    }
    for i in 0..131_072 {
        tensors = tensors.tensor(&format!("{i:0127}"), &[1, 1, 1, 1], 24, 1);
    }
    assert!(gguf("tensors", &tensors.header()));
    // The same in two parts, each with all the facts.
    let folder = folder("parts");
    let facts = tensors.facts.clone();
    for (part, no) in tensors.split(2).into_iter().zip(1..) {
        let facts = [&facts[..], &part.facts[part.facts.len() - 3..]].concat();
        let path = folder.join(plimsoll_testkit::gguf::part_name("m", no, 2));
        Writer { facts, ..part }.write(&path, Data::First(0)).unwrap();
    }
    let path = folder.join("m-00002-of-00002.gguf");
    let taken = peak(|| assert_eq!(read_gguf(&path).unwrap().tensors.len(), 131_072));
    assert!(taken <= LIMIT, "parts: {taken}");
}

/// Writes a file whose header is `begin`, then `entry` of 0, 1, .. until `full` bytes are reached, then `end`.
fn write_header(path: &Path, full: usize, begin: &str, entry: &dyn Fn(usize) -> String, end: &str) {
    let header = filled(full, begin, entry, end);
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.flush().unwrap();
}

fn filled(full: usize, begin: &str, entry: &dyn Fn(usize) -> String, end: &str) -> String {
    let mut text = begin.to_owned();
    for i in 0.. {
        let next = entry(i);
        if text.len() + next.len() + end.len() > full {
            break;
        }
        text.push_str(&next);
    }
    text.truncate(text.trim_end_matches(',').len());
    text + end
}

/// A tensor with as many sides as it may have.
fn all_sides(i: usize) -> String {
    let sides = "1,".repeat(15);
    format!(r#""{i:x}":{{"dtype":"U8","shape":[{sides}1],"data_offsets":[{i},{i}]}},"#)
}

/// Reads a checkpoint; returns the error, or nothing where it is accepted.
fn checkpoint(what: &str, path: &Path) -> String {
    let mut error = String::new();
    let taken = peak(|| error = read_safetensors(path).err().map(|e| format!("{e:?}")).unwrap_or_default());
    assert!(taken <= LIMIT, "{what}: {taken} bytes");
    error
}

/// The longest header and the longest index.
const FULL: usize = 32 << 20;

fn hostile_safetensors() {
    let folder = folder("safetensors");
    let path = folder.join("model.safetensors");
    let check = |what: &str, full: usize, begin: &str, entry: &dyn Fn(usize) -> String, end: &str| {
        write_header(&path, full, begin, entry, end);
        checkpoint(what, &path)
    };
    // More tensors than are kept; a longer header would only take longer to write.
    let error = check("sides", FULL / 3 * 2, "{", &all_sides, "}");
    assert!(error.contains("than can be kept"), "{error}");
    let error = check("one text", FULL, "{\"", &|_| "x".repeat(1 << 20), "\":1}");
    assert!(error.contains("a string has more than"), "{error}");
    let error = check("escaped text", FULL, "{\"", &|_| r"\u00e9".repeat(1 << 16), "\":1}");
    assert!(error.contains("a string has more than"), "{error}");
    let error = check("metadata", FULL / 16, "{\"__metadata__\":{", &|i| format!("\"{i}\":\"\","), "}}");
    assert_eq!(error, "");
    let error = check("one shape", FULL, "{\"a\":{\"shape\":[", &|_| "1,".repeat(1 << 16), "]}}");
    assert!(error.contains("invalid length 17"), "{error}");
    // The largest config.json, of as many values as it can hold, comes on top of the tensors and their 36 MiB.
    fs::write(folder.join("config.json"), format!("[{}0]", "0,".repeat((1 << 19) - 2))).unwrap();
    write_header(&path, FULL, "{", &|_| " ".repeat(FULL), "}");
    let taken = peak(|| assert!(read_safetensors(&path).unwrap().config.is_some()));
    assert!(taken <= LIMIT - (36 << 20), "config: {taken} bytes");
}

fn hostile_index() {
    let folder = folder("index");
    let index = folder.join("model.safetensors.index.json");
    let check = |what: &str, full: usize, begin: &str, entry: &dyn Fn(usize) -> String, end: &str| {
        fs::write(&index, filled(full, begin, entry, end)).unwrap();
        checkpoint(what, &index)
    };
    let map = "{\"weight_map\":{";
    // As many tensors as an index may list, and a file of others that would take as much again.
    write_header(&folder.join("a.safetensors"), FULL / 2, "{", &all_sides, "}");
    let error =
        check("index and file", FULL / 16 * 3, map, &|i| format!("\"i{i}\":\"a.safetensors\","), "}}");
    assert!(error.contains("than can be kept"), "{error}");
    let error = check("files", FULL / 4, map, &|i| format!("\"{i}\":\"{i}.safetensors\","), "}}");
    assert!(error.contains("than can be kept"), "{error}");
    let error = check("metadata", FULL / 16, "{\"metadata\":{\"x\":[", &|_| "0,".repeat(1 << 16), "]}}");
    assert!(error.contains("missing field `weight_map`"), "{error}");
    // An eighth of the largest checkpoints there are, in an eighth of the memory.
    let (files, tensors) = (8, 25_000);
    let name = |i: usize| {
        format!("language_model.model.layers.{}.mlp.experts.{i:06}.down_proj.weight_packed", i % 61)
    };
    let file = |i: usize| format!("model-{:05}-of-{files:05}.safetensors", i % files + 1);
    let mut text = map.to_owned();
    for i in 0..tensors {
        write!(text, "\"{}\":\"{}\",", name(i), file(i)).unwrap();
    }
    text.pop();
    fs::write(&index, text + "}}").unwrap();
    for number in 0..files {
        let entry = |place: usize| match number + place * files {
            i if i >= tensors => " ".repeat(FULL),
            i => {
                let (name, begin, end) = (name(i), place * 8, place * 8 + 8);
                format!(r#""{name}":{{"dtype":"I32","shape":[1,2],"data_offsets":[{begin},{end}]}},"#)
            }
        };
        write_header(&folder.join(file(number)), FULL, "{", &entry, "}");
    }
    let taken = peak(|| assert_eq!(read_safetensors(&folder).unwrap().tensors.len(), tensors));
    assert!(taken <= LIMIT / 8, "an eighth of the largest: {taken} bytes");
}
