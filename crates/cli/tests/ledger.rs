//! The commands of the ledger: real processes that share a file.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A ledger of its own for a test, removed at the end.
struct Ledger(PathBuf);

impl Ledger {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-ledger-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The same with a budget for everything.
    fn with_budget(name: &str, budget: &str) -> Self {
        let ledger = Self::new(name);
        ledger.succeeds(&format!("ps --budget {budget}"));
        ledger
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let (ours, rest) = line.split_once(" -- ").map_or((line, None), |(ours, rest)| (ours, Some(rest)));
        command.args(ours.split_whitespace()).arg("--ledger").arg(self.0.join("ledger.db"));
        if let Some(rest) = rest {
            command.arg("--").args(shlex::split(rest).unwrap());
        }
        command.env("NO_COLOR", "1");
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs what has to succeed, and gives what it printed.
    fn succeeds(&self, line: &str) -> String {
        let output = self.output(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs what has to end with this status, and gives what it complained about.
    fn fails(&self, line: &str, status: i32) -> String {
        let output = self.output(line);
        assert_eq!(output.status.code(), Some(status), "{line}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    fn ps(&self) -> Value {
        serde_json::from_str(&self.succeeds("ps --json")).unwrap()
    }

    /// Every holder's instance.
    fn holders(&self) -> Vec<String> {
        let ps = self.ps();
        ps["holders"].as_array().unwrap().iter().map(|h| h["instance"].as_str().unwrap().to_owned()).collect()
    }

    /// Starts a `run` whose command tells that it is there and then reads its input.
    fn start(&self, line: &str) -> Running {
        let mut child = self.command(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends its input, and gives the rest of its output and its status.
    fn end(mut self) -> (String, i32) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code().unwrap())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Asks again until it is so; a minute is longer than any of this takes.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come true");
}

/// Whether a process runs; one that ended and was not waited for does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success());
}

#[test]
fn a_budget_of_96_gb_tells_its_story_in_exact_words() {
    let ledger = Ledger::with_budget("story", "96GB");
    assert_eq!(ledger.succeeds("reserve coder-daily --needs 55GB"), "coder-daily\n");
    assert_eq!(ledger.succeeds("reserve coder-small --needs 9GB"), "coder-small\n");
    assert_eq!(
        ledger.fails("reserve planner --needs 55GB", 1),
        "unplaceable: 'planner' needs 55.0 GB but only 32.0 GB of the 96.0 GB unified-memory budget is free (held by \
         coder-daily 55.0 GB, coder-small 9.0 GB)\nevicting coder-daily (55.0 GB) makes room\n"
    );
    assert_eq!(ledger.succeeds("release coder-daily"), "coder-daily\n");
    assert_eq!(ledger.succeeds("reserve planner --needs 55GB --exclude coder-daily"), "planner\n");
    assert!(ledger.fails("reserve coder-daily --needs 1GB", 1).starts_with(
        "unplaceable: 'coder-daily' cannot be resident beside 'planner' ('planner' excludes it)\n"
    ));
    assert_eq!(ledger.holders(), ["coder-small", "planner"], "a refusal reserves nothing and evicts nobody");
}

#[test]
fn exactly_the_budget_fits_and_a_byte_more_does_not() {
    let ledger = Ledger::with_budget("exact", "1000");
    ledger.succeeds("reserve a --needs 600");
    ledger.fails("reserve b --needs 401", 1);
    ledger.succeeds("reserve b --needs 400");
    assert_eq!(ledger.ps()["pools"][0]["used_bytes"], 1000);
    ledger.fails("resize a --needs 601", 1);
    ledger.succeeds("resize a --needs 500");
    ledger.succeeds("reserve a --needs 500");
    assert_eq!(ledger.ps()["pools"][0]["used_bytes"], 900, "reserving twice counts once");
    assert_eq!(ledger.fails("release nobody", 1), "nothing is held by 'nobody'\n");
    assert_eq!(ledger.fails("resize nobody --needs 1", 1), "nothing is held by 'nobody'\n");
}

#[test]
fn needs_of_nothing_and_unknown_needs_are_wrong_usage() {
    let ledger = Ledger::with_budget("nothing", "10GB");
    for line in ["reserve a --needs 0", "run a --needs 0 -- true", "advise --needs 0"] {
        assert!(ledger.fails(line, 2).contains("needs 0 bytes, which is as good as unknown"), "{line}");
    }
    for line in [
        "reserve a",
        "run a -- true",
        "reserve a --model m.gguf",
        "reserve a --needs 1 --pool x",
        "run a --needs 1",
    ] {
        ledger.fails(line, 2);
    }
    assert_eq!(ledger.holders(), Vec::<String>::new());
}

#[test]
fn every_copy_of_a_role_ends_with_its_role() {
    let ledger = Ledger::with_budget("copies", "10GB");
    ledger.succeeds("reserve a --needs 1GB --instance a1");
    ledger.succeeds("reserve role:a --needs 1GB --instance a2");
    ledger.succeeds("reserve b --needs 1GB");
    assert_eq!(ledger.succeeds("release a"), "a1\na2\n");
    assert_eq!(ledger.holders(), ["b"]);
}

#[test]
fn a_table_shows_pools_and_holders() {
    let ledger = Ledger::with_budget("table", "96GB");
    ledger.succeeds("reserve coder --needs 48GB --pin --priority 3");
    let table = ledger.succeeds("ps");
    assert!(
        table.starts_with(
            " pool                                                  full       of budget
 unified-memory  ██████████████████··················   50%  48.0 / 96.0 GB

 instance  role   pool             booked  measured  owner  since
 coder     coder  unified-memory  48.0 GB         –  –        "
        ),
        "{table}"
    );
    assert!(table.trim_end().ends_with("pinned, priority 3"), "{table}");
    let ps = ledger.ps();
    let holder = &ps["holders"][0];
    assert_eq!(
        (&ps["format"], &holder["bytes"], &holder["pinned"]),
        (&"plimsoll.ps/1".into(), &48_000_000_000_u64.into(), &true.into())
    );
    assert!(holder["owner"].is_null() && holder["measured_bytes"].is_null());
}

#[test]
fn a_refusal_is_told_to_programs_too() {
    let ledger = Ledger::with_budget("json", "10GB");
    ledger.succeeds("reserve a --needs 8GB");
    let output = ledger.output("reserve b --needs 4GB --json");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), ""));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["format"], "plimsoll.refusal/1");
    assert_eq!((&told["reason"], &told["short_bytes"]), (&"over-budget".into(), &2_000_000_000_u64.into()));
    assert_eq!(told["suggestions"][0]["change"], "evict");
    assert_eq!(told["suggestions"][0]["to"], "a");
    let reason = |line: &str, status| {
        let output = ledger.output(line);
        assert_eq!(output.status.code(), Some(status));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["reason"].clone()
    };
    assert_eq!(reason("reserve b --needs 1 --exclude a --json", 1), "excluded");
    assert_eq!(reason("run b --needs 4GB --json --wait=0s -- true", 125), "timed-out");
}

