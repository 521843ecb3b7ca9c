//! The same search where a single resource is short, which is the usual case: on plain numbers of 64 bits that lie side
//! by side, and without asking for memory as long as there are few items.
//!
//! Sums over all items have to fit into 64 bits; then so does every sum on the way.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::{BOTH_NODES, Choice, Phase, TIE_NODES, sorted};

/// Something that can be taken.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::advise) struct Offer {
    /// What taking it costs.
    pub(in crate::advise) cost: u64,
    /// What decides between sets of equal cost: the less, the better.
    pub(in crate::advise) bytes: u64,
    /// What it gives, never zero.
    pub(in crate::advise) size: u64,
}

/// So many items need no memory of their own.
pub(in crate::advise) const FEW: usize = 64;

/// Room for `len` entries: in `few` if that is long enough, else in `many`.
pub(in crate::advise) fn room<'a, T: Copy + Default>(
    few: &'a mut [T],
    many: &'a mut Vec<T>,
    len: usize,
) -> &'a mut [T] {
    if len <= few.len() {
        return &mut few[..len];
    }
    many.resize(len, T::default());
    many
}

/// Whether all sums fit, so that [`cheapest`] may be asked.
pub(super) fn is_small(offers: &[Offer]) -> bool {
    let add = |sum: Offer, offer: &Offer| {
        Some(Offer {
            cost: sum.cost.checked_add(offer.cost)?,
            bytes: sum.bytes.checked_add(offer.bytes)?,
            size: sum.size.checked_add(offer.size)?,
        })
    };
    offers.iter().try_fold(Offer::default(), add).is_some()
}

/// As [`super::cheapest`], for one resource of which `need` is needed, which is not zero.
pub(super) fn cheapest(offers: &[Offer], need: u64, limit: u32) -> Option<Choice> {
    let (mut few, mut many) = ([Spot::default(); FEW + 1], Vec::new());
    let spots = room(&mut few, &mut many, offers.len() + 1);
    for (place, (spot, offer)) in spots.iter_mut().zip(offers).enumerate() {
        (spot.offer, spot.place) = (*offer, place);
    }
    order(spots, need);
    if spots[offers.len()].before < need {
        return None;
    }
    let best = start(spots, need);
    let (base, count, rest) = core(spots, need, best.cost);
    let spots = &mut spots[..=count];
    spots[count] = Spot::default();
    if base.taken.is_empty() && rest == need {
        add_up(spots);
    } else {
        order(spots, rest);
    }
    let mut search = Search { spots, need: rest, base, best };
    let proven = search.solve(limit);
    let mut chosen = search.best.taken;
    drop_redundant(offers, need, &mut chosen);
    chosen.sort_unstable();
    Some(Choice { chosen, proven })
}

/// An item at its position in the order of trying. One that holds nothing ends the list.
#[derive(Clone, Copy, Default)]
struct Spot {
    /// Its size clipped to the need.
    offer: Offer,
    /// Where it was given.
    place: usize,
    /// The next position that holds another kind of item. Of equal items, earlier ones are taken first.
    next_kind: usize,
    /// Sums before this position.
    before: u64,
    cost_before: u64,
}

#[derive(Clone, Default)]
struct Best {
    cost: u64,
    bytes: u64,
    /// Places of items, in the order in which they were taken.
    taken: Vec<usize>,
}

struct Search<'a> {
    spots: &'a [Spot],
    need: u64,
    /// What is taken in any case.
    base: Best,
    best: Best,
}

/// Puts all but the last into the order of trying, clips their sizes and adds them up.
fn order(spots: &mut [Spot], need: u64) {
    let count = spots.len() - 1;
    let (mut few, mut many) = ([(0, 0); FEW], Vec::new());
    let keys = room(&mut few, &mut many, count);
    for (at, (key, spot)) in keys.iter_mut().zip(&mut *spots).enumerate() {
        spot.offer.size = spot.offer.size.min(need);
        // Bits of numbers from 0 on are in the order of the numbers.
        *key = ((as_f64(spot.offer.cost) / as_f64(spot.offer.size)).to_bits(), at);
    }
    keys.sort_unstable();
    // Where numbers are too close to be told apart, the exact order decides.
    let mut rest = &mut *keys;
    while !rest.is_empty() {
        let close = |pair: &[(u64, usize)]| f64::from_bits(pair[0].0) >= f64::from_bits(pair[1].0) * BELOW;
        let alike = 1 + rest.windows(2).take_while(|pair| close(pair)).count();
        let (run, others) = rest.split_at_mut(alike);
        if alike > 1 {
            run.sort_unstable_by(|(_, a), (_, b)| by_ratio(&spots[*a], &spots[*b]));
        }
        rest = others;
    }
    let (mut few, mut many) = ([Spot::default(); FEW], Vec::new());
    let unordered = room(&mut few, &mut many, count);
    unordered.copy_from_slice(&spots[..count]);
    for (spot, (_, at)) in spots.iter_mut().zip(&*keys) {
        *spot = unordered[*at];
    }
    add_up(spots);
}

