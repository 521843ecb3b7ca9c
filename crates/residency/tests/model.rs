//! Random operations against a reference that keeps no totals and no index: it looks at everybody, every time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[cfg(feature = "sqlite")]
#[path = "common/on_file.rs"]
mod on_file;

use std::cmp::Reverse;
use std::time::Duration;

use common::{BOOT, Case, at, pool, process};
use plimsoll_residency::{
    Booking, CoResidency, InferenceSpec, LedgerError, ProcessId, Request, Standing, Terms, Ticket, Wait,
};
use plimsoll_units::Bytes;
use proptest::prelude::*;

const POOLS: [&str; 2] = ["p", "q"];
const ROLES: [&str; 4] = ["a", "b", "c", "d"];
const INSTANCES: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

/// What is asked, in small numbers: collisions find mistakes.
#[derive(Clone, Debug)]
struct Ask {
    instance: usize,
    role: usize,
    needs: [u64; 2],
    excludes: Vec<usize>,
    priority: u32,
    owner: Option<u32>,
    elsewhere: bool,
    ttl: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(Ask),
    Release(usize),
    Resize(Ask),
    Budget(usize, Option<u64>),
    Measure(usize, usize, u64),
    Enqueue(Ask, Option<u64>),
    Cancel(usize),
    Kill(u32),
    Later(u64),
    Heartbeat(usize),
}

/// Draws small numbers out of a large one, so that a sequence is cheap to make and shrinks by itself.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        let drawn = self.0 % n;
        self.0 /= n;
        drawn
    }

    fn place<T>(&mut self, of: &[T]) -> usize {
        usize::try_from(self.below(u64::try_from(of.len()).unwrap())).unwrap()
    }

    fn small(&mut self, n: u64) -> u32 {
        u32::try_from(self.below(n)).unwrap()
    }

    /// Something in one of `n` draws.
    fn rarely<R>(&mut self, n: u64, draw: impl FnOnce(&mut Self) -> R) -> Option<R> {
        (self.below(n) == n - 1).then(|| draw(self))
    }

    fn ask(&mut self) -> Ask {
        Ask {
            instance: self.place(&INSTANCES),
            role: self.place(&ROLES),
            needs: [self.below(7), self.below(7)],
            excludes: self.rarely(2, |draw| draw.place(&ROLES)).into_iter().collect(),
            priority: self.small(2),
            owner: self.rarely(3, |draw| draw.small(3) + 1),
            elsewhere: self.below(2) == 1,
            ttl: self.rarely(5, |draw| draw.below(29) + 1),
        }
    }

    fn step(&mut self) -> Step {
        match self.below(21) {
            0..=5 => Step::Reserve(self.ask()),
            6..=8 => Step::Release(self.place(&INSTANCES)),
            9..=10 => Step::Resize(self.ask()),
            11 => Step::Budget(self.place(&POOLS), self.rarely(2, |draw| draw.below(16)).or(Some(12))),
            12 => Step::Budget(self.place(&POOLS), None),
            13 => Step::Measure(self.place(&INSTANCES), self.place(&POOLS), self.below(9)),
            14..=16 => Step::Enqueue(self.ask(), self.rarely(2, |draw| draw.below(19) + 1)),
            17 => Step::Cancel(self.place(&[(); 4])),
            18 => Step::Kill(self.small(3) + 1),
            19 => Step::Later(self.below(19) + 1),
            _ => Step::Heartbeat(self.place(&INSTANCES)),
        }
    }
}

fn steps(drawn: &[u64]) -> Vec<Step> {
    drawn.iter().map(|n| Draw(*n).step()).collect()
}

/// Processes 1 to 3 are here, and so are 11 to 13 as long as their leases last.
fn owner(ask: &Ask) -> Option<ProcessId> {
    let pid = ask.owner?;
    Some(if ask.elsewhere {
        ProcessId { boot: "other".to_owned(), ..process(pid + 10) }
    } else {
        process(pid)
    })
}

const LEASE: u64 = 10;

fn request(ask: &Ask) -> Request {
    let pools = POOLS.iter().zip(ask.needs).filter(|(_, n)| *n > 0);
    let spec = InferenceSpec::new(ROLES[ask.role], "x")
        .with_pools(pools.map(|(id, n)| (pool(id), Bytes::new(n))))
        .excluding(ask.excludes.iter().map(|role| ROLES[*role]));
    let terms = Terms {
        owners: owner(ask).into_iter().collect(),
        lease: Some(Duration::from_secs(LEASE)),
        ttl: ask.ttl.map(Duration::from_secs),
        pinned: false,
        priority: ask.priority,
    };
    Request::new(INSTANCES[ask.instance], spec).on(terms)
}

