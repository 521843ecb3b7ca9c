//! Processes that share one ledger file, and die.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use common::{Folder, at, gb, pool, process, request, spec};
use plimsoll_residency::{FileLedger, FileOptions, ProcOwners, ProcessId, Request, Store, Terms};
use plimsoll_units::Bytes;

const BUDGET: u64 = 10;
const ROUNDS: u32 = 1_000;

fn open(path: &Path) -> FileLedger {
    let options = FileOptions { busy_timeout: std::time::Duration::from_secs(60), ..FileOptions::default() };
    let ledger = FileLedger::open(path, options, Arc::new(ProcOwners::new())).unwrap();
    ledger.init_pools(&[(pool("unified-memory"), Some(gb(BUDGET)))], at(0)).unwrap();
    ledger
}

/// Runs one of the tests that are marked as a child's part, in a process of its own.
fn child(part: &str, path: &Path, number: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", part, "--nocapture", "--test-threads=1"])
        .env("LEDGER", path)
        .env("NUMBER", number.to_string())
        .env("PARENT", std::process::id().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn told(name: &str) -> String {
    std::env::var(name).expect("run by another test")
}

fn number(name: &str) -> u32 {
    told(name).parse().unwrap()
}

/// The same numbers every time: an LCG's upper bits.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn owned(by: &ProcessId) -> Terms {
    Terms { owners: vec![by.clone()], ..Terms::default() }
}

#[test]
fn eight_processes_never_hold_more_than_the_budget_and_lose_nothing() {
    let folder = Folder::new();
    let path = folder.0.join("ledger");
    let ledger = open(&path);
    let mut children: Vec<Child> =
        (0..8).map(|number| child("reserves_and_releases", &path, number)).collect();
    let mut seen = 0_u64;
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        let book = ledger.book().unwrap();
        let held = Bytes::checked_sum(book.bookings().map(plimsoll_residency::Booking::bytes)).unwrap();
        assert!(held <= gb(BUDGET), "{held} after {seen} looks");
        assert_eq!(book.pool("unified-memory").unwrap().used, held);
        seen += 1;
    }
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    assert!(seen > 0);
    assert_eq!(ledger.list().unwrap(), []);
    ledger.check().unwrap();
}

