//! Every way to divide devices into pipelines.

use super::instance::Instance;
use super::oracle::{Run, every_plan_where};

/// The most tokens in a second with exactly so many pipelines, by their number; `None` where no division fits.
///
/// What one set of devices makes alone is what [`every_plan_where`] finds for an instance that has no others. A pin is
/// a device with the layers that it holds.
pub(crate) fn most_tokens(instance: &Instance, pins: &[(usize, usize, usize)]) -> Vec<Option<f64>> {
    let count = instance.devices.len();
    let rates: Vec<Option<f64>> = (0..1_usize << count).map(|set| rate(instance, pins, set)).collect();
    let pinned = pins.iter().fold(0, |set, pin| set | 1 << pin.0);
    let mut best = vec![None; count + 1];
    let mut group_of = vec![0; count];
    loop {
        weigh(instance, &rates, pinned, &group_of, &mut best);
        // The next number in base count + 1: every device is in no group (0) or in one of `count`.
        let Some(at) = group_of.iter().position(|&group| group < count) else { return best };
        group_of[at] += 1;
        group_of[..at].fill(0);
    }
}

/// Tokens in a second of one pipeline on exactly these devices or some of them.
fn rate(instance: &Instance, pins: &[(usize, usize, usize)], set: usize) -> Option<f64> {
    let mut own = instance.clone();
    // Fewer devices are another set of their own.
    own.max_devices = None;
    let chosen: Vec<usize> = (0..instance.devices.len()).filter(|at| set & (1 << at) != 0).collect();
    own.devices = chosen.iter().map(|&at| instance.devices[at]).collect();
    let keeps = |_: usize, runs: &[Run]| {
        let here = pins.iter().filter(|pin| chosen.contains(&pin.0));
        let mut held = here.map(|&(device, start, end)| {
            runs.iter().any(|run| chosen[run.0] == device && run.1 <= start && end <= run.2)
        });
        held.all(|held| held)
    };
    every_plan_where(&own, None, &keeps).throughput.map(|times| 1.0 / times[0])
}

fn weigh(
    instance: &Instance,
    rates: &[Option<f64>],
    pinned: usize,
    group_of: &[usize],
    best: &mut [Option<f64>],
) {
    if group_of.iter().enumerate().any(|(device, &group)| group == 0 && pinned & (1 << device) != 0) {
        return;
    }
    let used = group_of.iter().filter(|&&group| group > 0).count();
    if instance.max_devices.is_some_and(|most| used > usize::try_from(most).expect("few")) {
        return;
    }
    let mut sets = vec![0; group_of.len() + 1];
    for (device, &group) in group_of.iter().enumerate() {
        sets[group] |= 1 << device;
    }
    let groups: Vec<usize> = sets.into_iter().skip(1).filter(|&set| set != 0).collect();
    let all: Option<Vec<f64>> = groups.iter().map(|&set| rates[set]).collect();
    if let Some(all) = all.filter(|all| !all.is_empty()) {
        let sum = all.iter().sum();
        let kept = &mut best[all.len()];
        if kept.is_none_or(|kept| sum > kept) {
            *kept = Some(sum);
        }
    }
}
