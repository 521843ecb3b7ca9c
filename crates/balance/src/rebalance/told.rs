//! Acts as rounds of steps, with their times and peaks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plimsoll_units::{Bytes, NodeId};

use super::given::Change;
use super::plot::Plot;
use super::types::{LinkUse, PoolPeak, RebalanceOptions, Round, Schedule, Step, TimedStep};
use super::yard::{Act, Yard};

impl Plot<'_> {
    /// Rounds with their steps, times and peaks.
    pub(crate) fn told(
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
        let docks = 0..self.places.len();
        let less = |at: usize| self.beside[at].0 > self.beside[at].1;
        let at_once = docks.clone().filter(|&at| less(at) && yard.docks[at].frees == 0);
        let at_once: Vec<usize> = at_once.collect();
        for &at in &at_once {
            // At first it is still there.
            if let Some(pool) = yard.docks[at].pool {
                peaks[pool] = peaks[pool].saturating_add(self.beside[at].0 - self.beside[at].1);
            }
        }
        let mut charges: Vec<Step> = at_once.into_iter().filter_map(|at| self.charge(at)).collect();
        for acts in rounds {
            let mut steps = std::mem::take(&mut charges);
            for &act in acts {
                extra = extra.saturating_add(match act {
                    Act::Spill(..) | Act::Drop(_) => yard.size(act),
                    Act::Move(_) | Act::Load(_) => 0,
                });
            }
            steps.extend(self.steps(changes, &yard, acts));
            let sources: BTreeSet<usize> = acts.iter().filter_map(|act| yard.at[act.parcel()]).collect();
            let waiting: Vec<usize> =
                sources.into_iter().filter(|&dock| yard.docks[dock].frees > 0).collect();
            let (drops, moves): (Vec<Act>, Vec<Act>) = acts.iter().partition(|a| matches!(a, Act::Drop(_)));
            for act in drops {
                yard.begin(act);
                yard.end(act);
            }
            for &act in &moves {
                yard.begin(act);
            }
            for &act in &moves {
                if let Some(pool) = way(&yard, act).2.and_then(|dock| yard.docks[dock].pool) {
                    peaks[pool] = peaks[pool].max(yard.used[pool]);
                }
            }
            for &act in &moves {
                yard.end(act);
            }
            let given_back = waiting.into_iter().filter(|&dock| yard.docks[dock].frees == 0);
            charges = given_back.filter_map(|dock| self.charge(dock)).collect();
            told.push(self.timed(steps, options));
        }
        let more = docks.filter(|&at| self.beside[at].1 > self.beside[at].0);
        charges.extend(more.filter_map(|at| self.charge(at)));
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

    /// The change of what the engine takes beside on a dock; none where its contents are lost.
    fn charge(&self, at: usize) -> Option<Step> {
        let place = &self.given.places[self.places[at]];
        place.pool?;
        let (now, then) = self.beside[at];
        // Where the head takes more or less without moving, that is part of the change.
        let from = self.own[at].max(now.saturating_sub(then));
        let to = from.saturating_add(then).saturating_sub(now);
        Some(Step::Charge { device: place.device.clone(), from: Bytes::new(from), to: Bytes::new(to) })
    }

    /// Acts as steps; layers in a row that go the same way are one.
    fn steps(&self, changes: &[Change], yard: &Yard, acts: &[Act]) -> Vec<Step> {
        let mut runs: Vec<(Copy, u64)> = Vec::new();
        let mut sorted: Vec<Act> = acts.to_vec();
        sorted.sort_by_key(|&act| (way(yard, act).0 != DROP, changes[act.parcel()].parts.start));
        for act in sorted {
            let (kind, from, to) = way(yard, act);
            let parts = changes[act.parcel()].parts.clone();
            let size = yard.size(act);
            match runs.last_mut() {
                Some((last, bytes))
                    if (last.0, last.1, last.2, last.3.end) == (kind, from, to, parts.start) =>
                {
                    last.3.end = parts.end;
                    *bytes = bytes.saturating_add(size);
                }
                _ => runs.push(((kind, from, to, parts), size)),
            }
        }
        runs.into_iter().map(|(copy, bytes)| self.step(copy, Bytes::new(bytes))).collect()
    }

    fn step(&self, (kind, from, to, parts): Copy, bytes: Bytes) -> Step {
        let given = self.given;
        let place = |dock: Option<usize>| self.places[dock.unwrap_or(0)];
        let device = |dock: Option<usize>| given.places[place(dock)].device.clone();
        let what = given.piece(&parts);
        match kind {
            MOVE => Step::Move { what, from: device(from), to: device(to), bytes },
            SPILL => Step::Spill { what, from: device(from), to: device(to), bytes },
            LOAD => Step::Load { what, to: device(to), bytes },
            _ => {
                let kv_bytes = Bytes::new(given.kv(place(from), &parts));
                Step::Drop { what, from: device(from), bytes, kv_bytes }
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
        let runs = self.given.old.runs.iter().chain(&self.target.runs);
        let touched: BTreeSet<usize> = runs.filter_map(|run| self.given.places[run.place].pool).collect();
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

/// What is done at once: what kind of act, from which dock, to which, and the parts.
pub(crate) type Copy = (u8, Option<usize>, Option<usize>, Range<usize>);

/// What an act is, from which dock and to which.
pub(crate) fn way(yard: &Yard, act: Act) -> (u8, Option<usize>, Option<usize>) {
    let number = act.parcel();
    let (at, to) = (yard.at[number], yard.parcels[number].to);
    match act {
        Act::Move(_) => (MOVE, at, Some(to)),
        Act::Spill(_, aside) => (SPILL, at, Some(aside)),
        Act::Load(_) => (LOAD, None, Some(to)),
        Act::Drop(_) => (DROP, at, None),
    }
}
