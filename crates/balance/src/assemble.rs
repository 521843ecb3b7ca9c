//! From a choice of layers to a plan's numbers.

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll_units::Bytes;

use crate::context::Context;
use crate::core::as_f64;
use crate::fleet::Candidate;
use crate::plan::Stage;
use crate::workload::{Objective, StageCharges};

/// Which device holds what: places of layers, not their indices.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// How many layers the main host holds, where there is one.
    pub(crate) host: usize,
    /// The devices in order, as indices into the fleet; each holds a layer or the head. A device behind one with the
    /// head begins another pipeline.
    pub(crate) devices: Vec<(usize, Range<usize>, bool)>,
}

/// A draft with all its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Assembled {
    pub(crate) draft: Draft,
    pub(crate) stages: Vec<Stage>,
    /// What the objective compares, before any ties.
    pub(crate) value: f64,
    /// Stage times or used shares, the largest first.
    pub(crate) costs: Vec<f64>,
}

struct Part<'a> {
    pipeline: usize,
    place: &'a Candidate,
    layers: Range<usize>,
    input: bool,
    head: bool,
    overhead: u64,
    weights: u64,
    kv: u64,
}

impl Part<'_> {
    fn uses(&self) -> u64 {
        self.weights.saturating_add(self.kv).saturating_add(self.overhead)
    }
}

impl Draft {
    /// All numbers, or how many bytes the draft is short of fitting.
    pub(crate) fn assemble(self, context: &Context<'_>) -> Result<Assembled, u64> {
        let (assembled, short) = self.measure(context);
        if short > 0 { Err(short) } else { Ok(assembled) }
    }

    /// All numbers, and how many bytes the draft is short of fitting.
    pub(crate) fn measure(self, context: &Context<'_>) -> (Assembled, u64) {
        let parts = self.parts(context);
        let mut short = 0_u64;
        let mut stages = Vec::with_capacity(parts.len());
        let (mut seconds, mut costs) = (0.0, Vec::with_capacity(parts.len()));
        let mut largest_of: Vec<f64> = vec![0.0];
        let times = times(context, &parts);
        let pools = of_pools(&parts);
        for (at, part) in parts.iter().enumerate() {
            let all = pools.get(&part.place.pool).copied().unwrap_or(0);
            let others = u64::try_from(all.saturating_sub(u128::from(part.uses()))).unwrap_or(u64::MAX);
            let pool = context.fleet.pools.get(part.place.pool).copied().unwrap_or(0);
            short = short.max(part.uses().saturating_add(others).saturating_sub(pool));
            let budget = pool.saturating_sub(others).min(part.place.limit);
            short = short.max(part.uses().saturating_sub(budget));
            let time = context.seconds(part.place, &part.layers, part.head);
            let same = at > 0 && parts[at - 1].pipeline == part.pipeline;
            if at > 0 && !same {
                largest_of.push(0.0);
            }
            if same {
                let (from, to) = (&parts[at - 1].place.device.node, &part.place.device.node);
                seconds += context.links.seconds(from, to, context.activation(part.layers.start));
            }
            seconds += time;
            // A host that holds nothing may still have to send the input on.
            if part.head || !part.layers.is_empty() || (context.timed() && times[at] > 0.0) {
                let share = || as_f64(part.uses()) / as_f64(budget.max(1));
                let cost = if context.timed() { times[at] } else { share() };
                costs.push(cost);
                if let Some(largest) = largest_of.last_mut() {
                    *largest = largest.max(cost);
                }
            }
            stages.push(Stage {
                pipeline: u32::try_from(part.pipeline).unwrap_or(u32::MAX),
                device: part.place.device.clone(),
                layers: context.items.index(part.layers.start)..context.items.index(part.layers.end),
                input: part.input,
                head: part.head,
                weights_bytes: Bytes::new(part.weights),
                kv_bytes: Bytes::new(part.kv),
                overhead_bytes: Bytes::new(part.overhead),
                budget_bytes: Bytes::new(budget),
                slack_bytes: Bytes::new(budget.saturating_sub(part.uses())),
                seconds: (!context.equal_speeds).then_some(time),
            });
        }
        costs.sort_by(|a, b| b.total_cmp(a));
        let value = match context.options.objective {
            Objective::Fit => as_f64(u64::try_from(costs.len()).unwrap_or(u64::MAX)),
            Objective::Latency => seconds,
            Objective::Throughput | Objective::Balanced => together(&largest_of),
        };
        (Assembled { draft: self, stages, value, costs }, short)
    }