#[test]
fn the_smallest_enough_set_is_advised_and_nothing_where_nothing_helps() {
    let ledger = Ledger::with_budget("advice", "30GB");
    for (role, needs) in [("old", "1700MB"), ("middle", "8GB"), ("large", "17GB")] {
        ledger.succeeds(&format!("reserve {role} --needs {needs}"));
    }
    assert_eq!(ledger.succeeds("advise --needs 3GB"), "it fits as things are\n");
    assert_eq!(
        ledger.succeeds("advise --needs 20GB"),
        "evicting large (17.0 GB) makes room:\n  plimsoll release large\n"
    );
    assert_eq!(ledger.holders().len(), 3, "advice changes nothing");

    let pinned = Ledger::with_budget("pinned", "24GB");
    pinned.succeeds("reserve p --needs 10GB --pin");
    pinned.succeeds("reserve q --needs 8GB");
    assert!(
        pinned
            .fails("advise --needs 16GB", 1)
            .starts_with("no eviction makes room for 'newcomer' (p 10.0 GB is pinned)\n")
    );
    assert_eq!(pinned.holders(), ["p", "q"]);
}

#[test]
fn whoever_is_pinned_first_does_not_hide_whom_to_evict() {
    let ledger = Ledger::with_budget("heads", "5GB");
    for role in ["p1", "p2", "p3"] {
        ledger.succeeds(&format!("reserve {role} --needs 1GB --pin"));
    }
    ledger.succeeds("reserve x --needs 1GB");
    ledger.succeeds("reserve y --needs 1GB --priority 1");
    assert!(ledger.succeeds("advise --needs 1GB").starts_with("evicting x (1.0 GB) makes room:"));
}

