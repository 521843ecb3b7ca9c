//! Processes: commands that run, wait, are killed, and many at once.

use std::process::{Child, Command, Stdio};

use crate::{Ledger, eventually, runs, signal, text};

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
    assert!(timed_out.starts_with("waiting: unplaceable: 'planner'"), "{timed_out}");
    assert!(timed_out.contains("\ntimed out: unplaceable: 'planner' needs 50.0 GB"), "{timed_out}");
    let advice = ledger.succeeds("advise --needs 50GB");
    assert!(advice.contains(&format!("  kill {}    # coder.", first.child.id())), "{advice}");

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
    for (name, end) in [("TERM", 3), ("USR1", 4)] {
        // The loop ends some day, even where a shell cannot catch the signal.
        let script = format!(
            "trap \"echo got {name}; exit {end}\" {name}; echo ready; for n in $(seq 500); do sleep 0.02; done"
        );
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
fn what_is_ignored_around_a_command_is_ignored_in_it() {
    let ledger = Ledger::with_budget("ignored", "10GB");
    let run = ledger.command("run a --needs 1GB -- sh -c 'kill -HUP $$; echo alive'");
    let output = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(run.get_program())
        .args(run.get_args())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "alive\n"));
}
