//! From the plan in force to a target, step by step.

use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use plimsoll_units::{Bytes, NodeId};

use super::given::{Change, Given, Lay};
use super::mover::{Act, Dock, Parcel, Stuck, Yard, order};
use super::types::{Blocked, LinkUse, PoolPeak, RebalanceOptions, Round, Schedule, Step, TimedStep};

/// So many places with room, those with most, are looked at for setting things aside.
const SPARES: usize = 64;

/// From more parts than this on, runs are moved as they are and not layer by layer.
const PARTS: usize = 50_000;

/// The way to a target.
pub(crate) fn schedule(
    given: &Given<'_>,
    target: &Lay,
    options: &RebalanceOptions,
) -> Result<Schedule, Blocked> {
    let changes = given.changes(target);
    let plot = Plot::new(given, target, &changes);
    let under_way = options.in_flight.len();
    let limit = usize::try_from(options.max_concurrent.get()).unwrap_or(usize::MAX);
    let limit = limit.saturating_sub(under_way).max(1);
    let yard = plot.yard(&changes);
    let one_pass = plot.keeps_order && plot.own_pools;
    let guaranteed = one_pass && plot.fits && plot.alive;
    if one_pass && let Some(rounds) = in_one_pass(&yard, limit) {
        return Ok(plot.told(&changes, yard, &rounds, options, guaranteed));
    }
    // Whole runs, where they can be ordered as they are; else layer by layer.
    let singles = singles(&changes);
    let as_runs =
        order(&yard, false).ok().filter(|acts| acts.iter().all(|a| matches!(a, Act::Move(_) | Act::Load(_))));
    let (changes, yard, acts) = match as_runs {
        Some(acts) => (changes, yard, acts),
        None => {
            let yard = plot.yard(&singles);
            let acts = order(&yard, options.may_drop).map_err(|stuck| plot.blocked(&stuck))?;
            (singles, yard, acts)
        }
    };
    let rounds = packed(&yard, &changes, &acts, limit);
    Ok(plot.told(&changes, yard, &rounds, options, false))
}

/// Changes cut into single parts.
fn singles(changes: &[Change]) -> Vec<Change> {
    if changes.iter().map(|change| change.parts.len()).sum::<usize>() > PARTS {
        return changes.to_vec();
    }
    let cut = |change: &Change| {
        let (from, to) = (change.from, change.to);
        change.parts.clone().map(move |part| Change { parts: part..part + 1, from, to })
    };
    changes.iter().flat_map(cut).collect()
}

/// The places that take part.
struct Plot<'a> {
    given: &'a Given<'a>,
    target: &'a Lay,
    /// Places by the numbers that docks have, and the other way.
    places: Vec<usize>,
    docks: BTreeMap<usize, usize>,
    /// What the engine keeps beside on each dock, now and afterwards, whatever stays included.
    beside: Vec<(u64, u64)>,
    /// What lies on each dock at first.
    holds: Vec<u64>,
    keeps_order: bool,
    own_pools: bool,
    fits: bool,
    alive: bool,
}

impl<'a> Plot<'a> {
    fn new(given: &'a Given<'a>, target: &'a Lay, changes: &[Change]) -> Self {
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
        let total = |lay: &Lay, place: usize| {
            let runs = lay.runs.iter().filter(|run| run.place == place);
            let sizes = runs.map(|run| given.size_with(place, &run.parts, lay.has_input(place)));
            sizes.fold(lay.own(place), u64::saturating_add)
        };
        for run in &given.old.runs {
            self.holds[self.docks[&run.place]] = total(&given.old, run.place);
        }
        let mut after = vec![0_u64; self.places.len()];
        for run in &self.target.runs {
            after[self.docks[&run.place]] = total(self.target, run.place);
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
        }
    }

