//! Cuts, devices and how many parts each stage gives away.
//!
//! A programme over (devices used so far, cut): a label says how much lies on the main host and what was paid, and one
//! that is no better in either is dropped. Where the ordered sets of devices are few, all of them are walked as a tree;
//! otherwise a few orders in which any device may stay empty.

use crate::core::as_f64;
use crate::experts::choice::{Demand, choices};
use crate::experts::parts::Parts;
use crate::workload::{MoveWhen, Objective, Strategy};

/// More steps than this, cuts twice and sets of devices once, are not walked.
const STEPS: usize = 2_000_000;

/// The most labels that are kept at one cut.
const LABELS: usize = 128;

/// What a search makes small.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aim {
    /// The sum of times.
    Seconds,
    /// What the main host computes, with no stage above this time.
    Bottleneck(f64),
    /// What lies on the main host, then the number of devices.
    HostBytes,
}

/// A state of the search: the layers before a cut are placed.
#[derive(Clone, Debug)]
struct Label {
    /// What lies on the main host.
    there: u64,
    cost: f64,
    /// Whether any part was given away.
    moved: bool,
    before: Option<usize>,
    stage: Option<Stage>,
}

/// What was placed last.
#[derive(Clone, Debug)]
struct Stage {
    device: usize,
    start: usize,
    end: usize,
    counts: Vec<u32>,
}

/// A placement: the main host holds so many layers, and then the devices theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) host: usize,
    /// Devices, their layers, and how many parts of each kind they give away; the head lies on the last one.
    pub(crate) devices: Vec<(usize, std::ops::Range<usize>, Vec<u32>)>,
}

/// The labels at each cut.
type State = Vec<Vec<usize>>;

