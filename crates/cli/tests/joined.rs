//! Two agents and one etcd, end to end: join, plan over both, book, lose one machine, and go on with the other.

#![cfg(all(target_os = "linux", feature = "agent", feature = "etcd"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(clippy::disallowed_methods, reason = "real time passes here")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testkit::etcd::Etcd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long the others count on a machine that is silent.
const LEASE: u64 = 2;

const FLEET: &str = "[[node]]\nid = \"tower\"\nmemory = \"64GB\"\n\
    [[node.device]]\nid = \"CUDA0\"\nmemory = \"24GB\"\nbandwidth = \"1000GB/s\"\n\
    [[node]]\nid = \"mac\"\nmemory = \"64GB\"\nunified = true\ngpu_limit = \"48GB\"\n";

fn plimsoll(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(line.split_whitespace()).env("NO_COLOR", "1").env_remove("RUST_LOG");
    command
}

/// The status, the output and the talk of a command.
fn run(line: &str) -> (Option<i32>, String, String) {
    let output = plimsoll(line).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn succeeds(line: &str) -> String {
    let (status, stdout, stderr) = run(line);
    assert_eq!(status, Some(0), "{line}: {stdout}{stderr}");
    stdout
}

/// A real agent, and where it listens.
struct Agent {
    child: Child,
    address: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Agent {
    /// An agent that joins as this machine of the fleet. The member may still be starting: it is tried again.
    fn join(home: &Home, name: &str, flags: &str) -> Self {
        for _ in 0..20 {
            let mut child = plimsoll(&format!(
                "agent --listen 127.0.0.1:0 --join {} --name {name} --lease {LEASE}s --machine {} {flags}",
                home.url,
                home.file("fleet.toml")
            ))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
            let mut first = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
            if let Some(address) = first.trim().strip_prefix("listening on http://") {
                return Self { address: address.to_owned(), child };
            }
            drop(child.wait());
        }
        panic!("'{name}' does not join {}", home.url);
    }

    fn connect(&self, line: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        let head = format!("{line} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json");
        let text = format!("{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// The status of an answer, its head, and its body.
    fn ask(&self, line: &str, body: &str) -> (u16, String, String) {
        let mut text = String::new();
        self.connect(line, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    fn json(&self, line: &str, body: &str, status: u16) -> Value {
        let (found, _, body) = self.ask(line, body);
        assert_eq!(found, status, "{line}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        self.json(&format!("GET {path}"), "", 200)
    }

    /// Asks until the answer is the one that is meant; the runner ends a test that hangs.
    fn until(&self, path: &str, meant: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.get(path);
            if meant(&answer) {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn metric(&self, name: &str) -> String {
        let (_, _, text) = self.ask("GET /metrics", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }

    /// Ends it at once, as a power cut does; when that was.
    fn kill(mut self) -> Instant {
        let begun = Instant::now();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        begun
    }

    /// Ends it as a person does.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

/// A cluster of one member, and a folder.
struct Home {
    url: String,
    etcd: Etcd,
    folder: PathBuf,
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl Home {
    fn new(name: &str) -> Option<Self> {
        let etcd = Etcd::start(Path::new(env!("CARGO_TARGET_TMPDIR")), 1)?;
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("joined-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let home = Self { url: etcd.url("home"), etcd, folder };
        home.write("fleet.toml", FLEET);
        Some(home)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.join(name), text).unwrap();
        self.file(name)
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// So many layers of 2 GB, as a list, and as a file of it.
    fn model(&self, layers: u32) -> (String, String) {
        let list = json!({"name": "big", "layers": [{"count": layers, "bytes": "2GB"}]}).to_string();
        let file = self.write("big.json", &list);
        (format!("{{\"list\": {list}, \"engine\": \"none\"}}"), file)
    }
}

/// Both machines, each with an agent, and each knowing of the other.
fn both(home: &Home) -> (Agent, Agent) {
    let tower = Agent::join(home, "tower", "--main");
    let mac = Agent::join(home, "mac", "--rpc 127.0.0.1:50052");
    for agent in [&tower, &mac] {
        agent.until("/v1/cluster", |cluster| cluster["nodes"].as_array().unwrap().len() == 2);
    }
    (tower, mac)
}

fn nodes(plan: &Value) -> Vec<&str> {
    let mut nodes: Vec<&str> =
        plan["stages"].as_array().unwrap().iter().map(|stage| stage["node"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[test]
fn a_plan_over_two_machines_goes_on_with_one_when_the_other_dies() {
    let Some(home) = Home::new("survives") else { return };
    let (tower, mac) = both(&home);
    let (asked, file) = home.model(40);
    // The same plan over HTTP, from either agent, and from the command: 80 GB need both.
    let plan = tower.json("POST /v1/plan", &asked, 200);
    assert_eq!(nodes(&plan), ["mac", "tower"]);
    assert_eq!(mac.json("POST /v1/plan", &asked, 200)["stages"], plan["stages"]);
    let typed = succeeds(&format!("plan {file} --engine none --cluster {} --json", home.url));
    assert_eq!(serde_json::from_str::<Value>(&typed).unwrap()["stages"], plan["stages"]);

    // In force for both.
    let current = mac.json("PUT /v1/plan/current", &plan.to_string(), 200);
    assert_eq!((&current["number"], &current["standing"]["holds"]), (&json!(1), &json!(true)));
    tower.until("/v1/plan/current", |current| current["number"] == 1);
    assert_eq!(tower.metric("plimsoll_lease_held"), "1");

    // A booking through one agent is known to the other and to the command, and is nobody's but its own.
    let coder = r#"{"role": "coder", "needs": "5GB", "pool": "tower:ram"}"#;
    mac.json("POST /v1/reservations", coder, 201);
    tower.until("/v1/ledger", |ledger| ledger["holders"][0]["instance"] == "coder");
    assert!(succeeds(&format!("ps --cluster {}", home.url)).contains("coder"));

    let mut events = tower.connect("GET /v1/events?after=first", "");
    let killed = mac.kill();
    tower.until("/v1/cluster", |cluster| cluster["nodes"][0]["status"] == "failed");
    let failed = killed.elapsed();
    eprintln!("failed {} ms after kill -9, with a lease of {LEASE} s", failed.as_millis());
    assert!(failed < Duration::from_secs(LEASE + 1 + 10), "{failed:?}");
    let flagged = tower.until("/v1/plan/current", |current| current["standing"]["holds"] == false);
    eprintln!("the plan in force was flagged {} ms after that", (killed.elapsed() - failed).as_millis());
    let standing = &flagged["standing"];
    assert!(
        standing["text"].as_str().unwrap().contains("mac/gpu0 may not be used: its node does not answer"),
        "{standing}"
    );
    assert_eq!(standing["remedy"]["action"], "rebalance");
    // What helps lies on the survivor alone, and what was on the other has to be loaded.
    let stages = standing["remedy"]["stages"].as_array().unwrap();
    assert!(stages.iter().all(|stage| stage["device"].as_str().unwrap().starts_with("tower/")), "{stages:?}");
    assert!(standing["remedy"]["loaded_bytes"].as_u64().unwrap() > 0);
    assert_eq!(tower.metric("plimsoll_plan_holds"), "0");
    // Whoever listens is told both.
    let mut told = String::new();
    let mut bytes = [0; 4096];
    while !(told.contains("node 'mac' went from active to failed") && told.contains("\"holds\":false")) {
        let read = events.read(&mut bytes).unwrap();
        assert_ne!(read, 0, "{told}");
        told.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }

    // The command proposes the same from the plan in force, and puts it in force.
    let (status, _, stderr) = run(&format!("node plan --cluster {}", home.url));
    assert_eq!(status, Some(1), "{stderr}");
    let moved = succeeds(&format!("rebalance --cluster {} --json --apply", home.url));
    let moved: Value = serde_json::from_str(&moved).unwrap();
    assert_eq!(nodes(&moved["plan"]), ["tower"], "{moved}");
    let current = tower
        .until("/v1/plan/current", |current| current["number"] == 2 && current["standing"]["holds"] == true);
    assert_eq!(nodes(&current["plan"]), ["tower"]);
    // The booking outlived the agent that it was made through.
    assert_eq!(tower.get("/v1/ledger")["holders"][0]["instance"], "coder");
    tower.stop();
    assert!(!succeeds(&format!("node ls --cluster {}", home.url)).contains("tower"));
    assert!(succeeds(&format!("ps --cluster {}", home.url)).contains("coder"));
}

#[test]
fn what_does_not_fit_on_the_survivor_is_refused_with_the_bytes_that_are_missing() {
    let Some(home) = Home::new("refused") else { return };
    let (tower, mac) = both(&home);
    // 110 GB: the tower has 88.
    let (asked, file) = home.model(55);
    succeeds(&format!("plan {file} --engine none --cluster {} --apply", home.url));
    assert_eq!(tower.json("POST /v1/plan", &asked, 200)["stages"].as_array().unwrap().len(), 3);
    let current = tower.until("/v1/plan/current", |current| current["number"] == 1);
    assert_eq!(current["standing"]["holds"], true);
    mac.kill();
    let flagged = tower.until("/v1/plan/current", |current| current["standing"]["holds"] == false);
    assert_eq!(flagged["standing"]["remedy"]["action"], "stop");
    let (status, refusal, _) = run(&format!("rebalance --cluster {} --json", home.url));
    assert_eq!(status, Some(1), "{refusal}");
    let refusal: Value = serde_json::from_str(&refusal).unwrap();
    // 55 layers on 24 and 64 GB in pieces of 2 GB: 44 of them fit.
    assert_eq!(refusal["short_bytes"], 22_000_000_000_u64, "{refusal}");
}

#[test]
fn a_stale_plan_is_refused_with_both_numbers() {
    let Some(home) = Home::new("stale") else { return };
    let (tower, mac) = both(&home);
    let (asked, file) = home.model(40);
    let plan = tower.json("POST /v1/plan", &asked, 200);
    let saved = home.write("plan.json", &plan.to_string());
    // Somebody starts the other machine anew.
    mac.stop();
    let mac = Agent::join(&home, "mac", "--rpc 127.0.0.1:50052");
    let generation = |cluster: &Value| cluster["generation"].as_u64().unwrap();
    let basis = plan["basis"]["generation"].as_u64().unwrap();
    tower.until("/v1/cluster", |cluster| {
        generation(cluster) > basis && cluster["nodes"][0]["status"] == "active"
    });
    let refused = tower.json("PUT /v1/plan/current", &plan.to_string(), 409);
    let text = refused["text"].as_str().unwrap();
    assert!(
        text.contains(&format!("computed from generation {basis} of the cluster, which is now at")),
        "{text}"
    );
    assert_eq!(refused["remedy"]["action"], "replan");
    let (status, _, stderr) = run(&format!("node plan --set {saved} --cluster {}", home.url));
    assert_eq!(status, Some(1));
    assert!(stderr.contains(&format!("computed from generation {basis}")), "{stderr}");
    // Made again it is taken; and one that was to replace another one is not.
    succeeds(&format!("plan {file} --engine none --cluster {} --out {saved} --apply", home.url));
    let (status, _, stderr) = run(&format!("node plan --set {saved} --replaces 7 --cluster {}", home.url));
    assert_eq!(status, Some(1));
    assert!(stderr.contains("to replace plan 7, and plan 1 is in force"), "{stderr}");
    let newer = std::fs::read_to_string(&saved).unwrap();
    let refused = mac.json("PUT /v1/plan/current?replaces=7", &newer, 409);
    assert!(
        refused["text"].as_str().unwrap().contains("replace plan 7, and plan 1 is in force"),
        "{refused}"
    );
    // Forgotten it is for all, and its number is not given again.
    let forgotten = mac.json("DELETE /v1/plan/current", "", 200);
    assert_eq!(forgotten["plan"], Value::Null);
    tower.until("/v1/plan/current", |current| current["plan"] == Value::Null);
    assert_eq!(tower.json("PUT /v1/plan/current?replaces=0", &newer, 200)["number"], 3);
}

#[test]
fn without_a_majority_reads_grow_old_and_changes_are_refused_in_time_until_it_is_back() {
    let Some(mut home) = Home::new("silent") else { return };
    let tower = Agent::join(&home, "tower", "--main");
    home.etcd.members()[0].kill();
    let coder = r#"{"role": "coder", "needs": "5GB", "pool": "tower:ram"}"#;
    // At once, and after it is known that nobody answers.
    for _ in 0..2 {
        let begun = Instant::now();
        let (status, _, body) = tower.ask("POST /v1/reservations", coder);
        let took = begun.elapsed();
        eprintln!("refused after {} ms: {body}", took.as_millis());
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("no majority of etcd answers"), "{body}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        tower.until("/v1/cluster", |cluster| cluster["membership"]["answers"] == false);
    }
    let (status, _, body) = tower.ask("DELETE /v1/plan/current", "");
    assert_eq!(status, 503, "{body}");
    let cluster = tower.until("/v1/cluster", |cluster| cluster["membership"]["registered"] == false);
    assert!(cluster["membership"]["age_seconds"].as_f64().unwrap() >= 2.0, "{cluster}");
    let (status, head, _) = tower.ask("GET /v1/ledger", "");
    let age = head.lines().find_map(|line| line.strip_prefix("age: ")).unwrap();
    assert!(status == 200 && age.parse::<u64>().unwrap() >= 2, "{head}");
    let (status, _, body) = tower.ask("GET /readyz", "");
    assert!(status == 503 && body.contains("no majority of etcd answers"), "{body}");
    assert_eq!(tower.metric("plimsoll_lease_held"), "0");
    // It comes back without hands.
    home.etcd.members()[0].start();
    tower.until("/v1/cluster", |cluster| cluster["membership"]["trouble"] == Value::Null);
    tower.json("POST /v1/reservations", coder, 201);
    assert_eq!(tower.ask("GET /readyz", "").0, 200);
}