#[test]
#[ignore = "a child's part"]
fn reserves_and_releases() {
    let me = number("NUMBER");
    let ledger = open(Path::new(&told("LEDGER")));
    let owner = ProcOwners::new().this_process().unwrap();
    let mut random = Random(u64::from(me) + 1);
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let instance = format!("{me}-{}", random.below(3));
        let before = held.get(&instance).copied();
        if before.is_some() && random.below(2) == 0 {
            assert!(ledger.release_instance(&instance, at(0)).unwrap());
            held.remove(&instance);
        } else {
            let needs = random.below(4) + 1;
            let wanted = Request::new(&*instance, spec("role", needs)).on(owned(&owner));
            match ledger.request(&wanted, at(0)) {
                Ok(changed) => {
                    assert_eq!(changed, before != Some(needs));
                    held.insert(instance, needs);
                }
                Err(plimsoll_residency::LedgerError::Refused(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    // Nothing that was acknowledged is lost, and nothing that was refused is there.
    let mine = |held: &plimsoll_residency::Booking| held.instance().starts_with(&format!("{me}-"));
    let list = ledger.list().unwrap();
    let found: BTreeMap<String, u64> = list
        .iter()
        .filter(|held| mine(held))
        .map(|held| (held.instance().to_owned(), held.bytes().get() / 1_000_000_000))
        .collect();
    assert_eq!(found, held);
    for instance in held.keys() {
        assert!(ledger.release_instance(instance, at(0)).unwrap());
    }
}

/// What a child said that it had done, up to the moment of its death.
struct Acknowledged {
    lines: std::io::Lines<BufReader<ChildStdout>>,
    kept: BTreeSet<String>,
    count: u32,
}

impl Acknowledged {
    fn read(&mut self) -> bool {
        while let Some(Ok(line)) = self.lines.next() {
            // The test harness talks as well.
            match line.split_once(':') {
                Some(("kept", instance)) => self.kept.insert(instance.to_owned()),
                Some(("gave back", instance)) => self.kept.remove(instance),
                _ => continue,
            };
            self.count += 1;
            return true;
        }
        false
    }
}

#[test]
fn a_process_that_is_killed_leaves_what_it_was_told_to_leave_and_nothing_else() {
    let folder = Folder::new();
    let path = folder.0.join("ledger");
    drop(open(&path));
    let mut random = Random(7);
    let mut transactions = 0;
    for round in 0.. {
        if transactions >= 200 {
            break;
        }
        let mut doomed = child("keeps_and_gives_back", &path, round);
        let lines = BufReader::new(doomed.stdout.take().unwrap()).lines();
        let mut said = Acknowledged { lines, kept: BTreeSet::new(), count: 0 };
        for _ in 0..random.below(25) + 1 {
            assert!(said.read(), "the child ended by itself");
        }
        for _ in 0..random.below(60_000) {
            std::hint::spin_loop();
        }
        doomed.kill().unwrap();
        doomed.wait().unwrap();
        while said.read() {}
        transactions += said.count;
        check_what_is_left(&path, &said.kept);
    }
}

fn check_what_is_left(path: &Path, kept: &BTreeSet<String>) {
    let ledger = open(path);
    ledger.check().unwrap();
    ledger.sweep(at(0)).unwrap();
    let found: BTreeSet<String> =
        ledger.list().unwrap().iter().map(|held| held.instance().to_owned()).collect();
    // The last transaction may have been done without being told: at most one more, or one less.
    let differ: Vec<&String> = found.symmetric_difference(kept).collect();
    assert!(differ.len() <= 1, "{differ:?} of {kept:?}");
    assert!(found.iter().all(|instance| instance.starts_with("mine")), "{found:?}");
    for instance in &found {
        ledger.release_instance(instance, at(0)).unwrap();
    }
    assert_eq!(ledger.book().unwrap().pool("unified-memory").unwrap().used, Bytes::ZERO);
}

/// Books for its parent, which lives on, and for itself, without end.
#[test]
#[ignore = "a child's part"]
fn keeps_and_gives_back() {
    let owners = ProcOwners::new();
    let parent = owners.identify(number("PARENT")).unwrap();
    let me = owners.this_process().unwrap();
    let ledger = open(Path::new(&told("LEDGER")));
    let mut random = Random(u64::from(number("NUMBER")));
    let mut kept: BTreeSet<String> = BTreeSet::new();
    let mut out = std::io::stdout().lock();
    loop {
        let instance = format!("mine-{}", random.below(5));
        let word = if kept.remove(&instance) {
            assert!(ledger.release_instance(&instance, at(0)).unwrap());
            "gave back"
        } else {
            ledger.request(&Request::new(&*instance, spec("kept", 1)).on(owned(&parent)), at(0)).unwrap();
            kept.insert(instance.clone());
            "kept"
        };
        writeln!(out, "{word}:{instance}").unwrap();
        out.flush().unwrap();
        // Its own, which has to go when it does.
        let own = request("own", 1).on(owned(&me));
        if !ledger.request(&own, at(0)).unwrap() {
            ledger.release_instance("own", at(0)).unwrap();
        }
    }
}

#[test]
fn what_is_booked_for_a_process_ends_with_it() {
    let folder = Folder::new();
    let ledger = open(&folder.0.join("ledger"));
    let mut sleeper = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let id = ProcOwners::new().identify(sleeper.id()).unwrap();
    ledger.request(&request("a", 8).on(owned(&id)), at(0)).unwrap();
    assert!(ledger.request(&request("b", 8), at(1)).is_err());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(ledger.request(&request("b", 8), at(1)).unwrap());
    // Another boot's process, and nobody's booking of another boot, are gone as well.
    let before = ProcessId { boot: "before".to_owned(), ..process(1) };
    ledger.request(&request("c", 1).on(owned(&before)), at(2)).unwrap();
    ledger.sweep(at(2)).unwrap();
    assert_eq!(ledger.list().unwrap().len(), 1);
}
