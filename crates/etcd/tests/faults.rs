//! The ledger while members are killed, halted and cut off, judged from what etcd itself recorded.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

mod history;
mod kit;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::{Done, Ended, Event, Op, Outcome, Recorded};
use kit::{Proxy, Random, open_with};
use plimsoll_etcd::{Cluster, EtcdError, Options};
use plimsoll_residency::{
    InferenceSpec, LedgerError, NoOwners, ProcessId, Request, Store, StoreError, Terms, Timestamp,
};
use plimsoll_units::{Bytes, PoolId};

const BUDGETS: [(&str, u64); 3] = [("n0:gpu0", 24), ("n1:gpu0", 24), ("n2:gpu0", 16)];
const CLIENTS: u64 = 8;
const GB: u64 = 1_000_000_000;

fn options() -> Options {
    Options {
        lease: Duration::from_secs(3),
        connect: Duration::from_millis(300),
        attempt: Duration::from_millis(700),
        patience: Duration::from_secs(4),
        ..Options::default()
    }
}

/// How long faults go on: long runs are for whoever sets the variable.
fn seconds() -> u64 {
    std::env::var("PLIMSOLL_FAULT_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15)
}

#[test]
fn no_budget_is_exceeded_and_nothing_acknowledged_is_lost_whatever_fails() {
    let Some(etcd) = kit::members(3) else { return };
    let url = etcd.url("t");
    let direct = open_with(&url, Options::default());
    let pools: Vec<_> =
        BUDGETS.iter().map(|(id, gb)| (PoolId::new(id).unwrap(), Some(Bytes::new(gb * GB)))).collect();
    direct.ledger(None, Arc::new(NoOwners)).init_pools(&pools, Timestamp::ZERO).unwrap();
    // The first client knows one way only, which is cut now and then for longer than its lease.
    let lonely = Proxy::to(&url);
    let proxies: Vec<Proxy> =
        url.trim_start_matches("etcd://").trim_end_matches("/t").split(',').map(Proxy::to).collect();
    let recorded = Arc::new(Mutex::new(Recorded::default()));
    let over = AtomicBool::new(false);
    let etcd = Mutex::new(etcd);
    let faults = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let ways: Vec<&Proxy> = match n {
                    0 => vec![&lonely],
                    _ => proxies.iter().collect(),
                };
                let (recorded, over) = (&recorded, &over);
                scope.spawn(move || client(n, &ways, recorded, over))
            })
            .collect();
        let faults = nemesis(&etcd, &proxies, &lonely, Duration::from_secs(seconds()));
        over.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().unwrap());
        faults
    });
    let recorded = Arc::try_unwrap(recorded).unwrap().into_inner().unwrap();
    // All sessions have ended, or end by themselves.
    let events = history::read(&url, "/plimsoll/t/ledger/bookings/");
    let summary = history::check(&recorded, &events, &BUDGETS.map(|(id, gb)| (id, gb * GB)));
    println!("{summary} under {faults} faults");
    assert!(faults >= 4, "{faults} faults");
    assert!(summary.acknowledged > 50 && summary.lost > 0, "{summary}");
}

/// One client: books, resizes and gives back what is its own, at random.
fn client(n: u64, proxies: &[&Proxy], recorded: &Mutex<Recorded>, over: &AtomicBool) {
    let mut random = Random::new(0x5eed + n);
    // Each begins with another member.
    let members: Vec<String> = (0..proxies.len())
        .map(|k| proxies[(k + usize::try_from(n).unwrap()) % proxies.len()].endpoint())
        .collect();
    let cluster = open_with(&format!("etcd://{}/t", members.join(",")), options());
    let mut life = 0;
    while !over.load(Ordering::SeqCst) {
        live(&cluster, n, life, &mut random, recorded, over);
        life += 1;
    }
}

