//! Every way to divide a few devices.

use super::Count;
use super::team::Team;
use crate::keep::TIE;
use crate::workload::Strategy;

/// What every set of units makes.
pub(super) struct Divided<'a> {
    team: &'a Team<'a>,
    /// Seconds of every set in any order, by its mask.
    free: Vec<f64>,
    /// The same in the orders of the strategy.
    own: Vec<f64>,
}

/// One way: a mask for each group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    groups: usize,
    units: u32,
    masks: Vec<usize>,
}

impl<'a> Divided<'a> {
    pub(super) fn new(team: &'a Team<'a>) -> Self {
        let masks = 0..1_usize << team.units.len();
        let free: Vec<f64> = masks.map(|mask| team.least_seconds(&members(mask))).collect();
        let own = match team.context.options.strategy {
            Strategy::Portfolio => free.clone(),
            Strategy::CapacityDescending | Strategy::GivenOrder => {
                let seconds = |mask| team.line(&members(mask)).map_or(f64::INFINITY, |line| line.seconds);
                (0..free.len()).map(seconds).collect()
            }
        };
        Self { team, free, own }
    }

    /// The least seconds between two tokens of any way, in any order; infinite where none fits.
    pub(super) fn lower(&self, count: Count) -> f64 {
        let mut most = 0.0_f64;
        let mut any = false;
        self.ways(count, &self.free, &mut |_, rate| {
            any = true;
            most = most.max(rate);
        });
        if any { 1.0 / most } else { f64::INFINITY }
    }

    /// The units of each group of the best way: fewer groups, then fewer devices, where several are as good.
    pub(super) fn best(&self, count: Count) -> Option<Vec<Vec<usize>>> {
        let mut most = 0.0_f64;
        self.ways(count, &self.own, &mut |_, rate| most = most.max(rate));
        let mut best: Option<Way> = None;
        self.ways(count, &self.own, &mut |masks, rate| {
            if rate < most * (1.0 - TIE) {
                return;
            }
            let units = masks.iter().map(|mask| mask.count_ones()).sum();
            let way = Way { groups: masks.len(), units, masks: masks.to_vec() };
            if best.as_ref().is_none_or(|best| way < *best) {
                best = Some(way);
            }
        });
        best.map(|way| way.masks.into_iter().map(members).collect())
    }

    /// Every way with groups that all fit, with its tokens in a second.
    fn ways(&self, count: Count, seconds: &[f64], visit: &mut impl FnMut(&[usize], f64)) {
        let mut masks = Vec::new();
        self.put(0, count, seconds, &mut masks, visit);
    }

    fn put(
        &self,
        unit: usize,
        count: Count,
        seconds: &[f64],
        masks: &mut Vec<usize>,
        visit: &mut impl FnMut(&[usize], f64),
    ) {
        if unit == self.team.units.len() {
            let enough = match count {
                Count::Exactly(wanted) => masks.len() == wanted,
                Count::UpTo(_) => masks.len() > 1,
            };
            if enough && masks.iter().all(|&mask| seconds[mask] < f64::INFINITY) {
                visit(masks, masks.iter().map(|&mask| 1.0 / seconds[mask]).sum());
            }
            return;
        }
        if !self.team.units[unit].pinned {
            self.put(unit + 1, count, seconds, masks, visit);
        }
        let used: u32 = masks.iter().map(|mask| mask.count_ones()).sum();
        if usize::try_from(used).is_ok_and(|used| used >= self.team.context.limit) {
            return;
        }
        for group in 0..masks.len() {
            masks[group] |= 1 << unit;
            self.put(unit + 1, count, seconds, masks, visit);
            masks[group] &= !(1 << unit);
        }
        if masks.len() < count.most() {
            masks.push(1 << unit);
            self.put(unit + 1, count, seconds, masks, visit);
            masks.pop();
        }
    }
}

/// The units of a mask.
fn members(mask: usize) -> Vec<usize> {
    (0..usize::BITS)
        .filter(|&bit| mask & (1 << bit) != 0)
        .filter_map(|bit| usize::try_from(bit).ok())
        .collect()
}
