//! Devices that draw on one pool.

use super::{Choice, Posed, Search};
use crate::core::shared::{self, Pools};
use crate::core::{Problem, bounds, subset};
use crate::workload::{Objective, Strategy};

/// More ways to choose one device of each shared pool than this are not tried.
const CHOICES: usize = 64;

/// The most looks at what a device may hold beside others of its pool, for all numbers of layers on a host together.
pub(super) const STEPS: u64 = 8_000_000;

impl Search<'_> {
    pub(super) fn relaxed_bound(&self, problem: &Problem) -> f64 {
        if bounds::hopeless(problem) {
            return f64::INFINITY;
        }
        if self.kept.is_empty() && subset::is_never(problem) {
            return f64::INFINITY;
        }
        self.bound(problem)
    }

    /// Every use of the pools by several of their devices at once, where these are few: offers what is better than `best`,
    /// and says what is proven. `None` where that takes too long, or is not what was asked for.
    pub(super) fn sharing(&mut self, posed: &Posed, best: f64) -> Option<f64> {
        let context = self.context;
        if context.options.strategy != Strategy::Portfolio || context.counted().is_some() {
            return None;
        }
        let pools = pools(self, posed);
        let solved = shared::solve(&posed.problem, &pools, self.goal(), best, &self.effort)?;
        if let Some(placement) = &solved.placement {
            self.offer_placement(posed, placement);
        }
        Some(solved.lower)
    }

    /// Where several devices share a pool, every way to use one of each; a single `None` where none do.
    ///
    /// A pool of a device that has pins is that device's; where several of one pool have pins, all but one of them take no
    /// more than what is pinned there.
    pub(crate) fn choices(&self, posed: &Posed) -> Vec<Option<Choice>> {
        let devices = &self.context.fleet.devices;
        let mut distinct: Vec<usize> = posed.devices.iter().map(|&device| devices[device].pool).collect();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() == posed.devices.len() {
            return vec![None];
        }
        let mut pools: Vec<Vec<usize>> = Vec::new();
        for &device in &posed.devices {
            match pools.iter_mut().find(|pool| devices[pool[0]].pool == devices[device].pool) {
                Some(pool) => pool.push(device),
                None => pools.push(vec![device]),
            }
        }
        let mut choices: Vec<Choice> = vec![Vec::new()];
        for pool in &mut pools {
            pool.sort_by_key(|&d| (u64::MAX - self.context.fleet.budget(&devices[d]), d));
            let ways = self.ways(posed, pool);
            let more = if choices.len() * ways.len() > CHOICES { &ways[..1] } else { &ways[..] };
            let longer = choices.iter().flat_map(|choice| {
                more.iter().map(|way| choice.iter().chain(way).copied().collect::<Choice>())
            });
            choices = longer.collect();
        }
        choices.into_iter().map(Some).collect()
    }
}

/// Who draws on which pools, and how much is left of them beside a main host.
fn pools(search: &Search<'_>, posed: &Posed) -> Pools {
    let context = search.context;
    let fleet = &context.fleet;
    let charges = if posed.host > 0 { &context.rules.charges.partial } else { &context.rules.charges.split };
    let pool = |device: usize| fleet.devices[device].pool;
    let mut several: Vec<usize> = posed.devices.iter().map(|&device| pool(device)).collect();
    several.sort_unstable();
    several.dedup();
    several.retain(|&of| posed.devices.iter().filter(|&&device| pool(device) == of).count() > 1);
    let budget = |&of: &usize| {
        let host = fleet.host.as_ref().filter(|host| host.place.pool == of);
        let all = fleet.pools.get(of).copied().unwrap_or(0);
        all.saturating_sub(host.map_or(0, |_| posed.host_uses))
    };
    let own = |&device: &usize| {
        let class = context.class(fleet.devices[device].backend);
        charges.each.get().saturating_add(class.each_device)
    };
    Pools {
        of: posed.devices.iter().map(|&device| several.binary_search(&pool(device)).ok()).collect(),
        budgets: several.iter().map(budget).collect(),
        own: posed.devices.iter().map(own).collect(),
        shares: context.options.objective == Objective::Balanced,
    }
}
