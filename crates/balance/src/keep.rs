//! The plans that are as good as the best one, and the one to take of them.

use std::cmp::Ordering;

use plimsoll_units::DeviceRef;

use crate::assemble::Assembled;
use crate::context::Context;
use crate::workload::Objective;

/// Two values are as good as each other when they differ by less than this share: adding up in another order changes as
/// much.
pub(crate) const TIE: f64 = 1e-11;

/// The largest value that is as good as this one.
pub(crate) fn as_good_as(value: f64) -> f64 {
    value * (1.0 + TIE)
}

/// The plans found so far that may turn out to be the one to take.
///
/// Which one that is depends on what was found and not on the order in which it was: every plan that is as good as the
/// best is kept, unless another one is at least as good in everything that is compared.
#[derive(Debug)]
pub(crate) struct Kept {
    plans: Vec<Assembled>,
    /// Whether fewer layers on the main host come before the value.
    host_comes_last: bool,
    /// Whether next largest stage times or shares are compared.
    next_largest: bool,
}

impl Kept {
    pub(crate) fn new(context: &Context<'_>) -> Self {
        let next_largest = context.options.objective != Objective::Latency;
        Self { plans: Vec::new(), host_comes_last: context.host_comes_last(), next_largest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// The least value found.
    pub(crate) fn value(&self) -> Option<f64> {
        self.plans.iter().map(|plan| plan.value).min_by(f64::total_cmp)
    }

    pub(crate) fn offer(&mut self, plan: Assembled) {
        if self.host_comes_last
            && let Some(kept) = self.plans.first()
        {
            match plan.draft.host.cmp(&kept.draft.host) {
                Ordering::Less => self.plans.clear(),
                Ordering::Equal => {}
                Ordering::Greater => return,
            }
        }
        let least = self.value().map_or(plan.value, |least| least.min(plan.value));
        if plan.value > as_good_as(least) || self.plans.iter().any(|kept| self.covers(kept, &plan)) {
            return;
        }
        let mut plans = std::mem::take(&mut self.plans);
        plans.retain(|kept| kept.value <= as_good_as(least) && !self.covers(&plan, kept));
        plans.push(plan);
        self.plans = plans;
    }

    /// Whether a plan is at least as good as another one in every number that is compared, and comes before it where all
    /// of them are as good: the other one can then never be taken.
    fn covers(&self, plan: &Assembled, other: &Assembled) -> bool {
        let no_worse = !self.next_largest
            || plan.costs.len() <= other.costs.len()
                && plan.costs.iter().zip(&other.costs).all(|(a, b)| a <= b);
        plan.value <= other.value && no_worse && last_ties(plan).cmp(&last_ties(other)).is_le()
    }

    /// The plan to take.
    ///
    /// By the objective's value; then the next largest stage times or shares, where largest ones are compared; then fewer
    /// layers on the main host, fewer devices, and last the devices' names and layers in order. Each is compared among
    /// those that are as good as the best in all before it.
    pub(crate) fn choose(mut self) -> Option<Assembled> {
        least(&mut self.plans, |plan| plan.value);
        let most = self.plans.iter().map(|plan| plan.costs.len()).max().unwrap_or(0);
        for place in 0..if self.next_largest { most } else { 0 } {
            // A plan without a next cost has less than any that has one.
            least(&mut self.plans, |plan| plan.costs.get(place).copied().unwrap_or(0.0));
        }
        self.plans.into_iter().min_by(|a, b| last_ties(a).cmp(&last_ties(b)))
    }
}

/// Leaves only the plans with the least cost, or one that is as good.
fn least(plans: &mut Vec<Assembled>, cost: impl Fn(&Assembled) -> f64) {
    if let Some(least) = plans.iter().map(&cost).min_by(f64::total_cmp) {
        plans.retain(|plan| cost(plan) <= as_good_as(least));
    }
}

/// What decides between plans whose numbers are as good.
fn last_ties(plan: &Assembled) -> (usize, usize, Vec<(&DeviceRef, u32, u32)>) {
    let named = plan.stages.iter().map(|s| (&s.device, s.layers.start, s.layers.end)).collect();
    (plan.draft.host, plan.costs.len(), named)
}

#[cfg(test)]
mod tests {
    use plimsoll_units::{Bytes, DeviceId, NodeId};

    use super::*;
    use crate::assemble::Draft;
    use crate::plan::Stage;

    /// A plan of this value on so many devices.
    fn plan(value: f64, devices: u32) -> Assembled {
        let stage = |n: u32| Stage {
            pipeline: 0,
            device: DeviceRef {
                node: NodeId::new("a").unwrap(),
                device: DeviceId::new(format!("d{n}")).unwrap(),
            },
            layers: n..n + 1,
            input: false,
            head: false,
            weights_bytes: Bytes::ZERO,
            kv_bytes: Bytes::ZERO,
            overhead_bytes: Bytes::ZERO,
            budget_bytes: Bytes::ZERO,
            slack_bytes: Bytes::ZERO,
            seconds: None,
        };
        let stages: Vec<_> = (0..devices).map(stage).collect();
        let costs = vec![value / f64::from(devices); stages.len()];
        Assembled { draft: Draft { host: 0, devices: Vec::new() }, stages, value, costs }
    }

    fn chosen(values: &[(f64, u32)]) -> Assembled {
        let mut kept = Kept { plans: Vec::new(), host_comes_last: false, next_largest: false };
        for &(value, devices) in values {
            kept.offer(plan(value, devices));
        }
        kept.choose().unwrap()
    }

    #[test]
    fn the_last_digit_of_a_value_never_decides() {
        // Every place of a neighbour, and so every place where buckets of any width could begin.
        for n in 0..1_u64 << 13 {
            let value = f64::from_bits(1.0_f64.to_bits() + n);
            let more = f64::from_bits(value.to_bits() + 1);
            assert_eq!(chosen(&[(value, 2), (more, 1)]).costs.len(), 1, "{n}");
            assert_eq!(chosen(&[(more, 1), (value, 2)]).costs.len(), 1, "{n}");
        }
    }

    #[test]
    fn what_is_taken_does_not_depend_on_what_was_found_first() {
        // Each is as good as the next one, and the last is not as good as the first.
        let step = 0.7 * TIE;
        let all = [(1.0, 4), (1.0 + step, 3), (1.0 + 2.0 * step, 2), (1.0 + 3.0 * step, 1)];
        for turn in 0..all.len() {
            let mut values = all;
            values.rotate_left(turn);
            assert_eq!(chosen(&values).costs.len(), 3);
            values.reverse();
            assert_eq!(chosen(&values).costs.len(), 3);
        }
    }

    #[test]
    fn of_plans_that_are_alike_one_is_kept() {
        let mut kept = Kept { plans: Vec::new(), host_comes_last: false, next_largest: true };
        for _ in 0..3 {
            kept.offer(plan(1.0, 2));
        }
        assert_eq!(kept.plans.len(), 1);
    }
}