/// One search.
#[derive(Debug)]
pub(crate) struct Finder<'a> {
    parts: &'a Parts<'a>,
    aim: Aim,
    labels: Vec<Label>,
    /// No plan that costs more is looked for.
    ceiling: f64,
    best: Option<(f64, u64, usize)>,
    /// Whether nothing was left out.
    pub(crate) complete: bool,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(parts: &'a Parts<'a>, aim: Aim, ceiling: f64) -> Self {
        let complete = parts.pools_apart();
        Self { parts, aim, labels: Vec::new(), ceiling, best: None, complete }
    }

    /// The best placement, and what it costs.
    pub(crate) fn run(&mut self) -> Option<(Found, f64)> {
        let devices = self.parts.context.fleet.devices.len();
        let start = self.start();
        let cuts = self.parts.context.items.cuts.len();
        // A largest stage time is lowered in many rounds, each with many more choices.
        let steps = if matches!(self.aim, Aim::Bottleneck(_)) { STEPS / 20 } else { STEPS };
        let most = steps / (cuts * cuts).max(1);
        let walk_all = self.parts.context.options.strategy == Strategy::Portfolio
            && sets(self.parts, &mut vec![false; devices], self.depth(), most).is_some();
        if walk_all {
            self.grow(&start, &mut vec![false; devices], self.depth());
        } else {
            self.complete = false;
            for order in self.orders() {
                self.in_order(&start, &order);
            }
        }
        let (cost, _, label) = self.best?;
        Some((self.trace(label), cost))
    }

    fn depth(&self) -> usize {
        self.parts.context.limit.min(self.parts.context.fleet.devices.len())
    }

    /// The main host with the first layers up to each cut.
    fn start(&mut self) -> State {
        let context = self.parts.context;
        let cuts = &context.items.cuts;
        let mut state: State = vec![Vec::new(); cuts.len()];
        let place = &self.parts.host.place;
        let class = context.class(place.backend);
        let budget = context.fleet.budget(place);
        let at_most = context.pins.host_at_most().unwrap_or(usize::MAX);
        for (cut, &layers) in cuts.iter().enumerate().take(cuts.len() - 1) {
            let shared = if layers == 0 { 0 } else { class.each_device };
            let held = [class.resident(0, layers), shared, class.input, context.rules.charges.host.get()];
            let there = held.into_iter().fold(0_u64, u64::saturating_add);
            if there > budget || layers > at_most {
                break;
            }
            if layers < context.pins.host_at_least() {
                continue;
            }
            let cost = match self.aim {
                Aim::HostBytes => 0.0,
                Aim::Seconds | Aim::Bottleneck(_) => context.seconds(place, &(0..layers), false),
            };
            if cost > self.ceiling {
                break;
            }
            self.labels.push(Label { there, cost, moved: false, before: None, stage: None });
            state[cut].push(self.labels.len() - 1);
        }
        state
    }

    /// All ordered sets of devices that begin like this one.
    fn grow(&mut self, state: &State, used: &mut [bool], depth: usize) {
        if depth == 0 {
            return;
        }
        for device in next_devices(self.parts, used) {
            let mut next: State = vec![Vec::new(); state.len()];
            self.extend(state, device, &mut next);
            if next.iter().all(Vec::is_empty) {
                continue;
            }
            used[device] = true;
            self.grow(&next, used, depth - 1);
            used[device] = false;
        }
    }

    /// The devices of an order one after the other, each of which may stay empty.
    fn in_order(&mut self, start: &State, order: &[usize]) {
        let mut state = start.clone();
        for &device in order {
            let mut next = state.clone();
            self.extend(&state, device, &mut next);
            state = next;
        }
    }

    /// A few orders in which devices are likely to serve well.
    fn orders(&self) -> Vec<Vec<usize>> {
        let context = self.parts.context;
        let devices = &context.fleet.devices;
        let by = |key: &dyn Fn(usize) -> (u8, u64)| {
            let mut order: Vec<usize> = (0..devices.len()).collect();
            order.sort_by_key(|&device| {
                let (first, large) = key(device);
                (first, u64::MAX - large, device)
            });
            order.truncate(context.limit.max(1).min(devices.len()));
            order
        };
        let room = |device: usize| context.fleet.budget(&devices[device]);
        match context.options.strategy {
            Strategy::CapacityDescending => vec![by(&|device| (0, room(device)))],
            Strategy::GivenOrder => {
                vec![by(&|device| (0, u64::MAX - u64::try_from(devices[device].given).unwrap_or(u64::MAX)))]
            }
            Strategy::Portfolio => {
                let rate = |device: usize| devices[device].speed.map_or(0, |speed| speed.rate.get());
                let remote = |device: usize| {
                    u8::from(devices[device].device.node != self.parts.host.place.device.node)
                };
                let mut orders = vec![
                    by(&|device| (0, rate(device))),
                    by(&|device| (remote(device), rate(device))),
                    by(&|device| (0, room(device))),
                ];
                orders.dedup();
                orders
            }
        }
    }

    /// One more device behind every label.
    fn extend(&mut self, state: &State, device: usize, next: &mut State) {
        for (from, here) in state.iter().enumerate() {
            let firsts: Vec<bool> = here.iter().map(|&l| self.labels[l].stage.is_none()).collect();
            for first in [false, true] {
                let labels = here.iter().zip(&firsts).filter(|(_, is)| **is == first);
                let labels: Vec<usize> = labels.map(|(label, _)| *label).collect();
                if !labels.is_empty() {
                    self.extend_from(&labels, device, from, first, next);
                }
            }
        }
    }

    fn extend_from(&mut self, labels: &[usize], device: usize, from: usize, first: bool, next: &mut State) {
        let last = self.parts.context.items.cuts.len() - 1;
        let start = self.parts.context.items.cuts[from];
        let lone_head = from == last;
        let ends = next.iter_mut().enumerate().skip(from + usize::from(!lone_head));
        for (to, at) in ends {
            let end = self.parts.context.items.cuts[to];
            let step = (start, end);
            let pins = &self.parts.context.pins;
            if (start..end).any(|place| pins.elsewhere(Some(device), place).is_some()) {
                return;
            }
            let holds_pinned =
                pins.of(Some(device)).is_none_or(|hull| hull.layers.start >= start && hull.layers.end <= end);
            let without_head = if lone_head { None } else { self.stage(device, step, first, false) };
            if !lone_head && without_head.is_none() {
                // What does not fit without the head fits no more with it, or with more layers.
                return;
            }
            if !holds_pinned {
                continue;
            }
            if to == last
                && let Some(choices) = self.stage(device, step, first, true)
            {
                for &label in labels {
                    self.place(label, device, step, &choices, None);
                }
            }
            if let Some(choices) = without_head {
                for &label in labels {
                    self.place(label, device, step, &choices, Some(&mut *at));
                }
            }
        }
    }

    /// The ways in which a device holds layers: what it pays, and what it gives away; `None` where it cannot.
    fn stage(
        &mut self,
        device: usize,
        (start, end): (usize, usize),
        first: bool,
        head: bool,
    ) -> Option<Ways> {
        let parts = self.parts;
        let context = parts.context;
        let place = &context.fleet.devices[device];
        let (class, table, charges) =
            (context.class(place.backend), parts.table(place), &parts.movable.charges);
        let shared = if start == end { 0 } else { class.each_device };
        let on = |yes: bool, bytes: u64| if yes { bytes } else { 0 };
        let held = [
            class.resident(start, end),
            shared,
            charges.each.get(),
            on(first, charges.first_more.get()),
            on(head, charges.last_more.get()),
            on(head, class.head),
        ];
        let held = held.into_iter().fold(0_u64, u64::saturating_add);
        let rate = context.rate(place);
        let read = as_f64(class.touched(start, end).saturating_add(on(head, class.head)));
        let host_rate = context.rate(&parts.host.place);
        let trip = parts.trip(place);
        let unit = |kind: &super::parts::Kind| match self.aim {
            Aim::Seconds => as_f64(kind.read_there) / host_rate - as_f64(kind.read_here) / rate + trip,
            Aim::Bottleneck(_) => as_f64(kind.read_there) / host_rate,
            Aim::HostBytes => 0.0,
        };
        let too_slow = match self.aim {
            Aim::Bottleneck(most) => up(read - most * rate),
            Aim::Seconds | Aim::HostBytes => 0,
        };
        let demand = Demand {
            bytes: held.saturating_sub(context.fleet.budget(place)),
            read: too_slow,
            everything: parts.movable.when == MoveWhen::Always,
        };
        let have: Vec<u32> = (0..table.kinds.len()).map(|kind| table.count(kind, start, end)).collect();
        let unit: Vec<f64> = table.kinds.iter().map(unit).collect();
        let (choices, all) = choices(&table.kinds, &have, &demand, &unit);
        self.complete &= all;
        let paid = match self.aim {
            Aim::Seconds => read / rate,
            Aim::HostBytes if context.options.objective == Objective::Fit => 1.0,
            Aim::Bottleneck(_) | Aim::HostBytes => 0.0,
        };
        (!choices.is_empty()).then_some(Ways { choices, paid })
    }

    /// Puts a stage behind a label: among the others at its cut, or as the end of a plan.
    fn place(
        &mut self,
        before: usize,
        device: usize,
        (start, end): (usize, usize),
        ways: &Ways,
        mut into: Option<&mut Vec<usize>>,
    ) {
        let parts = self.parts;
        let context = parts.context;
        let from = &self.labels[before];
        let (there, paid, was_moved) = (from.there, from.cost, from.moved);
        let sender =
            from.stage.as_ref().map_or(&parts.host.place, |stage| &context.fleet.devices[stage.device]);
        let hop = match self.aim {
            Aim::Seconds => {
                let to = &context.fleet.devices[device].device.node;
                context.links.seconds(&sender.device.node, to, context.activation(start))
            }
            Aim::Bottleneck(_) | Aim::HostBytes => 0.0,
        };
        let budget = context.fleet.budget(&parts.host.place);
        for choice in &ways.choices {
            let there = there.saturating_add(choice.there);
            let cost = paid + hop + ways.paid + choice.cost;
            if there > budget || cost > self.ceiling {
                continue;
            }
            let moved = was_moved || choice.counts.iter().any(|n| *n > 0);
            let stage = Stage { device, start, end, counts: choice.counts.clone() };
            let label = Label { there, cost, moved, before: Some(before), stage: Some(stage) };
            match &mut into {
                Some(labels) => self.keep(labels, label),
                None if moved => self.end(label),
                None => {}
            }
        }
    }

    fn keep(&mut self, at: &mut Vec<usize>, label: Label) {
        let covers = |a: &Label, b: &Label| {
            a.there <= b.there
                && a.cost <= b.cost
                && (a.moved || !b.moved)
                && a.stage.is_some() == b.stage.is_some()
        };
        if at.iter().any(|&kept| covers(&self.labels[kept], &label)) {
            return;
        }
        at.retain(|&kept| !covers(&label, &self.labels[kept]));
        if at.len() >= LABELS {
            self.complete = false;
            return;
        }
        self.labels.push(label);
        at.push(self.labels.len() - 1);
    }

    fn end(&mut self, label: Label) {
        let better = self.best.is_none_or(|(cost, there, _)| match self.aim {
            Aim::HostBytes => (label.there, label.cost) < (there, cost),
            Aim::Seconds | Aim::Bottleneck(_) => (label.cost, label.there) < (cost, there),
        });
        if !better {
            return;
        }
        if self.aim != Aim::HostBytes {
            self.ceiling = self.ceiling.min(label.cost);
        }
        let (cost, there) = (label.cost, label.there);
        self.labels.push(label);
        self.best = Some((cost, there, self.labels.len() - 1));
    }

    fn trace(&self, label: usize) -> Found {
        let mut found = Found { host: 0, devices: Vec::new() };
        let mut at = Some(label);
        while let Some(label) = at.map(|at| &self.labels[at]) {
            if let Some(stage) = &label.stage {
                found.host = stage.start;
                found.devices.push((stage.device, stage.start..stage.end, stage.counts.clone()));
            }
            at = label.before;
        }
        found.devices.reverse();
        found
    }
}

