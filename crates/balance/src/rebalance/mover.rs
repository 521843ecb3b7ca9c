//! In which order parts can move when every pool and every device has only so much room.
//!
//! Plain numbers: parcels with a source and a target, places with rooms. What lies at a source is freed only when it has
//! arrived.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// More parcels than this are not searched exactly.
const EXACT: usize = 16;

/// How many moves are taken back in all, and how far back they may lie.
const UNDOS: usize = 64;
const LOOK_BACK: usize = 8;

/// So many parcels, the smallest ones, are looked at for whether setting them aside opens the way.
const SMALLEST: usize = 64;

/// A place, with what the engine keeps there beside the parcels.
#[derive(Clone, Debug)]
pub(crate) struct Dock {
    /// Its pool; `None` where its contents are lost.
    pub(crate) pool: Option<usize>,
    /// The most that may lie on it.
    pub(crate) limit: u64,
    /// What lies on it, all of it.
    pub(crate) holds: u64,
    /// What of that goes away once everything has left that has to.
    pub(crate) frees: u64,
    /// Whether something may be set aside here.
    pub(crate) spare: bool,
}

/// Something that moves as one.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// What it takes where it lies, and where it goes.
    pub(crate) leaves: u64,
    pub(crate) arrives: u64,
}

/// One thing that is done to a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It goes to its target, from where it is.
    Move(usize),
    /// It goes aside, to a place that is not its target.
    Spill(usize, usize),
    /// It is freed, to be loaded again.
    Drop(usize),
    /// It comes from the store.
    Load(usize),
}

impl Act {
    /// What it is done to.
    pub(crate) fn parcel(self) -> usize {
        match self {
            Self::Move(n) | Self::Load(n) | Self::Drop(n) | Self::Spill(n, _) => n,
        }
    }
}

/// Moves that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    /// Places, each of which waits for the next one.
    pub(crate) cycle: Vec<usize>,
    /// The smallest parcel that would open it, if there were room for it.
    pub(crate) scratch: u64,
}

/// What lies where.
#[derive(Clone, Debug)]
pub(crate) struct Yard {
    pub(crate) docks: Vec<Dock>,
    /// What lies in every pool, and the most that may.
    pub(crate) used: Vec<u64>,
    pub(crate) budgets: Vec<u64>,
    pub(crate) parcels: Vec<Parcel>,
    /// Where every parcel is: `None` where it has been dropped or was lost.
    pub(crate) at: Vec<Option<usize>>,
    /// Whether it has arrived.
    pub(crate) done: Vec<bool>,
    /// Parcels that have yet to leave each place.
    pending: Vec<usize>,
}

impl Yard {
    pub(crate) fn new(docks: Vec<Dock>, budgets: Vec<u64>, parcels: Vec<Parcel>) -> Self {
        let mut used = vec![0_u64; budgets.len()];
        for dock in &docks {
            if let Some(pool) = dock.pool {
                used[pool] = used[pool].saturating_add(dock.holds);
            }
        }
        let mut pending = vec![0; docks.len()];
        let mut at = Vec::with_capacity(parcels.len());
        for parcel in &parcels {
            let alive = docks[parcel.from].pool.is_some();
            pending[parcel.from] += usize::from(alive);
            at.push(alive.then_some(parcel.from));
        }
        let done = vec![false; parcels.len()];
        let mut yard = Self { docks, used, budgets, parcels, at, done, pending };
        for dock in 0..yard.docks.len() {
            yard.settle(dock);
        }
        yard
    }

    /// Frees what a place no longer needs once everything has left it.
    fn settle(&mut self, dock: usize) {
        if self.pending[dock] == 0 {
            let frees = std::mem::take(&mut self.docks[dock].frees);
            self.shrink(dock, frees);
        }
    }

    fn shrink(&mut self, dock: usize, bytes: u64) {
        let place = &mut self.docks[dock];
        place.holds = place.holds.saturating_sub(bytes);
        if let Some(pool) = place.pool {
            self.used[pool] = self.used[pool].saturating_sub(bytes);
        }
    }