/// From a lease to its end.
fn live(
    cluster: &Cluster,
    n: u64,
    life: u64,
    random: &mut Random,
    recorded: &Mutex<Recorded>,
    over: &AtomicBool,
) {
    let Ok(session) = cluster.session().map(Arc::new) else { return };
    let ledger = cluster.ledger(Some(Arc::clone(&session)), Arc::new(NoOwners));
    let pid = u32::try_from(n + 1).unwrap();
    let owner = ProcessId { boot: format!("client-{n}-{life}"), namespace: 1, pid, start: 1 };
    let mut held: Vec<String> = Vec::new();
    let mut count = 0;
    // Now and then one lives on briefly, so that leases end while others go on.
    let most = 20 + random.below(200);
    while !over.load(Ordering::SeqCst) && session.lost().is_none() && count < most {
        count += 1;
        let op = match (held.is_empty(), random.below(4)) {
            (true, _) | (false, 0 | 1) if held.len() < 4 => {
                Op::Reserve { instance: format!("c{n}-{life}-{count}"), shares: shares(random) }
            }
            (_, 2) => {
                let instance = held[random.index(held.len())].clone();
                Op::Resize { instance, shares: shares(random) }
            }
            _ => Op::Release { instance: held[random.index(held.len())].clone() },
        };
        let outcome = perform(&ledger, &owner, &op);
        match (&op, &outcome) {
            (Op::Reserve { instance, .. }, Outcome::Done(true)) => held.push(instance.clone()),
            // What became of it is not known: it is left alone until the lease ends.
            (Op::Reserve { .. }, _) | (Op::Resize { .. }, Outcome::Done(_) | Outcome::NotDone) => {}
            (Op::Release { instance }, Outcome::Done(_))
            | (Op::Release { instance } | Op::Resize { instance, .. }, Outcome::Unknown) => {
                held.retain(|known| known != instance);
            }
            (Op::Release { .. }, Outcome::NotDone) => {}
        }
        recorded.lock().unwrap().ops.push(Done { op, outcome });
    }
    // As long as the lease counts, what lives on it is there: up to this revision at least, unless it is lost by then.
    let seen = match ledger.look() {
        Ok((dated, None)) => dated.revision,
        Ok((_, Some(_))) | Err(_) => 0,
    };
    let lost = session.lost().is_some();
    let ended = Ended { lost, alive_until: if lost { 0 } else { seen } };
    recorded.lock().unwrap().ended.insert(format!("c{n}-{life}-"), ended);
    drop((ledger, session));
}

fn shares(random: &mut Random) -> Vec<(String, u64)> {
    let first = random.index(BUDGETS.len());
    let mut shares = vec![(BUDGETS[first].0.to_owned(), (1 + random.below(9)) * GB)];
    if random.below(2) == 0 {
        let second = (first + 1) % BUDGETS.len();
        shares.push((BUDGETS[second].0.to_owned(), (1 + random.below(9)) * GB));
    }
    shares.sort();
    shares
}

fn perform(ledger: &dyn Store, owner: &ProcessId, op: &Op) -> Outcome {
    let spec = |shares: &[(String, u64)]| {
        let pools = shares.iter().map(|(id, bytes)| (PoolId::new(id).unwrap(), Bytes::new(*bytes)));
        InferenceSpec::new("fault", "vllm").with_pools(pools)
    };
    let done = match op {
        Op::Reserve { instance, shares } => {
            let terms = Terms { owners: vec![owner.clone()], ..Terms::default() };
            ledger.request(&Request::new(instance, spec(shares)).on(terms), Timestamp::ZERO)
        }
        Op::Resize { instance, shares } => ledger.resize(instance, &spec(shares), Timestamp::ZERO),
        Op::Release { instance } => {
            ledger.release_instance(instance, Timestamp::ZERO).map_err(LedgerError::from)
        }
    };
    match done {
        Ok(changed) => Outcome::Done(changed),
        Err(LedgerError::Store(StoreError::Remote { source, .. })) => {
            match source.downcast_ref::<EtcdError>() {
                Some(EtcdError::Unknown { .. }) => Outcome::Unknown,
                _ => Outcome::NotDone,
            }
        }
        Err(_) => Outcome::NotDone,
    }
}

/// Kills, halts and cuts off one member after another; how often.
fn nemesis(
    etcd: &Mutex<plimsoll_testkit::etcd::Etcd>,
    proxies: &[Proxy],
    lonely: &Proxy,
    lasts: Duration,
) -> usize {
    let mut random = Random::new(7);
    // Nobody ever sends: it is the pace.
    let (_keep, pace) = mpsc::channel::<()>();
    let pause = |millis| {
        assert_eq!(pace.recv_timeout(Duration::from_millis(millis)), Err(RecvTimeoutError::Timeout));
    };
    let start = kit::now();
    let mut faults = 0;
    pause(1000);
    while start.elapsed() < lasts {
        let victim = random.index(proxies.len());
        let lasts = 1000 + random.below(3000);
        match faults % 4 {
            0 => {
                etcd.lock().unwrap().members()[victim].kill();
                pause(lasts);
                etcd.lock().unwrap().members()[victim].start();
            }
            1 => {
                etcd.lock().unwrap().members()[victim].halt();
                pause(lasts);
                etcd.lock().unwrap().members()[victim].go_on();
            }
            2 => {
                lonely.cut();
                pause(4500);
                lonely.heal();
            }
            _ => {
                proxies[victim].cut();
                pause(lasts);
                proxies[victim].heal();
            }
        }
        faults += 1;
        pause(1000);
    }
    faults
}

