//! What it costs to read a GGUF header: time, best and median of 51, and the memory of the process.
//!
//! `header_cost write FILE` makes a model of 1,000 tensors with a vocabulary of 150,000 entries; `header_cost read FILE`
//! measures on any file, in a process of its own, so that writing does not count.

use std::path::Path;
use std::time::Instant;

use plimsoll_model::gguf::read_gguf;
use plimsoll_testkit::gguf::{Data, large};

#[expect(clippy::disallowed_methods, reason = "measuring time is all this program does")]
#[expect(clippy::print_stdout, reason = "the result goes to the terminal")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", file] => Ok(large(1_000, 150_000).write(Path::new(file), Data::Whole)?),
        ["read", file] => {
            let mut times = Vec::new();
            let mut tensors = 0;
            for _ in 0..51 {
                let begin = Instant::now();
                tensors = read_gguf(Path::new(file))?.tensors.len();
                times.push(begin.elapsed());
            }
            let first = times.first().copied().unwrap_or_default();
            times.sort_unstable();
            let (best, median) = (times.first().copied(), times.get(times.len() / 2).copied());
            println!("{tensors} tensors: first {first:?}, best {best:?}, median {median:?}");
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let peak = status.lines().find(|line| line.starts_with("VmHWM"));
            println!("{}", peak.unwrap_or("the peak of memory is not told here"));
            Ok(())
        }
        _ => Err("usage: header_cost write FILE | header_cost read FILE".into()),
    }
}
