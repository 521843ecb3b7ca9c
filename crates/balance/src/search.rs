//! The regimes of an engine, each an ordinary problem of the core.
//!
//! What an engine charges depends on who takes part: everything on the main host; everything on one device, or on several;
//! a first part on the host. Each is a problem of its own, solved on its own, and the best plan of all is kept. A problem
//! never lets one device hold everything where that is another regime.

mod pinned;
mod pools;

use crate::assemble::{Assembled, Draft};
use crate::context::Context;
use crate::core::bounds;
use crate::core::effort::Effort;
use crate::core::solve::{Goal, Solved, Tries, solve};
use crate::core::{Placement, Problem, Slot, as_f64, transfer};
use crate::items::Fold;
use crate::keep::{Kept, as_good_as};
use crate::workload::{Objective, StageCharges, Strategy};

/// What was found, and what is proven.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    context: &'a Context<'a>,
    /// The best plans.
    kept: Kept,
    /// Nothing is better than this; infinite while nothing can fit.
    pub(crate) lower: f64,
    /// How many bytes were short in the best attempt.
    pub(crate) short: Option<u64>,
    /// What is left to be looked at where devices share pools.
    effort: Effort,
}

/// A problem, and what its slots and items stand for.
#[derive(Debug)]
pub(crate) struct Posed {
    pub(crate) problem: Problem,
    /// The devices of the slots, as indices into the fleet.
    pub(crate) devices: Vec<usize>,
    pub(crate) fold: Fold,
    host: usize,
    /// What lies on the main host.
    host_uses: u64,
    /// How many bytes are short on a device for what is pinned to it; nothing can be placed then.
    pinned_short: Option<u64>,
}

/// Devices, each with the most that it may take of its pool.
type Choice = Vec<(usize, u64)>;