/// One that holds or waits, in the reference.
#[derive(Clone, Debug)]
struct Entry {
    request: Request,
    booked: [Option<u64>; 2],
    measured: [Vec<u64>; 2],
    since: u64,
    lease: u64,
    expires: Option<u64>,
}

impl Entry {
    fn new(request: &Request, now: u64) -> Self {
        let plimsoll_residency::Needs::Pools(pools) = &request.spec.needs else { unreachable!() };
        Self {
            booked: POOLS.map(|id| pools.get(id).map(|bytes| bytes.get())),
            request: request.clone(),
            measured: [Vec::new(), Vec::new()],
            since: now,
            lease: now + LEASE,
            expires: request.terms.ttl.map(|ttl| now + ttl.as_secs()),
        }
    }

    fn current(&self, pool: usize) -> u64 {
        let booked = self.booked[pool].unwrap_or(0);
        match &*self.measured[pool] {
            [] => booked,
            [only] => booked.max(*only),
            [.., before, last] => *before.max(last),
        }
    }

    fn excludes(&self, role: &str) -> bool {
        self.request.spec.excludes.contains(role)
    }

    fn dead(&self, dead: &[u32], now: u64) -> bool {
        match &*self.request.terms.owners {
            [] => false,
            [owner, ..] if owner.boot == BOOT => dead.contains(&owner.pid),
            _ => self.lease <= now,
        }
    }
}

#[derive(Default)]
struct Reference {
    budgets: [Option<u64>; 2],
    held: Vec<Entry>,
    waiting: Vec<(u64, Option<u64>, Entry)>,
    dead: Vec<u32>,
    now: u64,
    arrivals: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Changed,
    Same,
    Over,
    Excluded,
    Behind,
    Taken,
    NotHeld,
}

impl Reference {
    fn instance(entry: &Entry) -> &str {
        &entry.request.instance
    }

    fn find(&self, instance: &str) -> Option<usize> {
        self.held.iter().position(|entry| Self::instance(entry) == instance)
    }

    fn clean_up(&mut self) {
        let (dead, now) = (self.dead.clone(), self.now);
        self.held
            .retain(|entry| !entry.dead(&dead, now) && entry.expires.is_none_or(|expires| expires > now));
        self.waiting.retain(|(_, deadline, entry)| {
            !entry.dead(&dead, now) && deadline.is_none_or(|deadline| deadline > now)
        });
    }

    fn decide(&self, new: &Entry) -> Verdict {
        let own = self.find(Self::instance(new)).map(|place| &self.held[place]);
        if let Some(own) = own {
            if !new.request.terms.owners.is_empty() && new.request.terms.owners != own.request.terms.owners {
                return Verdict::Taken;
            }
            if own.request.spec == new.request.spec {
                return Verdict::Same;
            }
        }
        let others = || self.held.iter().filter(|other| Self::instance(other) != Self::instance(new));
        let role = &new.request.spec.role;
        if others().any(|other| new.excludes(&other.request.spec.role) || other.excludes(role)) {
            return Verdict::Excluded;
        }
        for (place, budget) in self.budgets.iter().enumerate() {
            let (Some(budget), Some(need)) = (budget, new.booked[place]) else { continue };
            let gives_back = own.is_some_and(|own| own.booked[place].is_some_and(|had| need <= had));
            let held: u64 = others().map(|other| other.current(place)).sum();
            if !gives_back && held + need > *budget {
                return Verdict::Over;
            }
        }
        Verdict::Changed
    }

    fn compete(a: &Entry, b: &Entry) -> bool {
        let share = (0..2).any(|pool| a.booked[pool].unwrap_or(0) > 0 && b.booked[pool].unwrap_or(0) > 0);
        share || a.excludes(&b.request.spec.role) || b.excludes(&a.request.spec.role)
    }

    fn behind(&self, new: &Entry) -> bool {
        self.waiting.iter().any(|(_, _, ahead)| {
            ahead.request.terms.priority >= new.request.terms.priority && Self::compete(ahead, new)
        })
    }

    fn enter(&mut self, mut new: Entry) {
        if let Some(place) = self.find(Self::instance(&new)) {
            let old = self.held.remove(place);
            for pool in 0..2 {
                if old.booked[pool].is_some() && old.booked[pool] == new.booked[pool] {
                    new.measured[pool].clone_from(&old.measured[pool]);
                }
            }
            new.request.terms = old.request.terms;
            (new.since, new.lease, new.expires) = (old.since, old.lease, old.expires);
        }
        self.held.push(new);
    }

