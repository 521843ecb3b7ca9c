//! The command as a person types it: what it prints, where, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snapbox::{IntoData, assert_data_eq, str};

/// The root of the workspace, where the examples lie.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(root())
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs a command that has to succeed, and gives what it printed.
fn succeeds(args: &[&str]) -> String {
    let output = plimsoll(args);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// Text without its line breaks: where they fall depends on the paths in it.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A folder of its own for a test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

const BIG: &str = "examples/llama-3.1-70b-q4_k_m.gguf";
const HOME: &str = "examples/home-lab.toml";

#[test]
fn a_big_model_is_planned_onto_a_home_lab() {
    let text = succeeds(&["plan", BIG, "--cluster", HOME, "--ctx", "32k"]);
    assert_data_eq!(
        text,
        str![[r#"
Llama 3.1 70B: llama, 80 layers, 42.5 GB of weights
context: 32768, f16, 10.7 GB

 device       layers                              full       of budget     time
 tower/host   input         █▒▒·················   14%   9.5 / 67.6 GB
 tower/CUDA0  0-34          ███████████████▓▓▓▓▒   99%  23.3 / 23.4 GB  22.5 ms
 rig/CUDA0    35-60         ███████████▓▓▒······   69%  17.1 / 24.7 GB  17.7 ms
 rig/CUDA1    61-79 + head  █████████▓▓▒········   56%  13.9 / 24.7 GB  14.3 ms
  █ weights  ▓ context  ▒ engine  · free

54.7 ms per token for one stream, 18.3 tokens/s; no other plan is better
  (proven)
left out (no gain): laptop/CUDA0, mac/MTL0
assumed: rig/CUDA0 bandwidth 936 GB/s (by name)
assumed: rig/CUDA1 bandwidth 936 GB/s (by name)
note: the files end 42512531712 bytes before their tensors do; sizes are those
  of the tensors
note: compute buffers are estimates: of such models none was measured more than
  7 % above

on rig:
  ggml-rpc-server -H 10.0.0.7 -p 50052 --device CUDA0,CUDA1 -c

on tower:
  llama-server -m examples/llama-3.1-70b-q4_k_m.gguf -c 32768 -np 1 -b 2048 \
    -ub 512 -fa auto -ctk f16 -ctv f16 --fit off --rpc 10.0.0.7:50052 \
    --device CUDA0,RPC0,RPC1 -ngl 81 -ts 35,26,20
note: an rpc server asks nobody for a password: run it only on a network you
  trust

"#]]
        .raw()
    );
}

#[test]
fn nothing_is_wider_than_eighty_columns() {
    for args in [
        &["plan", BIG, "--cluster", HOME][..],
        &["plan", BIG, "--cluster", "examples/mac-and-pc.toml", "--objective", "balanced", "-v"],
        &["plan", "examples/gpt-oss-120b-mxfp4.gguf", "--cluster", "examples/two-cards.toml", "--ctx", "32k"],
        &["inspect", "examples/gpt-oss-120b-mxfp4.gguf"],
        &["inspect", "examples/qwen3-30b-a3b-q4_k_m.gguf", "-v"],
        &["detect"],
    ] {
        let text = succeeds(args);
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 80, "{args:?}: {widest}");
    }
}

#[test]
fn the_command_line_that_is_printed_is_the_one_in_the_json() {
    let args = ["plan", BIG, "--cluster", HOME, "--ctx", "8k"];
    let text = succeeds(&args);
    let plan = json(&succeeds(&[&args[..], &["--json"]].concat()));
    let commands = plan["commands"].as_array().unwrap();
    assert!(!commands.is_empty());
    let joined = text.replace("\\\n", " ");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for command in commands {
        let line = words(command["line"].as_str().unwrap());
        assert!(joined.lines().any(|printed| words(printed) == line), "{line:?}");
    }
}

#[test]
fn a_saved_plan_checks_until_the_cluster_shrinks() {
    let folder = Folder::new("check");
    let (plan, picture) = (folder.path("plan.json"), folder.path("plan.svg"));
    succeeds(&["plan", BIG, "--cluster", HOME, "--ctx", "32k", "--out", &plan, "--svg", &picture]);
    assert!(std::fs::read_to_string(&picture).unwrap().starts_with("<svg "));

    let text = one_line(&succeeds(&["check", &plan, "--cluster", HOME, "--model", BIG]));
    assert!(text.contains("and every amount and time in it is right"), "{text}");

    let home = std::fs::read_to_string(root().join(HOME)).unwrap();
    let less = folder.file("less.toml", &home.replace("22.8GiB", "20.8GiB"));
    let output = plimsoll(&["check", &plan, "--cluster", &less]);
    assert_eq!(status(&output), 1);
    assert!(one_line(&stderr(&output)).contains("tower/CUDA0 holds"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty());

    let output = plimsoll(&["check", &plan, "--cluster", &less, "--json"]);
    assert_eq!(status(&output), 1);
    assert_eq!(json(&stdout(&output))["fits"], false);
    let other = ["check", &plan, "--cluster", HOME, "--model", "examples/llama-3.1-8b-q4_k_m.gguf", "--json"];
    let output = plimsoll(&other);
    assert_eq!(status(&output), 1);
    assert_eq!(json(&stdout(&output))["fits"], false);

    let more = folder.file("more.toml", &home.replace("22.8GiB", "23GiB"));
    let text = one_line(&succeeds(&["check", &plan, "--cluster", &more]));
    assert!(text.contains("budget of tower/CUDA0: 23407571763 bytes then"), "{text}");

    let output =
        plimsoll(&["check", &plan, "--cluster", HOME, "--model", "examples/llama-3.1-8b-q4_k_m.gguf"]);
    assert_eq!(status(&output), 1);
    assert!(one_line(&stderr(&output)).contains("another model"), "{}", stderr(&output));
}

#[test]
fn a_plan_that_was_edited_or_is_of_another_version_is_refused() {
    let folder = Folder::new("edited");
    let plan = folder.path("plan.json");
    succeeds(&["plan", BIG, "--cluster", HOME, "--ctx", "8k", "--out", &plan]);
    let sealed = std::fs::read_to_string(&plan).unwrap();
    let edited = folder.file("edited.json", &sealed.replacen("-ngl", "-ngI", 1));
    let output = plimsoll(&["check", &edited, "--cluster", HOME]);
    assert_eq!(status(&output), 2);
    assert!(one_line(&stderr(&output)).contains("its seal is"), "{}", stderr(&output));

    // A plan of another program's has no seal.
    let mut without = json(&sealed);
    without.as_object_mut().unwrap().remove("seal").unwrap();
    let text = serde_json::to_string_pretty(&without).unwrap();
    for (from, to, why) in [
        ("plimsoll.plan/1", "plimsoll.plan/2", "this plimsoll reads 'plimsoll.plan/1'"),
        ("\"weights_bytes\": 544079872", "\"weights_bytes\": 544079871", "the file was changed by hand"),
        ("\"objective\": \"latency\"", "\"objective\": \"speed\"", "known are fit, throughput"),
        ("\"layers\": 80", "\"layers\": 81", "the runs describe 80 layers and the model has 81"),
        ("\"parts\": []", "\"pieces\": []", "unknown field `pieces`"),
    ] {
        let edited = folder.file("edited.json", &text.replacen(from, to, 1));
        let output = plimsoll(&["check", &edited, "--cluster", HOME]);
        assert_eq!(status(&output), 2, "{to}: {}", stderr(&output));
        assert!(one_line(&stderr(&output)).contains(why), "{to}: {}", stderr(&output));
    }
}

#[test]
fn nothing_that_was_read_is_written_over() {
    let folder = Folder::new("over");
    let own = folder.path("own.gguf");
    std::fs::copy(root().join("examples/llama-3.1-8b-q4_k_m.gguf"), &own).unwrap();
    let before = std::fs::read(&own).unwrap();
    let both = folder.path("both");
    for args in [
        vec!["plan", &own, "--cluster", HOME, "--out", &own],
        vec!["plan", &own, "--cluster", HOME, "--svg", &own],
        vec!["plan", &own, "--cluster", HOME, "--out", &both, "--svg", &both],
    ] {
        let output = plimsoll(&args);
        assert_eq!(status(&output), 2, "{args:?}");
    }
    assert_eq!(std::fs::read(&own).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_pipes_written_to() {
    let folder = Folder::new("links");
    let target = folder.file("target.json", "old");
    let link = folder.path("link.json");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let model = "examples/llama-3.1-8b-q4_k_m.gguf";
    succeeds(&["plan", model, "--cluster", HOME, "--out", &link]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().contains("plimsoll.plan/1"));
    // A terminal or a pipe is no file that could be replaced.
    let text = succeeds(&["plan", model, "--cluster", HOME, "--json", "--svg", "/dev/stderr"]);
    assert!(text.starts_with('{'));
    let left: Vec<_> =
        std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_cluster_of_which_nothing_may_be_used_is_a_refusal() {
    let folder = Folder::new("drained");
    let cluster = folder.file("drained.toml", "[[node]]\nid = \"a\"\nmemory = \"8GiB\"\ndrain = true\n");
    let list = folder.file("toy.toml", "name = \"toy\"\nlayers = [ { bytes = 10 } ]\n");
    let args = ["plan", &list, "--cluster", &cluster];
    let output = plimsoll(&args);
    assert_eq!(status(&output), 1);
    assert!(one_line(&stderr(&output)).contains("a/host: its node is drained"), "{}", stderr(&output));
    let output = plimsoll(&[&args[..], &["--json"]].concat());
    assert_eq!(status(&output), 1);
    assert_eq!(json(&stdout(&output))["reason"], "proven-infeasible");
}

#[test]
fn a_refusal_says_what_is_missing_and_what_would_do() {
    let args = ["plan", BIG, "--cluster", "examples/two-cards.toml", "--ctx", "1m"];
    let output = plimsoll(&args);
    assert_eq!(status(&output), 1);
    assert!(stdout(&output).is_empty());
    let text = stderr(&output);
    assert!(text.starts_with("does not fit: "), "{text}");

    let refusal = json(&stdout(&plimsoll(&[&args[..], &["--json"]].concat())));
    assert_eq!(refusal["format"], "plimsoll.refusal/1");
    assert_eq!(refusal["reason"], "proven-infeasible");
    // What is suggested works.
    let suggestions = refusal["suggestions"].as_array().unwrap();
    let context = suggestions.iter().find(|s| s["change"] == "ctx").unwrap()["to"].as_str().unwrap();
    succeeds(&["plan", BIG, "--cluster", "examples/two-cards.toml", "--ctx", context]);
    let more: u64 = context.parse::<u64>().unwrap() + 256;
    let output = plimsoll(&["plan", BIG, "--cluster", "examples/two-cards.toml", "--ctx", &more.to_string()]);
    assert_eq!(status(&output), 1, "the suggestion is the largest that fits");
}

#[test]
fn wrong_input_is_named_and_ends_with_two() {
    let folder = Folder::new("wrong");
    let unknown_key = folder.file("key.toml", "[[node]]\nid = \"a\"\nmemroy = \"1GiB\"\n");
    let not_a_model = folder.file("model.gguf", "GGUF");
    for (args, why) in [
        (vec!["plan"], "<MODEL>"),
        (vec!["plan", "no-such-file.gguf"], "no-such-file.gguf"),
        (vec!["plan", "ftp://host/model.gguf"], "ftp:// is not read"),
        (vec!["plan", &not_a_model], "model.gguf"),
        (vec!["plan", BIG, "--cluster", "no-such-file.toml"], "no-such-file.toml"),
        (vec!["plan", BIG, "--cluster", &unknown_key], "memroy"),
        (vec!["plan", BIG, "--cluster", HOME, "--only", "nobody"], "nobody"),
        (vec!["plan", BIG, "--cluster", HOME, "--cap", "tower/CUDA9=1GiB"], "tower/CUDA9"),
        (vec!["plan", BIG, "--cluster", HOME, "--cap", "tower"], "node/device=20GiB"),
        (vec!["plan", BIG, "--cluster", HOME, "--ctx", "many"], "many"),
        (vec!["plan", BIG, "--cluster", HOME, "--ctx", "1k", "--ctx-total", "1k"], "--ctx-total"),
        (vec!["plan", BIG, "--cluster", HOME, "--parallel", "0"], "--parallel"),
        (vec!["plan", BIG, "--cluster", HOME, "--cache-type-k", "q3"], "q8_0"),
        (vec!["plan", BIG, "--cluster", HOME, "--cache-type-v", "q8_0", "--flash-attn", "off"], "q8_0"),
        (vec!["plan", BIG, "--cluster", HOME, "--reserve", "-1"], "--reserve"),
        (
            vec!["plan", BIG, "--cluster", HOME, "--engine", "tgi"],
            "plans are made for llama.cpp, ik_llama.cpp, vllm",
        ),
        (vec!["plan", BIG, "--cluster", HOME, "--out", "no-such-folder/plan.json"], "no-such-folder"),
        (vec!["check", BIG], "llama-3.1-70b-q4_k_m.gguf is no saved plan (plan --out): it is not text"),
        (vec!["plan", BIG, "--cluster", BIG], "it is not text"),
        (vec!["inspect", HOME], "home-lab.toml"),
        (vec!["completions", "tcsh"], "tcsh"),
    ] {
        let output = plimsoll(&args);
        assert_eq!(status(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(one_line(&stderr(&output)).contains(why), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{args:?}");
    }
}

#[test]
fn a_layer_list_is_planned_exactly() {
    let folder = Folder::new("list");
    let list = folder.file(
        "toy.toml",
        "name = \"toy\"\nlayers = [ { count = 4, bytes = 14 }, { count = 4, bytes = 3 } ]\n",
    );
    let cluster = folder.file(
        "pair.toml",
        "[[node]]\nid = \"a\"\n[[node.device]]\nid = \"CUDA0\"\nmemory = 32\nbackend = \"cuda\"\n\
         [[node.device]]\nid = \"CUDA1\"\nmemory = 40\nbackend = \"cuda\"\n",
    );
    // The only cut that fits is after two layers: 28 and 40 bytes. An even split by count would take 56.
    let plan = json(&succeeds(&["plan", &list, "--cluster", &cluster, "--json"]));
    let held: Vec<(String, u64, u64)> = plan["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let layers = |n: usize| s["layers"][n].as_u64().unwrap();
            (s["device"].as_str().unwrap().to_owned(), layers(0), layers(1))
        })
        .collect();
    assert_eq!(held, [("CUDA0".to_owned(), 0, 2), ("CUDA1".to_owned(), 2, 8)]);
}

#[test]
fn more_slots_take_more_cells_and_the_engine_is_told_the_total() {
    let model = "examples/llama-3.1-8b-q4_k_m.gguf";
    let args = ["inspect", model, "--json", "--ctx", "32768"];
    let one = json(&succeeds(&args));
    let four = json(&succeeds(&[&args[..], &["--parallel", "4"]].concat()));
    let shared = json(&succeeds(&[&args[..], &["--parallel", "4", "--unified-kv"]].concat()));
    // 32 layers, 8 heads of 128, f16: 131072 bytes a token.
    assert_eq!(one["totals"]["kv_bytes"], 4_u64 << 30);
    assert_eq!(four["totals"]["kv_bytes"], 16_u64 << 30);
    assert_eq!(shared["totals"]["kv_bytes"], 4_u64 << 30);
    assert_eq!(four["kv_bytes_per_token"], 131_072);

    let text = succeeds(&["plan", model, "--cluster", HOME, "--ctx", "32768", "--parallel", "4"]);
    assert!(text.contains("-c 131072 -np 4"), "{text}");
    assert!(text.contains("context: 32768 for each of 4 sequences"), "{text}");
    let text =
        succeeds(&["plan", model, "--cluster", HOME, "--ctx", "32768", "--parallel", "4", "--unified-kv"]);
    assert!(text.contains("-c 32768 -np 4"), "{text}");
    assert!(text.contains("context: 32768 shared by 4 sequences"), "{text}");
}

#[test]
fn flags_of_a_command_line_are_checked() {
    let model = "examples/llama-3.1-8b-q4_k_m.gguf";
    let check = |flags: &str| {
        plimsoll(&["check", "--from-flags", flags, model, "--cluster", "examples/two-cards.toml", "--json"])
    };
    let output = check("-ngl 33 -ts 16,16 -np 1 -c 8192");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let plan = json(&stdout(&output));
    assert_eq!(plan["fits"], true);
    assert_eq!(plan["format"], "plimsoll.plan/1");
    // The head counts: the obvious even split is not even.
    assert_eq!(plan["stages"][1]["layers"], serde_json::json!([0, 17]));
    assert_eq!(plan["stages"][2]["layers"], serde_json::json!([17, 32]));

    // With its fit on and nothing set, the engine would choose by itself.
    let open = check("");
    assert_eq!(
        json(&stdout(&open))["report"]["warnings"][0].as_str().unwrap().split(' ').next(),
        Some("--fit")
    );

    let output = check("-ngl 99 -np 4 -c 1048576 --device CUDA0");
    assert_eq!(status(&output), 1);
    assert_eq!(json(&stdout(&output))["fits"], false);

    for (flags, why) in [
        ("-ts 1,2,3", "-ts has 3 shares and there are 2 devices"),
        ("--device CUDA7", "--device names 'CUDA7'; the engine sees CUDA0, CUDA1"),
        ("--rpc 10.9.9.9:1", "--rpc names 10.9.9.9:1"),
        ("--device CUDA0,CUDA0", "--device names box/CUDA0 twice"),
        ("-sm none -mg 5", "-mg names device 5, counted from 0, and there are 2"),
        ("-ot exps=CUDA9", "CUDA9"),
        ("-c \"8192", "a quote that is not closed"),
        ("-ctv q8_0 -fa off", "q8_0"),
    ] {
        let output = check(flags);
        assert_eq!(status(&output), 2, "{flags}: {}", stderr(&output));
        assert!(one_line(&stderr(&output)).contains(why), "{flags}: {}", stderr(&output));
    }
}

#[test]
fn output_is_the_same_every_time() {
    let args = ["plan", BIG, "--cluster", HOME, "--json"];
    assert_eq!(succeeds(&args), succeeds(&args));
}

#[test]
fn this_machine_can_be_put_into_a_cluster_file() {
    let folder = Folder::new("node");
    let node = succeeds(&["detect", "--emit", "node"]);
    let cluster = folder.file("here.toml", &node);
    let list = folder.file("toy.toml", "name = \"toy\"\nlayers = [ { count = 2, bytes = 10 } ]\n");
    let plan = json(&succeeds(&["plan", &list, "--cluster", &cluster, "--json"]));
    assert_eq!(plan["stages"][0]["layers"], serde_json::json!([0, 2]));
    let detected = json(&succeeds(&["detect", "--json"]));
    assert_eq!(detected["format"], "plimsoll.detect/1");
}

#[test]
fn completions_and_the_manual_are_printed() {
    for (shell, mark) in
        [("bash", "_plimsoll"), ("zsh", "#compdef plimsoll"), ("fish", "plimsoll"), ("man", ".TH")]
    {
        assert!(succeeds(&["completions", shell]).contains(mark), "{shell}");
    }
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    // `plimsoll … | head -1` closes the pipe.
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["completions", "bash"])
        .current_dir(root())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_engine_that_cannot_read_a_model_refuses_it_with_what_can() {
    for engine in ["vllm", "sglang", "accelerate", "transformers", "petals", "exo"] {
        let output = plimsoll(&["plan", BIG, "--cluster", HOME, "--engine", engine]);
        assert_eq!(status(&output), 1, "{engine}: {}", stderr(&output));
        let text = one_line(&stderr(&output));
        assert!(text.contains("does not run a GGUF") && text.contains("plan for llama.cpp"), "{text}");
    }
    // A plan without a command says why there is none.
    let list = ["plan", "examples/forty-layers.toml", "--cluster", "examples/five-nodes.toml", "--engine"];
    let said = "note: nothing to type: a list of layers is no file that petals could load";
    assert!(one_line(&succeeds(&[&list[..], &["petals"]].concat())).contains(said));
    assert!(!succeeds(&[&list[..], &["none"]].concat()).contains("nothing to type"));
    let check =
        ["check", "--from-flags", "-ngl 81 -np 1 -c 4096", BIG, "--cluster", "examples/two-cards.toml"];
    assert!(!succeeds(&check).contains("nothing to type"));
    let output = plimsoll(&["plan", BIG, "--cluster", HOME, "--engine", "none", "--export", "x"]);
    assert_eq!(status(&output), 2, "{}", stderr(&output));
}
