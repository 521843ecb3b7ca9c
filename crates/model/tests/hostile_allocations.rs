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

fn gguf(what: &str, bytes: &[u8]) {
    let read = || {
        let _ = read_gguf_from(Cursor::new(bytes), bytes.len() as u64, Path::new("m.gguf"));
    };
    let taken = peak(read);
    assert!(taken <= LIMIT, "{what}: {taken} bytes");
}

fn hostile_gguf() {
    let mut counts = b"GGUF\x03\0\0\0".to_vec();
    counts.extend([0xff; 16]);
    counts.resize(1 << 20, 0);
    gguf("counts", &counts);
    for limit in [1_u64 << 30, 1 << 40, 1 << 63, u64::MAX] {
        let mut text =
            b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k\x08\0\0\0".to_vec();
        text.extend(limit.to_le_bytes());
        gguf("text", &text);
    }
    let mut lists = Writer::new();
    for i in 0..1_000 {
        lists = lists.fact(&i.to_string(), Fact::List(0, vec![Fact::U8(0); 4096]));
    }
    gguf("lists", &lists.header());
    let mut texts = Writer::new();
    for i in 0..300 {
        texts = texts.fact(&i.to_string(), Fact::Raw(vec![0xff; 65_536]));
    }
    gguf("invalid texts", &texts.header());
    let mut keys = Writer::new();
    for i in 0..200 {
        keys = keys.fact(&format!("{i:065535}"), Fact::U8(0));
    }
    gguf("keys", &keys.header());
    let mut facts = Writer::new();
    for i in 0..100_000 {
        facts = facts.fact(&i.to_string(), Fact::U8(0));
    }
    gguf("facts", &facts.header());
    // As many tensors as are read, with the longest names, all sides, and as many facts as are kept.
    let mut tensors = Writer::new();
    for i in 0..31_000 {
        tensors = tensors.fact(&i.to_string(), Fact::U8(0));
    }
    for i in 0..131_072 {
        tensors = tensors.tensor(&format!("{i:0127}"), &[1, 1, 1, 1], 24, 1);
    }
    let header = tensors.header();
    gguf("tensors", &header);
    assert!(read_gguf_from(Cursor::new(&header), header.len() as u64, Path::new("m.gguf")).is_ok());
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

/// The longest header and the longest index.
const FULL: usize = 32 << 20;

fn hostile_safetensors() {
    let folder = folder("safetensors");
    let path = folder.join("model.safetensors");
    let check = |what: &str, full: usize, begin: &str, entry: &dyn Fn(usize) -> String, end: &str| {
        write_header(&path, full, begin, entry, end);
        let taken = peak(|| {
            let _ = read_safetensors(&path);
        });
        assert!(taken <= LIMIT, "{what}: {taken} bytes");
    };
    // As many tensors as are kept, for their number and for what they take.
    let sides = "1,".repeat(15);
    let all_sides = |i| format!(r#""{i:x}":{{"dtype":"U8","shape":[{sides}1],"data_offsets":[{i},{i}]}},"#);
    check("sides", FULL, "{", &all_sides, "}");
    check("one name", FULL, "{", &|_| "x".repeat(1 << 20), "}");
    check("one text", FULL, "{\"", &|_| "x".repeat(1 << 20), "\":1}");
    check("escaped text", FULL, "{\"", &|_| r"\u00e9".repeat(1 << 16), "\":1}");
    check("metadata", FULL / 16, "{\"__metadata__\":{", &|i| format!("\"{i}\":\"\","), "}}");
    check("one shape", FULL, "{\"a\":{\"shape\":[", &|_| "1,".repeat(1 << 16), "]}}");
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
        let taken = peak(|| {
            let _ = read_safetensors(&index);
        });
        assert!(taken <= LIMIT, "{what}: {taken} bytes");
    };
    let map = "{\"weight_map\":{";
    check("names", FULL, map, &|i| format!("\"{i}\":\"a.safetensors\","), "}}");
    check("files", FULL, map, &|i| format!("\"{i}\":\"{i}.safetensors\","), "}}");
    check("metadata", FULL / 16, "{\"metadata\":{\"x\":[", &|_| "0,".repeat(1 << 16), "0]}}");
    // An index that takes as much as it may, and a file of other tensors that would take as much again.
    let long = |mark: char| move |i: usize| format!("{mark}{i:0999}");
    let listed = |i| format!("\"{}\":\"a.safetensors\",", long('i')(i));
    let held =
        |i| format!(r#""{}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}},"#, long('t')(i), i + 1);
    write_header(&folder.join("a.safetensors"), FULL, "{", &held, "}");
    check("index and file", FULL, map, &listed, "}}");
    // A quarter of the largest checkpoints there are, in a quarter of the memory.
    let (files, tensors) = (16, 50_000);
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
    assert!(taken <= LIMIT / 4, "a quarter of the largest: {taken} bytes");
}
