//! Orders by sampled best fit: of a few slots drawn at each step, the one that wastes least.
//!
//! Every boundary wastes up to one item. Where slots are many, some slot among a few drawn ones ends close to a boundary
//! nearly always, so that the waste stays small without a search.

use super::effort::Effort;
use super::walk::{self, Random};
use super::{Problem, beam, class, minmax};

/// How many slots a step looks at.
const SAMPLE: usize = 16;

/// How many orders are drawn before a search is given up.
const SEEDS: u64 = 32;

/// With more slots than this, one order that is drawn wastes about as much as the next one.
const MANY: usize = 1_000;

/// So many orders are drawn then.
const FEW: u64 = 4;

/// The most looks at a slot in all orders that are drawn.
pub(super) const STEPS: u64 = 8_000_000;

/// What holds under every bound on costs.
pub(crate) struct Needs {
    // The least that any item takes and the least that any costs, in each chain.
    least: Vec<(u64, u64)>,
    // The items that nobody else holds: from the first to the last one.
    alone: Vec<Option<(usize, usize)>>,
}

impl Needs {
    pub(crate) fn new(problem: &Problem) -> Self {
        Self { least: problem.chains.iter().map(smallest_item).collect(), alone: alone(problem) }
    }
}

/// What slots may take under a bound on costs.
pub(crate) struct Fit<'a> {
    problem: &'a Problem,
    bound: f64,
    // The most that a slot may cost, what it starts with taken off; `None` where it can take nothing.
    most: Vec<Option<u64>>,
    // The slots that can take the smallest item, as many as may be used, the largest.
    pool: Vec<usize>,
    alone: &'a [Option<(usize, usize)>],
}

/// Any order in which everything fits: the largest first, the smallest first, or a drawn one.
pub(crate) fn any(problem: &Problem, effort: &Effort) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..problem.slots.len()).collect();
    order.sort_by_key(|&slot| (u64::MAX - problem.slots[slot].room, slot));
    order.truncate(problem.limit);
    for _ in 0..2 {
        if let Some(placement) = walk::fill(problem, &order) {
            return Some(placement.stages().map(|stage| stage.0).collect());
        }
        order.reverse();
    }
    let needs = Needs::new(problem);
    let fit = Fit::new(problem, &needs, f64::INFINITY);
    let by_kinds = fit.by_kinds(effort).and_then(Result::ok);
    let seeds = if problem.slots.len() > MANY { FEW } else { SEEDS };
    let drawn = || (0..seeds).find_map(|seed| fit.order(seed, effort).ok());
    by_kinds.or_else(drawn).map(|drawn| drawn.slots)
}

/// An order that keeps a bound.
pub(crate) struct Drawn {
    /// Its slots, all of which take something.
    pub(crate) slots: Vec<usize>,
    /// Its largest cost.
    pub(crate) largest: f64,
    /// What the slots that are left could have taken.
    pub(crate) unused: u64,
}

impl<'a> Fit<'a> {
    /// Under this bound on every cost.
    pub(crate) fn new(problem: &'a Problem, needs: &'a Needs, bound: f64) -> Self {
        let slots = &problem.slots;
        let most: Vec<Option<u64>> = slots
            .iter()
            .map(|slot| {
                let most = minmax::most_within(bound, slot.rate).checked_sub(slot.fixed)?;
                let (load, cost) = needs.least[slot.class];
                (slot.room >= load && most >= cost).then_some(most)
            })
            .collect();
        let pool: Vec<usize> = (0..slots.len()).filter(|&slot| most[slot].is_some()).collect();
        let mut fit = Self { problem, bound, most, pool, alone: &needs.alone };
        if fit.pool.len() > problem.limit {
            // With fewer slots than there are, the small ones are of no use, but those that something needs are.
            let mut pool = std::mem::take(&mut fit.pool);
            pool.sort_by_key(|&slot| (fit.alone[slot].is_none(), u64::MAX - fit.takes(slot), slot));
            pool.truncate(problem.limit);
            pool.sort_unstable();
            fit.pool = pool;
        }
        fit
    }

    /// An order that keeps the bound, or how many items the search came to; `None` where it is of no use: slots are of
    /// many kinds, or some item fits on one slot alone.
    pub(crate) fn by_kinds(&self, effort: &Effort) -> Option<Result<Drawn, usize>> {
        let problem = self.problem;
        if self.alone.iter().any(Option::is_some) || u32::try_from(problem.items()).is_err() {
            return None;
        }
        let members = class::kinds(problem, self.pool.iter().copied(), beam::KINDS)?;
        let runs = class::Runs::of(problem, &members, self.bound);
        let kinds: Vec<(usize, u64, usize)> =
            members.iter().map(|kind| (kind[0], self.most[kind[0]].unwrap_or(0), kind.len())).collect();
        let order = match beam::order(problem, &kinds, &runs, effort) {
            Ok(order) => order,
            Err(reached) => return Some(Err(reached)),
        };
        let (mut next, mut start, mut largest) = (vec![0; members.len()], 0, 0.0_f64);
        let mut slots = Vec::with_capacity(order.len());
        for kind in order {
            let slot = members[kind][next[kind]];
            next[kind] += 1;
            let end = class::wide(runs.end(kind, start));
            largest = largest.max(problem.cost(&problem.slots[slot], class::wide(start), end));
            start = runs.end(kind, start);
            slots.push(slot);
        }
        let rest = members.iter().zip(next).flat_map(|(kind, next)| &kind[next..]);
        let unused = rest.map(|&slot| self.takes(slot)).fold(0, u64::saturating_add);
        Some(Ok(Drawn { slots, largest, unused }))
    }