#[test]
fn where_another_device_has_room_nobody_is_to_be_evicted() {
    let ledger = Ledger::new("devices");
    ledger.succeeds("reserve big --needs 47GB --pool CUDA0 --budget 48GB");
    ledger.succeeds("reserve small --needs 1GB --pool CUDA1 --budget 16GB");
    let told = ledger.fails("reserve new --needs 4400MB --pool CUDA0", 1);
    let (refusal, rest) = told.split_once('\n').unwrap();
    assert_eq!(
        refusal,
        "unplaceable: 'new' needs 4.4 GB but only 1.0 GB of the 48.0 GB 'CUDA0' budget is free (held by big 47.0 GB)"
    );
    assert_eq!(rest, "pool 'CUDA1' has room for it as things are: --pool CUDA1\n");
    assert_eq!(ledger.succeeds("advise --needs 4400MB"), "it fits in pool 'CUDA1' as things are\n");
    assert!(ledger.fails("reserve new --needs 4400MB", 2).contains("name one of them with --pool"));
    ledger.succeeds("reserve new --needs 4400MB --pool CUDA1");
}

#[test]
fn a_budget_stays_as_it_is_until_another_is_asked_for() {
    let ledger = Ledger::with_budget("budget", "10GB");
    ledger.succeeds("reserve a --needs 8GB");
    assert_eq!(ledger.ps()["pools"][0]["budget_bytes"], 10_000_000_000_u64);
    let output = ledger.output("ps --budget 5GB");
    assert!(text(&output.stderr).contains("holds 8.0 GB, which is 3.0 GB more than its new budget"));
    assert_eq!(ledger.holders(), ["a"]);
    assert_eq!(ledger.ps()["pools"][0]["budget_bytes"], 5_000_000_000_u64);
}

