//! How much memory a hostile model can take: all allocations of this process are counted.
#![cfg(all(feature = "gguf", feature = "safetensors"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use plimsoll_model::gguf::{read_gguf, read_gguf_from};
use plimsoll_model::safetensors::read_safetensors;
use plimsoll_testkit::gguf::{Data, Value as Fact, Writer, large};

/// The system's allocator with a count beside it. A block that grows counts twice while it may be copied.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    PEAK.fetch_max(NOW.fetch_add(by, Relaxed) + by, Relaxed);
}

#[expect(unsafe_code, reason = "the interface of allocators is unsafe; all of it is handed through")]
// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: usize = 64 << 20;

/// The most that `work` held at once beyond what was held before, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    work();
    PEAK.load(Relaxed) - before
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

fn entry(name: &str) -> String {
    format!(r#""{name}":{{"dtype":"U8","shape":[],"data_offsets":[0,0]}},"#)
}

/// A file whose header is `begin`, then `entry` of 0, 1, .. until 32 MiB are full, then `end`.
fn full_header(path: &Path, begin: &str, entry: impl Fn(usize) -> String, end: &str) {
    const FULL: usize = 32 << 20;
    let mut header = String::with_capacity(FULL);
    header.push_str(begin);
    for i in 0.. {
        let next = entry(i);
        if header.len() + next.len() + end.len() > FULL {
            break;
        }
        header.push_str(&next);
    }
    while header.ends_with(',') {
        header.pop();
    }
    header.push_str(end);
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.flush().unwrap();
}

fn hostile_safetensors() {
    let folder = folder("safetensors");
    let path = folder.join("model.safetensors");
    let mut check = |what: &str, begin: &str, entry: &dyn Fn(usize) -> String, end: &str| {
        full_header(&path, begin, entry, end);
        let taken = peak(|| {
            let _ = read_safetensors(&path);
        });
        assert!(taken <= LIMIT, "{what}: {taken} bytes");
    };
    check("short names", "{", &|i| entry(&format!("{i:x}")), "}");
    check("long names", "{", &|i| entry(&format!("{i:01000}")), "}");
    check("one name", "{", &|_| "x".repeat(1 << 20), "}");
    check("one text", "{\"", &|_| "x".repeat(1 << 20), "\":1}");
    check("escaped text", "{\"", &|_| r"\u00e9".repeat(1 << 16), "\":1}");
    check("metadata", "{\"__metadata__\":{", &|i| format!("\"{i}\":\"\","), "}}");
    let sides = format!("[{}1]", "1,".repeat(15));
    let all_sides = |i| format!(r#""{i}":{{"dtype":"U8","shape":{sides},"data_offsets":[{i},{}]}},"#, i + 1);
    check("sides", "{", &all_sides, "}");
    check("one shape", "{\"a\":{\"shape\":[", &|_| "1,".repeat(1 << 16), "]}}");
    // The largest config.json, of as many values as it can hold.
    fs::write(folder.join("config.json"), format!("[{}0]", "0,".repeat((1 << 19) - 2))).unwrap();
    let whole = |i| match i {
        0..200_000 => format!(r#""{i:064}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}},"#, i + 1),
        _ => String::from(" ").repeat(32 << 20),
    };
    check("config", "{", &whole, "}");
    assert!(read_safetensors(&path).unwrap().config.is_some());
}

fn hostile_index() {
    let folder = folder("index");
    let index = folder.join("model.safetensors.index.json");
    let check = |what: &str, text: String| {
        fs::write(&index, text).unwrap();
        let taken = peak(|| {
            let _ = read_safetensors(&index);
        });
        assert!(taken <= LIMIT, "{what}: {taken} bytes");
    };
    let map = |entry: &dyn Fn(usize) -> String| {
        let mut text = String::from("{\"weight_map\":{");
        for i in 0.. {
            let next = entry(i);
            if text.len() + next.len() > (32 << 20) - 64 {
                break;
            }
            text.push_str(&next);
        }
        text.pop();
        text + "}}"
    };
    check("short names", map(&|i| format!("\"{i}\":\"a.safetensors\",")));
    check("long names", map(&|i| format!("\"{i:01000}\":\"a.safetensors\",")));
    check("files", map(&|i| format!("\"{i}\":\"{i}.safetensors\",")));
    check("metadata", format!("{{\"metadata\":{{\"x\":[{}0]}}}}", "0,".repeat(15 << 20)));
    // The largest checkpoints there are: 200,000 tensors in 64 files.
    let name = |i: usize| {
        format!("language_model.model.layers.{}.mlp.experts.{i:06}.down_proj.weight_packed", i % 61)
    };
    let mut text = String::from("{\"weight_map\":{");
    for i in 0..200_000 {
        write!(text, "\"{}\":\"model-{:05}-of-00064.safetensors\",", name(i), i % 64 + 1).unwrap();
    }
    text.pop();
    text.push_str("}}");
    for file in 0..64 {
        let path = folder.join(format!("model-{:05}-of-00064.safetensors", file + 1));
        let mut header = String::from("{");
        for (place, i) in (file..200_000).step_by(64).enumerate() {
            let (name, begin) = (name(i), place * 8);
            let end = begin + 8;
            write!(header, r#""{name}":{{"dtype":"I32","shape":[1,2],"data_offsets":[{begin},{end}]}},"#)
                .unwrap();
        }
        header.pop();
        header.push('}');
        fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
    }
    fs::write(&index, text).unwrap();
    let taken = peak(|| assert_eq!(read_safetensors(&folder).unwrap().tensors.len(), 200_000));
    assert!(taken <= LIMIT, "the largest: {taken} bytes");
}
