//! How long reading a header takes, and the whole command from its start to its end.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_model::gguf::read_gguf;
use plimsoll_testkit::gguf::large;

/// A header of 1,000 tensors and 150,000 tokens with scores, kinds and merges.
fn header(criterion: &mut Criterion) {
    let folder = std::env::temp_dir().join(format!("plimsoll-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for a file to read");
    let file = folder.join("large.gguf");
    std::fs::write(&file, large(1_000, 150_000).header_padded()).expect("room for a file to read");
    let mut group = criterion.benchmark_group("header");
    group.bench_function("1000 tensors, 150000 tokens", |bencher| {
        bencher.iter(|| black_box(read_gguf(black_box(&file)).expect("a header that is whole")));
    });
    group.finish();
    std::fs::remove_dir_all(&folder).expect("a folder of our own");
}

/// The root of the workspace, where the examples lie.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The whole process: `plimsoll plan` of the 70B example, and of the same on eight devices.
fn process(criterion: &mut Criterion) {
    let Some(binary) = std::env::var_os("PLIMSOLL_BIN").filter(|path| !path.is_empty()) else {
        return;
    };
    let mut group = criterion.benchmark_group("process");
    for cluster in ["home-lab", "eight-cards"] {
        let file = match cluster {
            "home-lab" => "examples/home-lab.toml",
            _ => "benches/eight-cards.toml",
        };
        group.bench_function(format!("plan 70B on {cluster}"), |bencher| {
            bencher.iter(|| {
                let status = Command::new(&binary)
                    .args(["plan", "examples/llama-3.1-70b-q4_k_m.gguf", "--cluster", file, "--ctx", "32768"])
                    .current_dir(root())
                    .stdout(Stdio::null())
                    .status()
                    .expect("a command that was built");
                assert!(status.success(), "the plan is there");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, header, process);
criterion_main!(benches);