    /// An order that keeps the bound, or how many items it came to.
    pub(crate) fn order(&self, seed: u64, effort: &Effort) -> Result<Drawn, usize> {
        let problem = self.problem;
        let items = problem.items();
        let mut pool = self.pool.clone();
        let mut random = Random(seed);
        let mut order = Vec::with_capacity(pool.len());
        let (mut start, mut largest) = (0, 0.0_f64);
        while start < items {
            let len = pool.len();
            let count = len.min(SAMPLE);
            let (base, stride) = if count == len {
                (0, 1)
            } else {
                (random.below(len), 1 + random.below((len / SAMPLE).max(1)))
            };
            let drawn = (0..count).map(|k| (base + k * stride) % len.max(1));
            if !effort.take(count) {
                return Err(start);
            }
            let chosen = self.choose(&pool, drawn, start).or_else(|| {
                effort.take(len);
                self.choose(&pool, 0..len, start)
            });
            let Some((place, end)) = chosen else { return Err(start) };
            let slot = pool.swap_remove(place);
            largest = largest.max(problem.cost(&problem.slots[slot], start, end));
            order.push(slot);
            start = end;
        }
        let unused = pool.iter().map(|&slot| self.takes(slot)).fold(0, u64::saturating_add);
        Ok(Drawn { slots: order, largest, unused })
    }

    /// What a slot may take at most.
    fn takes(&self, slot: usize) -> u64 {
        self.most[slot].map_or(0, |most| most.min(self.problem.slots[slot].room))
    }

    /// Among places of the pool the slot that ends the chain, or wastes least, and where it ends.
    fn choose(
        &self,
        pool: &[usize],
        places: impl Iterator<Item = usize>,
        start: usize,
    ) -> Option<(usize, usize)> {
        let problem = self.problem;
        let mut least = (true, u64::MAX, u64::MAX, usize::MAX);
        let mut best = None;
        for place in places {
            let index = pool[place];
            let slot = &problem.slots[index];
            let chain = problem.chain(slot);
            let Some(most) = self.most[index] else { continue };
            let end = chain.reach_within(start, slot.room, most, start);
            let misses = self.alone[index].is_some_and(|(first, last)| start > first || end <= last);
            if end <= start || misses {
                continue;
            }
            let waste = (slot.room.saturating_sub(chain.load(start, end)))
                .min(most.saturating_sub(chain.cost(start, end)));
            let key = (end < problem.items(), waste, u64::MAX - slot.room, index);
            if key < least {
                (least, best) = (key, Some((place, end)));
            }
        }
        best
    }
}

/// The least that any item takes, and the least that any costs.
fn smallest_item(chain: &super::chain::Chain) -> (u64, u64) {
    let items = 0..chain.items();
    let load = items.clone().map(|item| chain.load(item, item + 1)).min();
    let cost = items.map(|item| chain.cost(item, item + 1)).min();
    (load.unwrap_or(0), cost.unwrap_or(0))
}

/// For every slot, the items that fit nowhere else.
fn alone(problem: &Problem) -> Vec<Option<(usize, usize)>> {
    let mut alone: Vec<Option<(usize, usize)>> = vec![None; problem.slots.len()];
    // The slots with the two largest rooms of each class.
    let mut roomy: Vec<[Option<usize>; 2]> = vec![[None; 2]; problem.chains.len()];
    let room = |slot: Option<usize>| slot.map(|slot| problem.slots[slot].room);
    for (index, slot) in problem.slots.iter().enumerate() {
        let [largest, second] = &mut roomy[slot.class];
        if room(*largest) < Some(slot.room) {
            (*second, *largest) = (*largest, Some(index));
        } else if room(*second) < Some(slot.room) {
            *second = Some(index);
        }
    }
    for item in 0..problem.items() {
        let mut holders = problem.chains.iter().zip(&roomy).filter_map(|(chain, &[largest, second])| {
            let load = Some(chain.load(item, item + 1));
            (room(largest) >= load).then_some((largest?, room(second) < load))
        });
        if let (Some((slot, true)), None) = (holders.next(), holders.next()) {
            let (first, last) = alone[slot].unwrap_or((item, item));
            alone[slot] = Some((first.min(item), last.max(item)));
        }
    }
    alone
}
