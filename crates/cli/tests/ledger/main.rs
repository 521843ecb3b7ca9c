//! The commands of the ledger: real processes that share a file.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

mod bookings;
mod cards;
#[path = "../support/drivers.rs"]
mod drivers;
mod running;

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
        let mut child = self
            .command(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
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
