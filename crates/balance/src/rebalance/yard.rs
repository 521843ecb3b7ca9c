//! Parcels with a source and a target, and places with rooms, in plain numbers.
//!
//! What lies at a source is freed only when it has arrived.

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

    /// What an act sends, loads or drops.
    pub(crate) fn size(&self, act: Act) -> u64 {
        match (act, self.adds(act)) {
            (_, Some((_, bytes))) => bytes,
            (Act::Drop(parcel), None) => self.lies(parcel),
            (_, None) => 0,
        }
    }

    /// What a parcel takes where it is.
    fn lies(&self, number: usize) -> u64 {
        let parcel = &self.parcels[number];
        match self.at[number] {
            Some(at) if at == parcel.from => parcel.leaves,
            Some(_) => self.aside(number),
            None => 0,
        }
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
            self.shrink(before, self.lies(number));
            if first {
                self.pending[before] -= 1;
                self.settle(before);
            }
        }
        self.at[number] = now;
        self.done[number] = matches!(act, Act::Move(_) | Act::Load(_));
    }

    pub(crate) fn run(&mut self, act: Act) {
        self.begin(act);
        self.end(act);
    }

    /// What brings a parcel to its target from where it is.
    pub(crate) fn last_act(&self, parcel: usize) -> Act {
        if self.at[parcel].is_some() { Act::Move(parcel) } else { Act::Load(parcel) }
    }

    pub(crate) fn left(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.parcels.len()).filter(|&parcel| !self.done[parcel])
    }
}
