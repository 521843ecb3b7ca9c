//! Who gets memory, who does not, and what is said about it.

use std::process::Command;

use serde_json::Value;

use crate::{Ledger, text};

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
    assert_eq!(reason("release nobody --json", 1), "excluded");
    assert_eq!(reason("resize nobody --needs 1GB --json", 1), "excluded");
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

#[test]
fn a_damaged_ledger_is_said_to_be_damaged() {
    let ledger = Ledger::with_budget("broken", "10GB");
    for n in 0..40 {
        ledger.succeeds(&format!("reserve r{n} --needs 1MB"));
    }
    let path = ledger.0.join("ledger.db");
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 8192, "more than the first page");
    bytes[4096..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let told = ledger.fails("ps", 2);
    assert!(told.starts_with("error: ") && told.contains("is damaged"), "{told}");
}

#[test]
fn a_booking_may_be_pinned_later() {
    let ledger = Ledger::with_budget("later", "10GB");
    ledger.succeeds("reserve a --needs 1GB");
    ledger.succeeds("reserve a --needs 1GB --pin --priority 2");
    assert_eq!(ledger.ps()["holders"][0]["pinned"], true);
    assert!(ledger.succeeds("ps").trim_end().ends_with("pinned, priority 2"));
}

#[test]
fn a_new_ledger_knows_the_memory_of_this_machine_and_where_it_is() {
    let ledger = Ledger::new("machine");
    let ps = ledger.ps();
    let host = ps["pools"].as_array().unwrap().iter().find(|pool| pool["id"] == "ram").unwrap();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let budget = host["budget_bytes"].as_u64().unwrap();
    assert!(budget < total * 1024, "{budget} of {total} KiB: something is kept free");
    let told = &ps["attribution"];
    assert_eq!((&told["pool"], &told["booked_bytes"]), (&"ram".into(), &0.into()));
    let bytes = |key: &str| told[key].as_u64().unwrap();
    let parts = bytes("outside_bytes") + bytes("unexplained_bytes") - bytes("missing_bytes");
    assert_eq!(parts, bytes("used_bytes"), "every byte has a cause");
    assert!(bytes("outside_bytes") > 0, "this test runs without a booking");
}

#[test]
fn whoever_watches_sees_another_picture_every_second() {
    let ledger = Ledger::with_budget("watch", "10GB");
    let mut watch = ledger.start("ps --watch --json");
    let mut pictures = serde_json::Deserializer::from_reader(&mut watch.out).into_iter::<Value>();
    assert_eq!(pictures.next().unwrap().unwrap()["holders"], Value::Array(Vec::new()));
    ledger.succeeds("reserve a --needs 1GB");
    let seen = pictures.take(10).any(|picture| picture.unwrap()["holders"][0]["instance"] == "a");
    assert!(seen);
    watch.child.kill().unwrap();
    watch.child.wait().unwrap();
}
