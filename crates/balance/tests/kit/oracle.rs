//! Every plan there is, one after the other.

use super::float;
use super::instance::{Dev, Instance};

/// The best of every objective over all plans that fit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Best {
    /// The smallest sum of stage times and hops.
    pub(crate) latency: Option<f64>,
    /// Stage times, the largest first.
    pub(crate) throughput: Option<Vec<f64>>,
    /// The largest stage time, what it sends beside it.
    pub(crate) overlapped: Option<f64>,
    /// The largest stage time with what it receives and sends.
    pub(crate) added: Option<f64>,
    /// With the fewest layers on the main host: used shares, the largest first.
    pub(crate) balanced: Option<(usize, Vec<f64>)>,
    /// With the fewest layers on the main host: devices, then used shares.
    pub(crate) fit: Option<(usize, usize, Vec<f64>)>,
}

/// A run of layers on a device, and whether the head lies there.
pub(crate) type Run = (usize, usize, usize, bool);

/// Whether a plan is allowed: how many layers the host holds, and the runs behind them.
type Allowed<'a> = &'a dyn Fn(usize, &[Run]) -> bool;

/// Tries every order of every set of devices with every cut. `order` allows only sequences that keep it.
pub(crate) fn every_plan(instance: &Instance, order: Option<&[usize]>) -> Best {
    every_plan_where(instance, order, &|_, _| true)
}

/// The same among plans that are allowed.
pub(crate) fn every_plan_where(instance: &Instance, order: Option<&[usize]>, allowed: Allowed<'_>) -> Best {
    let mut best = Best::default();
    let layers = instance.layers.len();
    let mut weigh = |host: usize, runs: &[Run]| {
        if allowed(host, runs) {
            weigh(instance, host, runs, &mut best);
        }
    };
    if instance.host.is_some() {
        weigh(layers, &[]);
        for host in 0..=layers {
            if legal(instance, host) {
                extend(instance, order, host, host, &mut Vec::new(), &mut weigh);
            }
        }
    } else {
        extend(instance, order, 0, 0, &mut Vec::new(), &mut weigh);
    }
    best
}

pub(crate) fn legal(instance: &Instance, cut: usize) -> bool {
    cut == 0 || cut == instance.layers.len() || instance.layers[cut - 1].cut
}

fn extend(
    instance: &Instance,
    order: Option<&[usize]>,
    host: usize,
    start: usize,
    runs: &mut Vec<Run>,
    weigh: &mut dyn FnMut(usize, &[Run]),
) {
    let layers = instance.layers.len();
    if instance.max_devices.is_some_and(|most| runs.len() >= usize::try_from(most).expect("few")) {
        return;
    }
    for device in 0..instance.devices.len() {
        let place = |d: usize| order.and_then(|o| o.iter().position(|&x| x == d));
        let behind = runs.last().is_none_or(|last| order.is_none() || place(last.0) < place(device));
        if runs.iter().any(|run| run.0 == device) || !behind {
            continue;
        }
        for end in start..=layers {
            if !legal(instance, end) {
                continue;
            }
            if end == layers {
                if end > start || instance.host.is_some() {
                    runs.push((device, start, end, true));
                    weigh(host, runs);
                    runs.pop();
                }
                if instance.host.is_none() {
                    continue;
                }
            }
            if end > start {
                runs.push((device, start, end, false));
                extend(instance, order, host, end, runs, weigh);
                runs.pop();
            }
        }
    }
}

fn resident(instance: &Instance, dev: &Dev, start: usize, end: usize) -> u64 {
    let padding = if dev.padded { instance.padding } else { 0 };
    let layers: u64 = instance.layers[start..end].iter().map(|l| l.weights + l.kv + padding).sum();
    layers + if end > start { instance.each_device } else { 0 }
}

fn seconds(instance: &Instance, dev: &Dev, start: usize, end: usize, head: bool) -> f64 {
    let read: u64 = instance.layers[start..end].iter().map(|l| l.read + l.kv).sum();
    float(read + if head { instance.head } else { 0 }) / float(dev.rate)
}

/// What a link takes behind so many layers.
fn link(instance: &Instance, a: usize, b: usize, place: usize) -> f64 {
    if a == b {
        return 0.0;
    }
    let behind = instance.boundaries.as_ref().filter(|_| place > 0).map(|told| told[place - 1]);
    let activation = behind.unwrap_or(instance.activation);
    let told =
        instance.links.iter().find(|l| (l.0, l.1) == (a.min(b), a.max(b))).expect("every link is told");
    float(told.3) + float(activation) / float(told.2)
}