    fn parts<'a>(&self, context: &'a Context<'_>) -> Vec<Part<'a>> {
        let charges = &context.rules.charges;
        let partial = self.host > 0;
        let mut parts = Vec::with_capacity(self.devices.len() + 1);
        let lone_host = self.devices.is_empty();
        if let Some(host) = &context.fleet.host {
            let class = context.class(host.place.backend);
            let layers = 0..self.host;
            let head = if lone_host { class.head_beside_input } else { 0 };
            parts.push(Part {
                pipeline: 0,
                weights: weights(class, &layers).saturating_add(class.input).saturating_add(head),
                kv: class.kv(0, self.host),
                place: &host.place,
                layers,
                input: true,
                head: lone_host,
                overhead: if lone_host { charges.host_alone } else { charges.host }.get(),
            });
        }
        let with_host = !parts.is_empty();
        let shared = if partial { &charges.partial } else { &charges.split };
        let mut pipeline = 0;
        for (at, (device, layers, head)) in self.devices.iter().enumerate() {
            let first = at == 0 || self.devices[at - 1].2;
            pipeline += usize::from(first && at > 0);
            let one = first && *head && !partial;
            let place = &context.fleet.devices[*device];
            let class = context.class(place.backend);
            let input = first && !with_host;
            let output = match (*head, input) {
                (false, _) => 0,
                (true, true) => class.head_beside_input,
                (true, false) => class.head,
            };
            let own = if input { class.input } else { 0 };
            let overhead = if one { charges.alone.get() } else { charged(shared, first, *head) };
            parts.push(Part {
                pipeline,
                weights: weights(class, layers).saturating_add(own).saturating_add(output),
                kv: class.kv(layers.start, layers.end),
                place,
                layers: layers.clone(),
                input,
                head: *head,
                overhead,
            });
        }
        parts
    }
}

/// What the parts take of each pool together.
fn of_pools(parts: &[Part<'_>]) -> BTreeMap<usize, u128> {
    let mut pools = BTreeMap::new();
    for part in parts {
        *pools.entry(part.place.pool).or_insert(0) += u128::from(part.uses());
    }
    pools
}

/// Seconds between two tokens of all pipelines together, from the largest stage time of each.
fn together(largest: &[f64]) -> f64 {
    match largest {
        [] => 0.0,
        [one] => *one,
        several => 1.0 / several.iter().map(|seconds| 1.0 / seconds).sum::<f64>(),
    }
}

/// Stage times as throughput compares them: each one's own, with what passes where that counts.
fn times(context: &Context<'_>, parts: &[Part<'_>]) -> Vec<f64> {
    let own = parts.iter().map(|part| context.seconds(part.place, &part.layers, part.head));
    let Some(counted) = context.counted() else { return own.collect() };
    let passes = |pair: &[Part<'_>]| {
        let (from, to) = (&pair[0].place.device.node, &pair[1].place.device.node);
        let activation = context.activation(pair[1].layers.start);
        let links = &context.links;
        if counted.slower() {
            links.slowest(from, to, activation)
        } else {
            links.seconds(from, to, activation)
        }
    };
    let sends = || parts.windows(2).map(passes).chain([0.0]);
    let receives = [0.0].into_iter().chain(sends());
    own.zip(receives.zip(sends()))
        .map(|(own, (receives, sends))| counted.stage(receives, own, sends))
        .collect()
}

fn weights(class: &crate::items::Class, layers: &Range<usize>) -> u64 {
    let shared = if layers.is_empty() { 0 } else { class.each_device };
    class.weights(layers.start, layers.end).saturating_add(shared)
}

fn charged(charges: &StageCharges, first: bool, last: bool) -> u64 {
    let first = if first { charges.first_more } else { Bytes::ZERO };
    let last = if last { charges.last_more } else { Bytes::ZERO };
    charges.each.saturating_add(first).saturating_add(last).get()
}
