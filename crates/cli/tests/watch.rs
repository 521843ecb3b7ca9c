//! `plimsoll watch` as a person starts it, and interrupts it.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

#[path = "support/drivers.rs"]
mod drivers;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn interrupted(args: &[&str], signal: Signal) -> String {
    interrupted_with(args, signal, &[])
}

fn interrupted_with(args: &[&str], signal: Signal, environment: &[(&str, &str)]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("watch")
        .args(args)
        .env("NO_COLOR", "1")
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let (mut rest, mut complaint) = (String::new(), String::new());
    out.read_to_string(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{complaint}");
    assert_eq!((rest.as_str(), complaint.as_str()), ("", ""));
    first
}

#[test]
fn it_tells_what_is_there_first_and_an_interrupt_ends_it_well() {
    let first = interrupted(&["--interval", "1h"], Signal::INT);
    assert!(first.starts_with("now: ") && first.contains(" worker(s), acceleration "), "{first}");
}

#[test]
fn a_line_of_json_is_a_whole_record() {
    let first = interrupted(&["--json", "--interval", "1h"], Signal::TERM);
    let record: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        (record["event"].as_str(), record["format"].as_str()),
        (Some("profile"), Some("plimsoll.watch/1"))
    );
    assert!(record["workers"].as_u64().unwrap() >= 1 && record["accelerators"].is_array(), "{record}");
}

#[test]
fn an_interval_is_long_enough_to_do_something_else() {
    for short in ["0s", "99ms"] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["watch", "--interval", short])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{short}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("at least 100ms"));
    }
}

#[test]
fn an_interval_is_a_time() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["watch", "--interval", "often"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--interval"));
}

#[test]
fn a_driver_that_crashes_ends_no_watch() {
    let Some(folder) = drivers::drivers("watch") else { return };
    let accelerators = |settings: &[(&str, &str)]| {
        let mut environment = vec![("LD_LIBRARY_PATH", folder.to_str().unwrap()), ("FAKE_CUDA", "4090")];
        environment.extend(settings);
        let first = interrupted_with(&["--json", "--interval", "1h"], Signal::TERM, &environment);
        let record: serde_json::Value = serde_json::from_str(&first).unwrap();
        let all = record["accelerators"].as_array().unwrap();
        all.iter().filter(|accelerator| accelerator["healthy"] == true).count()
    };
    assert_eq!(accelerators(&[]), 1);
    assert_eq!(accelerators(&[("FAKE_CUDA_DOES", "crash")]), 0);
}