#[test]
fn many_who_come_at_once_never_get_more_than_there_is() {
    let ledger = Ledger::with_budget("crowd", "96GB");
    let all: Vec<Child> = (0..8)
        .map(|n| {
            let mut command = ledger.command(&format!("reserve r{n} --needs 20GB"));
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let mut ends: Vec<i32> = all.into_iter().map(|mut child| child.wait().unwrap().code().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(ledger.ps()["pools"][0]["used_bytes"], 80_000_000_000_u64);
}

#[test]
fn a_command_ends_as_if_it_had_run_alone() {
    let ledger = Ledger::with_budget("status", "10GB");
    let ends = |line: &str| ledger.output(&format!("run r --needs 1GB -- {line}")).status.code().unwrap();
    assert_eq!(ends("true"), 0);
    assert_eq!(ends("sh -c 'exit 7'"), 7);
    assert_eq!(ends("sh -c 'kill -TERM $$'"), 128 + 15);
    assert_eq!(ends("sh -c 'kill -KILL $$'"), 128 + 9);
    assert_eq!(ends("no-such-program"), 127);
    assert_eq!(ends("/dev/null"), 126);
    let mut echo = ledger.start("run r --needs 1GB -- sh -c 'read line; echo \"<$line>\"; echo talk >&2'");
    std::io::Write::write_all(echo.child.stdin.as_mut().unwrap(), b"spoken\n").unwrap();
    assert_eq!(echo.end(), ("<spoken>\n".to_owned(), 0));
    assert_eq!(ledger.holders(), Vec::<String>::new(), "every booking ended with its command");
}

#[test]
fn two_commands_that_do_not_fit_together_do_not_run_together() {
    let ledger = Ledger::with_budget("two", "96GB");
    let mut first = ledger.start("run coder --needs 60GB -- sh -c 'echo here; cat'");
    assert_eq!(first.line(), "here");
    let told = ledger.fails("run planner --needs 50GB -- echo never", 125);
    assert!(told.starts_with(
        "unplaceable: 'planner' needs 50.0 GB but only 36.0 GB of the 96.0 GB unified-memory budget is free (held by \
         coder 60.0 GB)\n"
    ), "{told}");
    let timed_out = ledger.fails("run planner --needs 50GB --wait=20ms -- echo never", 125);
    assert!(timed_out.starts_with("timed out: unplaceable: 'planner' needs 50.0 GB"), "{timed_out}");

    let second = ledger.start("run planner --needs 50GB --wait -- sh -c 'echo ran; cat'");
    eventually("a place in the queue", || ledger.ps()["waiting"][0]["role"] == "planner");
    assert_eq!(first.end(), (String::new(), 0));
    let mut second = second;
    assert_eq!(second.line(), "ran");
    let ps = ledger.ps();
    assert_eq!(ps["holders"][0]["role"], "planner");
    assert_eq!(ps["holders"][0]["owner"], format!("pid {}", second.child.id()));
    assert!(ps["holders"][0]["measured_bytes"].as_u64().unwrap() > 0, "its command is resident");
    assert_eq!(second.end(), (String::new(), 0));
    assert_eq!(ledger.holders(), Vec::<String>::new());
}

#[test]
fn who_reserved_after_waiting_keeps_the_memory_when_its_command_has_ended() {
    let ledger = Ledger::with_budget("handed", "10GB");
    ledger.succeeds("reserve a --needs 10GB");
    let waiting = ledger.start("reserve b --needs 5GB --wait");
    eventually("a place in the queue", || ledger.ps()["waiting"][0]["role"] == "b");
    ledger.succeeds("release a");
    assert_eq!(waiting.end(), ("b\n".to_owned(), 0));
    let ps = ledger.ps();
    assert_eq!(ps["holders"][0]["instance"], "b");
    assert!(ps["holders"][0]["owner"].is_null());
}

#[test]
fn who_is_killed_while_it_waits_holds_nobody_up() {
    let ledger = Ledger::with_budget("waiter", "10GB");
    ledger.succeeds("reserve a --needs 6GB");
    let mut waiting = ledger.start("reserve b --needs 8GB --wait");
    eventually("a place in the queue", || ledger.ps()["waiting"][0]["role"] == "b");
    assert!(ledger.fails("reserve c --needs 1GB", 1).contains("would overtake 'b'"));
    waiting.child.kill().unwrap();
    waiting.child.wait().unwrap();
    ledger.succeeds("reserve c --needs 1GB");
}

#[test]
fn a_run_that_is_killed_leaves_neither_booking_nor_command() {
    let ledger = Ledger::with_budget("killed", "10GB");
    let mut run = ledger.start("run a --needs 10GB -- sh -c 'echo $$; exec sleep 600'");
    let command = run.line();
    assert!(runs(&command));
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    ledger.succeeds("reserve b --needs 10GB");
    assert_eq!(ledger.holders(), ["b"]);
    eventually("the end of the command", || !runs(&command));
}

#[test]
fn signals_reach_the_command_and_its_booking_ends_with_it() {
    let ledger = Ledger::with_budget("signals", "10GB");
    for (name, end) in [("TERM", 3), ("HUP", 4), ("INT", 5)] {
        let script =
            format!("trap \"echo got {name}; exit {end}\" {name}; echo ready; while :; do sleep 0.02; done");
        let mut run = ledger.start(&format!("run a --needs 1GB -- sh -c '{script}'"));
        assert_eq!(run.line(), "ready");
        signal(name, run.child.id());
        assert_eq!(run.end(), (format!("got {name}\n"), end));
        assert_eq!(ledger.holders(), Vec::<String>::new());
    }
}

#[test]
fn bookings_may_end_with_a_time_or_a_process() {
    let ledger = Ledger::with_budget("ends", "10GB");
    ledger.succeeds("reserve brief --needs 1GB --ttl 1ms");
    eventually("the end of a short time", || ledger.holders().is_empty());
    let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    ledger.succeeds(&format!("reserve tied --needs 1GB --pid {}", process.id()));
    assert_eq!(ledger.ps()["holders"][0]["owner"], format!("pid {}", process.id()));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(ledger.holders(), Vec::<String>::new());
    assert!(
        ledger
            .fails(&format!("reserve tied --needs 1GB --pid {}", process.id()), 2)
            .contains("no such process")
    );
}

#[test]
fn a_file_that_is_no_ledger_is_unreadable_input() {
    let ledger = Ledger::new("damaged");
    std::fs::write(ledger.0.join("ledger.db"), "this is no ledger at all, but a text of some length\n")
        .unwrap();
    for line in ["ps", "reserve a --needs 1", "run a --needs 1 -- true", "release a"] {
        let told = ledger.fails(line, 2);
        assert!(told.starts_with("error: ") && told.contains("is not a ledger"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn without_a_name_the_ledger_lies_in_the_folder_for_state() {
    let ledger = Ledger::new("state");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["reserve", "a", "--needs", "1GB", "--budget", "2GB"])
        .env("XDG_STATE_HOME", &ledger.0)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(ledger.0.join("plimsoll/ledger.db").is_file());
}

#[test]
fn a_model_is_sized_from_its_header() {
    let ledger = Ledger::with_budget("model", "96GB");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/llama-3.1-8b-q4_k_m.gguf");
    ledger.succeeds(&format!("reserve a --model {model} --ctx 8k"));
    ledger.succeeds(&format!("reserve b --model {model} --ctx 16k"));
    let ps = ledger.ps();
    let bytes = |n: usize| ps["holders"][n]["bytes"].as_u64().unwrap();
    assert!(bytes(0) > 4_900_000_000, "the weights alone are 4.9 GB: {}", bytes(0));
    // 32 layers, 8 heads of 128 values, keys and values, two bytes each.
    let kv = 8192 * 32 * 8 * 128 * 2 * 2;
    assert!(bytes(1) - bytes(0) >= kv, "8192 more tokens take {kv} bytes of cache");
    assert!(bytes(1) - bytes(0) < kv + kv / 10);
}
