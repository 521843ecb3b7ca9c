//! What to evict so that a request fits: as advice, never as an act.

mod search;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use plimsoll_units::Bytes;

use crate::book::{Book, Booking, Share};
use crate::{CoResidency, Needs, Request, Timestamp};
use search::{Choice, FEW, Item, Offer, Problem, cheapest, cheapest_of_one, room};

/// Who may be evicted, and how hard to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Who has been resident for less than this stays.
    pub min_age: Duration,
    /// How many nodes the search may visit before it settles for the best set found.
    pub node_limit: u32,
}

/// Everybody may be evicted at any age; two million nodes.
impl Default for Eviction {
    fn default() -> Self {
        Self { min_age: Duration::ZERO, node_limit: 2_000_000 }
    }
}

/// What to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Whom, in the order of instances; nobody when the request fits already.
    pub victims: Vec<Victim>,
    /// What their going costs: of each the bytes of its weights, which would have to be loaded again, times one more
    /// than its priority.
    pub cost: u128,
    /// Whether no cheaper set would do.
    pub proven: bool,
}

impl Advice {
    /// All that the victims hold.
    pub fn bytes(&self) -> Bytes {
        Bytes::saturating_sum(self.victims.iter().map(|victim| victim.bytes))
    }
}

/// One that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The running copy.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// All that it holds.
    pub bytes: Bytes,
    /// Whether it has to go because of an exclusion, whatever room there is.
    pub excluded: bool,
}

/// One that may not be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The running copy.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// All that it holds.
    pub bytes: Bytes,
    /// Why it stays.
    pub because: KeptBecause,
}

/// Why one may not be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBecause {
    /// It is pinned.
    Pinned,
    /// It is in use.
    InUse,
    /// Its spec says that it stays.
    Sticky,
    /// It has not been resident for long enough.
    TooYoung,
}

/// `pinned`, `in use`, `sticky`, `too young`.
impl fmt::Display for KeptBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pinned => "pinned",
            Self::InUse => "in use",
            Self::Sticky => "sticky",
            Self::TooYoung => "too young",
        })
    }
}

/// No eviction makes room, so none is advised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no eviction makes room for '{role}'{}", KeptList(kept))]
pub struct NoAdvice {
    /// What asked.
    pub role: String,
    /// Who may not be evicted, in the order of instances.
    pub kept: Vec<Kept>,
    /// Why it does not fit as things are.
    #[source]
    pub refusal: Box<CoResidency>,
}

struct KeptList<'a>(&'a [Kept]);

impl fmt::Display for KeptList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, kept) in self.0.iter().enumerate() {
            let before = if i == 0 { " (" } else { ", " };
            write!(f, "{before}{} {} is {}", kept.role, kept.bytes, kept.because)?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// The cheapest set of bookings whose end lets this request in, or none at all when no set does.
///
/// Whoever excludes the request, or is excluded by it, has to go. Whoever is pinned, in use, sticky or too young never
/// goes. Of sets that cost the same, the one that holds the fewest bytes, then the one with the fewest instances, then the
/// first by their names is advised. Who waits in the queue is not considered.
///
/// # Errors
///
/// No set would do; the error lists whoever may not be evicted.
pub fn eviction_advice(
    book: &Book,
    request: &Request,
    policy: &Eviction,
    now: Timestamp,
) -> Result<Advice, NoAdvice> {
    let none = |refusal| NoAdvice {
        role: crate::spec::bare(&request.spec.role).to_owned(),
        kept: kept(book, request, policy, now),
        refusal: Box::new(refusal),
    };
    // A refusal names every holder, so it is made only when it is needed.
    match plan(book, request, policy, now) {
        Some(advice) => Ok(advice),
        None => match book.refusal(request) {
            None => Ok(Advice { victims: Vec::new(), cost: 0, proven: true }),
            Some(refusal) => Err(none(refusal)),
        },
    }
}

fn plan(book: &Book, request: &Request, policy: &Eviction, now: Timestamp) -> Option<Advice> {
    let shares = book.shares(&request.spec).ok()?;
    let own = book.get(&request.instance);
    if own.is_some_and(|own| !request.terms.owners.is_empty() && own.terms.owners != request.terms.owners) {
        return None;
    }
    let excluded: BTreeMap<&str, &Booking> =
        book.conflicts(&request.spec, &request.instance).map(|held| (held.instance(), held)).collect();
    if excluded.values().any(|held| why_kept(held, policy, now).is_some()) {
        return None;
    }
    let short = shortages(book, own, &shares, excluded.values().copied());
    let may_go = |held: &&Booking| {
        // The same booking is the same place, which is compared without looking at it.
        !own.is_some_and(|own| std::ptr::eq(own, *held))
            && (excluded.is_empty() || !excluded.contains_key(held.instance()))
            && why_kept(held, policy, now).is_none()
    };
    let (mut few, mut many) = ([None; FEW], Vec::new());
    let candidates = room(&mut few, &mut many, book.bookings().len());
    let choice = chosen(book.bookings().filter(may_go), &short, candidates, policy.node_limit)?;
    let victim = |held: &Booking, excluded| Victim {
        instance: held.instance().to_owned(),
        role: held.role().to_owned(),
        bytes: held.bytes(),
        excluded,
    };
    let freely = || choice.chosen.iter().filter_map(|place| candidates[*place]);
    let mut victims: Vec<Victim> = excluded.values().map(|held| victim(held, true)).collect();
    victims.reserve(choice.chosen.len());
    victims.extend(freely().map(|held| victim(held, false)));
    if !excluded.is_empty() {
        victims.sort_by(|a, b| a.instance.cmp(&b.instance));
    }
    let cost = excluded.values().copied().chain(freely()).map(|held| u128::from(cost(held))).sum();
    Some(Advice { victims, cost, proven: choice.proven })
}

/// What is missing in which pool once `gone` have left; pools where nothing is missing are left out.
fn shortages<'a>(
    book: &Book,
    own: Option<&'a Booking>,
    shares: &[Share],
    gone: impl Iterator<Item = &'a Booking>,
) -> Vec<(usize, u64)> {
    let mut freed: BTreeMap<usize, u128> = BTreeMap::new();
    for share in gone.chain(own).flat_map(|held| held.shares.iter()) {
        *freed.entry(share.pool).or_default() += u128::from(share.current().get());
    }
    let short = |share: &Share| {
        // Giving back is always admitted.
        if own.and_then(|own| own.share(share.pool)).is_some_and(|own| share.booked <= own.booked) {
            return None;
        }
        let (budget, used) = book.limit_of(share.pool)?;
        let others = used.saturating_sub(freed.get(&share.pool).copied().unwrap_or(0));
        let short = (others + u128::from(share.booked.get())).saturating_sub(u128::from(budget.get()));
        // More than anybody can say is more than anybody can free.
        (short > 0).then(|| (share.pool, u64::try_from(short).unwrap_or(u64::MAX)))
    };
    shares.iter().filter_map(short).collect()
}