    fn yard(&self, changes: &[Change]) -> Yard {
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

    fn blocked(&self, stuck: &Stuck) -> Blocked {
        let name = |&dock: &usize| self.given.places[self.places[dock]].device.clone();
        Blocked { cycle: stuck.cycle.iter().map(name).collect(), scratch_bytes: Bytes::new(stuck.scratch) }
    }

    /// Rounds with their steps, times and peaks.
    fn told(
        &self,
        changes: &[Change],
        mut yard: Yard,
        rounds: &[Vec<Act>],
        options: &RebalanceOptions,
        guaranteed: bool,
    ) -> Schedule {
        let mut told = Vec::with_capacity(rounds.len() + 1);
        let mut peaks = yard.used.clone();
        let mut extra = 0_u64;
        // Yards give back at once what nothing has to leave for.
        let mut charges = self.charges(|at| {
            let (now, then) = self.beside[at];
            now > then && yard.docks[at].frees == 0
        });
        for acts in rounds {
            let mut steps = std::mem::take(&mut charges);
            for &act in acts {
                extra = extra.saturating_add(match act {
                    Act::Spill(parcel, _) | Act::Drop(parcel) => yard.aside(parcel),
                    Act::Move(_) | Act::Load(_) => 0,
                });
            }
            steps.extend(self.steps(changes, &yard, acts));
            let waiting: Vec<bool> = yard.docks.iter().map(|dock| dock.frees > 0).collect();
            let (drops, moves): (Vec<Act>, Vec<Act>) = acts.iter().partition(|a| matches!(a, Act::Drop(_)));
            for act in drops {
                yard.begin(act);
                yard.end(act);
            }
            for &act in &moves {
                yard.begin(act);
            }
            for (peak, used) in peaks.iter_mut().zip(&yard.used) {
                *peak = (*peak).max(*used);
            }
            for &act in &moves {
                yard.end(act);
            }
            charges = self.charges(|at| waiting[at] && yard.docks[at].frees == 0);
            told.push(self.timed(steps, options));
        }
        charges.extend(self.charges(|at| self.beside[at].1 > self.beside[at].0));
        if !charges.is_empty() {
            told.push(self.timed(charges, options));
        }
        for (at, place) in self.places.iter().enumerate() {
            let (now, then) = self.beside[at];
            if let Some(pool) = self.given.places[*place].pool {
                yard.used[pool] = yard.used[pool].saturating_add(then.saturating_sub(now));
                peaks[pool] = peaks[pool].max(yard.used[pool]);
            }
        }
        Schedule {
            seconds: told.iter().map(|round| round.seconds).sum(),
            rounds: told,
            peaks: self.peaks(&peaks),
            extra_bytes: Bytes::new(extra),
            guaranteed,
        }
    }

    fn charges(&self, changes: impl Fn(usize) -> bool) -> Vec<Step> {
        let alive = |at: &usize| self.given.places[self.places[*at]].pool.is_some();
        let docks = (0..self.places.len()).filter(alive).filter(|&at| changes(at));
        docks
            .map(|at| {
                let place = self.places[at];
                let (now, then) = self.beside[at];
                let from = self.given.old.own(place);
                // Where the head takes more or less without moving, that is part of the change.
                let to = from.saturating_add(then).saturating_sub(now);
                let device = self.given.places[place].device.clone();
                Step::Charge { device, from: Bytes::new(from), to: Bytes::new(to) }
            })
            .collect()
    }

    /// Acts as steps; layers in a row that go the same way are one.
    fn steps(&self, changes: &[Change], yard: &Yard, acts: &[Act]) -> Vec<Step> {
        let mut runs: Vec<(u8, Option<usize>, Option<usize>, Range<usize>)> = Vec::new();
        let way = |act: Act| way(yard, act);
        let mut sorted: Vec<Act> = acts.to_vec();
        sorted.sort_by_key(|&act| (way(act).0 != DROP, changes[act.parcel()].parts.start));
        for act in sorted {
            let (kind, from, to) = way(act);
            let parts = changes[act.parcel()].parts.clone();
            match runs.last_mut() {
                Some(last) if (last.0, last.1, last.2, last.3.end) == (kind, from, to, parts.start) => {
                    last.3.end = parts.end;
                }
                _ => runs.push((kind, from, to, parts)),
            }
        }
        runs.into_iter().map(|(kind, from, to, parts)| self.step(kind, from, to, &parts)).collect()
    }

    fn step(&self, kind: u8, from: Option<usize>, to: Option<usize>, parts: &Range<usize>) -> Step {
        let given = self.given;
        let device = |dock: Option<usize>| given.places[self.places[dock.unwrap_or(0)]].device.clone();
        let place = |dock: Option<usize>| self.places[dock.unwrap_or(0)];
        let what = given.piece(parts);
        let arrives = |dock: Option<usize>| {
            let place = place(dock);
            Bytes::new(given.size_with(place, parts, self.target.has_input(place)))
        };
        match kind {
            MOVE => Step::Move { what, from: device(from), to: device(to), bytes: arrives(to) },
            SPILL => {
                let changes = given.changes(self.target);
                let change =
                    changes.iter().find(|c| c.parts.start <= parts.start && parts.end <= c.parts.end);
                let bytes = parts.clone().map(|part| {
                    change.map_or(0, |change| {
                        let one = Change { parts: part..part + 1, ..change.clone() };
                        given.leaves(&one).max(given.arrives(self.target, &one))
                    })
                });
                let bytes = Bytes::new(bytes.fold(0, u64::saturating_add));
                Step::Spill { what, from: device(from), to: device(to), bytes }
            }
            LOAD => Step::Load { what, to: device(to), bytes: arrives(to) },
            _ => {
                let at = place(from);
                let bytes = Bytes::new(given.size_with(at, parts, given.old.has_input(at)));
                Step::Drop { what, from: device(from), bytes, kv_bytes: Bytes::new(given.kv(at, parts)) }
            }
        }
    }

    fn timed(&self, steps: Vec<Step>, options: &RebalanceOptions) -> Round {
        let mut links: BTreeMap<[&NodeId; 2], (u64, crate::links::Way)> = BTreeMap::new();
        let mut timed = Vec::with_capacity(steps.len());
        for step in &steps {
            let seconds = match step {
                Step::Move { from, to, bytes, .. } | Step::Spill { from, to, bytes, .. } => {
                    if from.node == to.node {
                        options.local_rate.and_then(|rate| rate.seconds_for(*bytes))
                    } else {
                        let passed = self.given.context.links.passed(&from.node, &to.node);
                        let mut sum = 0.0;
                        for (between, way) in passed {
                            sum += way.seconds(*bytes);
                            let used = links.entry(between).or_insert((0, way));
                            used.0 = used.0.saturating_add(bytes.get());
                        }
                        Some(sum)
                    }
                }
                Step::Load { bytes, .. } => options.load_rate.and_then(|rate| rate.seconds_for(*bytes)),
                Step::Drop { .. } | Step::Charge { .. } => Some(0.0),
            };
            timed.push(seconds);
        }
        let links: Vec<LinkUse> = links
            .into_iter()
            .map(|(between, (bytes, way))| LinkUse {
                between: between.map(Clone::clone),
                bytes: Bytes::new(bytes),
                seconds: way.seconds(Bytes::new(bytes)),
            })
            .collect();
        let slowest: Option<f64> = timed.iter().copied().try_fold(0.0_f64, |most, s| Some(most.max(s?)));
        let seconds = slowest.map(|most| links.iter().map(|link| link.seconds).fold(most, f64::max));
        let steps = steps.into_iter().zip(timed).map(|(step, seconds)| TimedStep { step, seconds }).collect();
        Round { steps, links, seconds }
    }

    fn peaks(&self, peaks: &[u64]) -> Vec<PoolPeak> {
        let fleet = &self.given.context.fleet;
        let mut touched: Vec<usize> = Vec::new();
        for run in self.given.old.runs.iter().chain(&self.target.runs) {
            touched.extend(self.given.places[run.place].pool);
        }
        let mut all = Vec::new();
        let mut number = 0;
        for node in &self.given.context.snapshot.nodes {
            for pool in &node.pools {
                if touched.contains(&number) || peaks[number] > 0 {
                    all.push(PoolPeak {
                        node: node.id.clone(),
                        pool: pool.id.clone(),
                        peak_bytes: Bytes::new(peaks[number]),
                        budget_bytes: Bytes::new(fleet.pools[number]),
                    });
                }
                number += 1;
            }
        }
        all
    }
}

const MOVE: u8 = 0;
const SPILL: u8 = 1;
const LOAD: u8 = 2;
const DROP: u8 = 3;

/// What an act is, from which dock and to which.
fn way(yard: &Yard, act: Act) -> (u8, Option<usize>, Option<usize>) {
    let number = act.parcel();
    let (at, to) = (yard.at[number], yard.parcels[number].to);
    match act {
        Act::Move(_) => (MOVE, at, Some(to)),
        Act::Spill(_, aside) => (SPILL, at, Some(aside)),
        Act::Load(_) => (LOAD, None, Some(to)),
        Act::Drop(_) => (DROP, at, None),
    }
}

/// Rounds of at most `limit` moves where nothing is ever in the way: a place receives only once it has sent everything.
///
/// Where the order of the places is kept, what has to move from place to place has no cycle: across any cut between two
/// places everything goes one way. So there is always a place that has nothing left to send, and what lies on a place first
/// falls and then rises to what it holds at the end. Of the moves that may run, those that most others wait for go first.
/// `None` when some move has no room all the same.
fn in_one_pass(yard: &Yard, limit: usize) -> Option<Vec<Vec<Act>>> {
    let count = yard.docks.len();
    let mut sends = vec![0_usize; count];
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (number, parcel) in yard.parcels.iter().enumerate() {
        sends[parcel.from] += usize::from(yard.at[number].is_some());
        into[parcel.to].push(number);
    }
    let heights = heights(yard, &into, &sends)?;
    let mut ready: BinaryHeap<(usize, u64, std::cmp::Reverse<usize>)> = BinaryHeap::new();
    let key = |number: usize| (heights[number], yard.parcels[number].arrives, std::cmp::Reverse(number));
    for dock in (0..count).filter(|&dock| sends[dock] == 0) {
        ready.extend(into[dock].iter().map(|&number| key(number)));
    }
    let mut yard = yard.clone();
    let mut rounds = Vec::new();
    let mut left = yard.parcels.len();
    while left > 0 {
        let mut acts = Vec::new();
        while acts.len() < limit
            && let Some((_, _, std::cmp::Reverse(number))) = ready.pop()
        {
            let act = if yard.at[number].is_some() { Act::Move(number) } else { Act::Load(number) };
            if !yard.fits(act) {
                return None;
            }
            yard.begin(act);
            acts.push(act);
        }
        if acts.is_empty() {
            return None;
        }
        left -= acts.len();
        for &act in &acts {
            let from = yard.parcels[act.parcel()].from;
            yard.end(act);
            if matches!(act, Act::Move(_)) {
                sends[from] -= 1;
                if sends[from] == 0 {
                    ready.extend(into[from].iter().map(|&number| key(number)));
                }
            }
        }
        rounds.push(acts);
    }
    Some(rounds)
}

/// How many moves one after the other wait for each parcel; `None` when there is a cycle.
fn heights(yard: &Yard, into: &[Vec<usize>], sends: &[usize]) -> Option<Vec<usize>> {
    let mut heights = vec![1_usize; yard.parcels.len()];
    // From the places that receive nothing: what comes into a place waits for what leaves it.
    let mut receives: Vec<usize> = into.iter().map(Vec::len).collect();
    let mut from: Vec<Vec<usize>> = sends.iter().map(|&n| Vec::with_capacity(n)).collect();
    for (number, parcel) in yard.parcels.iter().enumerate() {
        from[parcel.from].push(number);
    }
    let mut queue: Vec<usize> = (0..into.len()).filter(|&dock| receives[dock] == 0).collect();
    let mut seen = 0;
    while let Some(dock) = queue.pop() {
        let longest = into[dock].iter().map(|&number| heights[number]).max().unwrap_or(0);
        for &number in &from[dock] {
            seen += 1;
            heights[number] = longest + 1;
            let to = yard.parcels[number].to;
            receives[to] -= 1;
            if receives[to] == 0 {
                queue.push(to);
            }
        }
    }
    (seen == yard.parcels.len()).then_some(heights)
}

/// Acts that follow each other, in rounds: one joins a round while there is room for it beside what the others have not
/// yet freed.
fn packed(yard: &Yard, changes: &[Change], acts: &[Act], limit: usize) -> Vec<Vec<Act>> {
    let mut yard = yard.clone();
    let mut rounds = Vec::new();
    let mut round: Vec<Act> = Vec::new();
    // What is copied at once in this round: its way, and the parts.
    let mut copies: Vec<(u8, Option<usize>, Option<usize>, Range<usize>)> = Vec::new();
    for &act in acts {
        let is_drop = matches!(act, Act::Drop(_));
        let parts = changes[act.parcel()].parts.clone();
        let again = round.iter().any(|other| other.parcel() == act.parcel());
        let (kind, from, to) = way(&yard, act);
        let beside = copies.iter().position(|c| {
            (c.0, c.1, c.2) == (kind, from, to) && (c.3.end == parts.start || c.3.start == parts.end)
        });
        let joins = !again
            && !(is_drop && !copies.is_empty())
            && (is_drop || beside.is_some() || copies.len() < limit)
            && yard.fits(act);
        if !joins {
            close(&mut yard, &mut round, &mut rounds);
            copies.clear();
        }
        let (kind, from, to) = way(&yard, act);
        yard.begin(act);
        if is_drop {
            let charged: u64 = yard.docks.iter().map(|dock| dock.frees).fold(0, u64::saturating_add);
            yard.end(act);
            round.push(act);
            // Room that the engine gives back is there from the next round on.
            if yard.docks.iter().map(|dock| dock.frees).fold(0, u64::saturating_add) < charged {
                close(&mut yard, &mut round, &mut rounds);
            }
            continue;
        }
        {
            match beside.filter(|_| joins) {
                Some(at) => {
                    let whole = &mut copies[at].3;
                    *whole = whole.start.min(parts.start)..whole.end.max(parts.end);
                }
                None => copies.push((kind, from, to, parts)),
            }
        }
        round.push(act);
    }
    close(&mut yard, &mut round, &mut rounds);
    rounds
}

fn close(yard: &mut Yard, round: &mut Vec<Act>, rounds: &mut Vec<Vec<Act>>) {
    for &act in round.iter().filter(|act| !matches!(act, Act::Drop(_))) {
        yard.end(act);
    }
    if !round.is_empty() {
        rounds.push(std::mem::take(round));
    }
}
