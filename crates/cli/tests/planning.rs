//! Pins, the largest context, and the way from one plan to another, as a person types them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snapbox::{IntoData, assert_data_eq, str};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn plimsoll(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// Runs a command that has to end like this, and gives what it printed on stdout and stderr.
fn ends_in(folder: &Path, status: i32, args: &[&str]) -> (String, String) {
    let output = plimsoll(folder, args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stdout}{stderr}");
    (stdout, stderr)
}

fn ends(status: i32, args: &[&str]) -> (String, String) {
    ends_in(&root(), status, args)
}

fn succeeds(args: &[&str]) -> String {
    ends(0, args).0
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A folder of its own for a test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-planning-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// The examples at the place where they lie in the workspace: what is printed then names no other folder.
    fn with_examples(self) -> Self {
        for name in [BIG, SMALL, HOME, CARDS] {
            std::fs::create_dir_all(self.0.join("examples")).unwrap();
            std::fs::copy(root().join(name), self.0.join(name)).unwrap();
        }
        self
    }

    /// Runs a command in this folder.
    fn ends(&self, status: i32, args: &[&str]) -> (String, String) {
        ends_in(&self.0, status, args)
    }

    fn succeeds(&self, args: &[&str]) -> String {
        self.ends(0, args).0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

const BIG: &str = "examples/llama-3.1-70b-q4_k_m.gguf";
const SMALL: &str = "examples/llama-3.1-8b-q4_k_m.gguf";
const HOME: &str = "examples/home-lab.toml";
const CARDS: &str = "examples/two-cards.toml";

/// The home lab with 4 GiB less on the tower's card, as `less.toml`.
fn less_home(folder: &Folder) {
    let home = std::fs::read_to_string(root().join(HOME)).unwrap();
    folder.file("less.toml", &home.replace("22.8GiB", "18.8GiB"));
}

#[test]
fn pinned_layers_stay_where_they_are_pinned_and_are_saved_with_the_plan() {
    let folder = Folder::new("pins");
    let plan = folder.path("plan.json");
    let args = ["plan", BIG, "--cluster", HOME, "--ctx", "32k", "--pin", "0-10=rig/CUDA1"];
    let made = succeeds(&[&args[..], &["--pin", "12-20=rig/CUDA1", "--out", &plan, "--json"]].concat());
    let made = json(&made);
    let stages = made["stages"].as_array().unwrap();
    let rig = stages.iter().find(|s| s["node"] == "rig" && s["device"] == "CUDA1").unwrap();
    assert_eq!(rig["layers"][0], 0);
    assert!(rig["layers"][1].as_u64().unwrap() >= 20);
    assert_eq!(made["request"]["pins"][1]["layers"], serde_json::json!([12, 20]));
    assert!(succeeds(&["check", &plan, "--cluster", HOME]).contains("fits"));
}

#[test]
fn pins_copies_and_transfers_that_mean_nothing_are_named() {
    for (flags, why) in [
        (&["--pin", "0..8=tower/CUDA0"][..], "'0..8=tower/CUDA0' is not of the form 0-8=node/device"),
        (&["--pin", "8-8=tower/CUDA0"], "holds no layer"),
        (&["--pin", "0-8=to wer/CUDA0"], "'0-8=to wer/CUDA0' does not name a device: "),
        (&["--pin", "0-8=tower/CUDA7"], "--pin names device 'tower/CUDA7', and the cluster has"),
        (&["--pin", "70-90=tower/CUDA0"], "pin 70-90=tower/CUDA0: the model's layers are 0-80"),
        (
            &["--pin", "0-8=tower/CUDA0", "--pin", "4-9=rig/CUDA0"],
            "pin 4-9=rig/CUDA0: it overlaps 0-8=tower/CUDA0",
        ),
        (&["--pin", "0-8=rig/CUDA0", "--only", "tower"], "its node is not among the only ones to use"),
        (&["--pin", "0-8=rig/host"], "pin 0-8=rig/host: the engine puts no layers on this device"),
        (&["--pipelines", "0"], "'0' is neither a number of copies from 1 on nor auto"),
        (&["--pipelines", "some"], "'some' is neither"),
        (&["--transfers", "some"], "'some' for '--transfers"),
    ] {
        let (stdout, stderr) = ends(2, &[&["plan", BIG, "--cluster", HOME, "--ctx", "8k"], flags].concat());
        assert!(one_line(&stderr).contains(why), "{flags:?}: {stderr}");
        assert!(stdout.is_empty());
    }
}

#[test]
fn a_pin_that_is_too_large_is_a_refusal_that_says_so() {
    let args = ["plan", BIG, "--cluster", HOME, "--ctx", "8k", "--pin", "0-60=tower/CUDA0"];
    assert_data_eq!(
        ends(1, &args).1,
        str![[r#"
does not fit: --pin 0-60=tower/CUDA0 takes 32.8 GB with what lies beside it, and
  the budget there is 23.4 GB
short of 9.6 GB (9631878605 bytes) in the best attempt
any one of these makes it fit:
  - without --pin
  - --ffn auto (puts 9.6 GB on the host)

"#]]
    );
    let capped = ends(1, &[&args[..], &["--cap", "tower/CUDA0=0"]].concat()).1;
    assert!(capped.starts_with("does not fit: --pin 0-60=tower/CUDA0 takes"), "{capped}");
    let refusal = json(&ends(1, &[&args[..], &["--json"]].concat()).0);
    assert_eq!(refusal["reason"], "proven-infeasible");
    assert_eq!(refusal["suggestions"][0]["change"], "unpin");
}

#[test]
fn the_largest_context_is_told_with_what_limits_it() {
    assert_data_eq!(
        succeeds(&["fit", BIG, "--cluster", CARDS, "--cap", "box/host=6GiB"]),
        str![[r#"
Llama 3.1 70B: llama, 80 layers, 42.5 GB of weights
largest context on examples/two-cards.toml: 35840 tokens, f16: 55.2 GB on 2
  devices and the host
memory is what limits it (trained for 131072): 36096 tokens do not fit, short of
  393.7 MB (393658624 bytes) in the best attempt
largest with no layer on the host: 18688 tokens: 49.9 GB on 2 devices

 device     layers        full       of budget
 box/host   input + 0-7    99%    6.4 / 6.4 GB
 box/CUDA0  8-44           98%  24.4 / 24.7 GB
 box/CUDA1  45-79 + head   98%  24.4 / 24.7 GB

"#]]
    );
    for (context, status) in [("35840", 0), ("36096", 1)] {
        ends(status, &["plan", BIG, "--cluster", CARDS, "--cap", "box/host=6GiB", "--ctx", context]);
    }
    let (stdout, _) =
        ends(1, &["fit", BIG, "--cluster", CARDS, "--cap", "box/host=6GiB", "--ctx", "36096", "--json"]);
    let told = &json(&stdout)["models"][0];
    assert_eq!((&told["fits"], &told["ctx"]), (&serde_json::json!(false), &serde_json::json!(36_096)));
    assert_eq!((told["largest_ctx"].as_u64(), told["next_ctx"].as_u64()), (Some(35_840), Some(36_096)));
    assert_eq!(told["limit"], "memory");
    assert_eq!(told["off_host_ctx"], 18_688);
}

#[test]
fn the_models_of_a_folder_are_told_with_those_that_cannot_be_read() {
    let folder = Folder::new("folder").with_examples();
    std::fs::create_dir_all(folder.0.join("m/qwen")).unwrap();
    std::fs::copy(
        root().join("examples/qwen3-30b-a3b-q4_k_m.gguf"),
        folder.0.join("m/qwen/qwen3-30b-a3b-q4_k_m.gguf"),
    )
    .unwrap();
    folder.file("m/broken.gguf", "GGUF");
    folder.file(
        "m/toy.toml",
        "name = \"toy\"\nlayers = [ { count = 4, bytes = \"3GB\", kv_bytes_per_token = 4096 } ]\n",
    );
    folder.file("m/huge.json", "{ \"name\": \"huge\", \"layers\": [ { \"bytes\": \"300GB\" } ] }");
    folder.file("m/part-00002-of-00003.gguf", "GGUF");
    // No models: a cluster, a scenario, a saved plan, something hidden.
    folder.file("m/home.toml", "[[node]]\nid = \"a\"\n");
    folder.file("m/hours.toml", "duration = \"2h\"\n[[model]]\nlayers = [ { bytes = \"3GB\" } ]\n");
    folder.file("m/plan.json", "{ \"format\": \"plimsoll.plan/1\", \"layers\": [] }");
    folder.file("m/.cache/old.gguf", "GGUF");
    let text = folder.succeeds(&["fit", "m", "--cluster", CARDS, "--ctx", "8k"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "m: 2 of 5 models fit on examples/two-cards.toml, with the context below");
    for (model, words) in [
        ("qwen/qwen3-30b-a3b-q4_k_m.gguf", "yes 8192 19.8 GB 1 40960 (trained)"),
        ("toy.toml", "yes 8192 12.1 GB 1"),
        ("huge.json", "no 8192"),
        ("broken.gguf:", "needs 4 bytes, but the file has only 0 left"),
        ("part-00002-of-00003.gguf:", "needs 4 bytes, but the file has only 0 left"),
    ] {
        let found = lines.iter().position(|line| line.trim_start().starts_with(model));
        let told = one_line(&lines[found.unwrap_or_else(|| panic!("{model}: {text}"))..].join(" "));
        assert!(told.contains(words), "{model}: {text}");
    }
    assert!(
        !text.contains("home.toml")
            && !text.contains("hours.toml")
            && !text.contains("old.gguf")
            && !text.contains("plan.json"),
        "{text}"
    );

    let told = json(&folder.succeeds(&["fit", "m", "--cluster", CARDS, "--ctx", "8k", "--json"]));
    assert_eq!(told["format"], "plimsoll.fit/1");
    let models = told["models"].as_array().unwrap();
    assert_eq!(models.len(), 5);
    assert!(models[0]["error"].is_string() && models[0]["fits"].is_null());

    let only_huge = Folder::new("huge");
    only_huge.file("huge.toml", "name = \"huge\"\nlayers = [ { bytes = \"300GB\" } ]\n");
    ends(1, &["fit", &only_huge.path(""), "--cluster", CARDS]);
    let empty = Folder::new("empty");
    assert!(ends(2, &["fit", &empty.path(""), "--cluster", CARDS]).1.contains("holds no model"));
}

#[test]
fn a_comparison_tells_what_moves() {
    let folder = Folder::new("diff").with_examples();
    let (old, new, short) = ("old.json", "new.json", "short.json");
    folder.succeeds(&["plan", BIG, "--cluster", HOME, "--ctx", "32k", "--out", old]);
    folder.succeeds(&[
        "plan",
        BIG,
        "--cluster",
        HOME,
        "--ctx",
        "32k",
        "--pin",
        "0-20=rig/CUDA1",
        "--out",
        new,
    ]);
    folder.succeeds(&["plan", BIG, "--cluster", HOME, "--ctx", "8k", "--out", short]);
    let text = folder.succeeds(&["diff", old, new]);
    assert_data_eq!(
        text,
        str![[r#"
Llama 3.1 70B: old.json → new.json
54.7 ms per token then, 54.8 ms per token now

 device       then          now           full then  now     gets  gives up
 rig/CUDA0    35-60         20-46               69%  71%   9.6 GB    8.9 GB
 rig/CUDA1    61-79 + head  0-19                56%  55%  13.1 GB   13.4 GB
 tower/CUDA0  0-34          47-79 + head        99%  97%  22.3 GB   22.7 GB

68 of 80 layers move: 45.0 GB of 53.2 GB
  layers 0-19: tower/CUDA0 → rig/CUDA1, 13.1 GB
  layers 20-34: tower/CUDA0 → rig/CUDA0, 9.6 GB
  layers 47-60: rig/CUDA0 → tower/CUDA0, 8.9 GB
  layers 61-79: rig/CUDA1 → tower/CUDA0, 12.5 GB
  head: rig/CUDA1 → tower/CUDA0, 861.9 MB

"#]]
        .raw()
    );
    let told = json(&folder.succeeds(&["diff", old, new, "--json"]));
    assert_eq!(
        (&told["format"], told["moved_layers"].as_u64()),
        (&serde_json::json!("plimsoll.diff/1"), Some(68))
    );
    let text = one_line(&folder.succeeds(&["diff", old, short]));
    assert!(
        text.contains("another request (context 32768 → 8192): only weights are counted as moving"),
        "{text}"
    );
    assert!(folder.succeeds(&["diff", old, old]).contains("nothing changes"));

    let other = "other.json";
    folder.succeeds(&["plan", SMALL, "--cluster", HOME, "--ctx", "8k", "--out", other]);
    let (stdout, stderr) = folder.ends(1, &["diff", old, other]);
    assert!(stdout.is_empty());
    let stderr = one_line(&stderr);
    assert!(
        stderr.contains("for different models: Llama 3.1 70B (") && stderr.contains("and Llama 3.1 8B ("),
        "{stderr}"
    );
    folder.ends(2, &["diff", old, BIG]);
}

#[test]
fn a_plan_in_force_is_moved_when_the_cluster_shrinks() {
    let folder = Folder::new("rebalance").with_examples();
    let (old, new, less) = ("old.json", "new.json", "less.toml");
    less_home(&folder);
    folder.succeeds(&["plan", BIG, "--cluster", HOME, "--ctx", "32k", "--out", old]);
    let text = folder.succeeds(&["rebalance", old, "--cluster", HOME]);
    assert_data_eq!(
        text,
        str![[r#"
Llama 3.1 70B: old.json on examples/home-lab.toml
the plan in force still holds: 54.7 ms per token
nothing to do: it is within 2 % of the best in this order of devices

"#]]
    );
    let text = folder.succeeds(&["rebalance", old, "--cluster", less, "--out", new]);
    assert_data_eq!(
        text,
        str![[r#"
Llama 3.1 70B: old.json on less.toml
the plan in force no longer holds:
  - tower/CUDA0 holds 23270850816 bytes and may hold 19112604467 bytes
target: 55.0 ms per token, the best in this order of devices
moves 4.4 GB of 53.2 GB

 device       layers        full       of budget
 tower/host   input          14%   9.5 / 67.6 GB
 tower/CUDA0  0-27           98%  18.8 / 19.1 GB
 rig/CUDA0    28-60          87%  21.5 / 24.7 GB
 rig/CUDA1    61-79 + head   56%  13.9 / 24.7 GB

steps, one after the other; 3.55 s in all:
  1. layers 28-34: tower/CUDA0 → rig/CUDA0, 4.4 GB, 3.55 s

llama.cpp moves nothing while it runs: stop it, and start it with the new plan

on rig:
  ggml-rpc-server -H 10.0.0.7 -p 50052 --device CUDA0,CUDA1 -c

on tower:
  llama-server -m examples/llama-3.1-70b-q4_k_m.gguf -c 32768 -np 1 -b 2048 \
    -ub 512 -fa auto -ctk f16 -ctv f16 --fit off --rpc 10.0.0.7:50052 \
    --device CUDA0,RPC0,RPC1 -ngl 81 -ts 28,33,20
note: an rpc server asks nobody for a password: run it only on a network you
  trust

"#]]
        .raw()
    );
    assert!(folder.succeeds(&["check", new, "--cluster", less]).contains("fits"));
    let told = json(&folder.succeeds(&["rebalance", old, "--cluster", less, "--json"]));
    assert_eq!(told["format"], "plimsoll.rebalance/1");
    assert_eq!(told["holds"], false);
    assert_eq!(told["plan"]["stages"], json(&std::fs::read_to_string(folder.path(new)).unwrap())["stages"]);
    assert_eq!(told["schedule"]["rounds"][0]["steps"][0]["layers"], serde_json::json!([28, 35]));
    // Nothing is left to do afterwards.
    assert!(folder.succeeds(&["rebalance", new, "--cluster", less]).contains("nothing to do"));
}

#[test]
fn a_plan_outlives_a_machine_that_was_taken_away_but_not_all_of_them() {
    let folder = Folder::new("unplugged");
    let node =
        |id: &str| format!("[[node]]\nid = \"{id}\"\n[[node.device]]\nid = \"g\"\nmemory = \"30GB\"\n");
    let model = folder.file("model.toml", "layers = [ { count = 4, bytes = \"10GB\" } ]\n");
    let both = folder.file("both.toml", &(node("a") + &node("b")));
    let other = folder.file("other.toml", &(node("b") + &node("c")));
    let (strange, plan) = (folder.file("strange.toml", &node("c")), folder.path("plan.json"));
    succeeds(&["plan", &model, "--cluster", &both, "--objective", "balanced", "--out", &plan]);
    let text = one_line(&succeeds(&["rebalance", &plan, "--cluster", &other]));
    assert!(text.contains("a/g may not be used: there is no such node"), "{text}");
    assert!(text.contains("moves 20.0 GB of 40.0 GB, 20.0 GB of them loaded anew"), "{text}");
    let (_, stderr) = ends(2, &["rebalance", &plan, "--cluster", &strange]);
    assert!(one_line(&stderr).contains("has none of its devices"), "{stderr}");
}

#[test]
fn a_model_without_layers_is_no_model() {
    let folder = Folder::new("nothing");
    let model = folder.file("nothing.toml", "layers = []\n");
    for args in
        [&["plan", &model, "--cluster", HOME][..], &["fit", &model, "--cluster", HOME], &["inspect", &model]]
    {
        assert!(ends(2, args).1.contains("has no layers"));
    }
}

#[test]
fn a_list_without_context_fits_with_any() {
    let text =
        one_line(&succeeds(&["fit", "examples/forty-layers.toml", "--cluster", "examples/five-nodes.toml"]));
    assert!(text.contains("any context fits on examples/five-nodes.toml"), "{text}");
    assert!(!text.contains("4096"), "{text}");
    let told =
        succeeds(&["fit", "examples/forty-layers.toml", "--cluster", "examples/five-nodes.toml", "--json"]);
    let told = &json(&told)["models"][0];
    assert_eq!((&told["any_ctx"], &told["limit"]), (&true.into(), &"none".into()));
    assert_eq!(
        (&told["largest_ctx"], &told["next_ctx"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(told["largest_bytes"], 40_000_000_000_u64);
}

#[test]
fn a_list_that_tells_no_training_is_looked_at_up_to_a_length_that_nobody_uses() {
    let folder = Folder::new("longest");
    let list = folder.file("a.toml", "name = \"a\"\nlayers = [ { bytes = 1, kv_bytes_per_token = 1 } ]");
    let cluster = folder.file("c.toml", "[[node]]\nid = \"n\"\nmemory = \"2TiB\"\n");
    let told = json(&succeeds(&["fit", &list, "--cluster", &cluster, "--json"]));
    let told = &told["models"][0];
    assert_eq!((&told["any_ctx"], &told["limit"]), (&false.into(), &"longest".into()));
    assert_eq!(told["largest_ctx"], 1_u64 << 40);
    let text = one_line(&succeeds(&["fit", &list, "--cluster", &cluster]));
    assert!(text.contains("longer contexts are not looked for") && !text.contains("any context"), "{text}");
}

#[test]
fn times_that_leave_out_what_is_passed_on_say_so() {
    let plan = [
        "plan",
        "examples/forty-layers.toml",
        "--cluster",
        "examples/five-nodes.toml",
        "--objective",
        "throughput",
    ];
    let plain = one_line(&succeeds(&plan));
    assert!(plain.contains("slowest stage 29.1 ms:") && !plain.contains("passed on"), "{plain}");
    for (transfers, said) in [
        ("overlapped", "slowest stage, or what it passes on, "),
        ("added", "slowest stage with what it receives and passes on "),
    ] {
        let text = one_line(&succeeds(&[&plan[..], &["--transfers", transfers]].concat()));
        assert!(text.contains("time: without what is passed on, which counts below"), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn a_plan_for_which_there_is_no_room_left_is_not_moved() {
    let folder = Folder::new("stuck");
    let plan = folder.path("plan.json");
    let args = ["plan", BIG, "--cluster", HOME, "--ctx", "8k", "--pin", "0-8=rig/CUDA0", "--out", &plan];
    succeeds(&args);
    let home = std::fs::read_to_string(root().join(HOME)).unwrap();
    let drained = folder.file("drained.toml", &home.replace("id = \"rig\"", "id = \"rig\"\ndrain = true"));
    let (stdout, stderr) = ends(1, &["rebalance", &plan, "--cluster", &drained]);
    assert!(stdout.is_empty());
    let expected = "refused: pin 0-8=rig/CUDA0: the device may not be used: its node is drained";
    assert_eq!(one_line(&stderr), expected);
    let told = json(&ends(1, &["rebalance", &plan, "--cluster", &drained, "--json"]).0);
    assert_eq!(
        (&told["format"], &told["reason"]),
        (&serde_json::json!("plimsoll.refusal/1"), &serde_json::json!("excluded"))
    );
    for (flags, why) in [
        (&["--tolerance", "much"][..], "'much' is not a share (2% or 0.02)"),
        (&["--concurrent", "0"], "--concurrent"),
        (&["--out", &plan], "would be written over: it is what is read"),
    ] {
        let (_, stderr) = ends(2, &[&["rebalance", &plan, "--cluster", HOME], flags].concat());
        assert!(one_line(&stderr).contains(why), "{stderr}");
    }
}