    fn grow(&mut self, dock: usize, bytes: u64) {
        let place = &mut self.docks[dock];
        place.holds = place.holds.saturating_add(bytes);
        if let Some(pool) = place.pool {
            self.used[pool] = self.used[pool].saturating_add(bytes);
        }
    }

    /// How much more fits on a place.
    pub(crate) fn free(&self, dock: usize) -> u64 {
        let place = &self.docks[dock];
        let Some(pool) = place.pool else { return 0 };
        let in_pool = self.budgets[pool].saturating_sub(self.used[pool]);
        in_pool.min(place.limit.saturating_sub(place.holds))
    }

    /// How much more an act adds, and where.
    fn adds(&self, act: Act) -> Option<(usize, u64)> {
        match act {
            Act::Move(parcel) | Act::Load(parcel) => {
                let parcel = &self.parcels[parcel];
                Some((parcel.to, parcel.arrives))
            }
            Act::Spill(parcel, aside) => Some((aside, self.aside(parcel))),
            Act::Drop(_) => None,
        }
    }

    /// What a parcel takes where it is set aside: the more of the two, for buffers there may round in either way.
    pub(crate) fn aside(&self, parcel: usize) -> u64 {
        self.parcels[parcel].leaves.max(self.parcels[parcel].arrives)
    }

    /// Whether there is room for an act.
    pub(crate) fn fits(&self, act: Act) -> bool {
        self.adds(act).is_none_or(|(dock, bytes)| bytes <= self.free(dock))
    }

    /// Takes the room that an act needs.
    pub(crate) fn begin(&mut self, act: Act) {
        if let Some((dock, bytes)) = self.adds(act) {
            self.grow(dock, bytes);
        }
    }

    /// Frees what an act leaves behind.
    pub(crate) fn end(&mut self, act: Act) {
        let (number, now) = match act {
            Act::Move(parcel) | Act::Load(parcel) => (parcel, Some(self.parcels[parcel].to)),
            Act::Spill(parcel, aside) => (parcel, Some(aside)),
            Act::Drop(parcel) => (parcel, None),
        };
        if let Some(before) = self.at[number] {
            let first = before == self.parcels[number].from;
            let size = if first { self.parcels[number].leaves } else { self.aside(number) };
            self.shrink(before, size);
            if first {
                self.pending[before] -= 1;
                self.settle(before);
            }
        }
        self.at[number] = now;
        self.done[number] = matches!(act, Act::Move(_) | Act::Load(_));
    }

    fn run(&mut self, act: Act) {
        self.begin(act);
        self.end(act);
    }

    /// What brings a parcel to its target from where it is.
    fn last_act(&self, parcel: usize) -> Act {
        if self.at[parcel].is_some() { Act::Move(parcel) } else { Act::Load(parcel) }
    }

    fn left(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.parcels.len()).filter(|&parcel| !self.done[parcel])
    }
}

/// An order in which everything arrives.
///
/// With few parcels, one without anything sent twice is found whenever there is one. With more, moves out of places that
/// others wait for go first, then the largest; where that leads into a dead end, the last move before it is taken back and
/// left for later. Only then something is set aside: the smallest parcel that opens the way, on the place with most room;
/// and last, where that is allowed, dropped and loaded again.
pub(crate) fn order(yard: &Yard, may_drop: bool) -> Result<Vec<Act>, Stuck> {
    let count = yard.parcels.len();
    if count <= EXACT
        && let Some(acts) = directly(yard)
    {
        return Ok(acts);
    }
    let start = yard;
    let mut yard = yard.clone();
    let mut acts: Vec<Act> = Vec::new();
    let mut waiting = Waiting::new(&yard);
    while waiting.left > 0 {
        if let Some(act) = waiting.next(&yard) {
            waiting.run(&mut yard, act);
            acts.push(act);
            continue;
        }
        if let Some((kept, before, taken_back)) = undo(start, &acts, &waiting.put_off) {
            (acts, yard) = (kept, before);
            let mut put_off = std::mem::take(&mut waiting.put_off);
            put_off.insert(taken_back);
            waiting = Waiting { put_off, ..Waiting::new(&yard) };
            continue;
        }
        let aside = aside(&yard).or_else(|| may_drop.then(|| drop_one(&yard)).flatten());
        let Some(act) = aside else { return Err(stuck(&yard)) };
        waiting.run(&mut yard, act);
        acts.push(act);
    }
    Ok(acts)
}

