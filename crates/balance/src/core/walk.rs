//! Greedy walks: in a given order each slot takes as much as it holds.

use super::{Placement, Problem};

/// Fills the slots of `order` one after the other. Exact for the order: reaching as far as possible is never worse.
pub(crate) fn fill(problem: &Problem, order: &[usize]) -> Option<Placement> {
    let (ends, reached) = run(problem, order);
    (reached == problem.items()).then(|| Placement { order: order.to_vec(), ends })
}

/// The walk as far as it comes.
fn run(problem: &Problem, order: &[usize]) -> (Vec<usize>, usize) {
    let mut start = 0;
    let mut ends = Vec::with_capacity(order.len());
    for &index in order {
        let slot = &problem.slots[index];
        start = problem.chain(slot).reach(start, slot.room);
        ends.push(start);
    }
    (ends, start)
}

/// How many bytes larger the last slot of `order` would have to be for the walk to come to the end.
pub(crate) fn missing(problem: &Problem, order: &[usize]) -> Option<u64> {
    let (&last, before) = order.split_last()?;
    let (_, start) = run(problem, before);
    let slot = &problem.slots[last];
    let short = problem.chain(slot).load(start, problem.items()).checked_sub(slot.room)?;
    // Where one slot may not hold everything, more room would not help the only one that takes something.
    (short > 0 && (start > 0 || problem.chain(slot).whole())).then_some(short)
}

/// How many slots a best-fit step looks at.
const SAMPLE: usize = 16;

/// An order by sampled best fit: of a few slots drawn at each step, the one that wastes least of its room.
///
/// `room` is what a slot may hold from a start on, as the end of the run it takes.
pub(crate) fn best_fit(
    problem: &Problem,
    seed: u64,
    reach: impl Fn(usize, usize) -> usize,
) -> Option<Vec<usize>> {
    let items = problem.items();
    let mut pool: Vec<usize> = (0..problem.slots.len()).collect();
    let mut random = Random(seed);
    let mut order = Vec::new();
    let mut start = 0;
    while start < items {
        if order.len() == problem.limit {
            return None;
        }
        let len = pool.len();
        if len == 0 {
            return None;
        }
        let count = len.min(SAMPLE);
        // A stride coprime to nothing in particular: with as many draws as slots every slot is drawn once.
        let (base, stride) =
            if count == len { (0, 1) } else { (random.below(len), 1 + random.below((len / SAMPLE).max(1))) };
        let drawn = (0..count).map(|k| (base + k * stride) % len);
        let chosen = choose(problem, &pool, drawn, start, &reach)
            .or_else(|| choose(problem, &pool, 0..len, start, &reach))?;
        let slot = pool.swap_remove(chosen);
        start = reach(slot, start);
        order.push(slot);
    }
    Some(order)
}

/// Among places of the pool the slot that ends the chain, or wastes least; none when none takes an item.
fn choose(
    problem: &Problem,
    pool: &[usize],
    places: impl Iterator<Item = usize>,
    start: usize,
    reach: &impl Fn(usize, usize) -> usize,
) -> Option<usize> {
    let mut best: Option<((bool, u64, u64, usize), usize)> = None;
    for place in places {
        let index = pool[place];
        let slot = &problem.slots[index];
        let end = reach(index, start);
        if end <= start {
            continue;
        }
        let waste = slot.room.saturating_sub(problem.chain(slot).load(start, end));
        let key = (end < problem.items(), waste, u64::MAX - slot.room, index);
        if best.is_none_or(|(least, _)| key < least) {
            best = Some((key, place));
        }
    }
    best.map(|(_, place)| place)
}

/// Numbers that look drawn and are always the same (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % n).unwrap_or(0)
    }
}