/// Whom to choose among those who may go, as places among the candidates, which are filled in; every booking is looked
/// at once.
fn chosen<'a>(
    may_go: impl Iterator<Item = &'a Booking>,
    short: &[(usize, u64)],
    candidates: &mut [Option<&'a Booking>],
    node_limit: u32,
) -> Option<Choice> {
    if let [(pool, need)] = *short {
        let (mut few, mut many) = ([Offer::default(); FEW], Vec::new());
        let offers = room(&mut few, &mut many, candidates.len());
        let mut count = 0;
        may_go.for_each(|held| {
            let size = held.share(pool).map_or(0, |share| share.current().get());
            if size > 0 {
                candidates[count] = Some(held);
                offers[count] = Offer { cost: cost(held), bytes: held.bytes().get(), size };
                count += 1;
            }
        });
        return cheapest_of_one(&offers[..count], need, node_limit);
    }
    let mut problem = Problem {
        items: Vec::new(),
        need: short.iter().map(|(_, need)| *need).collect(),
        sizes: vec![Vec::new(); short.len()],
    };
    if !short.is_empty() {
        for (candidate, held) in candidates.iter_mut().zip(may_go) {
            *candidate = Some(held);
            problem.items.push(Item { cost: cost(held), bytes: held.bytes().get() });
            for ((pool, _), sizes) in short.iter().zip(&mut problem.sizes) {
                sizes.push(held.share(*pool).map_or(0, |share| share.current().get()));
            }
        }
    }
    cheapest(&problem, node_limit)
}

/// What it costs to evict a booking: the bytes of its weights, all of it where those are not told, times one more than
/// its priority; saturating.
fn cost(held: &Booking) -> u64 {
    let weights = match &held.spec.needs {
        Needs::Memory { weights, .. } => *weights,
        Needs::Pools(pools) => Bytes::saturating_sum(pools.values().copied()),
    };
    weights.saturating_mul(u64::from(held.terms.priority).saturating_add(1)).get()
}

fn kept(book: &Book, request: &Request, policy: &Eviction, now: Timestamp) -> Vec<Kept> {
    let kept = |held: &Booking| {
        Some(Kept {
            instance: held.instance().to_owned(),
            role: held.role().to_owned(),
            bytes: held.bytes(),
            because: why_kept(held, policy, now)?,
        })
    };
    book.bookings().filter(|held| held.instance() != request.instance).filter_map(kept).collect()
}

/// Why a booking may not be evicted, if it may not.
pub(crate) fn why_kept(held: &Booking, policy: &Eviction, now: Timestamp) -> Option<KeptBecause> {
    if held.terms.pinned {
        Some(KeptBecause::Pinned)
    } else if held.in_use > 0 {
        Some(KeptBecause::InUse)
    } else if held.spec.sticky {
        Some(KeptBecause::Sticky)
    } else if now.saturating_since(held.since) < policy.min_age {
        Some(KeptBecause::TooYoung)
    } else {
        None
    }
}
