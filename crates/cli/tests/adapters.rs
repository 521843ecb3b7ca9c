//! Adapters, projectors and draft models as a person names them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_testkit::adapter::adapter;
use plimsoll_testkit::gguf::{Data, Value, Writer};

const MODEL: &str = "examples/llama-3.1-8b-q4_k_m.gguf";
const CARDS: &str = "examples/two-cards.toml";

fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn one_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn succeeds(args: &[&str]) -> String {
    let output = plimsoll(args);
    assert_eq!(output.status.code(), Some(0), "{}", one_line(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn fails(args: &[&str], status: i32) -> String {
    let output = plimsoll(args);
    assert_eq!(output.status.code(), Some(status), "{}", one_line(&output.stderr));
    one_line(&output.stderr)
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeeds(args)).unwrap()
}

/// A folder of its own for a test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, file: &Writer) -> String {
        file.write(&self.0.join(name), Data::Whole).unwrap();
        self.path(name)
    }

    /// An adapter for the queries of every layer of the example: 2 MiB in 16 bits for each.
    fn adapter(&self, name: &str) -> String {
        let pair = |writer: Writer, layer: u32| {
            writer.pair(&format!("blk.{layer}.attn_q.weight"), &[4096, 4096], 128, 1)
        };
        self.write(name, &(0..32).fold(adapter("llama"), pair))
    }

    /// A projector of 1 GiB.
    fn projector(&self) -> String {
        let text = |text: &str| Value::Text(text.to_owned());
        let file = Writer::new()
            .fact("general.architecture", text("clip"))
            .fact("general.type", text("mmproj"))
            .tensor("v.blk.0.attn_q.weight", &[16384, 16384], 0, 1 << 30);
        self.write("projector.gguf", &file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn stage_weights(plan: &serde_json::Value) -> Vec<u64> {
    plan["stages"].as_array().unwrap().iter().map(|stage| stage["weights_bytes"].as_u64().unwrap()).collect()
}

/// The words of the engine's line in a plan, as one text.
fn line(plan: &serde_json::Value) -> String {
    plan["commands"].as_array().unwrap().last().unwrap()["line"].as_str().unwrap().to_owned()
}

#[test]
fn adapters_are_planned_saved_checked_and_read_back_from_flags() {
    let folder = Folder::new("adapters");
    let (tone, terms, out) =
        (folder.adapter("tone.gguf"), folder.adapter("terms.gguf"), folder.path("p.json"));
    let half = format!("{terms}:0.5");
    let base = ["plan", MODEL, "--cluster", CARDS, "--ctx", "8k", "--json"];
    let lora = ["--lora", &tone, "--lora-scaled", &half, "--out", &out];
    let (without, with) = (json(&base), json(&[&base[..], &lora[..]].concat()));
    let sum = |plan: &serde_json::Value| stage_weights(plan).iter().sum::<u64>();
    assert_eq!(sum(&with) - sum(&without), 2 * 32 * (2 << 20));
    assert!(line(&with).ends_with(&format!("--lora {tone} --lora-scaled {half}")), "{}", line(&with));
    assert_ne!(with["model"]["digest"], without["model"]["digest"]);

    let text = one_line(succeeds(&[&base[..6], &lora[..4]].concat()).as_bytes());
    assert!(text.contains(&format!("{tone}: its 67.1 MB (67108864 bytes) count with the tensors")), "{text}");
    assert!(text.contains("what adapters take to compute is not charged"), "{text}");

    // The plan is for the model with what it names.
    let right = one_line(succeeds(&["check", &out, "--cluster", CARDS, "--model", MODEL]).as_bytes());
    assert!(right.contains("every amount and time in it is right"), "{right}");
    let flags = line(&with).trim_start_matches("llama-server ").to_owned();
    let meant = json(&["check", "--from-flags", &flags, MODEL, "--cluster", CARDS, "--json"]);
    assert_eq!(meant["fits"], true);
    assert_eq!(stage_weights(&meant), stage_weights(&with));
    std::fs::remove_file(&terms).unwrap();
    let error = fails(&["check", &out, "--cluster", CARDS, "--model", MODEL], 2);
    assert!(error.contains("terms.gguf"), "{error}");
}

#[test]
fn what_is_no_adapter_of_the_model_is_named_with_the_model() {
    let folder = Folder::new("no-adapters");
    let tone = folder.adapter("tone.gguf");
    let refused = |flags: &[&str], status: i32| {
        fails(&[&["plan", MODEL, "--cluster", CARDS, "--ctx", "8k"], flags].concat(), status)
    };
    let error = refused(&["--lora", MODEL], 2);
    assert!(
        error.contains(&format!(
            "{MODEL} cannot be loaded beside 'Llama 3.1 8B': it is no adapter: its 'general.type' is"
        )),
        "{error}"
    );
    let other =
        folder.write("other.gguf", &adapter("qwen2").pair("blk.0.attn_q.weight", &[4096, 4096], 8, 1));
    let error = refused(&["--lora", &other], 2);
    assert!(error.contains("for the architecture 'qwen2', and the model is 'llama'"), "{error}");
    let wide = folder.write("wide.gguf", &adapter("llama").pair("blk.0.attn_k.weight", &[4096, 4096], 8, 1));
    let error = refused(&["--lora", &wide], 2);
    assert!(
        error.contains(
            "'blk.0.attn_k.weight.lora_a' is [4096, 8] and 'blk.0.attn_k.weight.lora_b' is [8, 4096]: that does not fit \
             'blk.0.attn_k.weight' of the model, which is [4096, 1024]"
        ),
        "{error}"
    );
    let again = format!("{}/./tone.gguf:0.5", folder.0.display());
    let error = refused(&["--lora", &tone, "--lora-scaled", &again], 2);
    assert!(error.contains("are one adapter: name it once"), "{error}");
    let error = refused(&["--lora-scaled", &tone], 2);
    assert!(error.contains("is not FILE:SCALE"), "{error}");
    let error = refused(&["--lora", &tone, "--out", &tone], 2);
    assert!(error.contains("it is what is read"), "{error}");
    let error = refused(&["--lora", &tone, "--engine", "mistral.rs"], 1);
    assert!(error.contains("adapters (--lora) cannot be planned under mistral.rs"), "{error}");
}

#[test]
fn flags_that_load_a_projector_or_a_draft_model_take_their_room() {
    let folder = Folder::new("beside-flags");
    let projector = folder.projector();
    let base = ["plan", MODEL, "--cluster", CARDS, "--ctx", "8k", "--json"];
    let planned = json(&[&base[..], &["--mmproj", &projector, "--draft", MODEL]].concat());
    let flags = line(&planned).trim_start_matches("llama-server ").to_owned();
    let check = |flags: &str| json(&["check", "--from-flags", flags, MODEL, "--cluster", CARDS, "--json"]);
    let meant = check(&flags);
    assert_eq!(meant["parts"], planned["parts"]);
    assert_eq!(stage_weights(&meant), stage_weights(&planned));
    let warnings = meant["report"]["warnings"].as_array().unwrap();
    let note = "what the projector takes to compute is not known and not charged: only the margin covers it";
    assert!(warnings.iter().any(|line| line == note), "{warnings:?}");

    let on_host = check(&format!("-ngl 33 -c 8192 --device CUDA0 --mmproj {projector} --no-mmproj-offload"));
    assert_eq!(on_host["parts"][0]["device"], "host");
    // One device takes the draft model where the line names none.
    let alone = check(&format!("-ngl 33 -c 8192 --device CUDA1 -md {MODEL}"));
    assert_eq!(alone["parts"][0]["device"], "CUDA1");
    let host = check(&format!("-ngl 33 -c 8192 --device CUDA1 -md {MODEL} -ngld 0"));
    assert_eq!(host["parts"][0]["device"], "host");
    let refused = |flags: &str, status: i32| {
        fails(&["check", "--from-flags", flags, MODEL, "--cluster", CARDS], status)
    };
    let error = refused(&format!("-ngl 33 -c 8192 -md {MODEL}"), 2);
    assert!(error.contains("the draft model is spread over 2 devices"), "{error}");
    let error = refused(&format!("-ngl 33 -c 8192 -md {MODEL} -ngld 7 -devd CUDA0"), 2);
    assert!(error.contains("-ngld 7 cuts the draft model after 7 of its 33 places"), "{error}");
    let error = refused(&format!("-ngl 33 -c 8192 -md {MODEL} -devd CUDA7"), 2);
    assert!(error.contains("-devd names 'CUDA7'; the engine sees CUDA0, CUDA1"), "{error}");
    let error = refused("-ngl 33 --lora nowhere.gguf", 2);
    assert!(error.contains("nowhere.gguf"), "{error}");
}