/// One of the last moves before a dead end, left out: what remains, and the parcel that it moved.
///
/// Only where every other act still has room without it, and something else can go on; none is taken back twice.
fn undo(start: &Yard, acts: &[Act], put_off: &BTreeSet<usize>) -> Option<(Vec<Act>, Yard, usize)> {
    if put_off.len() >= UNDOS {
        return None;
    }
    for back in 1..=acts.len().min(LOOK_BACK) {
        let at = acts.len() - back;
        let Act::Move(parcel) = acts[at] else { return None };
        if put_off.contains(&parcel) {
            continue;
        }
        let mut kept = acts.to_vec();
        kept.remove(at);
        let mut yard = start.clone();
        let all_fit = kept.iter().all(|&act| {
            let fits = yard.fits(act);
            if fits {
                yard.run(act);
            }
            fits
        });
        let goes_on = all_fit && yard.left().any(|other| other != parcel && yard.fits(yard.last_act(other)));
        if goes_on {
            return Some((kept, yard, parcel));
        }
    }
    None
}

/// Parcels by where they go, the largest first.
struct Waiting {
    /// For each place, parcels that go there: by their size, the largest last.
    to: Vec<BTreeSet<(u64, Reverse<usize>)>>,
    /// Places that may have got room since they were last looked at.
    fresh: BTreeSet<usize>,
    /// How many have yet to arrive.
    left: usize,
    /// Parcels that go last, having led into a dead end.
    put_off: BTreeSet<usize>,
}

impl Waiting {
    fn new(yard: &Yard) -> Self {
        let mut to = vec![BTreeSet::new(); yard.docks.len()];
        let mut left = 0;
        for number in yard.left() {
            let parcel = &yard.parcels[number];
            to[parcel.to].insert((parcel.arrives, Reverse(number)));
            left += 1;
        }
        let fresh = (0..yard.docks.len()).filter(|&dock| !to[dock].is_empty()).collect();
        Self { to, fresh, left, put_off: BTreeSet::new() }
    }

    /// The parcel to move next: of those that fit, one whose source most others wait for; of these the largest.
    fn next(&mut self, yard: &Yard) -> Option<Act> {
        const LOOKED_AT: usize = 8;
        let mut best: Option<((bool, usize, u64, Reverse<usize>), usize)> = None;
        let mut dead = Vec::new();
        for &dock in &self.fresh {
            let free = yard.free(dock);
            let fitting = self.to[dock].range(..=(free, Reverse(0)));
            let mut any = false;
            for &(size, Reverse(number)) in fitting.rev().take(LOOKED_AT) {
                any = true;
                let waiting = yard.at[number].map_or(0, |at| self.to[at].len());
                let key = (!self.put_off.contains(&number), waiting, size, Reverse(number));
                if best.is_none_or(|(most, _)| key > most) {
                    best = Some((key, number));
                }
            }
            if !any {
                dead.push(dock);
            }
        }
        for dock in dead {
            self.fresh.remove(&dock);
        }
        best.map(|(_, number)| yard.last_act(number))
    }

    fn run(&mut self, yard: &mut Yard, act: Act) {
        let number = act.parcel();
        let before = yard.at[number];
        yard.run(act);
        if yard.done[number] {
            let parcel = &yard.parcels[number];
            self.to[parcel.to].remove(&(parcel.arrives, Reverse(number)));
            self.left -= 1;
        }
        // What was freed may let something in, anywhere in the same pool.
        if let Some(freed) = before {
            for dock in 0..yard.docks.len() {
                let same = dock == freed || yard.docks[dock].pool == yard.docks[freed].pool;
                if same && !self.to[dock].is_empty() {
                    self.fresh.insert(dock);
                }
            }
        }
    }
}