/// Two conversions and a division err by less than four parts in 2^53, and so does the product with this.
const BELOW: f64 = 1.0 - 1e-14;

fn as_f64(n: u64) -> f64 {
    plimsoll_units::Bytes::new(n).as_f64()
}

/// By cost per byte, larger ones first among equals; what is equal in all comes together.
fn by_ratio(a: &Spot, b: &Spot) -> Ordering {
    let (left, right) = (&a.offer, &b.offer);
    let a_first = u128::from(left.cost) * u128::from(right.size);
    let b_first = u128::from(right.cost) * u128::from(left.size);
    a_first
        .cmp(&b_first)
        .then_with(|| right.size.cmp(&left.size))
        .then_with(|| left.bytes.cmp(&right.bytes))
        .then_with(|| left.cost.cmp(&right.cost))
        .then_with(|| a.place.cmp(&b.place))
}

/// Fills in what depends on the order.
fn add_up(spots: &mut [Spot]) {
    let count = spots.len() - 1;
    let (mut before, mut cost_before) = (0, 0);
    for spot in &mut *spots {
        (spot.before, spot.cost_before) = (before, cost_before);
        before += spot.offer.size;
        cost_before += spot.offer.cost;
    }
    let mut next_kind = count;
    for at in (0..count).rev() {
        let (here, next) = (&spots[at].offer, &spots[at + 1].offer);
        let same = here.cost == next.cost && here.bytes == next.bytes && here.size == next.size;
        if !same {
            next_kind = at + 1;
        }
        spots[at].next_kind = next_kind;
    }
}

/// The first incumbent: the best greedy beginning with one item that completes it.
fn start(spots: &[Spot], need: u64) -> Best {
    let count = spots.len() - 1;
    let largest = spots.iter().map(|spot| spot.offer.size).max().unwrap_or(0);
    // Before that no item completes a beginning.
    let first = spots[1..].partition_point(|spot| spot.before < need - largest);
    let mut best: Option<(u64, usize, usize)> = None;
    for begun in first..count {
        let rest = need - spots[begun].before;
        let completing = (begun..count).filter(|at| spots[*at].offer.size >= rest);
        if let Some(last) = completing.min_by_key(|at| spots[*at].offer.cost) {
            let total = spots[begun].cost_before + spots[last].offer.cost;
            if best.is_none_or(|(least, ..)| total < least) {
                best = Some((total, begun, last));
            }
        }
        if spots[begun].offer.size >= rest {
            break;
        }
    }
    let (cost, begun, last) = best.expect("all items together cover the need");
    let mut taken = Vec::with_capacity(FEW.min(count));
    taken.extend(spots[..begun].iter().chain([&spots[last]]).map(|spot| spot.place));
    let bytes = spots[..begun].iter().chain([&spots[last]]).map(|spot| spot.offer.bytes).sum();
    Best { cost, bytes, taken }
}

/// Moves the items to the front that are worth looking at, and says what is taken in any case, how many are left and
/// how much is needed of them.
///
/// Every set as cheap as the incumbent takes an item, or none does, where its change alone makes the relaxed solution
/// dearer than the incumbent.
fn core(spots: &mut [Spot], need: u64, incumbent: u64) -> (Best, usize, u64) {
    let count = spots.len() - 1;
    let split = spots[1..].partition_point(|spot| spot.before <= need);
    if split == count {
        // Everything is needed.
        return (Best::default(), count, need);
    }
    let part = need - spots[split].before;
    let (price, unit) = (spots[split].offer.cost, spots[split].offer.size);
    // In units of cost times the size of the split item.
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let relaxed = product(spots[split].cost_before, unit) + product(price, part);
    let slack = product(incumbent, unit) - relaxed;
    let (mut base, mut kept, mut rest) = (Best::default(), 0, need);
    base.taken.reserve(split);
    for at in 0..count {
        let offer = spots[at].offer;
        if product(offer.cost, unit).abs_diff(product(price, offer.size)) <= slack {
            spots[kept] = spots[at];
            kept += 1;
        } else if at < split {
            base.cost += offer.cost;
            base.bytes += offer.bytes;
            base.taken.push(spots[at].place);
            rest -= offer.size;
        }
    }
    (base, kept, rest)
}