    fn reserve(&mut self, new: Entry) -> Verdict {
        let is_new = self.find(Self::instance(&new)).is_none();
        match self.decide(&new) {
            Verdict::Changed if is_new && self.behind(&new) => Verdict::Behind,
            Verdict::Changed => {
                self.enter(new);
                Verdict::Changed
            }
            other => other,
        }
    }

    fn hopeless(&self, entry: &Entry) -> bool {
        self.find(Self::instance(entry)).is_some()
            || (0..2).any(|pool| {
                self.budgets[pool].is_some_and(|budget| entry.booked[pool].is_some_and(|need| need > budget))
            })
    }

    /// From the front, again and again, until nobody more gets in.
    fn let_in(&mut self) {
        self.waiting.sort_by_key(|(arrival, _, entry)| (Reverse(entry.request.terms.priority), *arrival));
        let mut blocked: Vec<Entry> = Vec::new();
        for (arrival, deadline, entry) in std::mem::take(&mut self.waiting) {
            if self.hopeless(&entry) {
                continue;
            }
            let overtakes = blocked.iter().any(|ahead| Self::compete(ahead, &entry));
            if !overtakes && self.decide(&entry) == Verdict::Changed {
                self.enter(Entry::new(&entry.request, self.now));
            } else {
                blocked.push(entry.clone());
                self.waiting.push((arrival, deadline, entry));
            }
        }
    }
}

fn verdict(result: Result<bool, LedgerError>) -> Verdict {
    match result {
        Ok(true) => Verdict::Changed,
        Ok(false) => Verdict::Same,
        Err(LedgerError::Refused(CoResidency::OverBudget { .. })) => Verdict::Over,
        Err(LedgerError::Refused(CoResidency::Excluded { .. })) => Verdict::Excluded,
        Err(LedgerError::Refused(CoResidency::Behind { .. })) => Verdict::Behind,
        Err(LedgerError::Refused(CoResidency::Taken { .. })) => Verdict::Taken,
        Err(LedgerError::NotHeld { .. }) => Verdict::NotHeld,
        Err(other) => panic!("{other}"),
    }
}

struct Run<'a> {
    case: &'a Case,
    reference: Reference,
    tickets: Vec<Ticket>,
}