/// An order in which every parcel moves once, if there is one: a search over sets of arrived parcels.
fn directly(yard: &Yard) -> Option<Vec<Act>> {
    let count = yard.parcels.len();
    let all = (1_usize << count) - 1;
    let mut seen = vec![false; all + 1];
    let mut path: Vec<(Yard, usize, usize)> = vec![(yard.clone(), 0, 0)];
    let mut acts = Vec::new();
    seen[0] = true;
    loop {
        let (now, set, next) = path.last_mut()?;
        if *set == all {
            return Some(acts);
        }
        let found = (*next..count).find(|&parcel| {
            let bit = 1 << parcel;
            *set & bit == 0 && !seen[*set | bit] && now.fits(now.last_act(parcel))
        });
        match found {
            Some(parcel) => {
                *next = parcel + 1;
                let act = now.last_act(parcel);
                let set = *set | 1 << parcel;
                let mut after = now.clone();
                after.run(act);
                seen[set] = true;
                acts.push(act);
                path.push((after, set, 0));
            }
            None => {
                path.pop();
                acts.pop();
            }
        }
    }
}

/// The smallest parcel whose leaving lets another one in at once, else the smallest that can be set aside at all, to the
/// place with most room.
fn aside(yard: &Yard) -> Option<Act> {
    // What has been set aside once waits there.
    let first = |&number: &usize| yard.at[number] == Some(yard.parcels[number].from);
    let mut parcels: Vec<usize> = yard.left().filter(first).collect();
    parcels.sort_by_key(|&number| (yard.aside(number), number));
    let acts: Vec<Act> = parcels
        .into_iter()
        .filter_map(|number| {
            let parcel = &yard.parcels[number];
            let (from, to) = (yard.docks[parcel.from].pool, yard.docks[parcel.to].pool);
            let places = (0..yard.docks.len()).filter(|&dock| {
                let place = &yard.docks[dock];
                place.spare && place.pool != from && place.pool != to
            });
            let place = places.max_by_key(|&dock| (yard.free(dock), Reverse(dock)))?;
            (yard.aside(number) <= yard.free(place)).then_some(Act::Spill(number, place))
        })
        .take(SMALLEST)
        .collect();
    acts.iter().copied().find(|&act| opens(yard, act)).or(acts.first().copied())
}

/// Whether something can arrive right after an act that could not before.
fn opens(yard: &Yard, act: Act) -> bool {
    let mut after = yard.clone();
    after.run(act);
    after.left().any(|other| other != act.parcel() && after.fits(after.last_act(other)))
}

/// The smallest parcel whose leaving lets another one in, else the smallest of all, to be loaded again.
fn drop_one(yard: &Yard) -> Option<Act> {
    let mut lying: Vec<usize> = yard.left().filter(|&number| yard.at[number].is_some()).collect();
    lying.sort_by_key(|&number| (yard.parcels[number].leaves, number));
    let acts = || lying.iter().map(|&number| Act::Drop(number));
    acts().take(SMALLEST).find(|&act| opens(yard, act)).or(acts().next())
}

/// A cycle of places that wait for each other, and what would open it.
///
/// Every parcel that is left goes to a place that has too little room, and there is something left that has to leave that
/// place or its pool: following these from place to place comes back to where it was.
fn stuck(yard: &Yard) -> Stuck {
    let mut by_source: Vec<Vec<usize>> = vec![Vec::new(); yard.docks.len()];
    for number in yard.left() {
        if let Some(at) = yard.at[number] {
            by_source[at].push(number);
        }
    }
    let leaving = |dock: usize| {
        let pool = yard.docks[dock].pool;
        let mine = by_source[dock].first().map(|&n| (dock, n));
        mine.or_else(|| {
            let others = (0..yard.docks.len()).filter(|&d| yard.docks[d].pool == pool);
            others.filter_map(|d| by_source[d].first().map(|&n| (d, n))).next()
        })
    };
    let mut path: Vec<usize> = Vec::new();
    let mut at = yard.left().next().map(|number| yard.parcels[number].to);
    while let Some(dock) = at {
        let Some((source, number)) = leaving(dock) else { break };
        if let Some(seen) = path.iter().position(|&d| d == source) {
            path.drain(..seen);
            break;
        }
        path.push(source);
        at = Some(yard.parcels[number].to);
    }
    let on_path = path.iter().flat_map(|&dock| by_source[dock].iter());
    let scratch = on_path.map(|&number| yard.aside(number)).min().unwrap_or(0);
    Stuck { cycle: path, scratch }
}
