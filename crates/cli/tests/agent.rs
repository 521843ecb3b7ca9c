//! `plimsoll agent` as a person starts it, asks it, and stops it.

#![cfg(all(unix, feature = "agent"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use plimsoll_testkit::adapter::adapter;
use plimsoll_testkit::gguf::Value::Text;
use plimsoll_testkit::gguf::{Data, Writer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("agent-{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .args(args)
        .env("NO_COLOR", "1")
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// An agent, where it listens, and what it prints from then on.
struct Agent {
    child: Child,
    address: String,
    out: BufReader<std::process::ChildStdout>,
}

impl Agent {
    fn start(args: &[&str]) -> Self {
        let mut child = plimsoll(&[&["agent", "--listen", "127.0.0.1:0"], args].concat()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{first:?}")).to_owned();
        Self { child, address, out }
    }

    fn connect(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let text = format!(
            "{head}\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n",
            self.address
        );
        stream.write_all(format!("{text}connection: close\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn ask(&self, line: &str, body: &str) -> (String, String) {
        let mut text = String::new();
        self.connect(&format!("{line} HTTP/1.1"), body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// Ends it with a signal; its status, and what it logged.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let (mut rest, mut log) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(rest, "");
        (self.child.wait().unwrap().code(), log)
    }
}

const HOME: &str = "[[node]]\nid = \"box\"\n\
    [[node.device]]\nid = \"CUDA0\"\nmemory = \"16GB\"\nbandwidth = \"900GB/s\"\n\
    [[node.device]]\nid = \"CUDA1\"\nmemory = \"12GB\"\nbandwidth = \"400GB/s\"\n";

const TOY: &str = "{\"name\": \"toy\", \"layers\": [{\"count\": 8, \"bytes\": \"3GB\"}]}";

#[test]
fn the_agent_answers_what_the_command_prints() {
    let folder = Folder::new("same");
    let (home, toy) = (folder.file("home.toml", HOME), folder.file("toy.json", TOY));
    let agent =
        Agent::start(&["--cluster", &home, "--ledger", &folder.path("l.db"), "--models", &folder.path("")]);
    let (status, by_path) = agent.ask("POST /v1/plan", "{\"model\": \"toy.json\"}");
    assert_eq!(status, "HTTP/1.1 200 OK", "{by_path}");
    let printed = |args: &[&str]| String::from_utf8(plimsoll(args).output().unwrap().stdout).unwrap();
    assert_eq!(by_path, printed(&["plan", &toy, "--cluster", &home, "--json"]));
    let (_, inline) = agent.ask("POST /v1/plan", &format!("{{\"list\": {TOY}}}"));
    assert_eq!(inline, by_path, "a layer list has no command line");
    let (status, refusal) = agent.ask("POST /v1/plan", "{\"model\": \"toy.json\", \"max_devices\": 1}");
    assert_eq!(status, "HTTP/1.1 409 Conflict");
    let (refusal, printed) = (
        serde_json::from_str::<Value>(&refusal).unwrap(),
        serde_json::from_str::<Value>(&printed(&[
            "plan",
            &toy,
            "--cluster",
            &home,
            "--json",
            "--max-devices",
            "1",
        ]))
        .unwrap(),
    );
    assert_eq!(refusal, printed);
    assert_eq!(agent.end(Signal::INT).0, Some(0));
}

#[test]
fn what_lies_beside_a_model_is_planned_as_by_the_command() {
    let folder = Folder::new("beside");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let at = |name: &str| folder.0.canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
    std::fs::copy(examples.join("llama-3.1-8b-q4_k_m.gguf"), folder.0.join("m.gguf")).unwrap();
    std::fs::copy(examples.join("llama-3.1-8b-q4_k_m.gguf"), folder.0.join("small.gguf")).unwrap();
    let pairs = adapter("llama").pair("blk.7.attn_q.weight", &[4096, 4096], 16, 1);
    for name in ["tone.gguf", "terms.gguf"] {
        pairs.write(&folder.0.join(name), Data::Whole).unwrap();
    }
    let projector = Writer::new().fact("general.architecture", Text("clip".to_owned())).tensor(
        "v.blk.0.attn_q.weight",
        &[4096, 4096],
        0,
        1 << 26,
    );
    projector.write(&folder.0.join("eyes.gguf"), Data::Whole).unwrap();
    let cards = examples.join("two-cards.toml").to_str().unwrap().to_owned();
    let agent =
        Agent::start(&["--cluster", &cards, "--ledger", &folder.path("l.db"), "--models", &folder.path("")]);
    let asked = "{\"model\": \"m.gguf\", \"ctx\": 4096, \"mmproj\": \"eyes.gguf\", \"draft\": \"small.gguf\", \
                 \"lora\": [\"tone.gguf\"], \"lora_scaled\": [\"terms.gguf:0.5\"]}";
    let (status, told) = agent.ask("POST /v1/plan", asked);
    assert_eq!(status, "HTTP/1.1 200 OK", "{told}");
    let (model, eyes, small, tone, terms) =
        (at("m.gguf"), at("eyes.gguf"), at("small.gguf"), at("tone.gguf"), at("terms.gguf:0.5"));
    let typed = ["plan", &model, "--cluster", &cards, "--ctx", "4096", "--mmproj", &eyes, "--draft", &small];
    let output =
        plimsoll(&[&typed[..], &["--lora", &tone, "--lora-scaled", &terms, "--json"]].concat()).output();
    assert_eq!(told, String::from_utf8(output.unwrap().stdout).unwrap());
    for (body, status, why) in [
        (r#"{"model": "m.gguf", "lora": ["no.gguf"]}"#, "404 Not Found", "no model 'no.gguf'"),
        (r#"{"model": "m.gguf", "lora": ["../x.gguf"]}"#, "400 Bad Request", "of names alone"),
        (r#"{"model": "m.gguf", "lora_scaled": ["tone.gguf"]}"#, "400 Bad Request", "is not FILE:SCALE"),
        (r#"{"model": "m.gguf", "mmproj": "tone.gguf"}"#, "400 Bad Request", "is no projector"),
        (r#"{"model": "m.gguf", "lora": ["small.gguf"]}"#, "400 Bad Request", "small.gguf"),
        (
            r#"{"model": "m.gguf", "engine": "none", "draft": "small.gguf"}"#,
            "400 Bad Request",
            "under llama.cpp",
        ),
    ] {
        let (first, told) = agent.ask("POST /v1/plan", body);
        assert_eq!(first, format!("HTTP/1.1 {status}"), "{body}: {told}");
        assert!(told.contains(why), "{body}: {told}");
    }
    assert_eq!(agent.end(Signal::INT).0, Some(0));
}

#[test]
fn a_signal_ends_it_well_and_leaves_bookings_alone() {
    let folder = Folder::new("signal");
    let ledger = folder.path("l.db");
    let shell = |args: &[&str]| {
        let Output { status, stdout, stderr } =
            plimsoll(&[args, &["--ledger", &ledger]].concat()).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    shell(&["reserve", "theirs", "--needs", "1MB", "--pool", "ram", "--budget", "1GB"]);
    let agent = Agent::start(&["--ledger", &ledger, "--log-format", "json"]);
    let (status, _) = agent.ask("POST /v1/reservations", "{\"role\": \"ours\", \"needs\": \"2MB\"}");
    assert_eq!(status, "HTTP/1.1 201 Created");
    let mut stream = agent.connect("GET /v1/events HTTP/1.1", "");
    let mut begin = [0; 15];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    let (status, log) = agent.end(Signal::TERM);
    assert_eq!(status, Some(0), "{log}");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the stream was ended, not cut: {rest}");
    let ps: Value = serde_json::from_str(&shell(&["ps", "--json"])).unwrap();
    let held: Vec<&str> =
        ps["holders"].as_array().unwrap().iter().map(|holder| holder["instance"].as_str().unwrap()).collect();
    assert_eq!(held, ["ours", "theirs"]);
    assert_eq!(ps["pools"][0]["budget_bytes"], 1_000_000_000, "a budget that was given stands");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("\"reserved\"") && log.contains("\"id\":"), "{log}");
}

#[test]
fn what_others_can_reach_is_refused_without_a_token_and_the_token_is_never_logged() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("token");
    let ledger = folder.path("l.db");
    let refused = |args: &[&str]| {
        let Output { status, stdout, stderr } =
            plimsoll(&[&["agent", "--ledger", &ledger], args].concat()).output().unwrap();
        assert_eq!((status.code(), stdout.as_slice()), (Some(2), &b""[..]));
        String::from_utf8(stderr).unwrap()
    };
    let error = refused(&["--listen", "0.0.0.0:0"]);
    assert!(error.contains("error: 0.0.0.0:0 can be reached from other machines"), "{error}");
    let secret = "a-token-that-nobody-may-see";
    let token = folder.file("token", secret);
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(&["--token-file", &token]);
    assert!(error.contains("has mode 0644") && !error.contains(secret), "{error}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let agent = Agent::start(&["--ledger", &ledger, "--token-file", &token]);
    assert_eq!(agent.ask("GET /v1/profile", "").0, "HTTP/1.1 401 Unauthorized");
    let mut text = String::new();
    let head = format!("GET /v1/profile HTTP/1.1\r\nauthorization: Bearer {secret}");
    agent.connect(&head, "").read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    let (status, log) = agent.end(Signal::TERM);
    assert_eq!(status, Some(0));
    assert!(!log.contains(secret), "{log}");
}

#[test]
fn wrong_usage_is_said_at_once() {
    let folder = Folder::new("usage");
    let ledger = folder.path("l.db");
    for (args, said) in [
        (&["--listen", "here"][..], "invalid socket address"),
        (&["--cluster", "none.toml"], "none.toml"),
        (&["--models", "no such folder"], "the folder of models no such folder cannot be read"),
        (&["--token-file", "none"], "cannot read the token file none"),
        (&["--interval", "1ms"], "too short"),
    ] {
        let output = plimsoll(&[&["agent", "--ledger", &ledger], args].concat()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?}: {error}");
    }
}