impl Run<'_> {
    /// Does one step on both sides and compares what they say.
    fn take(&mut self, step: &Step) {
        let now = at(self.reference.now);
        self.reference.clean_up();
        let (case, reference) = (self.case, &mut self.reference);
        let held = |result: Result<(), LedgerError>| result.is_ok();
        match step {
            Step::Reserve(ask) => {
                let request = request(ask);
                let said = verdict(case.request(&request, now));
                assert_eq!(said, reference.reserve(Entry::new(&request, reference.now)));
            }
            Step::Release(instance) => {
                let had = reference.find(INSTANCES[*instance]).map(|place| reference.held.remove(place));
                assert_eq!(case.release_instance(INSTANCES[*instance], now).unwrap(), had.is_some());
            }
            Step::Resize(ask) => {
                let mut request = request(ask);
                request.terms = Terms::default();
                let said = verdict(case.resize(&request.instance, &request.spec, now));
                let expected = match reference.find(&request.instance) {
                    None => Verdict::NotHeld,
                    Some(_) => reference.reserve(Entry::new(&request, reference.now)),
                };
                assert_eq!(said, expected);
            }
            Step::Budget(place, to) => {
                case.set_budget(&pool(POOLS[*place]), to.map(Bytes::new), now).unwrap();
                reference.budgets[*place] = *to;
            }
            Step::Measure(who, place, n) => {
                let found = reference
                    .find(INSTANCES[*who])
                    .filter(|found| reference.held[*found].booked[*place].is_some());
                if let Some(found) = found {
                    reference.held[found].measured[*place].push(*n);
                }
                let said = case.measure(INSTANCES[*who], &pool(POOLS[*place]), Bytes::new(*n), now);
                assert_eq!(held(said), found.is_some());
            }
            Step::Enqueue(ask, wait) => self.enqueue(ask, *wait),
            Step::Cancel(which) => self.cancel(*which),
            Step::Kill(pid) => {
                case.owners.set(&process(*pid), Standing::Dead);
                reference.dead.push(*pid);
                reference.clean_up();
                case.sweep(now).unwrap();
            }
            Step::Later(seconds) => {
                reference.now += seconds;
                reference.clean_up();
                case.sweep(at(reference.now)).unwrap();
            }
            Step::Heartbeat(who) => {
                let found = reference.find(INSTANCES[*who]);
                if let Some(found) = found {
                    reference.held[found].lease = reference.now + LEASE;
                }
                assert_eq!(held(case.heartbeat(INSTANCES[*who], now)), found.is_some());
            }
        }
        self.reference.let_in();
        self.compare();
    }

    fn enqueue(&mut self, ask: &Ask, wait: Option<u64>) {
        let request = request(ask);
        let reference = &mut self.reference;
        let deadline = wait.map(|wait| reference.now + wait);
        let new = Entry::new(&request, reference.now);
        let waits_already =
            reference.waiting.iter().any(|(_, _, other)| Reference::instance(other) == request.instance);
        let refused = reference.hopeless(&new) || waits_already;
        match self.case.enqueue(&request, deadline.map(at), at(reference.now)) {
            Ok(ticket) => {
                assert!(!refused, "{request:?}");
                reference.waiting.push((reference.arrivals, deadline, new));
                reference.arrivals += 1;
                self.tickets.push(ticket);
            }
            Err(_) => assert!(refused, "{request:?}"),
        }
    }

    /// Cancels a wait that is still under way; what was admitted is left alone.
    fn cancel(&mut self, which: usize) {
        let now = at(self.reference.now);
        self.case.sweep(now).unwrap();
        let waits =
            |ticket: &mut Ticket| matches!(self.case.poll_wait(ticket, now).unwrap(), Wait::Pending(_));
        self.tickets.retain_mut(waits);
        if which < self.tickets.len() {
            let ticket = self.tickets.remove(which);
            self.case.cancel(&ticket, now).unwrap();
            self.reference.waiting.retain(|(_, _, entry)| Reference::instance(entry) != ticket.instance());
        }
    }

    fn compare(&mut self) {
        let book = self.case.book().unwrap();
        self.reference.held.sort_by(|a, b| Reference::instance(a).cmp(Reference::instance(b)));
        let shown = |held: &Booking| {
            (
                held.instance().to_owned(),
                held.role().to_owned(),
                held.bytes().get(),
                held.since(),
                held.expires(),
            )
        };
        let expected = |entry: &Entry| {
            let bytes =
                (0..2).filter(|pool| entry.booked[*pool].is_some()).map(|pool| entry.current(pool)).sum();
            let request = &entry.request;
            (
                request.instance.clone(),
                request.spec.role.clone(),
                bytes,
                at(entry.since),
                entry.expires.map(at),
            )
        };
        let found: Vec<_> = book.bookings().map(shown).collect();
        assert_eq!(found, self.reference.held.iter().map(expected).collect::<Vec<_>>());
        let waits: Vec<String> = book.waiting().map(|waiting| waiting.instance).collect();
        let expected: Vec<&str> =
            self.reference.waiting.iter().map(|(_, _, entry)| Reference::instance(entry)).collect();
        assert_eq!(waits, expected);
        for (place, id) in POOLS.iter().enumerate() {
            let held: u64 = self
                .reference
                .held
                .iter()
                .filter(|entry| entry.booked[place].is_some())
                .map(|entry| entry.current(place))
                .sum();
            let told = book.pool(id).unwrap();
            assert_eq!((told.used.get(), told.budget.map(Bytes::get)), (held, self.reference.budgets[place]));
        }
    }
}

/// Plays a sequence on a ledger that holds nothing, and leaves it so.
fn play(case: &Case, steps: &[Step]) {
    let reference = Reference { budgets: [Some(12), Some(9)], ..Reference::default() };
    for (id, budget) in POOLS.iter().zip(reference.budgets) {
        case.set_budget(&pool(id), budget.map(Bytes::new), at(0)).unwrap();
    }
    let mut run = Run { case, reference, tickets: Vec::new() };
    for step in steps {
        run.take(step);
    }
    let now = at(run.reference.now);
    for ticket in &run.tickets {
        case.cancel(ticket, now).unwrap();
    }
    for instance in INSTANCES {
        case.release_instance(instance, now).unwrap();
    }
    case.owners.revive();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn in_memory_it_does_what_looking_at_everybody_does(drawn in prop::collection::vec(any::<u64>(), 1..14)) {
        play(&common::memory(&[]), &steps(&drawn));
    }
}

/// One file for all sequences: making a file takes longer than playing.
#[cfg(feature = "sqlite")]
#[test]
fn on_file_it_does_what_looking_at_everybody_does() {
    let case = on_file::file(&[]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(500));
    let played = runner.run(&prop::collection::vec(any::<u64>(), 1..20), |drawn| {
        play(&case, &steps(&drawn));
        Ok(())
    });
    if let Err(failed) = played {
        panic!("{failed}");
    }
}
