//! The places that take part in a rebalancing, and what lies on them.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use super::given::{Change, Given, Lay, Run};
use super::mover::Stuck;
use super::types::Blocked;
use super::yard::{Dock, Parcel, Yard};

/// So many places with room, those with most, are looked at for setting things aside.
const SPARES: usize = 64;

/// The places that take part.
pub(crate) struct Plot<'a> {
    pub(crate) given: &'a Given<'a>,
    pub(crate) target: &'a Lay,
    /// Places by the numbers that docks have, and the other way.
    pub(crate) places: Vec<usize>,
    docks: BTreeMap<usize, usize>,
    /// What the engine keeps beside on each dock, now and afterwards, whatever stays included.
    pub(crate) beside: Vec<(u64, u64)>,
    /// What lies on each dock at first.
    holds: Vec<u64>,
    /// What of that the engine takes beside.
    pub(crate) own: Vec<u64>,
    pub(crate) keeps_order: bool,
    pub(crate) own_pools: bool,
    pub(crate) fits: bool,
    pub(crate) alive: bool,
}

impl<'a> Plot<'a> {
    pub(crate) fn new(given: &'a Given<'a>, target: &'a Lay, changes: &[Change]) -> Self {
        let mut places: Vec<usize> = given.old.runs.iter().chain(&target.runs).map(|run| run.place).collect();
        places.extend(given.in_flight.iter().flat_map(|(_, from, to)| [*from, *to]));
        places.sort_unstable();
        places.dedup();
        let involved = places.len();
        let docks: BTreeMap<usize, usize> = places.iter().copied().zip(0..).collect();
        let mut plot = Self {
            given,
            target,
            beside: vec![(0, 0); involved],
            holds: vec![0; involved],
            own: vec![0; involved],
            places,
            docks,
            keeps_order: false,
            own_pools: false,
            fits: false,
            alive: false,
        };
        plot.weigh(changes);
        plot.keeps_order = plot.same_order();
        plot.judge();
        plot.add_spares();
        plot
    }

    /// What lies on every dock now, and what the engine keeps there beside.
    fn weigh(&mut self, changes: &[Change]) {
        let given = self.given;
        // No device is in a plan twice.
        let total = |lay: &Lay, run: &Run| {
            let size = given.size_with(run.place, &run.parts, lay.has_input(run.place));
            size.saturating_add(run.own)
        };
        for run in &given.old.runs {
            let dock = self.docks[&run.place];
            self.holds[dock] = total(&given.old, run);
            self.own[dock] = run.own;
        }
        let mut after = vec![0_u64; self.places.len()];
        for run in &self.target.runs {
            after[self.docks[&run.place]] = total(self.target, run);
        }
        for (parts, from, to) in &given.in_flight {
            let leaves = given.size_with(*from, parts, given.old.has_input(*from));
            let arrives = given.size_with(*to, parts, self.target.has_input(*to));
            let (from, to) = (self.docks[from], self.docks[to]);
            after[from] = after[from].saturating_add(leaves);
            self.holds[to] = self.holds[to].saturating_add(arrives);
        }
        // What neither leaves nor arrives is kept beside, at what it takes now and then.
        let mut stays: Vec<(u64, u64)> = self.holds.iter().copied().zip(after).collect();
        for change in changes {
            let from = self.docks[&change.from];
            let to = self.docks[&change.to];
            stays[from].0 = stays[from].0.saturating_sub(given.leaves(change));
            stays[to].1 = stays[to].1.saturating_sub(given.arrives(self.target, change));
        }
        self.beside = stays;
    }

    /// Whether devices that hold something now and afterwards come in the same order.
    fn same_order(&self) -> bool {
        let mut rank: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, run) in self.given.old.runs.iter().enumerate() {
            rank.insert(run.place, at);
        }
        let ranks: Vec<usize> =
            self.target.runs.iter().filter_map(|run| rank.get(&run.place).copied()).collect();
        ranks.is_sorted() && self.given.in_flight.is_empty()
    }

    fn judge(&mut self) {
        let given = self.given;
        let alive = self.places.iter().filter_map(|&place| given.places[place].pool);
        let mut pools: Vec<usize> = alive.collect();
        let count = pools.len();
        pools.sort_unstable();
        pools.dedup();
        self.own_pools = pools.len() == count;
        self.alive = given.old.runs.iter().all(|run| given.places[run.place].pool.is_some());
        let budgets = &given.context.fleet.pools;
        let within = |at: usize| {
            let place = &given.places[self.places[at]];
            place.pool.is_none_or(|pool| self.holds[at] <= budgets[pool].min(place.limit))
        };
        self.fits = (0..self.places.len()).all(within);
    }

    /// Places with room for setting things aside.
    fn add_spares(&mut self) {
        let given = self.given;
        let budgets = &given.context.fleet.pools;
        let spare = |place: &usize| {
            let place = &given.places[*place];
            place.candidate.is_some_and(|c| c.is_some()) && place.pool.is_some()
        };
        let mut spares: Vec<usize> =
            (0..given.places.len()).filter(|place| !self.docks.contains_key(place)).filter(spare).collect();
        let room = |place: usize| {
            let place = &given.places[place];
            place.pool.map_or(0, |pool| budgets[pool]).min(place.limit)
        };
        spares.sort_by_key(|&place| (std::cmp::Reverse(room(place)), place));
        for place in spares.into_iter().take(SPARES) {
            self.docks.insert(place, self.places.len());
            self.places.push(place);
            self.beside.push((0, 0));
            self.holds.push(0);
            self.own.push(0);
        }
    }

    pub(crate) fn yard(&self, changes: &[Change]) -> Yard {
        let given = self.given;
        let docks = self.places.iter().enumerate().map(|(at, &number)| {
            let place = &given.places[number];
            let (now, then) = self.beside[at];
            Dock {
                pool: place.pool,
                limit: place.limit,
                holds: self.holds[at],
                frees: now.saturating_sub(then),
                spare: place.candidate.is_some_and(|c| c.is_some()),
            }
        });
        let parcels = changes.iter().map(|change| Parcel {
            from: self.docks[&change.from],
            to: self.docks[&change.to],
            leaves: given.leaves(change),
            arrives: given.arrives(self.target, change),
        });
        Yard::new(docks.collect(), given.context.fleet.pools.clone(), parcels.collect())
    }

    pub(crate) fn blocked(&self, stuck: &Stuck) -> Blocked {
        let name = |&dock: &usize| self.given.places[self.places[dock]].device.clone();
        Blocked { cycle: stuck.cycle.iter().map(name).collect(), scratch_bytes: Bytes::new(stuck.scratch) }
    }
}