impl Search<'_> {
    /// Searches from the incumbent on; whether the best set is proven.
    fn solve(&mut self, limit: u32) -> bool {
        if self.need == 0 {
            self.best = self.base.clone();
            return true;
        }
        if self.run(BOTH_NODES.min(limit), Phase::Both) {
            return true;
        }
        let proven = self.run(limit, Phase::Cost);
        if proven {
            self.run(TIE_NODES, Phase::Ties);
        }
        proven
    }

    /// Visits every node that can hold a better set; false when it had to stop before.
    fn run(&mut self, limit: u32, phase: Phase) -> bool {
        let spots = self.spots;
        let count = spots.len() - 1;
        let mut taken: Vec<usize> = Vec::with_capacity(count);
        let (mut cost, mut bytes, mut rest) = (self.base.cost, self.base.bytes, self.need);
        let (mut at, mut nodes) = (0, 0);
        loop {
            if nodes >= limit {
                return false;
            }
            nodes += 1;
            let spot = &spots[at];
            let reachable = spots[count].before - spot.before >= rest;
            if reachable && !self.is_cut(at, rest, cost, bytes, phase) {
                let offer = &spot.offer;
                if offer.size >= rest {
                    self.offer(&taken, at, cost + offer.cost, bytes + offer.bytes, phase);
                    at = spot.next_kind;
                } else {
                    taken.push(at);
                    cost += offer.cost;
                    bytes += offer.bytes;
                    rest -= offer.size;
                    at += 1;
                }
            } else {
                let Some(last) = taken.pop() else { return true };
                let Spot { offer, next_kind, .. } = &spots[last];
                cost -= offer.cost;
                bytes -= offer.bytes;
                rest += offer.size;
                at = *next_kind;
            }
        }
    }

    /// Whether nothing from here on can be better. All from here on covers the rest.
    fn is_cut(&self, at: usize, rest: u64, cost: u64, bytes: u64, phase: Phase) -> bool {
        if phase == Phase::Ties && self.best.bytes.checked_sub(bytes).is_none_or(|spare| spare < rest) {
            return true;
        }
        let spare = self.best.cost.saturating_sub(cost);
        // What the rest costs at least, with one item taken in part.
        let (spots, from) = (self.spots, &self.spots[at]);
        let covered = from.before + rest;
        let split = at + spots[at + 1..].partition_point(|spot| spot.before <= covered);
        let (split, left) = (&spots[split], covered - spots[split].before);
        let whole = split.cost_before - from.cost_before;
        let Some(spare) = spare.checked_sub(whole) else { return true };
        // Whether the part, rounded up, is above what may be spent, without dividing.
        let above = |most: u64| {
            u128::from(split.offer.cost) * u128::from(left) > u128::from(most) * u128::from(split.offer.size)
        };
        match phase {
            // A set that costs less.
            Phase::Cost => spare.checked_sub(1).is_none_or(|most| left > 0 && above(most)),
            // Or as much.
            Phase::Both | Phase::Ties => left > 0 && above(spare),
        }
    }

    /// Takes note of a set that covers the need.
    fn offer(&mut self, taken: &[usize], last: usize, cost: u64, bytes: u64, phase: Phase) {
        let better = match (cost.cmp(&self.best.cost), phase) {
            (Ordering::Less, _) => true,
            (Ordering::Equal, Phase::Both | Phase::Ties) => {
                let count = self.base.taken.len() + taken.len() + 1;
                let order = (bytes, count).cmp(&(self.best.bytes, self.best.taken.len()));
                order.is_lt()
                    || (order.is_eq()
                        && sorted(self.places(taken, last).collect()) < sorted(self.best.taken.clone()))
            }
            _ => false,
        };
        if better {
            let mut places = std::mem::take(&mut self.best.taken);
            places.clear();
            places.extend(self.places(taken, last));
            self.best = Best { cost, bytes, taken: places };
        }
    }

    fn places(&self, taken: &[usize], last: usize) -> impl Iterator<Item = usize> {
        let found = taken.iter().copied().chain([last]).map(|at| self.spots[at].place);
        self.base.taken.iter().copied().chain(found)
    }
}

/// Leaves out, dearest first, what the others cover as well.
fn drop_redundant(offers: &[Offer], need: u64, chosen: &mut Vec<usize>) {
    let given: u64 = chosen.iter().map(|place| offers[*place].size).sum();
    let mut spare = given - need;
    let dearest = |place: &usize| (offers[*place].cost, offers[*place].bytes, std::cmp::Reverse(*place));
    while let Some(place) =
        chosen.iter().copied().filter(|place| offers[*place].size <= spare).max_by_key(dearest)
    {
        spare -= offers[place].size;
        chosen.retain(|kept| *kept != place);
    }
}