#[test]
fn without_a_majority_writes_are_refused_soon_and_reads_say_how_old_they_are() {
    let Some(mut etcd) = kit::members(3) else { return };
    let cluster = open_with(&etcd.url("t"), Options::default());
    let ledger = cluster.ledger(None, Arc::new(NoOwners));
    let pool = PoolId::new("n0:gpu0").unwrap();
    ledger.init_pools(&[(pool.clone(), Some(Bytes::new(24 * GB)))], Timestamp::ZERO).unwrap();
    let request = |role: &str| {
        let needs = [(pool.clone(), Bytes::new(GB))];
        Request::new(role, InferenceSpec::new(role, "vllm").with_pools(needs))
    };
    assert!(ledger.request(&request("a"), Timestamp::ZERO).unwrap());
    etcd.members()[1].kill();
    etcd.members()[2].kill();
    let asked = kit::now();
    let error = ledger.request(&request("b"), Timestamp::ZERO).unwrap_err();
    let waited = asked.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    let LedgerError::Store(StoreError::Remote { source, .. }) = error else { panic!("{error}") };
    assert!(source.to_string().contains("no majority of etcd answers"), "{source}");
    // What was seen last is still shown, with its age and why it may be out of date.
    let (dated, why) = ledger.look().unwrap();
    assert!(dated.age >= Duration::from_secs(1), "{:?}", dated.age);
    assert!(dated.book.get("a").is_some() && dated.book.get("b").is_none());
    assert!(matches!(why, Some(EtcdError::Unavailable { .. })), "{why:?}");
    // The majority comes back, and nobody has to do anything.
    etcd.members()[1].start();
    let mut tries = 0;
    while ledger.request(&request("b"), Timestamp::ZERO).is_err() {
        tries += 1;
        assert!(tries < 20, "still refused");
    }
    let (dated, why) = ledger.look().unwrap();
    assert_eq!((why, dated.age), (None, Duration::ZERO));
    assert_eq!(dated.book.bookings().map(|b| b.instance().to_owned()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn the_judge_finds_what_is_wrong() {
    let shares = |gb: u64| vec![("n0:gpu0".to_owned(), gb * GB)];
    let put = |revision, instance: &str, gb| Event {
        revision,
        instance: instance.to_owned(),
        shares: Some(shares(gb)),
    };
    let gone = |revision, instance: &str| Event { revision, instance: instance.to_owned(), shares: None };
    let booked = |instance: &str, gb, outcome| Done {
        op: Op::Reserve { instance: instance.to_owned(), shares: shares(gb) },
        outcome,
    };
    let judged = |ops: Vec<Done>, events: Vec<Event>| {
        let ended = [("c".to_owned(), Ended { lost: false, alive_until: 10 })].into();
        let recorded = Recorded { ops, ended };
        std::panic::catch_unwind(|| history::check(&recorded, &events, &[("n0:gpu0", 24 * GB)])).is_ok()
    };
    let yes = || Outcome::Done(true);
    assert!(judged(vec![booked("c1", 20, yes())], vec![put(5, "c1", 20), gone(11, "c1")]));
    assert!(judged(vec![booked("c1", 20, Outcome::Unknown)], vec![put(5, "c1", 20), gone(11, "c1")]));
    assert!(judged(vec![booked("c1", 20, Outcome::Unknown)], vec![]));
    // Lost while its lease lived; never there; there though it was refused; there with other bytes; a ghost.
    assert!(!judged(vec![booked("c1", 20, yes())], vec![put(5, "c1", 20), gone(9, "c1")]));
    assert!(!judged(vec![booked("c1", 20, yes())], vec![]));
    assert!(!judged(vec![booked("c1", 20, Outcome::NotDone)], vec![put(5, "c1", 20), gone(11, "c1")]));
    assert!(!judged(vec![booked("c1", 20, yes())], vec![put(5, "c1", 19), gone(11, "c1")]));
    assert!(!judged(vec![booked("c1", 20, yes())], vec![put(5, "c1", 20)]));
    // More than there is, if only for one revision.
    let both = || vec![booked("c1", 20, yes()), booked("c2", 5, yes())];
    let after = |revision| vec![put(5, "c1", 20), put(revision, "c2", 5), gone(11, "c1"), gone(12, "c2")];
    assert!(!judged(both(), after(6)));
    assert!(judged(both(), vec![put(5, "c1", 20), gone(11, "c1"), put(11, "c2", 5), gone(12, "c2")]));
}
