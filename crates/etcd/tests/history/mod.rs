//! What clients were told, and what etcd recorded: read and judged without any code of the crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use etcd_client::{Client, EventType, GetOptions, WatchOptions};
use serde_json::Value;

/// Bytes by pool, in the order of pools.
pub(crate) type Shares = Vec<(String, u64)>;

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Reserve { instance: String, shares: Shares },
    Resize { instance: String, shares: Shares },
    Release { instance: String },
}

/// What it was told.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Done; whether that changed anything.
    Done(bool),
    NotDone,
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) op: Op,
    pub(crate) outcome: Outcome,
}

/// All that clients were told, each in its own order.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) ops: Vec<Done>,
    /// By the beginning of the names of its bookings, every lease.
    pub(crate) ended: BTreeMap<String, Ended>,
}

/// What became of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) lost: bool,
    /// Up to which revision it certainly lived.
    pub(crate) alive_until: i64,
}

/// One change of one booking, as etcd recorded it; `None` is gone.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: i64,
    pub(crate) instance: String,
    pub(crate) shares: Option<Shares>,
}

/// Waits until nothing is left below this prefix, then reads all that ever happened there.
pub(crate) fn read(url: &str, prefix: &str) -> Vec<Event> {
    let endpoints: Vec<&str> = url.trim_start_matches("etcd://").trim_end_matches("/t").split(',').collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect(endpoints, None).await.unwrap();
        // Every booking was owned, so all end with their leases: 3 s, and as much for elections and restarts.
        let mut left = usize::MAX;
        for _ in 0..120 {
            // A member that has just come back may not answer yet.
            if let Ok(answer) = client.get(prefix, Some(GetOptions::new().with_prefix())).await {
                left = answer.kvs().len();
                if left == 0 {
                    break;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(left, 0, "bookings outlive all leases by 12 s");
        let last = client.get(prefix, None).await.unwrap().header().unwrap().revision();
        // Something to see at the end.
        client.put("/end", "", None).await.unwrap();
        let options = WatchOptions::new().with_all_keys().with_start_revision(1);
        let mut watch = client.watch("", Some(options)).await.unwrap();
        let mut events = Vec::new();
        'all: loop {
            let answer = watch.message().await.unwrap().unwrap();
            for event in answer.events() {
                let kv = event.kv().unwrap();
                if kv.mod_revision() > last {
                    break 'all;
                }
                let Some(instance) = kv.key_str().unwrap().strip_prefix(prefix) else { continue };
                let shares = (event.event_type() == EventType::Put).then(|| shares(kv.value()));
                events.push(Event { revision: kv.mod_revision(), instance: instance.to_owned(), shares });
            }
        }
        events
    })
}

fn shares(value: &[u8]) -> Shares {
    let value: Value = serde_json::from_slice(value).unwrap();
    let share =
        |share: &Value| (share["pool"].as_str().unwrap().to_owned(), share["booked"].as_u64().unwrap());
    let mut shares: Shares = value["shares"].as_array().unwrap().iter().map(share).collect();
    shares.sort();
    shares
}

/// What was judged.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) acknowledged: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    pub(crate) events: usize,
    pub(crate) lost: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, refused, unknown, events, lost } = self;
        write!(
            f,
            "{acknowledged} changes acknowledged, {refused} refused, {unknown} unknown, {events} recorded, {lost} leases lost"
        )
    }
}

/// Judges the whole history; panics with what is wrong.
pub(crate) fn check(recorded: &Recorded, events: &[Event], budgets: &[(&str, u64)]) -> Summary {
    within_budgets(events, budgets);
    let mut by_instance: BTreeMap<&str, (Vec<&Done>, Vec<&Event>)> = BTreeMap::new();
    for done in &recorded.ops {
        let (Op::Reserve { instance, .. } | Op::Resize { instance, .. } | Op::Release { instance }) =
            &done.op;
        by_instance.entry(instance).or_default().0.push(done);
    }
    for event in events {
        by_instance.entry(&event.instance).or_default().1.push(event);
    }
    for (instance, (ops, events)) in &by_instance {
        told_as_it_was(instance, ops, events, recorded);
    }
    let count = |is: fn(&Outcome) -> bool| recorded.ops.iter().filter(|done| is(&done.outcome)).count();
    Summary {
        acknowledged: count(|outcome| matches!(outcome, Outcome::Done(_))),
        refused: count(|outcome| matches!(outcome, Outcome::NotDone)),
        unknown: count(|outcome| matches!(outcome, Outcome::Unknown)),
        events: events.len(),
        lost: recorded.ended.values().filter(|ended| ended.lost).count(),
    }
}

/// At every revision the sum of what is booked of each pool is at most its budget.
fn within_budgets(events: &[Event], budgets: &[(&str, u64)]) {
    let mut live: BTreeMap<&str, &Shares> = BTreeMap::new();
    let mut at = 0;
    while at < events.len() {
        let revision = events[at].revision;
        // All of one revision is one moment.
        while at < events.len() && events[at].revision == revision {
            match &events[at].shares {
                Some(shares) => live.insert(&events[at].instance, shares),
                None => live.remove(events[at].instance.as_str()),
            };
            at += 1;
        }
        for (pool, budget) in budgets {
            let shares = live.values().flat_map(|shares| shares.iter());
            let booked: u64 = shares.filter(|(id, _)| id == pool).map(|(_, bytes)| bytes).sum();
            assert!(
                booked <= *budget,
                "revision {revision}: {booked} of {budget} booked in {pool}: {live:?}"
            );
        }
    }
    assert!(live.is_empty(), "ghosts: {live:?}");
}

/// What was acknowledged was recorded, in order; what was refused was not; what nobody knows may have been, once. And
/// what went without being asked for went with its lease.
fn told_as_it_was(instance: &str, ops: &[&Done], events: &[&Event], recorded: &Recorded) {
    let wrong = |what: &str| -> ! { panic!("{instance}: {what}\n{ops:#?}\n{events:#?}") };
    let mut open: Vec<Option<&Shares>> = Vec::new();
    let mut rest = events.iter().map(|event| (event.revision, event.shares.as_ref()));
    for done in ops {
        let effect = match &done.op {
            Op::Reserve { shares, .. } | Op::Resize { shares, .. } => Some(shares),
            Op::Release { .. } => None,
        };
        match done.outcome {
            Outcome::Done(false) | Outcome::NotDone => {}
            Outcome::Unknown => open.push(effect),
            Outcome::Done(true) => loop {
                match rest.next() {
                    Some((_, found)) if found == effect => break,
                    Some((_, found)) => match open.iter().position(|maybe| *maybe == found) {
                        Some(at) => drop(open.remove(at)),
                        None => wrong("something was recorded that nobody was told of"),
                    },
                    None => wrong("what was acknowledged was not recorded"),
                }
            },
        }
    }
    for (revision, found) in rest {
        if let Some(at) = open.iter().position(|maybe| *maybe == found) {
            open.remove(at);
        } else if found.is_some() || lease_lived(instance, revision, recorded) {
            wrong("it went, or came, without anybody's word");
        }
    }
    let instances: BTreeSet<&str> = events.iter().map(|event| event.instance.as_str()).collect();
    assert!(instances.len() <= 1);
}

fn lease_lived(instance: &str, revision: i64, recorded: &Recorded) -> bool {
    let life = recorded.ended.iter().find(|(life, _)| instance.starts_with(life.as_str()));
    life.is_none_or(|(_, ended)| revision <= ended.alive_until)
}