/// The ways in which a device holds layers.
#[derive(Debug)]
struct Ways {
    choices: Vec<super::choice::Choice>,
    /// What it pays before anything is given away.
    paid: f64,
}

/// The devices that may come next: of those that are alike only the first one.
fn next_devices(parts: &Parts<'_>, used: &[bool]) -> Vec<usize> {
    let unused = |device: &usize| !used[*device];
    let all = (0..used.len()).filter(unused);
    all.filter(|&device| (0..device).filter(unused).all(|other| !parts.alike(other, device))).collect()
}

/// How many ordered sets of devices there are, the empty one counted; `None` where they are more than `most`.
fn sets(parts: &Parts<'_>, used: &mut Vec<bool>, depth: usize, most: usize) -> Option<usize> {
    let mut count = 1;
    if depth == 0 {
        return Some(count);
    }
    for device in next_devices(parts, used) {
        used[device] = true;
        let more = sets(parts, used, depth - 1, most.saturating_sub(count));
        used[device] = false;
        count += more?;
        if count > most {
            return None;
        }
    }
    Some(count)
}

/// The next whole number of bytes; none for a negative one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded up, not negative, and far below 2^63"
)]
fn up(bytes: f64) -> u64 {
    if bytes > 0.0 { bytes.ceil() as u64 } else { 0 }
}