impl<'a> Search<'a> {
    /// Before anything was searched.
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            kept: Kept::new(context),
            lower: f64::INFINITY,
            short: None,
            effort: Effort::new(pools::STEPS),
        }
    }

    /// Searches every regime.
    pub(crate) fn run(context: &'a Context<'a>) -> Self {
        let mut search = Self::new(context);
        if context.fleet.host.is_some() {
            search.around_the_host()
        } else {
            search.devices_only()
        }
        search
    }

    fn devices_only(&mut self) {
        self.single_devices();
        let lower = self.split(0, 0, 0);
        self.lower = self.lower.min(lower);
    }

    /// Every layer on one device.
    fn single_devices(&mut self) {
        if self.context.limit == 0 {
            return;
        }
        let layers = self.context.items.layers();
        for device in 0..self.context.fleet.devices.len() {
            if !self.context.pins.allow_alone(Some(device)) {
                continue;
            }
            let draft = Draft { host: 0, devices: vec![(device, 0..layers, true)] };
            if let Some(value) = self.offer(draft) {
                self.lower = self.lower.min(value);
            }
        }
    }

    /// The best plan of all that were found.
    pub(crate) fn best(&mut self) -> Option<Assembled> {
        std::mem::replace(&mut self.kept, Kept::new(self.context)).choose()
    }

    /// Assembles a draft and keeps it when it may be the best; its value when it fits.
    fn offer(&mut self, draft: Draft) -> Option<f64> {
        match draft.assemble(self.context) {
            Ok(assembled) => {
                let value = assembled.value;
                self.kept.offer(assembled);
                Some(value)
            }
            Err(short) => {
                self.lacks(short);
                None
            }
        }
    }

    pub(crate) fn lacks(&mut self, bytes: u64) {
        self.short = Some(self.short.map_or(bytes, |short| short.min(bytes)));
    }

    /// The main host holds what the engine keeps there and the first `n` layers, for every `n`.
    fn around_the_host(&mut self) {
        let last = self.context.items.cuts.len() - 1;
        let comes_last = self.context.host_comes_last();
        if !comes_last && let Some(value) = self.everything_on_the_host() {
            self.lower = self.lower.min(value);
        }
        let mut earlier_excluded = true;
        // Pins to the host and to devices say how many layers it holds at least and at most.
        let pins = &self.context.pins;
        let cuts = &self.context.items.cuts;
        let first = cuts.partition_point(|&layers| layers < pins.host_at_least());
        let last_cut =
            pins.host_at_most().map_or(last, |most| cuts.partition_point(|&layers| layers <= most) - 1);
        for cut in first..=last_cut {
            let Some(used) = self.host_holds(cut) else { break };
            let pace = self.host_pace(cut);
            if !comes_last && self.kept.value().is_some_and(|best| pace > as_good_as(best)) {
                self.lower = self.lower.min(pace);
                break;
            }
            if cut == 0 {
                self.single_devices();
            }
            let lower = self.split(cut, used, self.context.items.cuts[cut]);
            self.lower = self.lower.min(lower);
            if !comes_last {
                continue;
            }
            if cut == last
                && let Some(value) = self.everything_on_the_host()
            {
                self.lower = self.lower.min(value);
            }
            if !self.kept.is_empty() {
                // With fewer layers on the host there is no plan, or none is known of.
                self.lower = if earlier_excluded { self.lower } else { 0.0 };
                return;
            }
            earlier_excluded &= self.lower == f64::INFINITY;
        }
        if comes_last && let Some(value) = self.everything_on_the_host() {
            self.lower = if earlier_excluded { value } else { 0.0 };
        }
    }

    fn everything_on_the_host(&mut self) -> Option<f64> {
        if !self.context.fleet.host.as_ref()?.takes_layers || !self.context.pins.allow_alone(None) {
            return None;
        }
        self.offer(Draft { host: self.context.items.layers(), devices: Vec::new() })
    }

    /// What lies on the main host with the layers up to a cut; `None` when it cannot.
    fn host_holds(&mut self, cut: usize) -> Option<u64> {
        let host = self.context.fleet.host.as_ref()?;
        let class = self.context.class(host.place.backend);
        let layers = self.context.items.cuts[cut];
        let shared = if layers == 0 { 0 } else { class.each_device };
        let charge = self.context.rules.charges.host.get();
        let parts = [class.resident(0, layers), shared, class.input, charge];
        let used = parts.into_iter().fold(0_u64, u64::saturating_add);
        let budget = self.context.fleet.budget(&host.place);
        if used > budget {
            // With layers on it, more memory here would still leave the rest of them to the devices.
            if layers <= self.context.pins.host_at_least() {
                self.lacks(used - budget);
            }
        }
        (used <= budget && (cut == 0 || host.takes_layers)).then_some(used)
    }

    /// What the layers on the host alone cost in time.
    fn host_pace(&self, cut: usize) -> f64 {
        let layers = 0..self.context.items.cuts[cut];
        match &self.context.fleet.host {
            Some(host) if self.context.timed() => self.context.seconds(&host.place, &layers, false),
            _ => 0.0,
        }
    }

    /// Devices hold everything from a cut on; what is proven of that.
    fn split(&mut self, cut: usize, host_uses: u64, host_layers: usize) -> f64 {
        let pace = self.host_pace(cut);
        let host_budget =
            self.context.fleet.host.as_ref().map_or(1, |host| self.context.fleet.budget(&host.place));
        let host_share = if host_layers > 0 { as_f64(host_uses) / as_f64(host_budget.max(1)) } else { 0.0 };
        let with_host = |lower: f64| match self.context.options.objective {
            Objective::Latency => lower + pace,
            Objective::Throughput => lower.max(pace),
            Objective::Fit if host_layers > 0 => lower + 1.0,
            Objective::Fit => lower,
            Objective::Balanced => lower.max(host_share),
        };
        let without_host = |best: f64| match self.context.options.objective {
            Objective::Latency => best - pace,
            Objective::Fit if host_layers > 0 => best - 1.0,
            Objective::Throughput | Objective::Balanced | Objective::Fit => best,
        };
        let relaxed = self.posed(cut, host_uses, host_layers, None);
        if let Some(short) = relaxed.pinned_short {
            self.lacks(short);
            return f64::INFINITY;
        }
        if relaxed.problem.slots.is_empty() || relaxed.problem.limit == 0 {
            return f64::INFINITY;
        }
        if !bounds::hopeless(&relaxed.problem) && !self.kept.is_empty() && !self.context.host_comes_last() {
            let lower = with_host(self.bound(&relaxed.problem));
            if self.kept.value().is_some_and(|best| lower > as_good_as(best)) {
                return lower;
            }
        }
        let choices = self.choices(&relaxed);
        let mut lower = f64::INFINITY;
        for choice in &choices {
            let posed = match choice {
                None => self.posed(cut, host_uses, host_layers, None),
                Some(_) => self.posed(cut, host_uses, host_layers, choice.as_deref()),
            };
            if let Some(short) = posed.pinned_short {
                self.lacks(short);
            } else if !posed.problem.slots.is_empty() {
                lower = lower.min(self.solved(&posed));
            }
        }
        if choices.iter().any(Option::is_some) {
            let best = self.kept.value().map_or(f64::INFINITY, without_host);
            lower = match self.sharing(&relaxed, best) {
                Some(lower) => lower,
                // Not every use of the pools was tried: only what holds for any is proven.
                None => self.relaxed_bound(&relaxed.problem),
            };
        }
        with_host(lower)
    }

    fn bound(&self, problem: &Problem) -> f64 {
        match self.context.options.objective {
            Objective::Latency => bounds::latency(problem),
            Objective::Throughput | Objective::Balanced => bounds::min_max(problem),
            Objective::Fit => bounds::fewest(problem).map_or(f64::INFINITY, count),
        }
    }

    /// Solves a problem and offers what comes out; what is proven of it.
    fn solved(&mut self, posed: &Posed) -> f64 {
        let goal = self.goal();
        let tries = self.tries(posed);
        let Solved { placement, lower, missing } = match self.context.counted() {
            Some(counted) => {
                let lead = self.host_pace(posed.fold.from);
                transfer::solve(&posed.problem, counted, lead, &tries)
            }
            None => solve(&posed.problem, goal, &tries),
        };
        if let Some(missing) = missing {
            self.lacks(missing);
        }
        if let Some(placement) = placement {
            self.offer_placement(posed, &placement);
        }
        lower
    }

    /// Offers what a placement of a problem stands for.
    fn offer_placement(&mut self, posed: &Posed, placement: &Placement) {
        let stages = placement.stages().map(|(slot, start, end)| {
            let (layers, head) = self.context.items.unfold(&posed.fold, start, end);
            (posed.devices[slot], layers, head)
        });
        self.offer(Draft { host: posed.host, devices: stages.collect() });
    }

    fn goal(&self) -> Goal {
        match self.context.options.objective {
            Objective::Fit => Goal::Fewest,
            Objective::Latency => Goal::Sum,
            Objective::Throughput | Objective::Balanced => Goal::MinMax,
        }
    }

    pub(crate) fn tries(&self, posed: &Posed) -> Tries {
        match self.context.options.strategy {
            Strategy::Portfolio => Tries::Portfolio,
            Strategy::CapacityDescending => Tries::LargestFirst,
            Strategy::GivenOrder => {
                let mut order: Vec<usize> = (0..posed.devices.len()).collect();
                order.sort_by_key(|&slot| self.context.fleet.devices[posed.devices[slot]].given);
                Tries::Given(order)
            }
        }
    }

    /// The problem from a cut on, with only some devices where `chosen` says which.
    pub(crate) fn posed(
        &self,
        cut: usize,
        host_uses: u64,
        host_layers: usize,
        chosen: Option<&[(usize, u64)]>,
    ) -> Posed {
        let context = self.context;
        let with_host = context.fleet.host.as_ref();
        let charges =
            if host_layers > 0 { &context.rules.charges.partial } else { &context.rules.charges.split };
        let fold = Fold {
            from: cut,
            input: with_host.is_none(),
            first_more: charges.first_more.get(),
            last_more: charges.last_more.get(),
            lone_head: with_host.is_some(),
            whole: host_layers > 0,
            touched: context.timed(),
        };
        let (chains, class_of) = self.chains(&fold);
        let mut pinned_short = None;
        let mut devices = Vec::new();
        let mut slots = Vec::new();
        for (number, device) in context.fleet.devices.iter().enumerate() {
            let most = chosen.map_or(Some(u64::MAX), |chosen| {
                chosen.iter().find(|choice| choice.0 == number).map(|choice| choice.1)
            });
            let Some(most) = most else { continue };
            let taken = with_host.filter(|host| host.place.pool == device.pool).map_or(0, |_| host_uses);
            let pool = context.fleet.pools.get(device.pool).copied().unwrap_or(0);
            let budget = pool.saturating_sub(taken).min(device.limit).min(most);
            let class = class_of(number);
            let slot = slot(context, charges, device, class, budget);
            if let Some(hull) = context.pins.of(Some(number)) {
                let item = context.items.item(&fold, hull.layers.start);
                let needs = chains[class].load(item, item + 1);
                let room = slot.map_or(0, |slot| slot.room);
                if slot.is_none() || needs > room {
                    let own = charges.each.get().saturating_add(context.class(device.backend).each_device);
                    let short = needs.saturating_add(own).saturating_sub(budget);
                    pinned_short = Some(pinned_short.map_or(short, |more: u64| more.max(short)));
                }
            }
            let Some(slot) = slot else { continue };
            let chain = &chains[class];
            if (0..chain.items()).any(|item| chain.load(item, item + 1) <= slot.room) {
                devices.push(number);
                slots.push(slot);
            }
        }
        let limit = context.limit.min(slots.len());
        let problem = Problem { chains: chains.into(), slots, hops: context.hops_from(cut), limit };
        Posed { problem, devices, fold, host: host_layers, host_uses, pinned_short }
    }
}

fn count(n: usize) -> f64 {
    as_f64(u64::try_from(n).unwrap_or(u64::MAX))
}

fn slot(
    context: &Context<'_>,
    charges: &StageCharges,
    device: &crate::fleet::Candidate,
    class: usize,
    budget: u64,
) -> Option<Slot> {
    let own = charges.each.get().saturating_add(context.class(device.backend).each_device);
    let room = budget.checked_sub(own)?;
    let group = context.group(&device.device.node);
    Some(if context.timed() {
        Slot { class, room, fixed: 0, rate: context.rate(device), group }
    } else {
        Slot { class, room, fixed: own, rate: as_f64(budget.max(1)), group }
    })
}