/// The links from one node to another.
pub(crate) fn hop(instance: &Instance, a: usize, b: usize, place: usize) -> [f64; 2] {
    if instance.host.is_some() && a != b {
        [link(instance, a, 0, place), link(instance, 0, b, place)]
    } else {
        [link(instance, a, b, place), 0.0]
    }
}

fn lower(best: &mut Option<f64>, value: f64) {
    if best.is_none_or(|b| value < b) {
        *best = Some(value);
    }
}

fn least<T: PartialOrd>(best: &mut Option<T>, value: T) {
    if best.as_ref().is_none_or(|b| value < *b) {
        *best = Some(value);
    }
}

/// Adds up one plan and keeps it where it fits and is best.
fn weigh(instance: &Instance, host: usize, runs: &[Run], best: &mut Best) {
    let c = &instance.charges;
    let mut used: Vec<(Dev, u64, bool)> = Vec::new();
    let mut times = Vec::new();
    let (mut lone, mut hops): (Vec<f64>, Vec<[f64; 2]>) = (Vec::new(), Vec::new());
    let mut sum = 0.0;
    let mut at = None;
    if let Some(dev) = instance.host {
        let alone = runs.is_empty();
        let charge = if alone { c[1] + instance.head_beside } else { c[0] };
        let bytes = resident(instance, &dev, 0, host) + instance.input + charge;
        used.push((dev, bytes, host > 0 || alone));
        let time = seconds(instance, &dev, 0, host, alone);
        if host > 0 || alone {
            times.push(time);
        }
        sum += time;
        lone.push(time);
        at = Some(0);
    }
    for (number, &(device, start, end, head)) in runs.iter().enumerate() {
        let dev = instance.devices[device];
        let mut bytes = resident(instance, &dev, start, end);
        bytes += if host == 0 && runs.len() == 1 {
            c[2]
        } else {
            let base = if instance.host.is_some() && host > 0 { 6 } else { 3 };
            c[base] + if number == 0 { c[base + 1] } else { 0 } + if head { c[base + 2] } else { 0 }
        };
        let beside = instance.host.is_none() && number == 0;
        bytes += if beside { instance.input } else { 0 };
        bytes += match (head, beside) {
            (true, true) => instance.head_beside,
            (true, false) => instance.head,
            (false, _) => 0,
        };
        used.push((dev, bytes, true));
        if let Some(at) = at {
            hops.push(hop(instance, at, dev.node, start));
            sum += hops[hops.len() - 1].iter().sum::<f64>();
        }
        at = Some(dev.node);
        let time = seconds(instance, &dev, start, end, head);
        sum += time;
        lone.push(time);
        times.push(time);
    }
    let mut shares = Vec::new();
    for (number, (dev, bytes, works)) in used.iter().enumerate() {
        let others: u64 = used
            .iter()
            .enumerate()
            .filter(|(n, o)| *n != number && o.0.pool == dev.pool)
            .map(|(_, o)| o.1)
            .sum();
        let Some(left) = instance.pools[dev.pool].checked_sub(others) else { return };
        let budget = left.min(dev.limit.unwrap_or(u64::MAX));
        if *bytes > budget {
            return;
        }
        if *works {
            shares.push(float(*bytes) / float(budget.max(1)));
        }
    }
    let descending = |mut all: Vec<f64>| {
        all.sort_by(|a, b| b.total_cmp(a));
        all
    };
    let (times, shares) = (descending(times), descending(shares));
    let (mut overlapped, mut added) = (0.0_f64, 0.0_f64);
    for (number, time) in lone.into_iter().enumerate() {
        let received = number.checked_sub(1).map_or([0.0; 2], |before| hops[before]);
        let sent = hops.get(number).copied().unwrap_or([0.0; 2]);
        overlapped = overlapped.max(time).max(sent[0]).max(sent[1]);
        added = added.max(time + received[0] + received[1] + sent[0] + sent[1]);
    }
    lower(&mut best.overlapped, overlapped);
    lower(&mut best.added, added);
    lower(&mut best.latency, sum);
    least(&mut best.throughput, times);
    least(&mut best.balanced, (host, shares.clone()));
    least(&mut best.fit, (host, shares.len(), shares));
}
