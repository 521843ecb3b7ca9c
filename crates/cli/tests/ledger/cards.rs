//! What is used of cards, beside what is booked of them.

use std::path::Path;

use serde_json::Value;

use crate::drivers::drivers;
use crate::{Ledger, text};

/// A picture as it is where a card's driver names this process as the one that holds 1 GiB of its 24, of which 2 are used.
fn ps(ledger: &Ledger, line: &str, folder: &Path, pid: &str, more: (&str, &str)) -> String {
    let mut command = ledger.command(line);
    command.env("LD_LIBRARY_PATH", folder).env("FAKE_PID", pid).env("FAKE_PROCESSES", "1");
    let output = command.env("FAKE_PROCESSES_KNOWN", "1").env(more.0, more.1).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(ledger: &Ledger, folder: &Path, pid: &str, more: (&str, &str)) -> Value {
    serde_json::from_str(&ps(ledger, "ps --json", folder, pid, more)).unwrap()
}

const NONE: (&str, &str) = ("FAKE_NONE", "");

#[test]
fn what_a_command_holds_on_a_card_stands_beside_its_booking() {
    let Some(folder) = drivers("holders") else { return };
    let ledger = Ledger::new("card");
    ledger.succeeds("reserve idle --needs 1GiB --pool CUDA0 --budget 24GB");
    // The shell starts another, which the card's driver knows.
    let line = "run coder --needs 2GiB --pool CUDA0 -- sh -c 'sh -c \"echo \\$\\$; read line; :\"; :'";
    let mut coder = ledger.start(line);
    let pid = coder.line();
    let told = json(&ledger, &folder, &pid, NONE);
    let gib = |n: u64| Value::from(n << 30);
    let holders = told["holders"].as_array().unwrap();
    let of = |role: &str| &holders.iter().find(|holder| holder["role"] == role).unwrap()["measured_bytes"];
    assert_eq!((of("coder"), of("idle")), (&gib(1), &Value::Null));
    assert_eq!(told["attribution"], Value::Null);
    let card = &told["devices"][0];
    assert_eq!((&card["pool"], &card["used_bytes"]), (&"CUDA0".into(), &gib(2)));
    assert_eq!((&card["booked_bytes"], &card["estimate_error_bytes"]), (&gib(3), &gib(1)));
    let parts = [&card["over_use_bytes"], &card["outside_bytes"], &card["unexplained_bytes"]];
    assert_eq!((parts, &card["missing_bytes"]), ([&gib(0); 3], &gib(0)));
    let table = ps(&ledger, "ps", &folder, &pid, NONE);
    let coders = table.lines().find(|line| line.contains("coder") && line.contains("CUDA0")).unwrap();
    assert!(coders.contains(" 2.1 GB ") && coders.contains(" 1.1 GB "), "{table}");
    assert!(table.contains("2.1 GB of CUDA0 in use; booked and not filled: coder"), "{table}");

    // A process without a booking, and the command that holds nothing then.
    let other = std::process::id().to_string();
    let told = json(&ledger, &folder, &other, NONE);
    let holders = told["holders"].as_array().unwrap();
    let coders = holders.iter().find(|holder| holder["role"] == "coder").unwrap();
    assert_eq!(coders["measured_bytes"], gib(0));
    assert_eq!(told["devices"][0]["outside_bytes"], gib(1));
    assert!(ps(&ledger, "ps", &folder, &other, NONE).contains(&format!("(pid {other}) 1.1 GB")));
    assert_eq!(coder.end().1, 0);
}

#[test]
fn a_driver_that_crashes_is_told_of_and_the_bookings_are_shown() {
    let Some(folder) = drivers("holders-crash") else { return };
    let ledger = Ledger::new("card-crash");
    ledger.succeeds("reserve a --needs 1GB --pool CUDA0 --budget 24GB");
    let told = json(&ledger, &folder, "1", ("FAKE_NVML_DOES", "crash"));
    let why = told["unknown"][0].as_str().unwrap();
    assert!(why.starts_with("who uses the accelerators is not known: the driver ended"), "{why}");
    assert_eq!(told["holders"][0]["bytes"], 1_000_000_000);
    assert_eq!(told["devices"], Value::Array(Vec::new()));
}
